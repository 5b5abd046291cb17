//! Members of an answer that are not in the contract: they are passed on, except those that identify the upstream's
//! account.
//!
//! Pure: no I/O. An upstream may use a later version of the contract than this program. The caller pays for an image
//! and for all members about it, so a member is passed on unless it is in one of these classes:
//!
//! - its name is that of an account, of credentials, or of upstream internals ([`NAMES`], [`NAME_PARTS`],
//!   [`NAME_WORDS`]);
//! - its name or value is a URL, a token, the id of an organization, or an email address, or its value contains one;
//! - clients would discard the image because of it: `error`, and `url` beside the base64.
//!
//! The rules hold at every depth. A description of an image may contain any word, so in a text of several words only
//! ids, tokens, email addresses and URLs with a query count. The decoder has dropped values that are too
//! large ([`super::decoder`]).

use serde_json::{Map, Value};

use crate::words::lines_of;

/// Members of an answer or an event that other code writes, or that are never passed on.
const ANSWER_MEMBERS: [&str; 15] = [
    "b64_json",
    "background",
    "created",
    "created_at",
    "data",
    "error",
    "model",
    "output_format",
    "partial_image_index",
    "quality",
    "revised_prompt",
    "size",
    "type",
    "url",
    "usage",
];
/// Members of an element of `data` that other code writes, or that are never passed on.
const IMAGE_MEMBERS: [&str; 4] = ["b64_json", "error", "revised_prompt", "url"];

/// Parts of names. A name that contains one of them, without its punctuation and in lower case, is about the account.
const NAME_PARTS: &[&str] = lines_of!("undocumented_members/name_parts.txt");
/// Complete names about the account, without punctuation and in lower case.
const NAMES: &[&str] = lines_of!("undocumented_members/names.txt");
/// Words about the account: a name with one of them, such as `upstream_org`, `hostName` or `session.id`, is not passed
/// on.
const NAME_WORDS: [&str; 11] =
    ["deployment", "host", "ip", "org", "organization", "owner", "project", "session", "team", "tenant", "user"];
/// Names of fields that the caller sets. They are passed on although they contain words of the lists above.
const CALLER_NAMES: [&str; 2] = ["end_user", "safety_identifier"];
/// A name that ends with this word, such as `access_token`, is that of a credential. The plural counts tokens.
const TOKEN_SUFFIX: &str = "token";

/// The prefixes of API keys and of the ids of an account's objects.
const KEY_PREFIX: &str = "sk-";
const ID_PREFIXES: [&str; 5] = ["org-", "proj_", "user-", "acct_", "sess-"];
/// The minimum number of bytes of such a key or id (our choice).
const ID_MIN: usize = 20;
/// The punctuation that is removed around a word of a text.
const WORD_PUNCTUATION: [char; 18] =
    ['"', '\'', '`', '(', ')', '[', ']', '{', '}', '<', '>', '.', ',', ':', ';', '\u{201c}', '\u{201d}', '\u{2019}'];

/// Returns the undocumented members of an answer or an event that may be passed on.
pub(super) fn from_answer(received: &Map<String, Value>) -> Map<String, Value> {
    filter_members(&ANSWER_MEMBERS, received)
}

/// Returns the undocumented members of an element of `data` that may be passed on.
pub(super) fn from_image(received: &Map<String, Value>) -> Map<String, Value> {
    filter_members(&IMAGE_MEMBERS, received)
}

/// Adds to a value, at every depth, the upstream's members that it does not have and that may be passed on.
pub(super) fn add_missing(target: &mut Value, received: &Value) {
    let (Some(target), Some(received)) = (target.as_object_mut(), received.as_object()) else { return };
    for (name, value) in received {
        match target.get_mut(name) {
            Some(existing) => add_missing(existing, value),
            None => target.extend(filter_member(name, value)),
        }
    }
}

