//! Members of an answer that the document does not have: they pass, except those that name the upstream's account.
//!
//! Pure. An upstream may use a later version of the contract than this program. Its image is paid for, and so are all
//! members about the image, so a member is passed on unless there is a reason to keep it back:
//!
//! - its name is one of an account, of credentials, or of upstream internals ([`NAME_PARTS`], [`NAME_WORDS`]);
//! - its name or value is an address, a token, the id of an organization, or an email address, or its value holds one;
//! - it has a meaning that would make clients lose the image: `error`, and `url` next to the base64 text.
//!
//! The rules hold at every depth. A description of an image may contain any word, so of a sentence only unusual parts
//! count: ids, tokens, email addresses, and addresses with a query. Values that are too large to hold do not get here
//! ([`super::lexer`]).

use serde_json::{Map, Value};

/// Members of an answer or an event that are written elsewhere, or nowhere.
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
/// Members of an element of `data` that are written elsewhere, or nowhere.
const IMAGE_MEMBERS: [&str; 4] = ["b64_json", "error", "revised_prompt", "url"];

/// Parts of names, in letters and digits only. A name that contains one of them is about the account.
const NAME_PARTS: [&str; 20] = [
    "accesskey",
    "account",
    "apikey",
    "authorization",
    "billing",
    "cookie",
    "credential",
    "email",
    "hostname",
    "organisation",
    "organization",
    "password",
    "plantype",
    "quota",
    "ratelimit",
    "requestid",
    "secret",
    "subscription",
    "tenant",
    "workspace",
];
/// Whole names, in letters and digits only.
const NAMES: [&str; 26] = [
    "auth",
    "balance",
    "bearer",
    "creditbalance",
    "customer",
    "customerid",
    "deployment",
    "deploymentid",
    "endpoint",
    "host",
    "ip",
    "ipaddress",
    "key",
    "openaiproject",
    "org",
    "orgid",
    "ownedby",
    "owner",
    "plan",
    "project",
    "projectid",
    "session",
    "sessionid",
    "user",
    "userid",
    "username",
];
/// Single words of names: `upstream_org`, `hostName`, `session.id`.
const NAME_WORDS: [&str; 11] =
    ["deployment", "host", "ip", "org", "organization", "owner", "project", "session", "team", "tenant", "user"];
/// Names of the caller's own fields.
const CALLER_NAMES: [&str; 2] = ["end_user", "safety_identifier"];
/// In `token` and `access_token`: never the plural, which counts tokens.
const TOKEN: &str = "token";

/// The prefixes of keys and of the ids of an account's objects, and their least length.
const KEY_PREFIX: &str = "sk-";
const ID_PREFIXES: [&str; 5] = ["org-", "proj_", "user-", "acct_", "sess-"];
const ID_MIN: usize = 20;
/// The characters around a word of a sentence.
const WORD_PUNCTUATION: [char; 18] =
    ['"', '\'', '`', '(', ')', '[', ']', '{', '}', '<', '>', '.', ',', ':', ';', '\u{201c}', '\u{201d}', '\u{2019}'];

/// Returns the members of an answer or an event that the document does not have.
pub(super) fn from_answer(received: &Map<String, Value>) -> Map<String, Value> {
    filter_members(&ANSWER_MEMBERS, received)
}

/// Returns the members of an element of `data` that the document does not have.
pub(super) fn from_image(received: &Map<String, Value>) -> Map<String, Value> {
    filter_members(&IMAGE_MEMBERS, received)
}

/// Adds the members of a value that the upstream sends in the same place and this version does not know.
pub(super) fn add_missing(target: &mut Value, received: &Value) {
    let (Some(told), Some(said)) = (target.as_object_mut(), received.as_object()) else { return };
    for (name, value) in said {
        match told.get_mut(name) {
            Some(known) => add_missing(known, value),
            None => told.extend(filter_member(name, value)),
        }
    }
}

fn filter_members(listed: &[&str], received: &Map<String, Value>) -> Map<String, Value> {
    let others = received.iter().filter(|(name, _)| !listed.contains(&name.as_str()));
    others.filter_map(|(name, value)| filter_member(name, value)).collect()
}

fn filter_member(name: &str, value: &Value) -> Option<(String, Value)> {
    if is_account_name(name) || is_sensitive_text(name) {
        return None;
    }
    Some((name.to_owned(), redact(value)?))
}

/// Returns the value without the parts that must not pass. In a list `null` replaces such a part, to keep the order.
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
    let low: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    if CALLER_NAMES.contains(&name) {
        return false;
    }
    let has_word = || words(name).iter().any(|word| NAME_WORDS.contains(&word.as_str()));
    has_word()
        || NAMES.contains(&low.as_str())
        || low.ends_with(TOKEN)
        || NAME_PARTS.iter().any(|part| low.contains(part))
}

