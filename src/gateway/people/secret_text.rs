//! Texts that are shown to one person once and never logged.

use std::fmt;

/// A text that gives access to something.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretText(String);

// === impl SecretText ===

impl SecretText {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the text, for the person that it is meant for.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}