fn filter_members(excluded: &[&str], received: &Map<String, Value>) -> Map<String, Value> {
    let candidates = received.iter().filter(|(name, _)| !excluded.contains(&name.as_str()));
    candidates.filter_map(|(name, value)| filter_member(name, value)).collect()
}

fn filter_member(name: &str, value: &Value) -> Option<(String, Value)> {
    if is_account_name(name) || is_sensitive_text(name) {
        return None;
    }
    Some((name.to_owned(), redact(value)?))
}

/// Returns the value without the parts that must not be passed on. In a list, `null` replaces such a part, so that
/// the other elements keep their index.
fn redact(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => (!is_sensitive_text(text)).then(|| value.clone()),
        Value::Array(values) => Some(values.iter().map(|value| redact(value).unwrap_or_default()).collect()),
        Value::Object(members) => Some(Value::Object(filter_members(&[], members))),
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(value.clone()),
    }
}

/// True if a name is about the upstream's account, in any spelling.
fn is_account_name(name: &str) -> bool {
    let normalized: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    if CALLER_NAMES.contains(&name) {
        return false;
    }
    let has_word = || words(name).iter().any(|word| NAME_WORDS.contains(&word.as_str()));
    has_word()
        || NAMES.contains(&normalized.as_str())
        || normalized.ends_with(TOKEN_SUFFIX)
        || NAME_PARTS.iter().any(|part| normalized.contains(part))
}

/// True if a text is a URL or a credential, or identifies an account.
fn is_sensitive_text(text: &str) -> bool {
    let text = text.trim();
    let starts_with = |prefix: &str| text.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix));
    let is_url = text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    });
    if is_url || starts_with("bearer ") {
        return true;
    }
    text.split_whitespace().any(|word| identifies_account(word.trim_matches(WORD_PUNCTUATION)))
}

/// True if a word is an id, a token, an email address, or a URL with a query.
fn identifies_account(word: &str) -> bool {
    let starts_with = |prefix: &str| word.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix));
    // A word without digits and capital letters, such as `user-friendly`, is not an id.
    let is_random = word.bytes().any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    let is_id = is_random && ID_PREFIXES.iter().any(|prefix| starts_with(prefix));
    let is_jwt = word.starts_with("eyJ") && word.bytes().filter(|byte| *byte == b'.').count() == 2;
    let is_email = word.split_once('@').is_some_and(|(local_part, host)| !local_part.is_empty() && host.contains('.'));
    let is_url = word.split_once("://").is_some_and(|(_, target)| target.contains('?'));
    (is_id || starts_with(KEY_PREFIX)) && word.len() >= ID_MIN || is_jwt || is_email || is_url
}

