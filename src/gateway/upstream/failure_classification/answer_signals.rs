//! Finds what an answer states: refused, used up, unpaid, or text instead of an image.
//!
//! Upstreams put the same statement into many places: a code, a type, a reason, a sentence, a filter result, an error
//! within an error, an error as text within an error. One pass reads the places that the upstream writes. It skips the
//! places that echo the request, so that no caller can cause a cooldown with the text of a request. A code takes
//! precedence over a sentence, because the meaning of a sentence is only guessed. `code_meaning` has the codes, and
//! `sentences` the sentences.

use serde_json::{Map, Value};

use super::code_meaning::{CodeMeaning, meaning_of};
use super::sentences;
use crate::gateway::upstream::BoundContext;

/// The most levels of nested errors that are read (our choice).
const MAX_DEPTH: u32 = 6;
/// The longest text that is read as a code, in bytes (our choice).
const MAX_CODE_LENGTH: usize = 80;

/// A longer text of a model, in bytes, may carry a picture (our choice): refusals and questions are shorter.
const MAX_TEXT_LENGTH: usize = 10 * 1024;
/// Parts of texts that carry a picture: a data URL, or an image of Markdown.
const PICTURE_PARTS: &[&str] = &["data:image", "!["];

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
    /// The upstream had no capacity to begin, as a code states.
    pub(super) overloaded: bool,
    /// The account may not be used in this way, as a code states.
    pub(super) forbidden: bool,
    /// A picture of the caller cannot be used, as a code states.
    pub(super) picture_fault: bool,
    /// The answer has a picture in another form than the protocol's.
    pub(super) has_picture: bool,
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
    text_declines: bool,
    text_states_inability: bool,
    text_has_address: bool,
    has_account_sentence: bool,
    has_credentials_code: bool,
}

/// The statement of a text in place of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextStatement {
    /// The model declines to draw.
    Refusal,
    /// The model cannot draw here or now; another account may.
    Inability,
    /// There is an address, at which there may be an image.
    Address,
    /// Anything else, such as a question.
    Other,
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

    /// Returns the statement of the text in place of an image, which is not a refusal by [`Self::reads_like_refusal`];
    /// `None` if there is no text. Somebody who misses a tool often begins with "I can't", so that is looked for last.
    pub(super) const fn text_statement(&self) -> Option<TextStatement> {
        match self {
            Self { has_text: false, .. } => None,
            Self { text_states_inability: true, .. } => Some(TextStatement::Inability),
            Self { text_declines: true, .. } => Some(TextStatement::Refusal),
            Self { text_has_address: true, .. } => Some(TextStatement::Address),
            _ => Some(TextStatement::Other),
        }
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
                "images" | "image" | "image_url" | "b64_json" | "inline_data" | "inlineData" => {
                    self.has_picture |= is_filled(value);
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
        let Some(meaning) = meaning_of(&code) else { return };
        self.is_refused |= meaning == CodeMeaning::Refusal;
        if section == AnswerSection::Error {
            self.note_meaning(meaning);
        }
    }

    fn note_meaning(&mut self, meaning: CodeMeaning) {
        match meaning {
            CodeMeaning::Refusal | CodeMeaning::Failure => {}
            CodeMeaning::PictureFault => self.picture_fault = true,
            CodeMeaning::Exhausted => self.exhausted = true,
            CodeMeaning::RateLimit => self.is_rate_limited = true,
            CodeMeaning::Overloaded => self.overloaded = true,
            CodeMeaning::Unfit => self.unfit = true,
            CodeMeaning::Forbidden => self.forbidden = true,
            CodeMeaning::UnknownModel => self.unknown_model = true,
            CodeMeaning::Ciphertext => self.note_bound_context(true, false),
            CodeMeaning::StoredContext => self.note_bound_context(false, true),
            CodeMeaning::Credentials => self.has_credentials_code = true,
            CodeMeaning::InvalidRequest => self.invalid_request = true,
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
        let text = sentences::normalized(text);
        let contains_any = |parts: &[&str]| sentences::has_any(&text, parts);
        self.has_refusal_sentence |= contains_any(sentences::REFUSALS);
        self.has_account_sentence |= contains_any(sentences::ACCOUNTS);
        if section == AnswerSection::Error {
            let contains_all = |parts: [&[&str]; 2]| parts.into_iter().all(contains_any);
            self.note_bound_context(contains_all(sentences::CIPHERTEXT), contains_all(sentences::STORED_CONTEXT));
            self.oversized |= contains_any(sentences::OVERSIZED);
            self.mentions_model |= text.contains("model");
        } else {
            self.has_text |= !text.is_empty();
        }
    }

    /// Reads what a model has written. A text that carries a picture is none.
    fn read_text(&mut self, key: &str, value: &Value) {
        let text = value.as_str().unwrap_or_default();
        self.has_picture |= text.len() > MAX_TEXT_LENGTH || sentences::has_any(text, PICTURE_PARTS);
        if self.has_picture {
            return;
        }
        let text = sentences::normalized(text);
        self.is_refused |= key == "refusal" && !text.is_empty();
        self.has_refusal_sentence |= sentences::has_any(&text, sentences::REFUSALS);
        self.text_declines |= sentences::has_any(&text, sentences::DECLINES);
        self.text_states_inability |= sentences::has_any(&text, sentences::INABILITIES);
        self.text_has_address |= text.contains("://");
        self.has_text |= !text.is_empty();
    }
}

/// True if a member has a value.
fn is_filled(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(members) => !members.is_empty(),
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
