//! Values that must not be seen, and where they were found.

use std::fmt;

/// A value that must not be seen. `Debug` shows where it was found instead.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret {
    value: String,
    found: String,
}

impl Secret {
    /// Where secrets are found that the store keeps.
    pub(super) const KEPT: &str = "store";

    /// A value, and where it was found.
    pub(crate) fn new(value: String, found: impl Into<String>) -> Self {
        Self { value, found: found.into() }
    }

    /// The value itself, for the one place that sends it.
    pub(crate) fn expose(&self) -> &str {
        &self.value
    }

    /// Where the value was found, which is no secret.
    pub(crate) fn found(&self) -> &str {
        &self.found
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing_of_the_value() {
        let secret = Secret::new("sk-hidden".to_owned(), "environment variable OPENAI_API_KEY");
        assert_eq!(format!("{secret:?}"), "[redacted]");
        assert_eq!(secret.expose(), "sk-hidden");
    }
}
