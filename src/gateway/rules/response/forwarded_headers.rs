//! Selects the headers of a response request that are forwarded to the upstream.
//!
//! By these headers, which coding agents send, an upstream recognizes a conversation and finds what it has cached for
//! it. No other header is forwarded, especially not the caller's API key and cookies, nor the account or organization
//! that the client names.

use http::HeaderMap;

use crate::tables::{CONVERSATION_ID_HEADER, ORIGINATOR_HEADER, SESSION_ID_HEADER, THREAD_ID_HEADER};

/// The names of the headers that are forwarded.
const NAMES: &[&str] = &[
    CONVERSATION_ID_HEADER,
    "openai-beta",
    ORIGINATOR_HEADER,
    SESSION_ID_HEADER,
    "session_id",
    THREAD_ID_HEADER,
    "version",
    "x-client-request-id",
];
/// Headers with this prefix are forwarded too.
const PREFIX: &str = "x-codex-";
/// The most bytes of the value of a named header (our choice): they are ids and names of programs. A header with a longer
/// value is not forwarded.
const NAMED_VALUE_MAX: usize = 1024;
/// The most bytes of the value of a header with the prefix (our choice).
const VALUE_MAX: usize = 8 * 1024;
/// The most bytes of the names and values of all forwarded headers together (our choice), so that no caller can cause a
/// request head that upstreams refuse as too large. A header that would exceed this sum is not forwarded.
const ALL_MAX: usize = 16 * 1024;

/// Returns the headers that are forwarded. Of several headers with the same name, only one is forwarded.
pub(super) fn select_forwarded(headers: &HeaderMap) -> HeaderMap {
    let mut selected = HeaderMap::new();
    let mut length = 0;
    for (name, value) in headers {
        let is_named = NAMES.contains(&name.as_str());
        let value_max = if is_named { NAMED_VALUE_MAX } else { VALUE_MAX };
        let is_forwarded = is_named || name.as_str().starts_with(PREFIX);
        let size = name.as_str().len() + value.len();
        if is_forwarded && value.len() <= value_max && length + size <= ALL_MAX && !selected.contains_key(name) {
            length += size;
            selected.insert(name.clone(), value.clone());
        }
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_headers_that_identify_a_conversation_are_forwarded() {
        let mut headers = HeaderMap::new();
        for name in [
            "authorization",
            "cookie",
            "openai-organization",
            "openai-project",
            "chatgpt-account-id",
            "idempotency-key",
            "host",
            "content-length",
            "content-encoding",
            "transfer-encoding",
            "connection",
            "x-forwarded-for",
            "x-stainless-lang",
            "user-agent",
            "accept",
            "expect",
            "session-id",
            "session_id",
            "originator",
            "x-codex-window-id",
            "thread-id",
        ] {
            headers.insert(name, "v".parse().expect("a value"));
        }
        headers.insert("x-codex-turn-metadata", "v".repeat(VALUE_MAX + 1).parse().expect("a value"));
        let selected = select_forwarded(&headers);
        let mut names: Vec<&str> = selected.keys().map(http::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["originator", "session-id", "session_id", "thread-id", "x-codex-window-id"]);
    }
}
