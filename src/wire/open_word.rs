//! A word of a request or an answer, which this version may or may not know.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::types::{Background, ImageAction, Moderation, Quality};

/// A word of a request or an answer: one that this version knows, or any other word, unchanged.
///
/// A service may be newer than this crate. An unknown word in its answer is not an error, because the images in that
/// answer are paid for; and a request can have a word that only the service knows.
///
/// ```
/// use imagate::OpenWord;
/// use imagate::types::ResolvedQuality;
///
/// let known: OpenWord<ResolvedQuality> = serde_json::from_str("\"high\"")?;
/// assert_eq!(known, ResolvedQuality::High);
/// let new: OpenWord<ResolvedQuality> = serde_json::from_str("\"xhigh\"")?;
/// assert_eq!((new.known(), new.to_string().as_str()), (None, "xhigh"));
/// assert_eq!(serde_json::to_string(&new)?, "\"xhigh\"");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OpenWord<T> {
    /// A word that this version knows.
    Known(T),
    /// Any other word.
    Other(String),
}

// === impl OpenWord ===

impl<T> OpenWord<T> {
    /// Returns the word if this version knows it.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(word) => Some(word),
            Self::Other(_) => None,
        }
    }
}

impl<T> From<T> for OpenWord<T> {
    fn from(word: T) -> Self {
        Self::Known(word)
    }
}

/// Makes an open word of a text where a request takes one.
macro_rules! from_text {
    ($($word:ty),+) => {
        $(
            impl From<&str> for OpenWord<$word> {
                fn from(text: &str) -> Self {
                    text.parse().map_or_else(|_| Self::Other(text.to_owned()), Self::Known)
                }
            }

            impl From<String> for OpenWord<$word> {
                fn from(text: String) -> Self {
                    text.parse().map_or_else(|_| Self::Other(text), Self::Known)
                }
            }
        )+
    };
}

from_text!(Background, ImageAction, Moderation, Quality);

impl<T: FromStr> FromStr for OpenWord<T> {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| Self::Other(text.to_owned()), Self::Known))
    }
}

impl<T: PartialEq> PartialEq<T> for OpenWord<T> {
    fn eq(&self, word: &T) -> bool {
        self.known() == Some(word)
    }
}

impl<T: fmt::Display> fmt::Display for OpenWord<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(word) => word.fmt(f),
            Self::Other(word) => f.write_str(word),
        }
    }
}

impl<T: Serialize> Serialize for OpenWord<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known(word) => word.serialize(serializer),
            Self::Other(word) => serializer.serialize_str(word),
        }
    }
}

impl<'de, T: FromStr> Deserialize<'de> for OpenWord<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(text.parse().map_or_else(|_| Self::Other(text), Self::Known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::types::OutputFormat;

    fn read(json: &str) -> Option<OpenWord<OutputFormat>> {
        serde_json::from_str(json).ok()
    }

    #[test]
    fn known_and_unknown_words_are_kept() {
        assert_eq!(read("\"webp\""), Some(OpenWord::Known(OutputFormat::Webp)));
        for word in ["gif", "PNG", "", " png", "größe", "a \"quoted\" word"] {
            let json = serde_json::to_string(word).unwrap();
            let read = read(&json).unwrap();
            assert_eq!(read, OpenWord::Other(word.to_owned()));
            assert_eq!((serde_json::to_string(&read).unwrap(), read.to_string()), (json, word.to_owned()));
        }
    }

    #[test]
    fn other_values_than_texts_are_refused() {
        for json in ["1", "null", "[\"png\"]", "{\"png\": null}"] {
            assert_eq!(read(json), None, "{json}");
        }
    }
}
