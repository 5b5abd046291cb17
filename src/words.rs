//! Enumerations of words: each value is stored, sent or printed as one fixed word. Pure.

use thiserror::Error;

/// The error for a text that is none of the words of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an unknown word")]
pub(crate) struct UnknownWord;

/// Declares an enumeration of words with the same functions as those of the documents have: `ALL`, `as_str`, the text and
/// its reader. A value is serialized as its word.
macro_rules! word_enum {
    ($(#[$about:meta])* $visibility:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visibility enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every word, in the order of the declaration.
            $visibility const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// Returns the word.
            #[must_use]
            $visibility const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.into_iter().find(|word| word.as_str() == text).ok_or($crate::words::UnknownWord)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

pub(crate) use word_enum;

#[cfg(test)]
mod tests {
    use super::UnknownWord;

    word_enum! {
        /// A size of a shirt.
        pub(crate) enum ShirtSize {
            /// For few.
            VerySmall = "very_small",
            /// For most.
            Large = "large",
        }
    }

    #[test]
    fn a_value_is_read_from_its_word_and_written_as_it() {
        for size in ShirtSize::ALL {
            assert_eq!(size.to_string().parse(), Ok(size));
        }
        assert_eq!("Large".parse::<ShirtSize>(), Err(UnknownWord));
        assert_eq!(serde_json::to_string(&ShirtSize::VerySmall).unwrap(), "\"very_small\"");
    }
}
