//! Selects the part of an upstream's message about a failure that a record may keep: no credential, no address, no part
//! of a prompt.

use serde_json::{Map, Value};

use super::has_address;
use crate::gateway::upstream::reply::FailureCause;

/// The most characters of a message that are kept.
const MAX_MESSAGE_CHARS: usize = 240;
/// The longest run of characters that is kept.
const MAX_WORD_CHARS: usize = 40;
/// Parameters that carry the caller's content.
const CONTENT_PARAMS: [&str; 4] = ["prompt", "input", "instructions", "image"];
/// Parts of words that are credentials or identify an account.
const SENSITIVE_PARTS: [&str; 10] = ["sk-", "org-", "proj_", "proj-", "key-", "bearer", "://", "@", "eyj", "acct_"];
/// The placeholder for a word that is left out.
const REDACTED: &str = "[...]";

/// Returns the message of an error. A content refusal repeats the refused content, so none of it is kept.
pub(super) fn redact_message(cause: &FailureCause, detail: Option<&Map<String, Value>>) -> Option<String> {
    let text = |key: &str| detail?.get(key)?.as_str();
    let param = text("param").unwrap_or_default();
    let root = param.split(['.', '[']).next().unwrap_or_default();
    if *cause == FailureCause::Refused || CONTENT_PARAMS.contains(&root) {
        return None;
    }
    let kept = text("message")?.split_whitespace().map(redact_word).collect::<Vec<_>>().join(" ");
    let kept: String = kept.chars().take(MAX_MESSAGE_CHARS).collect();
    (!kept.is_empty()).then_some(kept)
}

fn redact_word(word: &str) -> String {
    let low = word.to_ascii_lowercase();
    if word.chars().count() > MAX_WORD_CHARS
        || SENSITIVE_PARTS.iter().any(|part| low.contains(part))
        || has_address(&low)
    {
        return REDACTED.to_owned();
    }
    word.chars().filter(|letter| !letter.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept(cause: &FailureCause, detail: &Value) -> Option<String> {
        redact_message(cause, detail.as_object())
    }

    #[test]
    fn words_that_tell_of_the_account_are_left_out() {
        let message = "Limit\u{7} reached for org-Ab1 with key sk-proj-12 at http://10.0.0.1/x and up.example:8080.";
        let found = kept(&FailureCause::Failed, &json!({ "message": message }));
        assert_eq!(found.as_deref(), Some("Limit reached for [...] with key [...] at [...] and [...]"));
        let long = "a".repeat(41);
        assert_eq!(kept(&FailureCause::Failed, &json!({ "message": long })).as_deref(), Some("[...]"));
        let many = "word ".repeat(100);
        assert!(
            kept(&FailureCause::Failed, &json!({ "message": many }))
                .is_some_and(|kept| kept.len() <= MAX_MESSAGE_CHARS)
        );
    }

    #[test]
    fn nothing_of_a_prompt_is_kept() {
        assert_eq!(kept(&FailureCause::Refused, &json!({"message": "refused: a zeppelin"})), None);
        for param in ["prompt", "input[3].content", "instructions"] {
            assert_eq!(
                kept(&FailureCause::Failed, &json!({"message": "bad: a zeppelin", "param": param})),
                None,
                "{param}"
            );
        }
        assert_eq!(kept(&FailureCause::Failed, &json!({})), None);
    }
}
