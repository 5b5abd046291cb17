//! Finds the statements of an answer, wherever they are: refused, used up, unpaid, or text instead of an image.
//!
//! Upstreams put the same statement into many places: a code, a type, a reason, a sentence, a filter result, an error
//! within an error, an error as text within an error. One walk reads the places that the upstream writes. It skips
//! those that echo the request, so that no caller can cause a cooldown with the text of a request. A code decides
//! before a sentence, because the meaning of a sentence is guessed.

use serde_json::{Map, Value};

/// The most levels of nested errors that are read.
const MAX_DEPTH: u32 = 6;
/// The longest code; a code has no spaces.
const MAX_CODE_LENGTH: usize = 80;

/// Refusals by content policy, in `code`, `type`, `reason`, `status` or `finish_reason`: letters and digits only.
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
/// Parts of codes that are refusals.
const REFUSAL_CODE_PARTS: &[&str] = &[
    "contentpolicy",
    "contentfilter",
    "responsibleai",
    "safetyviolation",
    "sensitivecontent",
    "sensitiveword",
    "unsafegeneration",
];
/// Sentences of refusals, used if the code does not decide.
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
/// Sentences of a model that declines to draw.
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
/// Sentences about the account, whatever else they mention.
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
/// Codes for an account that is not paid for or may not do this: no window that opens again by itself.
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
/// Sentences for a request that alone exceeds the whole window of the limit: waiting does not help, and other requests
/// are not limited.
const OVERSIZED_SENTENCES: &[&str] = &["request too large", "must be reduced"];

/// The statements of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AnswerSignals {
    /// The request was refused, by an unambiguous word or mark.
    pub(super) is_refused: bool,
    /// The usage window of the account is used up.
    pub(super) exhausted: bool,
    /// The account may not do this.
    pub(super) unfit: bool,
    /// The model is unknown, or not available to this account.
    pub(super) unknown_model: bool,
    /// The request is wrong, by a code.
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
    /// The upstream, about the request.
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

    /// True if the statement is about the account, so that another one may succeed.
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
        let word: String = text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        let is = |words: &[&str]| words.contains(&word.as_str());
        self.is_refused |= is(REFUSAL_CODES) || REFUSAL_CODE_PARTS.iter().any(|part| word.contains(part));
        if section == AnswerSection::Error {
            self.exhausted |= is(EXHAUSTED_CODES);
            self.is_rate_limited |= is(RATE_LIMIT_CODES);
            self.unfit |= is(UNFIT_CODES);
            self.unknown_model |= is(UNKNOWN_MODEL_CODES);
            self.has_credentials_code |= is(CREDENTIAL_CODES);
            self.invalid_request |= is(INVALID_REQUEST_CODES);
        }
    }

    /// Reads a sentence of the upstream, a code in place of a sentence, or an error that was wrapped as text.
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
        let low = text.to_lowercase();
        let has = |sentences: &[&str]| sentences.iter().any(|sentence| low.contains(sentence));
        self.has_refusal_sentence |= has(REFUSAL_SENTENCES);
        self.has_account_sentence |= has(ACCOUNT_SENTENCES);
        self.oversized |= section == AnswerSection::Error && has(OVERSIZED_SENTENCES);
        self.mentions_model |= section == AnswerSection::Error && low.contains("model");
        self.has_text |= section == AnswerSection::Output && !low.is_empty();
    }

    fn read_text(&mut self, key: &str, value: &Value) {
        let low = value.as_str().unwrap_or_default().trim().to_lowercase();
        let has = |sentences: &[&str]| sentences.iter().any(|sentence| low.contains(sentence));
        self.is_refused |= key == "refusal" && !low.is_empty();
        self.has_refusal_sentence |= has(REFUSAL_SENTENCES) || has(DECLINED_SENTENCES);
        self.has_text |= !low.is_empty();
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
