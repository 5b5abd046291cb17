//! Secret values, with the place where each was found.

use std::fmt;

/// A secret value. `Debug` shows its place instead.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ConfigSecret {
    value: String,
    source: String,
}

impl ConfigSecret {
    /// The place of secrets that the store holds.
    pub(super) const STORE_SOURCE: &str = "store";

    /// A value and its place.
    pub(crate) fn new(value: String, found: impl Into<String>) -> Self {
        Self { value, source: found.into() }
    }

    /// The value itself, for the one piece of code that sends it.
    pub(crate) fn expose(&self) -> &str {
        &self.value
    }

    /// The place of the value, which is no secret.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }
}

impl fmt::Debug for ConfigSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing_of_the_value() {
        let secret = ConfigSecret::new("sk-hidden".to_owned(), "environment variable OPENAI_API_KEY");
        assert_eq!(format!("{secret:?}"), "[redacted]");
        assert_eq!(secret.expose(), "sk-hidden");
    }
}
