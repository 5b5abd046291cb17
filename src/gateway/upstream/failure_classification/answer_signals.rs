//! Finds what an answer states: refused, used up, unpaid, or text instead of an image.
//!
//! Upstreams put the same statement into many places: a code, a type, a reason, a sentence, a filter result, an error
//! within an error, an error as text within an error. One pass reads the places that the upstream writes. It skips the
//! places that echo the request, so that no caller can cause a cooldown with the text of a request. A code takes
//! precedence over a sentence, because the meaning of a sentence is only guessed. `code_meaning` has the codes,
//! `sentences` the sentences, and `model_text` what models write.

use serde_json::{Map, Value};

use super::code_meaning::{CodeMeaning, meaning_of};
use super::model_text::{self, TextStatement};
use super::sentences;
use crate::gateway::config::FailurePhrases;
use crate::gateway::upstream::BoundContext;

/// The most levels of nested errors that are read (our choice).
const MAX_DEPTH: u32 = 6;
/// The longest text that is read as a code, in bytes (our choice).
const MAX_CODE_LENGTH: usize = 80;

/// The characters within which a sentence about a missing tool stands (our choice).
const MISSING_TOOL_MAX: usize = 120;

/// A longer text of a model, in bytes, may carry a picture (our choice): refusals and questions are shorter.
const MAX_TEXT_LENGTH: usize = 10 * 1024;
/// Parts of texts that carry a picture: a data URL, or an image of Markdown.
const PICTURE_PARTS: &[&str] = &["data:image", "!["];

/// The statements of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AnswerSignals {
    /// The content of the request was refused, as a code or a flag states.
    pub(super) is_refused: bool,
    /// The usage window of the account is used up.
    pub(super) exhausted: bool,
    /// The account is not paid for, or may not make this call.
    pub(super) unpaid: bool,
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
    /// A sentence of the error is about a model.
    pub(super) mentions_model: bool,
    /// A sentence of the error says that the tool for images is missing.
    pub(super) misses_tool: bool,
    /// The first words that the model has written in place of an image.
    pub(super) first_words: Option<String>,
    is_rate_limited: bool,
    has_refusal_sentence: bool,
    text: Option<TextStatement>,
    has_account_sentence: bool,
    has_credentials_code: bool,
    sentence: Option<CodeMeaning>,
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
    /// Reads an answer; `phrases` are those that the operator has added for the account.
    pub(super) fn from_members(members: &Map<String, Value>, phrases: &FailurePhrases) -> Self {
        let mut reader = AnswerReader { signals: Self::default(), phrases };
        reader.read_members(members, AnswerSection::Error, MAX_DEPTH);
        let mut signals = reader.signals;
        // A sentence counts only if no code decides about the account or the request.
        let is_decided = signals.is_account_limit() || signals.overloaded || signals.unknown_model;
        if let Some(meaning) = signals.sentence.filter(|_| !is_decided && !signals.is_refused) {
            signals.note_meaning(meaning);
        }
        signals
    }

    /// True if a limit of the account was reached, so that another account may succeed.
    pub(super) const fn is_account_limit(&self) -> bool {
        self.unpaid || self.exhausted || self.is_rate_limited
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
    /// `None` if there is no text.
    pub(super) const fn text_statement(&self) -> Option<TextStatement> {
        self.text
    }

    const fn note_meaning(&mut self, meaning: CodeMeaning) {
        match meaning {
            CodeMeaning::Refusal | CodeMeaning::Failure => {}
            CodeMeaning::PictureFault => self.picture_fault = true,
            CodeMeaning::Exhausted => self.exhausted = true,
            CodeMeaning::RateLimit => self.is_rate_limited = true,
            CodeMeaning::Overloaded => self.overloaded = true,
            CodeMeaning::Unpaid => self.unpaid = true,
            CodeMeaning::Forbidden => self.forbidden = true,
            CodeMeaning::UnknownModel => self.unknown_model = true,
            CodeMeaning::Ciphertext => self.note_bound_context(true, false),
            CodeMeaning::StoredContext => self.note_bound_context(false, true),
            CodeMeaning::Credentials => self.has_credentials_code = true,
            CodeMeaning::InvalidRequest => self.invalid_request = true,
        }
    }

    const fn note_bound_context(&mut self, is_ciphertext: bool, is_stored: bool) {
        if is_ciphertext {
            self.bound_context = Some(BoundContext::Ciphertext);
        } else if is_stored && self.bound_context.is_none() {
            self.bound_context = Some(BoundContext::Stored);
        }
    }
}

/// Reads the parts of an answer.
struct AnswerReader<'a> {
    signals: AnswerSignals,
    phrases: &'a FailurePhrases,
}

// === impl AnswerReader ===

