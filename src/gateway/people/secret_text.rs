//! Secret texts, which are shown once and never logged.

use std::fmt;

/// A secret, such as the value of a cookie or the token of a link. Its debug output is redacted.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretText(String);

// === impl SecretText ===

impl SecretText {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the secret, to be sent to its owner.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}
