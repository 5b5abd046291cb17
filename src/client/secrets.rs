//! The secrets of a call, which no error contains: a service or a proxy may repeat them in its answer.

use reqwest::header::{HeaderMap, HeaderName};

use super::session::IDEMPOTENCY_KEY;

/// The parts of names of headers whose value is a secret.
const SECRET_NAMES: [&str; 7] = ["auth", "cookie", "credential", "key", "password", "secret", "token"];

/// The minimum length of the value of a header that is removed, in bytes (our choice). A shorter one is no secret, and
/// ordinary words would contain it.
const VALUE_MIN_BYTES: usize = 8;

const REPLACEMENT: &str = "[redacted]";

/// The texts that are removed.
pub(super) struct CallSecrets<'a>(Vec<&'a str>);

// === impl CallSecrets ===

impl<'a> CallSecrets<'a> {
    pub(super) fn new(key: &'a str) -> Self {
        Self(vec![key])
    }

    /// Adds the values of the headers whose names stand for a secret.
    pub(super) fn with_headers(mut self, headers: &'a HeaderMap) -> Self {
        let values = headers.iter().filter(|(name, _)| is_secret(name));
        for value in values.filter_map(|(_, value)| std::str::from_utf8(value.as_bytes()).ok()) {
            // A service may repeat only the secret of a value such as `Bearer …`.
            let last_word = value.rsplit(' ').next().unwrap_or_default();
            self.0.extend([value, last_word].into_iter().filter(|text| text.len() >= VALUE_MIN_BYTES));
        }
        // A secret may contain another one.
        self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        self
    }

    /// Removes the secrets from a text.
    pub(super) fn redact(&self, text: String) -> String {
        let remove = |text: String, secret: &&str| {
            if text.contains(secret) { text.replace(secret, REPLACEMENT) } else { text }
        };
        self.0.iter().fold(text, remove)
    }

    /// Returns true if a text contains one of the secrets.
    pub(super) fn are_in(&self, text: &str) -> bool {
        self.0.iter().any(|secret| text.contains(secret))
    }
}

fn is_secret(name: &HeaderName) -> bool {
    name != IDEMPOTENCY_KEY && SECRET_NAMES.iter().any(|part| name.as_str().contains(part))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn only_values_that_can_be_secrets_are_removed() {
        let headers: HeaderMap = [
            ("authorization", "Bearer another-secret"),
            ("x-cache-key", "fox"),
            ("openai-project", "proj_of_foxes"),
            ("idempotency-key", "order-4711"),
        ]
        .into_iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect();
        let secrets = CallSecrets::new("sk-1").with_headers(&headers);
        let text = "sk-1, Bearer another-secret, another-secret, fox, proj_of_foxes, order-4711";
        let expected = "[redacted], [redacted], [redacted], fox, proj_of_foxes, order-4711";
        assert_eq!(secrets.redact(text.to_owned()), expected);
        assert!(secrets.are_in("a sk-1") && secrets.are_in("another-secrets") && !secrets.are_in("Bearer fox"));
    }

    #[test]
    fn a_secret_that_contains_another_is_removed_as_a_whole() {
        let headers: HeaderMap =
            [(HeaderName::from_static("api-key"), HeaderValue::from_static("sk-1-and-more"))].into_iter().collect();
        assert_eq!(CallSecrets::new("sk-1").with_headers(&headers).redact("sk-1-and-more".to_owned()), REPLACEMENT);
    }
}
