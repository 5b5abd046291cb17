//! Redacts an upstream's message about a failure for the record: it must contain no credential, no address and no part
//! of a prompt.

use serde_json::{Map, Value};

use super::has_address;
use crate::gateway::upstream::FailureCause;

/// The most characters of a message that are kept (our choice).
const MAX_MESSAGE_CHARS: usize = 240;
/// The longest word that is kept, in ASCII characters (our choice). A longer word may be a secret; some languages write
/// without spaces, but no secret has their characters.
const MAX_WORD_CHARS: usize = 40;
/// Parameters that carry the caller's content.
const CONTENT_PARAMS: [&str; 4] = ["prompt", "input", "instructions", "image"];
/// Parts of words that are credentials or identify an account.
const SENSITIVE_PARTS: [&str; 10] = ["sk-", "org-", "proj_", "proj-", "key-", "bearer", "://", "@", "eyj", "acct_"];
/// The placeholder for a word that is left out.
const REDACTED: &str = "[...]";

/// Returns the redacted message of an error. A refusal may repeat the refused content, so its message is dropped.
pub(super) fn redact_message(cause: &FailureCause, detail: Option<&Map<String, Value>>) -> Option<String> {
    let text = |key: &str| detail?.get(key)?.as_str();
    let param = text("param").unwrap_or_default();
    let root = param.split(['.', '[']).next().unwrap_or_default();
    if *cause == FailureCause::ContentRefused || CONTENT_PARAMS.contains(&root) {
        return None;
    }
    redact_text(text("message")?)
}

/// Returns a text without the words that may be a credential, an address or an account; `None` if nothing is left.
pub(super) fn redact_text(text: &str) -> Option<String> {
    let redacted = text.split_whitespace().map(redact_word).collect::<Vec<_>>().join(" ");
    let redacted: String = redacted.chars().take(MAX_MESSAGE_CHARS).collect();
    (!redacted.is_empty()).then_some(redacted)
}

fn redact_word(word: &str) -> String {
    let lowercase = word.to_ascii_lowercase();
    let longest_run = word.split(|letter: char| !letter.is_ascii_graphic()).map(str::len).max().unwrap_or_default();
    if longest_run > MAX_WORD_CHARS
        || SENSITIVE_PARTS.iter().any(|part| lowercase.contains(part))
        || has_address(&lowercase)
    {
        return REDACTED.to_owned();
    }
    word.chars().filter(|character| !character.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redacted(cause: &FailureCause, detail: &Value) -> Option<String> {
        redact_message(cause, detail.as_object())
    }

    #[test]
    fn words_that_identify_the_account_are_removed() {
        let message = "Limit\u{7} reached for org-Ab1 with key sk-proj-12 at http://10.0.0.1/x and up.example:8080.";
        let result = redacted(&FailureCause::Failed, &json!({ "message": message }));
        assert_eq!(result.as_deref(), Some("Limit reached for [...] with key [...] at [...] and [...]"));
        let long_word = "a".repeat(41);
        assert_eq!(redacted(&FailureCause::Failed, &json!({ "message": long_word })).as_deref(), Some("[...]"));
        let chinese = "提示词包含违规内容".repeat(9);
        assert_eq!(redacted(&FailureCause::Failed, &json!({ "message": chinese })).as_ref(), Some(&chinese));
        let long_message = "word ".repeat(100);
        assert!(
            redacted(&FailureCause::Failed, &json!({ "message": long_message }))
                .is_some_and(|redacted| redacted.len() <= MAX_MESSAGE_CHARS)
        );
    }

    #[test]
    fn nothing_of_a_prompt_is_kept() {
        assert_eq!(redacted(&FailureCause::ContentRefused, &json!({"message": "refused: a zeppelin"})), None);
        for param in ["prompt", "input[3].content", "instructions"] {
            assert_eq!(
                redacted(&FailureCause::Failed, &json!({"message": "bad: a zeppelin", "param": param})),
                None,
                "{param}"
            );
        }
        assert_eq!(redacted(&FailureCause::Failed, &json!({})), None);
    }
}