/// Splits a name into lower-case words. A word ends at punctuation, or before a capital letter that begins the next
/// word.
fn words(name: &str) -> Vec<String> {
    let characters: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (index, character) in characters.iter().enumerate() {
        let previous = index.checked_sub(1).map(|previous| characters[previous]);
        let follows_small = previous.is_some_and(|previous| !previous.is_uppercase());
        // In `IPAddress` the second word begins at its `A`.
        let precedes_small = characters.get(index + 1).is_some_and(|next| next.is_lowercase());
        if !character.is_alphanumeric() || character.is_uppercase() && (follows_small || precedes_small) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| character.is_alphanumeric()) {
            word.extend(character.to_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn passed_on(received: &Value) -> Value {
        from_answer(received.as_object().expect("members")).into()
    }

    #[test]
    fn unknown_members_are_passed_on_at_every_depth() {
        let received = json!({
            "complexity": "high", "frame_count": 12, "frame_duration_ms": 40.5, "svg": {"model": "gpt-5.6", "reasoning": {"effort": "max"}},
            "svg_usage": {"input_tokens": 1, "token_counts": [1, null]}, "safety_identifier": "end-user-1", "loop": false, "note": null,
            "caption": "the bearer of the org-chart, see https://example.org", "white_balance": 0.5, "keyframes": [0, 7], "service_tier": "flex",
            "icc": "data:image/png;base64,AAAA", "markup": "<svg xmlns=\"http://www.w3.org/2000/svg\"/>", "at": "icon@2x", "tag": "sk-etch",
            "end_user": "u1", "zip_tip": 1, "clip": 2, "projection": "flat", "ghosting": 0.1, "steamy": true, "hostile": false,
            "style": "a user-friendly-and-readable-poster for an org-wide-meeting-of-everybody @ noon",
        });
        assert_eq!(passed_on(&received), received);
    }

    #[test]
    fn members_that_identify_the_account_are_not_passed_on() {
        for name in [
            "account_id",
            "chatgpt-account-id",
            "accountId",
            "organization",
            "openai-organization",
            "org_id",
            "user",
            "user_id",
            "email",
            "owner_email",
            "plan_type",
            "x-request-id",
            "request_id",
            "api_key",
            "Authorization",
            "access_token",
            "client_secret",
            "Set-Cookie",
            "x-ratelimit-remaining-tokens",
            "tenant",
            "project_id",
            "credentials",
            "upstream_org",
            "azure-deployment",
            "openai.host.region",
            "clientIp",
            "IPAddresses",
            "userIDs_seen",
            "x_session_affinity",
            "team-slug",
            "projectNumber",
            "picture_owner",
            "proj_0123456789abcdef0123",
            "someone@example.com",
        ] {
            let received = json!({name: 1, "svg": {"a": [{name: {"b": 2}}]}});
            assert_eq!(passed_on(&received), json!({"svg": {"a": [{}]}}), "{name}");
        }
        for value in [
            "https://upstream.example/v1/files/1.png?sig=abc",
            "S3://bucket/key",
            "sk-upstream-0123456789abcdef",
            "org-0123456789abcdef01234567",
            "Bearer abc",
            "eyJhbGciOiJI.eyJzdWIi.c2ln",
            "someone@example.org",
            "made for user-AbCdEfGhIjKlMnOpQrStUvWx.",
            "quota of [org-0123456789abcdef01234567]: high",
            "rendered by \"acct_1A2b3C4d5E6f7G8h9\"",
            "kept in sess-0123456789abcdef0123, for a while",
            "see https://upstream.example/files/1.png?sig=abc",
            "ask (someone@example.org)",
            "signed eyJhbGciOiJI.eyJzdWIi.c2ln",
        ] {
            let received = json!({"x": value, "y": {"z": [1, value]}});
            assert_eq!(passed_on(&received), json!({"y": {"z": [1, null]}}), "{value}");
        }
    }

    #[test]
    fn punctuation_around_an_id_does_not_hide_it() {
        for punctuation in "\"'`()[]{}<>.,:;\u{201c}\u{201d}\u{2019}".chars() {
            let value = format!("as {punctuation}proj_0123456789abcdef0123{punctuation} says");
            assert_eq!(passed_on(&json!({ "x": value })), json!({}), "{value}");
        }
    }

    #[test]
    fn members_that_make_clients_discard_the_image_are_not_added() {
        let received =
            json!({"error": {"code": "c"}, "url": "x", "type": "t", "data": 1, "b64_json": null, "size": "1x1"});
        assert_eq!(passed_on(&received), json!({}));
        let received = received.as_object().expect("members");
        assert_eq!(Value::Object(from_image(received)), json!({"type": "t", "data": 1, "size": "1x1"}));
    }

    #[test]
    fn missing_members_are_added_and_none_is_replaced() {
        let mut target = json!({"total": 3, "details": {"image": 1}});
        add_missing(
            &mut target,
            &json!({"total": 9, "details": {"image": 8, "svg": 2, "org": "o"}, "steps": 4, "api_key": "k"}),
        );
        assert_eq!(target, json!({"total": 3, "details": {"image": 1, "svg": 2}, "steps": 4}));
    }
}