/// True if a text is an address or a credential, or names an account.
fn is_sensitive_text(text: &str) -> bool {
    let text = text.trim();
    let begins = |prefix: &str| text.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix));
    let is_address = text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    });
    if is_address || begins("bearer ") {
        return true;
    }
    text.split_whitespace().any(|word| identifies_account(word.trim_matches(WORD_PUNCTUATION)))
}

/// True if a word is an id, a token, an email address, or an address with a query.
fn identifies_account(word: &str) -> bool {
    let begins = |prefix: &str| word.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix));
    // Words with hyphens are not ids.
    let is_random = word.bytes().any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    let is_id = is_random && ID_PREFIXES.iter().any(|prefix| begins(prefix));
    let is_signed = word.starts_with("eyJ") && word.bytes().filter(|byte| *byte == b'.').count() == 2;
    let is_email = word.split_once('@').is_some_and(|(who, host)| !who.is_empty() && host.contains('.'));
    let is_address = word.split_once("://").is_some_and(|(_, place)| place.contains('?'));
    (is_id || begins(KEY_PREFIX)) && word.len() >= ID_MIN || is_signed || is_email || is_address
}

/// Splits a name into lower-case words: each ends at punctuation, or before a capital letter that begins another one.
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| letters[before]);
        let follows_small = before.is_some_and(|before| !before.is_uppercase());
        // In `IPAddress` the second word begins at its `A`.
        let precedes_small = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        if !letter.is_alphanumeric() || letter.is_uppercase() && (follows_small || precedes_small) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn passed(said: &Value) -> Value {
        from_answer(said.as_object().expect("members")).into()
    }

    #[test]
    fn what_is_not_known_passes_at_every_depth() {
        let said = json!({
            "complexity": "high", "frame_count": 12, "frame_duration_ms": 40.5, "svg": {"model": "gpt-5.6", "reasoning": {"effort": "max"}},
            "svg_usage": {"input_tokens": 1, "token_counts": [1, null]}, "safety_identifier": "end-user-1", "loop": false, "note": null,
            "caption": "the bearer of the org-chart, see https://example.org", "white_balance": 0.5, "keyframes": [0, 7], "service_tier": "flex",
            "icc": "data:image/png;base64,AAAA", "markup": "<svg xmlns=\"http://www.w3.org/2000/svg\"/>", "at": "icon@2x", "tag": "sk-etch",
            "end_user": "u1", "zip_tip": 1, "clip": 2, "projection": "flat", "ghosting": 0.1, "steamy": true, "hostile": false,
            "style": "a user-friendly-and-readable-poster for an org-wide-meeting-of-everybody @ noon",
        });
        assert_eq!(passed(&said), said);
    }

    #[test]
    fn what_names_the_account_of_the_upstream_stays_behind() {
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
            assert_eq!(
                passed(&json!({name: 1, "svg": {"a": [{name: {"b": 2}}]}})),
                json!({"svg": {"a": [{}]}}),
                "{name}"
            );
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
            assert_eq!(passed(&json!({"x": value, "y": {"z": [1, value]}})), json!({"y": {"z": [1, null]}}), "{value}");
        }
    }

    #[test]
    fn what_stands_around_a_word_of_a_sentence_does_not_hide_it() {
        for around in "\"'`()[]{}<>.,:;\u{201c}\u{201d}\u{2019}".chars() {
            let value = format!("as {around}proj_0123456789abcdef0123{around} says");
            assert_eq!(passed(&json!({ "x": value })), json!({}), "{value}");
        }
    }

    #[test]
    fn members_that_would_cost_clients_the_image_are_not_added() {
        let said = json!({"error": {"code": "c"}, "url": "x", "type": "t", "data": 1, "b64_json": null, "size": "1x1"});
        assert_eq!(passed(&said), json!({}));
        let said = said.as_object().expect("members");
        assert_eq!(Value::Object(from_image(said)), json!({"type": "t", "data": 1, "size": "1x1"}));
    }

    #[test]
    fn a_value_is_completed_and_nothing_of_it_replaced() {
        let mut told = json!({"total": 3, "details": {"image": 1}});
        add_missing(
            &mut told,
            &json!({"total": 9, "details": {"image": 8, "svg": 2, "org": "o"}, "steps": 4, "api_key": "k"}),
        );
        assert_eq!(told, json!({"total": 3, "details": {"image": 1, "svg": 2}, "steps": 4}));
    }
}
