//! The details that a service reports about a failure, in any shape.

use std::collections::HashMap;

use serde::de::value::MapDeserializer;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::client::raw_json::Json;
use crate::client::secrets::CallSecrets;
use crate::tables::MAX_JSON_BODY_BYTES;
use crate::wire::types;

/// The members that hold a message, in the order in which they count: services differ in their names.
const MESSAGES: [&str; 6] = ["message", "msg", "error", "detail", "errors", "error_description"];
/// The maximum depth at which a message is looked for (our choice).
const MESSAGE_MAX_DEPTH: usize = 4;
/// The maximum number of characters of a text that stands for a message, such as the page of a proxy (our choice).
const TEXT_MAX_CHARS: usize = 200;

/// The members of an error body. Codes and reasons are plain texts, because a service may have others than this version.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ServiceErrorDetail {
    #[serde(deserialize_with = "read_if_valid")]
    pub(super) message: Option<String>,
    #[serde(deserialize_with = "read_if_valid")]
    pub(super) code: Option<String>,
    #[serde(deserialize_with = "read_if_valid")]
    pub(super) param: Option<String>,
    #[serde(deserialize_with = "read_if_valid")]
    pub(super) reason: Option<String>,
    #[serde(deserialize_with = "read_if_valid")]
    pub(super) limit: Option<String>,
    #[serde(deserialize_with = "read_if_valid")]
    pub(super) limit_scope: Option<String>,
    #[serde(deserialize_with = "read_if_valid")]
    pub(super) limit_value: Option<String>,
    #[serde(deserialize_with = "read_if_valid")]
    pub(super) resets_at: Option<i64>,
    #[serde(deserialize_with = "read_if_valid")]
    pub(super) resets_in_seconds: Option<u64>,
}

// === impl ServiceErrorDetail ===

impl ServiceErrorDetail {
    /// Reads as much as possible from a body that does not match the API document, because it comes from another
    /// service or a proxy.
    pub(super) fn parse(body: &str) -> Self {
        // No service sends an error of this length.
        let is_short = u64::try_from(body.len()).is_ok_and(|length| length <= MAX_JSON_BODY_BYTES);
        let json = is_short.then(|| Json::read_text(body.to_owned()).ok()).flatten();
        // Some services send a list with one error.
        json.map(|body| Self::from_body(body.elements().first().unwrap_or(&body))).unwrap_or_default()
    }

    /// Reads an error whose members are in an object `error` or in the body itself.
    fn from_body(body: &Json) -> Self {
        let detail = match body.member("error") {
            Some(error) if error.text().starts_with('{') => Self::from_members(&error),
            _ => Self::from_members(body),
        };
        let message = detail.message.clone().or_else(|| message_in(body, MESSAGE_MAX_DEPTH));
        let param = detail.param.clone().or_else(|| invalid_field(body));
        Self { message, param, ..detail }
    }

    /// Reads the error event of a stream. The members of the error are in an object `error` or in the event itself;
    /// `error` may also be the message.
    pub(super) fn from_event(event: &Json) -> Self {
        match event.member("error") {
            Some(nested) if nested.text().starts_with('{') => Self::from_members(&nested),
            error => {
                let detail = Self::from_members(event);
                Self { message: error.and_then(|message| message.read()).or(detail.message), ..detail }
            }
        }
    }

    /// Reads the members of an error object. A member of an unexpected type is ignored and does not affect the others. If
    /// a name occurs more than once, the last member counts.
    fn from_members(error: &Json) -> Self {
        let members = serde_json::from_str::<HashMap<String, &RawValue>>(error.text());
        let detail = members.and_then(|members| Self::deserialize(MapDeserializer::new(members.into_iter())));
        detail.unwrap_or_default()
    }

    /// Removes the secrets from every text.
    pub(super) fn redacted(mut self, secrets: &CallSecrets<'_>) -> Self {
        let texts = [&mut self.message, &mut self.code, &mut self.param, &mut self.reason];
        let limits = [&mut self.limit, &mut self.limit_scope, &mut self.limit_value];
        for text in texts.into_iter().chain(limits) {
            *text = text.take().map(|text| secrets.redact(text));
        }
        self
    }
}

/// Reads a member; `None` if it does not have the type.
fn read_if_valid<'de, T: Deserialize<'de>, D: Deserializer<'de>>(member: D) -> Result<Option<T>, D::Error> {
    T::deserialize(member).map(Some).or_else(|_| Ok(None))
}

/// Returns the message in a value: the value itself if it is a text, else that of a member or of all elements.
fn message_in(json: &Json, depth: usize) -> Option<String> {
    if depth == 0 {
        return None;
    }
    let message_of = |json: &Json| message_in(json, depth - 1);
    match json.text().as_bytes().first()? {
        b'"' => json.read::<String>().filter(|text| !text.trim().is_empty()),
        b'[' => {
            let messages: Vec<String> = json.elements().iter().filter_map(message_of).collect();
            (!messages.is_empty()).then(|| messages.join("; "))
        }
        _ => json.members(MESSAGES).iter().flatten().find_map(message_of),
    }
}

/// Returns the field that a list of violations names first, as `FastAPI` writes it:
/// `{"detail": [{"loc": ["body", "n"]}]}`.
fn invalid_field(body: &Json) -> Option<String> {
    body.member("detail")?.elements().first()?.member("loc")?.elements().last()?.read()
}

/// Returns the beginning of a text, with its white space as single spaces; `None` if it says nothing, as `{}` does.
pub(super) fn excerpt(text: &str) -> Option<String> {
    // Four times the length is enough for an excerpt, unless most of the text is white space.
    let head: String = text.chars().take(4 * TEXT_MAX_CHARS).collect();
    let words = head.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = words.char_indices().nth(TEXT_MAX_CHARS).map(|(end, _)| end);
    if words.len() <= 2 {
        return None;
    }
    match end {
        Some(end) => Some(format!("{}…", &words[..end])),
        None => Some(words),
    }
}

impl From<types::ErrorDetail> for ServiceErrorDetail {
    fn from(detail: types::ErrorDetail) -> Self {
        // The type of the document has the same members, and is always JSON.
        Self::from_members(&serde_json::to_value(detail).unwrap_or_default().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_of_an_unexpected_type_does_not_affect_the_others() {
        let detail = ServiceErrorDetail::parse(
            r#"{"error": {"code": 5, "code": "used_up", "message": "no", "param": ["n"], "limit": null, "other": {},
                "limit_value": "\ud800", "resets_at": 1.5, "resets_in_seconds": 7}}"#,
        );
        assert_eq!((detail.code.as_deref(), detail.message.as_deref()), (Some("used_up"), Some("no")));
        assert_eq!((detail.param, detail.limit, detail.limit_value), (None, None, None));
        assert_eq!((detail.resets_at, detail.resets_in_seconds), (None, Some(7)));
        // A list is no object with members in this order.
        assert_eq!(ServiceErrorDetail::parse(r#"{"error": ["no", "used_up"]}"#).code, None);
    }
}
