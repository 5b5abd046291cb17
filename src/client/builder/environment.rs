//! Reads the address and the key from the environment if they were not given.
//!
//! They form pairs, because a key must not go to a service other than the one that issued it. No I/O: `read` looks up a
//! variable.

use super::ServiceAddress;
use crate::client::Error;

/// The default address of the gateway on this machine.
const DEFAULT_BASE_URL: &str = "http://127.0.0.1:8080/v1";

const BASE_URL: &str = "IMAGATE_BASE_URL";
const API_KEY: &str = "IMAGATE_API_KEY";
const OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";
const OPENAI_API_KEY: &str = "OPENAI_API_KEY";

/// An address and the key for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EnvironmentPair {
    pub(super) base_url: String,
    pub(super) api_key: String,
}

/// Returns the value of a variable, if it is set and not empty.
#[expect(clippy::disallowed_methods, reason = "the SDK's own reader of the environment, which the gateway never uses")]
pub(super) fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok()?.trim().to_owned();
    (!value.is_empty()).then_some(value)
}

/// Completes the given values. The `OPENAI_…` variables are read only as a pair, and only if nothing else is given.
pub(super) fn complete_pair(
    base_url: Option<String>,
    api_key: Option<String>,
    read: impl Fn(&str) -> Option<String>,
) -> Result<EnvironmentPair, Error> {
    match (base_url, api_key, read(BASE_URL), read(API_KEY)) {
        (Some(base_url), Some(api_key), ..) => Ok(EnvironmentPair { base_url, api_key }),
        (None, Some(api_key), base_url, _) | (None, None, base_url, Some(api_key)) => {
            Ok(EnvironmentPair { base_url: base_url.unwrap_or_else(|| DEFAULT_BASE_URL.to_owned()), api_key })
        }
        (Some(base_url), None, key_base_url, Some(api_key)) => {
            let is_other = key_base_url.is_some_and(|of_the_key| !is_same_service(&of_the_key, &base_url));
            if is_other {
                return Err(Error::settings(format!(
                    "{API_KEY} belongs to {BASE_URL}, but another base URL was given: give its API key, too"
                )));
            }
            Ok(EnvironmentPair { base_url, api_key })
        }
        (Some(_), None, _, None) => Err(missing_key_error("for the given base URL", &read)),
        (None, None, Some(_), None) => Err(missing_key_error(&format!("for {BASE_URL}"), &read)),
        (None, None, None, None) => openai_pair(&read),
    }
}

/// Returns the pair of the official SDKs. Its key without an address would go to any program that listens on this
/// machine.
fn openai_pair(read: &impl Fn(&str) -> Option<String>) -> Result<EnvironmentPair, Error> {
    match (read(OPENAI_BASE_URL), read(OPENAI_API_KEY)) {
        (Some(base_url), Some(api_key)) => Ok(EnvironmentPair { base_url, api_key }),
        (None, Some(_)) => Err(Error::settings(format!(
            "{OPENAI_API_KEY} is set, but {OPENAI_BASE_URL} is not: set both, or set {API_KEY} for a gateway"
        ))),
        (Some(_), None) => Err(missing_key_error(&format!("for {OPENAI_BASE_URL}"), read)),
        (None, None) => Err(missing_key_error("", read)),
    }
}

fn missing_key_error(context: &str, read: &impl Fn(&str) -> Option<String>) -> Error {
    let space = if context.is_empty() { "" } else { " " };
    let other = if context.is_empty() || read(OPENAI_API_KEY).is_none() {
        ""
    } else {
        "; OPENAI_API_KEY is used only with OPENAI_BASE_URL, and only if nothing else is given"
    };
    Error::settings(format!("there is no API key{space}{context}: set {API_KEY}, or give an API key{other}"))
}

