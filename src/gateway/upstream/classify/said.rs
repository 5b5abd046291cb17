//! Finds the statements of an answer, wherever they are: refused, used up, unpaid, or text instead of an image.
//!
//! Upstreams put the same statement into many places: a code, a type, a reason, a sentence, a filter result, an error
//! within an error, an error as text within an error. One walk reads the places that the upstream writes. It skips
//! those that echo the request, so that no caller can cause a cooldown with the text of a request. A code decides
//! before a sentence, because the meaning of a sentence is guessed.

use serde_json::{Map, Value};

/// The most levels of nested errors that are read.
const DEPTH_MAX: u32 = 6;
/// The longest code; a code has no spaces.
const WORD_MAX: usize = 80;

/// Refusals by content policy, in `code`, `type`, `reason`, `status` or `finish_reason`: letters and digits only.
const REFUSED: &[&str] = &[
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
const REFUSED_WITHIN: &[&str] = &[
    "contentpolicy",
    "contentfilter",
    "responsibleai",
    "safetyviolation",
    "sensitivecontent",
    "sensitiveword",
    "unsafegeneration",
];
/// Sentences of refusals, used if the code does not decide.
const REFUSED_SENTENCES: &[&str] = &[
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
const EXHAUSTED: &[&str] = &["usagelimitreached", "usagelimitexceeded"];
/// Codes for too many requests.
const LIMITED: &[&str] =
    &["ratelimitexceeded", "ratelimiterror", "ratelimitreached", "toomanyrequests", "resourceexhausted"];
/// Codes for an account that is not paid for or may not do this: no window that opens again by itself.
const UNFIT: &[&str] = &[
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
const UNKNOWN_MODEL: &[&str] = &["deploymentnotfound", "modelnotfound"];
/// Codes for refused credentials.
const CREDENTIALS: &[&str] = &["invalidapikey", "invalidauthentication", "authenticationerror", "incorrectapikey"];
/// Codes for a wrong request, in `code` or `type`.
const INVALID_REQUEST: &[&str] = &[
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
    pub(super) refused: bool,
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
    pub(super) text: bool,
    /// A sentence of the error is about a model.
    pub(super) model: bool,
    limited: bool,
    sentence: bool,
    of_account: bool,
    credentials: bool,
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
    pub(super) fn of(members: &Map<String, Value>) -> Self {
        let mut said = Self::default();
        said.walk(members, AnswerSection::Error, DEPTH_MAX);
        said
    }

    /// True if the statement is about the account, so that another one may succeed.
    pub(super) const fn is_of_account(&self) -> bool {
        self.unfit || self.exhausted || self.limited
    }

    /// True if the text is about the account or its credentials.
    pub(super) const fn speaks_of_account(&self) -> bool {
        self.of_account || self.credentials
    }

    /// True if a sentence reads like a refusal of the content.
    pub(super) const fn reads_refused(&self) -> bool {
        self.sentence && !self.of_account
    }

    fn walk(&mut self, members: &Map<String, Value>, place: AnswerSection, depth: u32) {
        for (key, value) in members {
            match key.as_str() {
                "code" | "type" | "reason" | "status" | "finish_reason" | "finishReason" => self.word(value, place),
                "message" | "detail" | "error" | "msg" if value.is_string() => self.message(value, place, depth),
                "text" | "output_text" | "content" | "refusal" if value.is_string() => self.text(key, value),
                "error" | "errors" | "detail" | "details" | "innererror" | "inner_error" | "incomplete_details"
                | "response" => self.nested(value, place, depth),
                "data" | "output" | "content" | "choices" | "message" => {
                    self.nested(value, AnswerSection::Output, depth);
                }
                "moderation_details" => self.refused |= value.as_object().is_some_and(|details| !details.is_empty()),
                "content_filter_result" | "content_filter_results" => self.refused |= filtered(value, depth),
                "respect_moderation" => self.refused |= *value == Value::Bool(false),
                _ => {}
            }
        }
    }

    fn nested(&mut self, value: &Value, place: AnswerSection, depth: u32) {
        let Some(depth) = depth.checked_sub(1) else { return };
        match value {
            Value::Object(members) => self.walk(members, place, depth),
            Value::Array(values) => values.iter().for_each(|value| self.nested(value, place, depth)),
            _ => {}
        }
    }

    fn word(&mut self, value: &Value, place: AnswerSection) {
        let Some(text) = value.as_str().filter(|text| text.len() <= WORD_MAX) else { return };
        let word: String = text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        let is = |words: &[&str]| words.contains(&word.as_str());
        self.refused |= is(REFUSED) || REFUSED_WITHIN.iter().any(|part| word.contains(part));
        if place == AnswerSection::Error {
            self.exhausted |= is(EXHAUSTED);
            self.limited |= is(LIMITED);
            self.unfit |= is(UNFIT);
            self.unknown_model |= is(UNKNOWN_MODEL);
            self.credentials |= is(CREDENTIALS);
            self.invalid_request |= is(INVALID_REQUEST);
        }
    }

    /// Reads a sentence of the upstream, a code in place of a sentence, or an error that was wrapped as text.
    fn message(&mut self, value: &Value, place: AnswerSection, depth: u32) {
        let text = value.as_str().unwrap_or_default().trim();
        if !text.contains(char::is_whitespace) {
            self.word(value, place);
        }
        if text.starts_with('{')
            && let Ok(wrapped) = serde_json::from_str(text)
        {
            self.nested(&wrapped, place, depth);
            return;
        }
        let low = text.to_lowercase();
        let has = |sentences: &[&str]| sentences.iter().any(|sentence| low.contains(sentence));
        self.sentence |= has(REFUSED_SENTENCES);
        self.of_account |= has(ACCOUNT_SENTENCES);
        self.oversized |= place == AnswerSection::Error && has(OVERSIZED_SENTENCES);
        self.model |= place == AnswerSection::Error && low.contains("model");
        self.text |= place == AnswerSection::Output && !low.is_empty();
    }

    fn text(&mut self, key: &str, value: &Value) {
        let low = value.as_str().unwrap_or_default().trim().to_lowercase();
        let has = |sentences: &[&str]| sentences.iter().any(|sentence| low.contains(sentence));
        self.refused |= key == "refusal" && !low.is_empty();
        self.sentence |= has(REFUSED_SENTENCES) || has(DECLINED_SENTENCES);
        self.text |= !low.is_empty();
    }
}

/// True if a filter result has blocked something.
fn filtered(value: &Value, depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let Some(members) = value.as_object() else { return false };
    members.iter().any(|(key, value)| (key == "filtered" && *value == Value::Bool(true)) || filtered(value, depth))
}
