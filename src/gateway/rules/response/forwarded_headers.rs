//! Selects the headers of an agent that go upstream.
//!
//! Upstreams tell conversations apart by them, and cache by that. Every header that is not named here stays, above all
//! the caller's key, its cookies, and the account or organization that it believes to be using.

use http::HeaderMap;

/// The headers that are passed on.
const NAMES: &[&str] = &[
    "conversation_id",
    "openai-beta",
    "originator",
    "session-id",
    "session_id",
    "thread-id",
    "version",
    "x-client-request-id",
];
const PREFIX: &str = "x-codex-";
/// The most bytes of a value. A longer one does not name a conversation.
const VALUE_MAX: usize = 8 * 1024;
/// The most bytes of all of them together, so that no caller can make a head that upstreams refuse.
const ALL_MAX: usize = 16 * 1024;

/// Returns the headers that go upstream, once each.
pub(super) fn select_forwarded(headers: &HeaderMap) -> HeaderMap {
    let mut selected = HeaderMap::new();
    let mut length = 0;
    for (name, value) in headers {
        let known = NAMES.contains(&name.as_str()) || name.as_str().starts_with(PREFIX);
        let size = name.as_str().len() + value.len();
        if known && value.len() <= VALUE_MAX && length + size <= ALL_MAX && !selected.contains_key(name) {
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
    fn only_what_tells_a_conversation_apart_goes_upstream() {
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
