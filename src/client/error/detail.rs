//! The details that a service reports about a failure, in any shape.

use crate::client::raw_json::Json;
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
        let json = Json::read_text(String::from_utf8_lossy(body).into_owned()).ok();
        json.and_then(|body| body.member("error")).map(|error| Self::from_members(&error)).unwrap_or_default()
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

    /// Reads the members of an error object. A member of an unexpected type is ignored and does not affect the others.
    fn from_members(error: &Json) -> Self {
        let names = ["message", "code", "param", "reason", "resets_in_seconds"];
        let [message, code, param, reason, resets_in_seconds] = error.members(names);
        let text = |member: Option<Json>| member.and_then(|text| text.read::<String>());
        Self {
            message: text(message),
            code: text(code),
            param: text(param),
            reason: text(reason),
            resets_in_seconds: resets_in_seconds.and_then(|seconds| seconds.read()),
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
