//! Texts that are shown to one person once, and to no log.

use std::fmt;

/// A text that opens something.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Hidden(String);

// === impl Hidden ===

impl Hidden {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for whom it is meant.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}
