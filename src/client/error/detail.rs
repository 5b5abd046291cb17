//! The details that a service reports about a failure, in any shape.

use serde_json::Value;

use crate::tables::MAX_JSON_BODY_BYTES;
use crate::wire::types;

/// The members of an error body. Codes and reasons are plain texts, because a service may have others than this version.
#[derive(Default)]
pub(super) struct ServiceErrorDetail {
    pub(super) message: Option<String>,
    pub(super) code: Option<String>,
    pub(super) param: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) resets_in_seconds: Option<u64>,
}

// === impl ServiceErrorDetail ===

impl ServiceErrorDetail {
    /// Reads as much as possible from a body that does not match the API document, because it comes from another
    /// service or a proxy.
    pub(super) fn parse(body: &[u8]) -> Self {
        // A longer body is cut and then fails to parse; no service sends such a long error.
        let body = body.get(..usize::try_from(MAX_JSON_BODY_BYTES).unwrap_or(usize::MAX)).unwrap_or(body);
        serde_json::from_slice::<Value>(body)
            .map_or_else(|_| Self::default(), |body| Self::from_members(&body["error"]))
    }

    /// Reads the error event of a stream. The members of the error are in an object `error` or in the event itself;
    /// `error` may also be the message.
    pub(super) fn from_event(frame: &Value) -> Self {
        match &frame["error"] {
            nested @ Value::Object(_) => Self::from_members(nested),
            Value::String(message) => Self { message: Some(message.clone()), ..Self::from_members(frame) },
            _ => Self::from_members(frame),
        }
    }

    /// Reads the members of an error object. A member of an unexpected type is ignored and does not affect the others.
    fn from_members(error: &Value) -> Self {
        let text = |name: &str| error[name].as_str().map(str::to_owned);
        Self {
            message: text("message"),
            code: text("code"),
            param: text("param"),
            reason: text("reason"),
            resets_in_seconds: error["resets_in_seconds"].as_u64(),
        }
    }
}

impl From<types::ErrorDetail> for ServiceErrorDetail {
    fn from(detail: types::ErrorDetail) -> Self {
        Self {
            message: Some(detail.message),
            code: detail.code.map(|code| code.to_string()),
            param: detail.param,
            reason: detail.reason.map(|reason| reason.to_string()),
            resets_in_seconds: detail.resets_in_seconds,
        }
    }
}
