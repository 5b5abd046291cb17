//! Enumerations of words: each value is stored, sent or printed as one fixed word. And lists of words, which are text
//! files. Pure.

#[cfg(feature = "gateway")]
use thiserror::Error;

#[cfg(feature = "gateway")]
/// The error for a text that is none of the words of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an unknown word")]
pub(crate) struct UnknownWord;

#[cfg(feature = "gateway")]
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

#[cfg(feature = "gateway")]
pub(crate) use word_enum;

/// The lines of a text file, as a list that the compiler makes.
macro_rules! lines_of {
    ($file:literal) => {{
        const TEXT: &str = include_str!($file);
        const COUNT: usize = $crate::words::count_lines(TEXT);
        &$crate::words::split_lines::<COUNT>(TEXT)
    }};
}

pub(crate) use lines_of;

/// Returns the number of lines of a text. The last one has an end, too.
pub(crate) const fn count_lines(text: &str) -> usize {
    let (mut count, mut at) = (0, 0);
    while at < text.len() {
        count += (text.as_bytes()[at] == b'\n') as usize;
        at += 1;
    }
    count
}

/// Returns the lines of a text.
pub(crate) const fn split_lines<const COUNT: usize>(text: &'static str) -> [&'static str; COUNT] {
    let mut lines = [""; COUNT];
    let (mut rest, mut at, mut index) = (text, 0, 0);
    while index < COUNT {
        if rest.as_bytes()[at] == b'\n' {
            let (line, following) = rest.split_at(at);
            lines[index] = line;
            rest = following.split_at(1).1;
            (at, index) = (0, index + 1);
        } else {
            at += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "gateway")]
    use super::UnknownWord;

    #[cfg(feature = "gateway")]
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
    fn the_lines_of_a_text_are_a_list() {
        const TEXT: &str = "one\n two \nü\n";
        assert_eq!(super::split_lines::<{ super::count_lines(TEXT) }>(TEXT), ["one", " two ", "ü"]);
    }

    #[cfg(feature = "gateway")]
    #[test]
    fn a_value_is_read_from_its_word_and_written_as_it() {
        for size in ShirtSize::ALL {
            assert_eq!(size.to_string().parse(), Ok(size));
        }
        assert_eq!("Large".parse::<ShirtSize>(), Err(UnknownWord));
        assert_eq!(serde_json::to_string(&ShirtSize::VerySmall).unwrap(), "\"very_small\"");
    }
}
