//! Recognizes requests of official coding agents, and finds the id of the conversation, both by the headers.

use http::HeaderMap;
use http::header::USER_AGENT;

use crate::tables::{CONVERSATION_ID_HEADER, ORIGINATOR_HEADER, SESSION_ID_HEADER, THREAD_ID_HEADER};

/// The prefix that the names of all official agents have, in upper or lower case.
const AGENT_NAME_PREFIX: &[u8] = b"codex";
/// The headers that can state the id of the conversation, in the order in which they count: that of the session before
/// those of a part of it, and newer names first.
const SESSION_HEADERS: [&str; 4] = [SESSION_ID_HEADER, "session_id", THREAD_ID_HEADER, CONVERSATION_ID_HEADER];

/// True if one of the two headers names an official coding agent as the sender.
pub(super) fn is_official(headers: &HeaderMap) -> bool {
    let names = [headers.get(ORIGINATOR_HEADER), headers.get(USER_AGENT)];
    names.into_iter().flatten().any(|name| {
        let prefix = name.as_bytes().get(..AGENT_NAME_PREFIX.len());
        prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(AGENT_NAME_PREFIX))
    })
}

/// Returns the id of the conversation: the first value of the session headers that is not empty.
pub(super) fn conversation(headers: &HeaderMap) -> Option<&[u8]> {
    let sessions = SESSION_HEADERS.into_iter().filter_map(|name| headers.get(name)).map(http::HeaderValue::as_bytes);
    sessions.into_iter().find(|session| !session.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).parse().expect("a name"), value.parse().expect("a value"))).collect()
    }

    #[test]
    fn official_agents_are_recognized_by_either_of_two_headers() {
        for official in [
            ("originator", "codex_exec"),
            ("originator", "Codex Desktop"),
            ("user-agent", "codex_cli_rs/0.125.0 (Debian 12.0.0; x86_64)"),
            ("user-agent", "Codex/1"),
        ] {
            assert!(is_official(&headers(&[official])), "{official:?}");
        }
        for unofficial in
            [("originator", "my_codex"), ("user-agent", "OpenAI/Python 2.0"), ("x-codex-window-id", "codex")]
        {
            assert!(!is_official(&headers(&[unofficial])), "{unofficial:?}");
        }
        assert!(is_official(&headers(&[("originator", "mine"), ("user-agent", "codex_exec/0.169.0")])));
    }

    #[test]
    fn the_first_header_that_names_the_conversation_counts() {
        assert_eq!(conversation(&headers(&[("session_id", "old")])), Some(&b"old"[..]));
        assert_eq!(conversation(&headers(&[("session_id", "old"), ("session-id", "new")])), Some(&b"new"[..]));
        assert_eq!(conversation(&headers(&[("session_id", "old"), ("session-id", "")])), Some(&b"old"[..]));
        assert_eq!(conversation(&headers(&[("thread-id", "t"), ("session_id", "s")])), Some(&b"s"[..]));
        assert_eq!(conversation(&headers(&[("conversation_id", "c"), ("thread-id", "t")])), Some(&b"t"[..]));
        assert_eq!(conversation(&headers(&[("conversation_id", "c")])), Some(&b"c"[..]));
        assert_eq!(conversation(&headers(&[("x-codex-window-id", "w")])), None);
    }
}
