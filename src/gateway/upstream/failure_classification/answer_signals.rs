//! Finds what an answer states: refused, used up, unpaid, or text instead of an image.
//!
//! Upstreams put the same statement into many places: a code, a type, a reason, a sentence, a filter result, an error
//! within an error, an error as text within an error. One pass reads the places that the upstream writes. It skips the
//! places that echo the request, so that no caller can cause a cooldown with the text of a request. A code takes
//! precedence over a sentence, because the meaning of a sentence is only guessed.

use serde_json::{Map, Value};

use crate::gateway::upstream::BoundContext;

/// The most levels of nested errors that are read (our choice).
const MAX_DEPTH: u32 = 6;
/// The longest text that is read as a code, in bytes (our choice).
const MAX_CODE_LENGTH: usize = 80;

/// Codes of refusals by content policy, in `code`, `type`, `reason`, `status` or `finish_reason`. All codes here are in
/// lower case and without separators.
const REFUSAL_CODES: &[&str] = &[
    "blocklist",
    "contentblocked",
    "contentmoderation",
    "contentrefused",
    "contentviolation",
    "datainspectionfailed",
    "imageprohibitedcontent",
    "imagesafety",
    "inputmoderation",
    "invalidprompt",
    "moderationblocked",
    "nsfwcontent",
    "outputmoderation",
    "promptblocked",
    "promptrejected",
    "prohibitedcontent",
    "refusal",
    "safety",
    "usagepolicyviolation",
];
/// Parts of codes of refusals.
const REFUSAL_CODE_PARTS: &[&str] = &[
    "contentpolicy",
    "contentfilter",
    "responsibleai",
    "safetyviolation",
    "sensitivecontent",
    "sensitiveword",
    "unsafegeneration",
];
/// Parts of sentences that refuse, used if no code decides.
const REFUSAL_SENTENCES: &[&str] = &[
    "safety system",
    "safety_violations",
    "safety policy",
    "content policy",
    "content policies",
    "content management policy",
    "content moderation",
    "content filter",
    "moderation system",
    "usage policies",
    "usage policy",
    "our policies",
    "our guardrails",
    "sensitive words",
    "sensitive_words",
    "sensitive information",
    "inappropriate content",
    "nsfw",
];
/// Parts of sentences with which a model declines to draw.
const DECLINED_SENTENCES: &[&str] = &[
    "i can't",
    "i can’t",
    "i cannot",
    "i'm unable",
    "i’m unable",
    "i am unable",
    "i'm not able",
    "i’m not able",
    "i won't",
    "i won’t",
    "unable to create",
    "unable to generate",
    "unable to help",
    "guidelines",
];
/// Parts of sentences about the account.
const ACCOUNT_SENTENCES: &[&str] = &[
    "your account",
    "this account",
    "your access",
    "your project",
    "your subscription",
    "your resource",
    "organization",
    "api key",
    "suspended",
    "deactivated",
    "terminated",
    "banned",
];

/// Codes for a used-up usage window.
const EXHAUSTED_CODES: &[&str] = &["usagelimitreached", "usagelimitexceeded"];
/// Codes for too many requests.
const RATE_LIMIT_CODES: &[&str] =
    &["ratelimitexceeded", "ratelimiterror", "ratelimitreached", "toomanyrequests", "resourceexhausted"];
/// Codes for an account that is not paid for or may not make this call: waiting does not help.
const UNFIT_CODES: &[&str] = &[
    "accountdeactivated",
    "billinghardlimitreached",
    "billinglimitusererror",
    "billingnotactive",
    "creditbalancetoolow",
    "deactivatedworkspace",
    "insufficientbalance",
    "insufficientquota",
    "insufficientuserquota",
    "organizationdeactivated",
    "preconsumetokenquotafailed",
    "unsupportedcountryregionterritory",
    "usagenotincluded",
];

