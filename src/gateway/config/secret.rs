//! Secret values, each with its source.

use std::fmt;

/// A secret value. `Debug` shows `[redacted]` instead.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ConfigSecret {
    value: String,
    source: String,
}

impl ConfigSecret {
    /// The source of secrets that the store holds.
    pub(super) const STORE_SOURCE: &str = "store";

    /// Creates a secret from a value and the description of its source.
    pub(crate) fn new(value: String, source: impl Into<String>) -> Self {
        Self { value, source: source.into() }
    }

    /// The value itself, for the code that sends or uses it.
    pub(crate) fn expose(&self) -> &str {
        &self.value
    }

    /// The description of the source, which is not secret.
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
    fn debug_does_not_show_the_value() {
        let secret = ConfigSecret::new("sk-hidden".to_owned(), "environment variable OPENAI_API_KEY");
        assert_eq!(format!("{secret:?}"), "[redacted]");
        assert_eq!(secret.expose(), "sk-hidden");
    }
}
