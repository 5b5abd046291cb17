//! A text that is sent and never printed.

use std::fmt;

use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text that is sent and never printed: `Debug` shows nothing of it.
///
/// ```
/// use imagate::Secret;
///
/// let secret = Secret::from("sk-example");
/// assert_eq!(format!("{secret:?}"), "[redacted]");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

// === impl Secret ===

impl Secret {
    /// Returns the text itself, for the code that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The errors of `String::deserialize` repeat a value of another type, so any value is accepted first, and the
        // errors below do not contain it.
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) if !text.is_empty() => Ok(Self(text)),
            serde_json::Value::String(_) => {
                Err(D::Error::invalid_value(Unexpected::Other("an empty text"), &"a secret"))
            }
            _ => Err(D::Error::invalid_type(Unexpected::Other("something else"), &"a secret, which is a text")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_sent_unchanged_and_never_printed() {
        let secret: Secret = serde_json::from_str("\"sk-hidden\"").unwrap();
        assert_eq!((secret.expose(), format!("{secret:?}").as_str()), ("sk-hidden", "[redacted]"));
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"sk-hidden\"");
    }

    #[test]
    fn an_error_for_an_invalid_secret_does_not_repeat_it() {
        for wrong in ["\"\"", "4711", "[\"sk-hidden\"]", "{\"sk-hidden\": 1}", "null"] {
            let message = serde_json::from_str::<Secret>(wrong).unwrap_err().to_string();
            assert!(!message.contains("sk-hidden") && !message.contains("4711"), "{message}");
        }
    }
}