fn is_same_service(one: &str, other: &str) -> bool {
    match (ServiceAddress::parse(one), ServiceAddress::parse(other)) {
        (Ok(one), Ok(other)) => one.url == other.url,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = DEFAULT_BASE_URL;

    /// `chosen` is the given address and key, or `""`; `set` lists the variables that are set. Expects the resulting
    /// address and key, or words of the error.
    #[track_caller]
    fn check(chosen: [&str; 2], set: &[(&str, &str)], expected: Result<[&str; 2], &[&str]>) {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let read = |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
        let found = complete_pair(given(chosen[0]), given(chosen[1]), read);
        match (found, expected) {
            (Ok(pair), Ok(expected)) => assert_eq!([&*pair.base_url, &*pair.api_key], expected, "{set:?}"),
            (Err(error), Err(words)) => {
                let text = error.to_string();
                assert!(words.iter().all(|word| text.contains(word)) && !text.contains("sk-"), "{text}");
            }
            (found, _) => panic!("{chosen:?} {set:?}: {:?}", found.map(|pair| pair.base_url)),
        }
    }

    const OURS: [(&str, &str); 2] = [(BASE_URL, "https://ours/v1"), (API_KEY, "sk-ours")];
    const THEIRS: [(&str, &str); 2] = [(OPENAI_BASE_URL, "https://theirs/v1"), (OPENAI_API_KEY, "sk-theirs")];

    #[test]
    fn a_pair_is_taken_whole_and_our_own_first() {
        check(["", ""], &OURS, Ok(["https://ours/v1", "sk-ours"]));
        check(["", ""], &THEIRS, Ok(["https://theirs/v1", "sk-theirs"]));
        check(["", ""], &[OURS, THEIRS].concat(), Ok(["https://ours/v1", "sk-ours"]));
    }

    #[test]
    fn a_key_never_goes_to_the_address_of_the_other_pair() {
        check(["", ""], &[OURS[1], THEIRS[0]], Ok([HERE, "sk-ours"]));
        check(["", ""], &[OURS[0], THEIRS[1]], Err(&["for IMAGATE_BASE_URL", "OPENAI_API_KEY is used only with"]));
        check(["", ""], &[OURS[0], THEIRS[0], THEIRS[1]], Err(&["for IMAGATE_BASE_URL"]));
    }

    #[test]
    fn a_lone_key_of_ours_goes_to_this_machine_and_a_borrowed_one_nowhere() {
        check(["", ""], &OURS[1..], Ok([HERE, "sk-ours"]));
        check(["", ""], &THEIRS[1..], Err(&["OPENAI_API_KEY", "OPENAI_BASE_URL"]));
        check(["", ""], &THEIRS[..1], Err(&["for OPENAI_BASE_URL"]));
        check(["", ""], &OURS[..1], Err(&["for IMAGATE_BASE_URL"]));
        check(["", ""], &[], Err(&["there is no API key: set IMAGATE_API_KEY"]));
    }

    #[test]
    fn a_chosen_address_gets_a_key_of_ours_unless_that_belongs_to_another_one() {
        check(["https://x/v1", ""], &OURS[1..], Ok(["https://x/v1", "sk-ours"]));
        check(["https://ours", ""], &OURS, Ok(["https://ours", "sk-ours"]));
        check(["https://x/v1", ""], &OURS, Err(&["IMAGATE_API_KEY belongs to IMAGATE_BASE_URL"]));
        check(["https://x/v1", ""], &THEIRS, Err(&["for the given base URL", "OPENAI_API_KEY is used only with"]));
    }

    #[test]
    fn a_chosen_key_goes_to_an_address_of_ours_and_to_no_borrowed_one() {
        check(["", "sk-x"], &OURS, Ok(["https://ours/v1", "sk-x"]));
        check(["", "sk-x"], &THEIRS, Ok([HERE, "sk-x"]));
        check(["https://x", "sk-x"], &[OURS, THEIRS].concat(), Ok(["https://x", "sk-x"]));
    }
}
