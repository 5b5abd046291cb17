//! Reads the address and the key from the environment if they were not given.
//!
//! An address and a key form a pair, because a key must only go to the service that issued it. Only [`variable`] reads
//! the environment; the other functions take it as the parameter `read`.

use super::ServiceAddress;
use crate::client::Error;

/// The default address of the gateway on this machine.
const DEFAULT_BASE_URL: &str = "http://127.0.0.1:8080/v1";

/// The default address for `OPENAI_API_KEY`, which is that of the official SDKs.
const OPENAI_DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";

/// The scheme and host of that address.
#[cfg(feature = "cli")]
pub(in crate::client) const OPENAI_ORIGIN: &str = "https://api.openai.com";

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

/// Completes the given values. The `OPENAI_…` variables are used only as a pair, and only if no value is given and no
/// `IMAGATE_…` variable is set.
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
            if key_base_url.is_some_and(|key_base_url| !is_same_service(&key_base_url, &base_url)) {
                return Err(Error::settings(format!(
                    "{API_KEY} belongs to {BASE_URL}, but another base URL was given: give its API key, too"
                )));
            }
            Ok(EnvironmentPair { base_url, api_key })
        }
        (Some(_), None, _, None) => Err(missing_key_error("for the given base URL", API_KEY, &read)),
        (None, None, Some(_), None) => Err(missing_key_error(&format!("for {BASE_URL}"), API_KEY, &read)),
        (None, None, None, None) => openai_pair(&read),
    }
}

/// Returns the pair of the official SDKs. A key without an address goes to the service that issues such keys, and not to
/// the gateway on this machine.
fn openai_pair(read: &impl Fn(&str) -> Option<String>) -> Result<EnvironmentPair, Error> {
    match (read(OPENAI_BASE_URL), read(OPENAI_API_KEY)) {
        (Some(base_url), Some(api_key)) => Ok(EnvironmentPair { base_url, api_key }),
        (None, Some(api_key)) => Ok(EnvironmentPair { base_url: OPENAI_DEFAULT_BASE_URL.to_owned(), api_key }),
        (Some(_), None) => Err(missing_key_error(&format!("for {OPENAI_BASE_URL}"), OPENAI_API_KEY, read)),
        (None, None) => Err(missing_key_error("", &format!("{API_KEY} or {OPENAI_API_KEY}"), read)),
    }
}

fn missing_key_error(context: &str, variable: &str, read: &impl Fn(&str) -> Option<String>) -> Error {
    let space = if context.is_empty() { "" } else { " " };
    let hint = if context.is_empty() || read(OPENAI_API_KEY).is_none() {
        ""
    } else {
        "; OPENAI_API_KEY is used only with OPENAI_BASE_URL or its default, and only if nothing else is given"
    };
    Error::settings(format!("there is no API key{space}{context}: set {variable}, or give an API key{hint}"))
}

fn is_same_service(first: &str, second: &str) -> bool {
    match (ServiceAddress::parse(first), ServiceAddress::parse(second)) {
        (Ok(first), Ok(second)) => first.url() == second.url(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = DEFAULT_BASE_URL;

    /// `given` is the address and the key that were given, `""` if none; `set` lists the variables that are set;
    /// `expected` is the resulting address and key, or words of the error.
    #[track_caller]
    fn check(given: [&str; 2], set: &[(&str, &str)], expected: Result<[&str; 2], &[&str]>) {
        let non_empty = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let read =
            |name: &str| set.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned());
        let result = complete_pair(non_empty(given[0]), non_empty(given[1]), read);
        match (result, expected) {
            (Ok(pair), Ok(expected)) => assert_eq!([&*pair.base_url, &*pair.api_key], expected, "{set:?}"),
            (Err(error), Err(words)) => {
                let text = error.to_string();
                assert!(words.iter().all(|word| text.contains(word)) && !text.contains("sk-"), "{text}");
            }
            (result, _) => panic!("{given:?} {set:?}: {:?}", result.map(|pair| pair.base_url)),
        }
    }

    const IMAGATE_PAIR: [(&str, &str); 2] = [(BASE_URL, "https://ours/v1"), (API_KEY, "sk-ours")];
    const OPENAI_PAIR: [(&str, &str); 2] = [(OPENAI_BASE_URL, "https://theirs/v1"), (OPENAI_API_KEY, "sk-theirs")];

    #[test]
    fn the_imagate_pair_is_used_before_the_openai_pair() {
        check(["", ""], &IMAGATE_PAIR, Ok(["https://ours/v1", "sk-ours"]));
        check(["", ""], &OPENAI_PAIR, Ok(["https://theirs/v1", "sk-theirs"]));
        check(["", ""], &[IMAGATE_PAIR, OPENAI_PAIR].concat(), Ok(["https://ours/v1", "sk-ours"]));
    }

    #[test]
    fn a_key_never_goes_to_the_address_of_the_other_pair() {
        check(["", ""], &[IMAGATE_PAIR[1], OPENAI_PAIR[0]], Ok([LOCAL, "sk-ours"]));
        check(
            ["", ""],
            &[IMAGATE_PAIR[0], OPENAI_PAIR[1]],
            Err(&["for IMAGATE_BASE_URL", "OPENAI_API_KEY is used only with"]),
        );
        check(["", ""], &[IMAGATE_PAIR[0], OPENAI_PAIR[0], OPENAI_PAIR[1]], Err(&["for IMAGATE_BASE_URL"]));
    }

    #[test]
    fn each_key_has_a_default_address_of_its_own() {
        check(["", ""], &IMAGATE_PAIR[1..], Ok([LOCAL, "sk-ours"]));
        check(["", ""], &OPENAI_PAIR[1..], Ok(["https://api.openai.com/v1", "sk-theirs"]));
        check(["", ""], &OPENAI_PAIR[..1], Err(&["for OPENAI_BASE_URL"]));
        check(["", ""], &IMAGATE_PAIR[..1], Err(&["for IMAGATE_BASE_URL"]));
        check(["", ""], &[], Err(&["there is no API key: set IMAGATE_API_KEY or OPENAI_API_KEY, or give"]));
    }

    #[test]
    fn a_given_address_gets_the_imagate_key_unless_it_has_another_address() {
        check(["https://x/v1", ""], &IMAGATE_PAIR[1..], Ok(["https://x/v1", "sk-ours"]));
        check(["https://ours", ""], &IMAGATE_PAIR, Ok(["https://ours", "sk-ours"]));
        check(["https://x/v1", ""], &IMAGATE_PAIR, Err(&["IMAGATE_API_KEY belongs to IMAGATE_BASE_URL"]));
        check(["https://x/v1", ""], &OPENAI_PAIR, Err(&["for the given base URL", "OPENAI_API_KEY is used only with"]));
    }

    #[test]
    fn a_given_key_goes_to_the_imagate_address_only() {
        check(["", "sk-x"], &IMAGATE_PAIR, Ok(["https://ours/v1", "sk-x"]));
        check(["", "sk-x"], &OPENAI_PAIR, Ok([LOCAL, "sk-x"]));
        check(["https://x", "sk-x"], &[IMAGATE_PAIR, OPENAI_PAIR].concat(), Ok(["https://x", "sk-x"]));
    }
}