/// Codes for a model that the upstream does not know, or does not offer to this account.
const UNKNOWN_MODEL_CODES: &[&str] = &["deploymentnotfound", "modelnotfound"];
/// Codes for encrypted content that the account cannot read.
const CIPHERTEXT_CODES: &[&str] = &["invalidencryptedcontent"];
/// Codes for stored context that the account does not have.
const STORED_CONTEXT_CODES: &[&str] = &["previousresponsenotfound"];
/// Parts of sentences about encrypted content that the account cannot read: one of the first and one of the second list.
const CIPHERTEXT_SENTENCES: [&[&str]; 2] = [
    &["encrypted content", "encrypted_content"],
    &["could not be", "cannot be", "did not match", "does not match", "decrypt", "not verified"],
];
/// Parts of sentences about stored context that the account does not have.
const STORED_CONTEXT_SENTENCES: [&[&str]; 2] =
    [&["previous response", " with id "], &["not found", "does not exist", "no longer exists"]];
/// Codes for refused credentials.
const CREDENTIAL_CODES: &[&str] = &["invalidapikey", "invalidauthentication", "authenticationerror", "incorrectapikey"];
/// Codes for a wrong request, in `code` or `type`.
const INVALID_REQUEST_CODES: &[&str] = &[
    "badrequest",
    "badrequesterror",
    "invalidargument",
    "invalidinput",
    "invalidparameter",
    "invalidrequest",
    "invalidrequesterror",
    "invalidvalue",
    "unprocessableentity",
    "unprocessableentityerror",
    "validationerror",
];
/// Parts of sentences about a request that alone exceeds the whole window of the limit: waiting does not help, and
/// other requests are not limited.
const OVERSIZED_SENTENCES: &[&str] = &["request too large", "must be reduced"];

/// The statements of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AnswerSignals {
    /// The content of the request was refused, as a code or a flag states.
    pub(super) is_refused: bool,
    /// The usage window of the account is used up.
    pub(super) exhausted: bool,
    /// The account is not paid for, or may not make this call.
    pub(super) unfit: bool,
    /// The model is unknown, or not available to this account.
    pub(super) unknown_model: bool,
    /// The request has context that belongs to another account.
    pub(super) bound_context: Option<BoundContext>,
    /// The request is invalid, as a code states.
    pub(super) invalid_request: bool,
    /// The request alone exceeds a limit.
    pub(super) oversized: bool,
    /// The model has answered with text instead of an image.
    pub(super) has_text: bool,
    /// A sentence of the error is about a model.
    pub(super) mentions_model: bool,
    is_rate_limited: bool,
    has_refusal_sentence: bool,
    has_account_sentence: bool,
    has_credentials_code: bool,
}

/// The author of a part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerSection {
    /// The upstream, which makes statements about the request and the account.
    Error,
    /// The model, which makes no statement about an account.
    Output,
}

// === impl AnswerSignals ===

impl AnswerSignals {
    pub(super) fn from_members(members: &Map<String, Value>) -> Self {
        let mut signals = Self::default();
        signals.read_members(members, AnswerSection::Error, MAX_DEPTH);
        signals
    }

    /// True if a limit of the account was reached, so that another account may succeed.
    pub(super) const fn is_account_limit(&self) -> bool {
        self.unfit || self.exhausted || self.is_rate_limited
    }

    /// True if the text is about the account or its credentials.
    pub(super) const fn mentions_account(&self) -> bool {
        self.has_account_sentence || self.has_credentials_code
    }

    /// True if a sentence reads like a refusal of the content.
    pub(super) const fn reads_like_refusal(&self) -> bool {
        self.has_refusal_sentence && !self.has_account_sentence
    }

    fn read_members(&mut self, members: &Map<String, Value>, section: AnswerSection, depth: u32) {
        for (key, value) in members {
            match key.as_str() {
                "code" | "type" | "reason" | "status" | "finish_reason" | "finishReason" => {
                    self.read_code(value, section);
                }
                "message" | "detail" | "error" | "msg" if value.is_string() => self.read_message(value, section, depth),
                "text" | "output_text" | "content" | "refusal" if value.is_string() => self.read_text(key, value),
                "error" | "errors" | "detail" | "details" | "innererror" | "inner_error" | "incomplete_details"
                | "response" => self.read_nested(value, section, depth),
                "data" | "output" | "content" | "choices" | "message" => {
                    self.read_nested(value, AnswerSection::Output, depth);
                }
                "moderation_details" => self.is_refused |= value.as_object().is_some_and(|details| !details.is_empty()),
                "content_filter_result" | "content_filter_results" => {
                    self.is_refused |= has_blocked_filter(value, depth);
                }
                "respect_moderation" => self.is_refused |= *value == Value::Bool(false),
                _ => {}
            }
        }
    }