impl AnswerReader<'_> {
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
                "moderation_details" => {
                    self.signals.is_refused |= value.as_object().is_some_and(|details| !details.is_empty());
                }
                "content_filter_result" | "content_filter_results" => {
                    self.signals.is_refused |= has_blocked_filter(value, depth);
                }
                "images" | "image" | "image_url" | "b64_json" | "inline_data" | "inlineData" => {
                    self.signals.has_picture |= is_filled(value);
                }
                "respect_moderation" => self.signals.is_refused |= *value == Value::Bool(false),
                _ => {}
            }
        }
    }

    fn read_nested(&mut self, value: &Value, section: AnswerSection, depth: u32) {
        let Some(depth) = depth.checked_sub(1) else { return };
        match value {
            Value::Object(members) => self.read_members(members, section, depth),
            Value::Array(values) => {
                for value in values {
                    self.read_nested(value, section, depth);
                }
            }
            _ => {}
        }
    }

    fn read_code(&mut self, value: &Value, section: AnswerSection) {
        let Some(text) = value.as_str().filter(|text| text.len() <= MAX_CODE_LENGTH) else { return };
        let code: String = text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        let Some(meaning) = meaning_of(&code) else { return };
        self.signals.is_refused |= meaning == CodeMeaning::Refusal;
        if section == AnswerSection::Error {
            self.signals.note_meaning(meaning);
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
        if section == AnswerSection::Output {
            // A sentence of the upstream about an item is never told to a caller.
            self.note_statement(text);
            return;
        }
        let text = sentences::normalized(text);
        let contains_any = |parts: &[&str]| sentences::has_any(&text, parts);
        let signals = &mut self.signals;
        signals.has_refusal_sentence |= contains_any(sentences::REFUSALS);
        signals.has_account_sentence |= contains_any(sentences::ACCOUNTS);
        let is_ciphertext = sentences::has_each(&text, sentences::CIPHERTEXT);
        signals.note_bound_context(is_ciphertext, sentences::has_each(&text, sentences::STORED_CONTEXT));
        signals.oversized |= contains_any(sentences::OVERSIZED);
        signals.mentions_model |= text.contains("model") || text.contains("模型");
        signals.is_refused |= has_phrase(&text, &self.phrases.refusals);
        let beginning = sentences::unquoted_beginning(&text);
        // The name of the tool can stand in quotation marks.
        let start: String = text.chars().take(MISSING_TOOL_MAX).collect();
        signals.misses_tool |=
            sentences::has_each(&start, sentences::MISSING_TOOL) && !contains_any(sentences::FOR_NOW);
        let stated = has_phrase(&text, &self.phrases.limits).then_some(CodeMeaning::Exhausted);
        signals.sentence = signals.sentence.or(stated).or_else(|| meaning_of_sentence(&beginning));
    }

    /// Reads what a model has written. A text that carries a picture is none.
    fn read_text(&mut self, key: &str, value: &Value) {
        let text = value.as_str().unwrap_or_default();
        self.signals.has_picture |= text.len() > MAX_TEXT_LENGTH || sentences::has_any(text, PICTURE_PARTS);
        if self.signals.has_picture {
            return;
        }
        self.signals.is_refused |= key == "refusal" && !text.trim().is_empty();
        if let Some(words) = model_text::first_words(text) {
            self.signals.first_words.get_or_insert(words);
            self.note_statement(text);
        }
    }

    fn note_statement(&mut self, text: &str) {
        let signals = &mut self.signals;
        let text = sentences::normalized(text);
        if text.is_empty() {
            return;
        }
        signals.has_refusal_sentence |= sentences::has_any(&text, sentences::REFUSALS);
        signals.is_refused |= has_phrase(&text, &self.phrases.refusals);
        let statement = match has_phrase(&text, &self.phrases.limits) {
            true => TextStatement::Busy,
            false => model_text::statement_of(&text),
        };
        signals.text = signals.text.max(Some(statement));
    }
}

/// True if a normalized text has one of the phrases of an operator.
fn has_phrase(text: &str, phrases: &[String]) -> bool {
    phrases.iter().any(|phrase| text.contains(&sentences::normalized(phrase)))
}

/// Returns the meaning of a sentence that has no code, from its beginning.
fn meaning_of_sentence(beginning: &str) -> Option<CodeMeaning> {
    let lists = [
        (sentences::UNPAID, CodeMeaning::Unpaid),
        (sentences::EXHAUSTED, CodeMeaning::Exhausted),
        (sentences::RATE_LIMITED, CodeMeaning::RateLimit),
        (sentences::OVERLOADED, CodeMeaning::Overloaded),
        (sentences::UNKNOWN_MODELS, CodeMeaning::UnknownModel),
    ];
    let found = lists.into_iter().find(|(parts, _)| sentences::has_any(beginning, parts)).map(|(_, meaning)| meaning);
    let names_model = [sentences::UNKNOWN_NAMED_MODEL, sentences::UNSERVED_MODEL];
    let is_model = names_model.into_iter().any(|lists| sentences::has_each(beginning, lists));
    is_model.then_some(CodeMeaning::UnknownModel).or(found)
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
