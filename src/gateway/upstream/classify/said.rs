//! What an answer says, wherever in it it stands: refused, used up, unpaid, or words where an image should be.
//!
//! Upstreams put the same statement into a dozen places: a code, a type, a reason, a sentence, a filter's verdict, an error
//! within an error, an error as text within an error. One walk looks at the places that are the upstream's own; what echoes
//! the request is not looked at, so that no caller can put words into an upstream's mouth and rest an account with them.
//! A code decides before a sentence, for sentences are guessed at.

use serde_json::{Map, Value};

/// Errors within errors end somewhere.
const DEPTH_MAX: u32 = 6;
/// A code is short and has no spaces.
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
/// Refusals by what stands within their word.
const REFUSED_WITHIN: &[&str] = &[
    "contentpolicy",
    "contentfilter",
    "responsibleai",
    "safetyviolation",
    "sensitivecontent",
    "sensitiveword",
    "unsafegeneration",
];
/// Sentences of refusals, where the code is none.
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
/// What a model says instead of drawing.
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
/// A sentence about the account is about the account, whatever else it mentions.
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

/// The usage window is used up.
const EXHAUSTED: &[&str] = &["usagelimitreached", "usagelimitexceeded"];
/// Too many requests right now.
const LIMITED: &[&str] =
    &["ratelimitexceeded", "ratelimiterror", "ratelimitreached", "toomanyrequests", "resourceexhausted"];
/// The account is not paid for, or may not do this: no window that opens again by itself.
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

/// The upstream does not know the model, or does not offer it to this account.
const UNKNOWN_MODEL: &[&str] = &["deploymentnotfound", "modelnotfound"];
/// The credentials were refused.
const CREDENTIALS: &[&str] = &["invalidapikey", "invalidauthentication", "authenticationerror", "incorrectapikey"];
/// The request is wrong, in `code` or `type`.
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
/// The request alone is larger than the whole window of the limit: waiting does not help, and other requests are not
/// limited.
const OVERSIZED_SENTENCES: &[&str] = &["request too large", "must be reduced"];

/// What an answer says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// Refused, by a word or a mark that nothing else has.
    pub(super) refused: bool,
    /// The usage window of the account is used up.
    pub(super) exhausted: bool,
    /// The account may not do this.
    pub(super) unfit: bool,
    /// The model is unknown, or not available to this account.
    pub(super) unknown_model: bool,
    /// The request is wrong, by a word.
    pub(super) invalid_request: bool,
    /// The request alone exceeds a limit.
    pub(super) oversized: bool,
    /// A model's words where an image should be.
    pub(super) text: bool,
    /// A sentence of the error is about a model.
    pub(super) model: bool,
    limited: bool,
    sentence: bool,
    of_account: bool,
    credentials: bool,
}

/// Whose words stand in a part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The upstream's, about the request.
    Error,
    /// The model's: no statement about an account.
    Output,
}

// === impl Said ===

impl Said {
    pub(super) fn of(members: &Map<String, Value>) -> Self {
        let mut said = Self::default();
        said.walk(members, Place::Error, DEPTH_MAX);
        said
    }

    /// Whether it is about the account, so that another may do better.
    pub(super) const fn is_of_account(&self) -> bool {
        self.unfit || self.exhausted || self.limited
    }

    /// True if the words are about the account or its credentials.
    pub(super) const fn speaks_of_account(&self) -> bool {
        self.of_account || self.credentials
    }

    /// Whether a sentence reads like a refusal of the content.
    pub(super) const fn reads_refused(&self) -> bool {
        self.sentence && !self.of_account
    }

    fn walk(&mut self, members: &Map<String, Value>, place: Place, depth: u32) {
        for (key, value) in members {
            match key.as_str() {
                "code" | "type" | "reason" | "status" | "finish_reason" | "finishReason" => self.word(value, place),
                "message" | "detail" | "error" | "msg" if value.is_string() => self.message(value, place, depth),
                "text" | "output_text" | "content" | "refusal" if value.is_string() => self.text(key, value),
                "error" | "errors" | "detail" | "details" | "innererror" | "inner_error" | "incomplete_details"
                | "response" => self.nested(value, place, depth),
                "data" | "output" | "content" | "choices" | "message" => self.nested(value, Place::Output, depth),
                "moderation_details" => self.refused |= value.as_object().is_some_and(|details| !details.is_empty()),
                "content_filter_result" | "content_filter_results" => self.refused |= filtered(value, depth),
                "respect_moderation" => self.refused |= *value == Value::Bool(false),
                _ => {}
            }
        }
    }

    fn nested(&mut self, value: &Value, place: Place, depth: u32) {
        let Some(depth) = depth.checked_sub(1) else { return };
        match value {
            Value::Object(members) => self.walk(members, place, depth),
            Value::Array(values) => values.iter().for_each(|value| self.nested(value, place, depth)),
            _ => {}
        }
    }

    fn word(&mut self, value: &Value, place: Place) {
        let Some(text) = value.as_str().filter(|text| text.len() <= WORD_MAX) else { return };
        let word: String = text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        let is = |words: &[&str]| words.contains(&word.as_str());
        self.refused |= is(REFUSED) || REFUSED_WITHIN.iter().any(|part| word.contains(part));
        if place == Place::Error {
            self.exhausted |= is(EXHAUSTED);
            self.limited |= is(LIMITED);
            self.unfit |= is(UNFIT);
            self.unknown_model |= is(UNKNOWN_MODEL);
            self.credentials |= is(CREDENTIALS);
            self.invalid_request |= is(INVALID_REQUEST);
        }
    }

    /// A sentence of the upstream, a bare code in its place, or an error that was wrapped as text.
    fn message(&mut self, value: &Value, place: Place, depth: u32) {
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
        self.oversized |= place == Place::Error && has(OVERSIZED_SENTENCES);
        self.model |= place == Place::Error && low.contains("model");
        self.text |= place == Place::Output && !low.is_empty();
    }

    fn text(&mut self, key: &str, value: &Value) {
        let low = value.as_str().unwrap_or_default().trim().to_lowercase();
        let has = |sentences: &[&str]| sentences.iter().any(|sentence| low.contains(sentence));
        self.refused |= key == "refusal" && !low.is_empty();
        self.sentence |= has(REFUSED_SENTENCES) || has(DECLINED_SENTENCES);
        self.text |= !low.is_empty();
    }
}

/// A filter's verdict has held something back.
fn filtered(value: &Value, depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let Some(members) = value.as_object() else { return false };
    members.iter().any(|(key, value)| (key == "filtered" && *value == Value::Bool(true)) || filtered(value, depth))
}