    fn read_nested(&mut self, value: &Value, section: AnswerSection, depth: u32) {
        let Some(depth) = depth.checked_sub(1) else { return };
        match value {
            Value::Object(members) => self.read_members(members, section, depth),
            Value::Array(values) => values.iter().for_each(|value| self.read_nested(value, section, depth)),
            _ => {}
        }
    }

    fn read_code(&mut self, value: &Value, section: AnswerSection) {
        let Some(text) = value.as_str().filter(|text| text.len() <= MAX_CODE_LENGTH) else { return };
        let code: String = text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        let is_any = |codes: &[&str]| codes.contains(&code.as_str());
        self.is_refused |= is_any(REFUSAL_CODES) || REFUSAL_CODE_PARTS.iter().any(|part| code.contains(part));
        if section == AnswerSection::Error {
            self.exhausted |= is_any(EXHAUSTED_CODES);
            self.is_rate_limited |= is_any(RATE_LIMIT_CODES);
            self.unfit |= is_any(UNFIT_CODES);
            self.unknown_model |= is_any(UNKNOWN_MODEL_CODES);
            self.note_bound_context(is_any(CIPHERTEXT_CODES), is_any(STORED_CONTEXT_CODES));
            self.has_credentials_code |= is_any(CREDENTIAL_CODES);
            self.invalid_request |= is_any(INVALID_REQUEST_CODES);
        }
    }

    fn note_bound_context(&mut self, is_ciphertext: bool, is_stored: bool) {
        if is_ciphertext {
            self.bound_context = Some(BoundContext::Ciphertext);
        } else if is_stored {
            self.bound_context.get_or_insert(BoundContext::Stored);
        }
    }

    /// Reads a sentence of the upstream, a code in place of a sentence, or an error as JSON in a text.
    fn read_message(&mut self, value: &Value, section: AnswerSection, depth: u32) {
        let text = value.as_str().unwrap_or_default().trim();
        if !text.contains(char::is_whitespace) {
            self.read_code(value, section);
        }
        if text.starts_with('{')
            && let Ok(wrapped) = serde_json::from_str(text)
        {
            self.read_nested(&wrapped, section, depth);
            return;
        }
        let lowercase = text.to_lowercase();
        let contains_any = |sentences: &[&str]| sentences.iter().any(|sentence| lowercase.contains(sentence));
        self.has_refusal_sentence |= contains_any(REFUSAL_SENTENCES);
        self.has_account_sentence |= contains_any(ACCOUNT_SENTENCES);
        self.oversized |= section == AnswerSection::Error && contains_any(OVERSIZED_SENTENCES);
        if section == AnswerSection::Error {
            let contains_all = |parts: [&[&str]; 2]| parts.into_iter().all(contains_any);
            self.note_bound_context(contains_all(CIPHERTEXT_SENTENCES), contains_all(STORED_CONTEXT_SENTENCES));
        }
        self.mentions_model |= section == AnswerSection::Error && lowercase.contains("model");
        self.has_text |= section == AnswerSection::Output && !lowercase.is_empty();
    }

    fn read_text(&mut self, key: &str, value: &Value) {
        let lowercase = value.as_str().unwrap_or_default().trim().to_lowercase();
        let contains_any = |sentences: &[&str]| sentences.iter().any(|sentence| lowercase.contains(sentence));
        self.is_refused |= key == "refusal" && !lowercase.is_empty();
        self.has_refusal_sentence |= contains_any(REFUSAL_SENTENCES) || contains_any(DECLINED_SENTENCES);
        self.has_text |= !lowercase.is_empty();
    }
}

/// True if a filter result has blocked something.
fn has_blocked_filter(value: &Value, depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let Some(members) = value.as_object() else { return false };
    members
        .iter()
        .any(|(key, value)| (key == "filtered" && *value == Value::Bool(true)) || has_blocked_filter(value, depth))
}
