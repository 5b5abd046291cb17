//! Identifies the sender of a request as far as the handling depends on it: a coding agent, and its conversation.

use http::HeaderMap;
use http::header::USER_AGENT;

/// The beginning of the names that the official agents give themselves, in upper or lower case.
const FAMILY: &[u8] = b"codex";
/// The header in which an agent names its program of the family.
const ORIGINATOR: &str = "originator";
/// The headers that name a conversation, newer spelling first.
const SESSION: [&str; 2] = ["session-id", "session_id"];

/// True if an official coding agent sends this request.
pub(super) fn is_official(headers: &HeaderMap) -> bool {
    let names = [headers.get(ORIGINATOR), headers.get(USER_AGENT)];
    names.into_iter().flatten().any(|name| {
        let start = name.as_bytes().get(..FAMILY.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(FAMILY))
    })
}

/// Returns the name of the conversation.
pub(super) fn conversation(headers: &HeaderMap) -> Option<&[u8]> {
    let named = SESSION.into_iter().filter_map(|name| headers.get(name)).map(http::HeaderValue::as_bytes);
    named.into_iter().find(|session| !session.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).parse().expect("a name"), value.parse().expect("a value"))).collect()
    }

    #[test]
    fn official_agents_say_who_they_are_in_one_of_two_places() {
        for official in [
            ("originator", "codex_exec"),
            ("originator", "Codex Desktop"),
            ("user-agent", "codex_cli_rs/0.125.0 (Debian 12.0.0; x86_64)"),
            ("user-agent", "Codex/1"),
        ] {
            assert!(is_official(&headers(&[official])), "{official:?}");
        }
        for other in [("originator", "my_codex"), ("user-agent", "OpenAI/Python 2.0"), ("x-codex-window-id", "codex")] {
            assert!(!is_official(&headers(&[other])), "{other:?}");
        }
        assert!(is_official(&headers(&[("originator", "mine"), ("user-agent", "codex_exec/0.169.0")])));
    }

    #[test]
    fn a_conversation_has_its_name_in_either_spelling() {
        assert_eq!(conversation(&headers(&[("session_id", "old")])), Some(&b"old"[..]));
        assert_eq!(conversation(&headers(&[("session_id", "old"), ("session-id", "new")])), Some(&b"new"[..]));
        assert_eq!(conversation(&headers(&[("session_id", "old"), ("session-id", "")])), Some(&b"old"[..]));
        assert_eq!(conversation(&headers(&[("thread-id", "t")])), None);
    }
}
