//! The rules for names of keys, users, groups and tokens, and the way names are shown.
//!
//! This module decides which characters are visible, and which names could be mistaken for others. It does not know
//! what the names refer to.
//!
//! A name that was stored before these rules existed is shown with its hidden characters escaped, so that it is not
//! mistaken for another name.

use std::borrow::Cow;

use icu_properties::props::{DefaultIgnorableCodePoint, ExtendedPictographic, GeneralCategory, Script};
use icu_properties::{CodePointMapData, CodePointSetData};
use unicode_normalization::UnicodeNormalization as _;

/// The maximum number of characters of a name (our choice): long enough for names of people, and short enough for a
/// table on a page.
pub(crate) const MAX_NAME_CHARS: usize = 128;

/// The zero width joiner, which combines several emoji into one.
const ZERO_WIDTH_JOINER: char = '\u{200d}';
/// Variation selector 16, which asks for the emoji form of a character.
const EMOJI_SELECTOR: char = '\u{fe0f}';

/// Returns the name in its composed form (NFC), so that `é` is the same letter however it was encoded; `None` if the
/// text is not a valid name.
pub(crate) fn parse_name(text: &str) -> Option<String> {
    let name = to_nfc(text);
    let has_valid_length = (1..=MAX_NAME_CHARS).contains(&name.chars().count());
    let is_readable = name.chars().any(is_visible) && !has_hidden(&name) && !name.contains(is_unusual_space);
    (has_valid_length && is_readable).then_some(name)
}

/// Like [`parse_name`], for the name of a person, in which no word may mix scripts. The error is the `reason` for
/// [`name_error_message`].
pub(crate) fn parse_person_name(text: &str) -> Result<String, &'static str> {
    match parse_name(text) {
        None => Err(INVALID_NAME),
        Some(name) if name.split(|character: char| !character.is_alphabetic()).any(mixes_scripts) => Err(MIXED_SCRIPTS),
        Some(name) => Ok(name),
    }
}

const INVALID_NAME: &str = "must have 1 to 128 visible characters, without control characters, invisible characters or \
                            characters that change the direction of the text";
const MIXED_SCRIPTS: &str =
    "has a word with letters of different scripts, such as Latin and Cyrillic, and could be mistaken for another name";

/// Returns the message for a name that [`parse_name`] refuses.
pub(crate) fn invalid_name_message(subject: &str) -> String {
    name_error_message(subject, INVALID_NAME)
}

/// Returns the message for a name that was refused for this reason.
pub(crate) fn name_error_message(subject: &str, reason: &str) -> String {
    format!("the name of the {subject} {reason}")
}

/// Returns the composed form (NFC) of a text.
fn to_nfc(text: &str) -> String {
    text.nfc().collect()
}

/// Returns the form of a name in which names are compared: without differences of case and of compatible characters
/// (NFKC), such as wide letters. Two names of one form could be mistaken for each other, so only one of them can exist.
pub(crate) fn fold(name: &str) -> String {
    // Upper case first, so that letters with several lower-case forms, such as the two forms of sigma, become one.
    let folded: String = name.nfkc().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
    folded.nfkc().collect()
}

/// Returns a text in which hidden characters are escaped, so that all characters are visible.
pub(crate) fn escape_hidden(text: &str) -> Cow<'_, str> {
    escape_hidden_except(text, |_| false)
}

/// Like [`escape_hidden`], but leaves the characters for which `keep` is true as they are.
pub(crate) fn escape_hidden_except(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    // A fast path, because nearly all texts are printable ASCII.
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for (character, is_hidden) in with_hidden_flags(text) {
        if is_hidden && !keep(character) {
            escaped.extend(character.escape_unicode());
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

fn has_hidden(text: &str) -> bool {
    with_hidden_flags(text).any(|(_, is_hidden)| is_hidden)
}

/// Returns the characters of a text, each with a flag that is true if the character is hidden at its position.
fn with_hidden_flags(text: &str) -> impl Iterator<Item = (char, bool)> {
    let mut previous = None;
    let mut remaining = text.chars();
    std::iter::from_fn(move || {
        let character = remaining.next()?;
        let is_hidden = is_hidden(previous, character, remaining.clone().next());
        previous = Some(character);
        Some((character, is_hidden))
    })
}

/// Returns true if the character is hidden at its position. [`ZERO_WIDTH_JOINER`] and [`EMOJI_SELECTOR`] are not hidden
/// if they are part of an emoji.
fn is_hidden(previous: Option<char>, character: char, next: Option<char>) -> bool {
    let is_pictograph = |character: char| CodePointSetData::new::<ExtendedPictographic>().contains(character);
    let ends_pictograph = |character: char| {
        is_pictograph(character) || character == EMOJI_SELECTOR || ('\u{1f3fb}'..='\u{1f3ff}').contains(&character)
    };
    match character {
        EMOJI_SELECTOR => !previous.is_some_and(is_pictograph),
        ZERO_WIDTH_JOINER => !(previous.is_some_and(ends_pictograph) && next.is_some_and(is_pictograph)),
        _ => is_invisible(character),
    }
}

fn is_invisible(character: char) -> bool {
    use GeneralCategory::{Control, Format, LineSeparator, ParagraphSeparator, PrivateUse, Surrogate, Unassigned};
    let category = CodePointMapData::<GeneralCategory>::new().get(character);
    let has_no_glyph =
        matches!(category, Control | Format | LineSeparator | ParagraphSeparator | PrivateUse | Surrogate | Unassigned);
    // U+2800 is the blank pattern of Braille.
    has_no_glyph || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(character) || character == '\u{2800}'
}

/// Returns true if a text that consists of this character alone would be visible.
fn is_visible(character: char) -> bool {
    use GeneralCategory::{EnclosingMark, NonspacingMark, SpaceSeparator};
    let category = CodePointMapData::<GeneralCategory>::new().get(character);
    !is_invisible(character) && !matches!(category, EnclosingMark | NonspacingMark | SpaceSeparator)
}

/// Returns true for every space except the common one, U+0020, and the ideographic one, U+3000, which is usual between
/// Chinese or Japanese words.
fn is_unusual_space(character: char) -> bool {
    let is_space = CodePointMapData::<GeneralCategory>::new().get(character) == GeneralCategory::SpaceSeparator;
    is_space && !matches!(character, ' ' | '\u{3000}')
}

/// Returns true if a word has letters of more than one script, as [`letter_script`] counts scripts.
fn mixes_scripts(word: &str) -> bool {
    let mut first = None;
    word.chars().filter_map(letter_script).any(|script| *first.get_or_insert(script) != script)
}

/// Returns the script of a character; `None` if several scripts share it, such as a combining mark. The scripts of
/// Chinese, Japanese and Korean count as one, because these languages mix them.
fn letter_script(character: char) -> Option<Script> {
    match CodePointMapData::<Script>::new().get(character) {
        Script::Common | Script::Inherited => None,
        Script::Hiragana | Script::Katakana | Script::Bopomofo | Script::Hangul => Some(Script::Han),
        script => Some(script),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_only_visible_characters() {
        for valid in [
            "ada",
            "Größe 1",
            "张伟",
            "한국 사람",
            "Ελλάδα",
            "عمر",
            "🎨",
            "👩‍🎨 studio",
            "❤️",
            "key #1 (old)",
            "a\u{3000}b",
            "👩🏽‍🎨",
        ] {
            assert_eq!(parse_name(valid).as_deref(), Some(valid), "{valid:?}");
        }
        for invalid in [
            "",
            " ",
            "\u{301}",
            "a\u{202e}b",
            "\u{2066}a",
            "a\u{200b}",
            "a\u{200d}b",
            "a\u{fe0f}",
            "1\u{fe0f}",
            "a\u{ad}b",
            "\u{3164}",
            "\u{2800}",
            "a\u{e0041}",
            "\u{e000}",
            "a\u{378}",
            "a\u{a0}b",
            "a\u{2003}b",
            "a\u{34f}",
            "a\tb",
            "a\u{2028}b",
            "\u{feff}a",
            "a\u{1f3fb}\u{200d}",
            "a\u{e0100}",
            "\u{115f}",
            "a\u{61c}",
        ] {
            assert_eq!(parse_name(invalid), None, "{invalid:?}");
        }
        assert_eq!(parse_name(&"é".repeat(128)).map(|name| name.len()), Some(256));
        assert_eq!(parse_name(&"é".repeat(129)), None);
    }

    #[test]
    fn names_that_look_the_same_are_equal() {
        assert_eq!(parse_name("Jose\u{301}"), Some("José".to_owned()));
    }

    #[test]
    fn names_that_differ_by_case_only_have_one_form() {
        for (first, second) in
            [("admin", "Admin"), ("ADA", "ada"), ("Größe", "GRÖSSE"), ("ΣΑΣ", "σας"), ("ａｄａ", "ada"), ("ﬁn", "FIN")]
        {
            assert_eq!(fold(first), fold(second), "{first} {second}");
        }
        for (first, second) in [("ada", "adam"), ("e", "é"), ("ада", "ada")] {
            assert_ne!(fold(first), fold(second), "{first} {second}");
        }
    }

    #[test]
    fn a_word_of_a_person_name_must_not_mix_scripts() {
        for valid in ["ada", "ада", "Ада Lovelace", "山田たろう", "ada-ада", "李雷2", "김 kim"] {
            assert_eq!(parse_person_name(valid).as_deref(), Ok(valid));
        }
        for invalid in ["\u{430}da", "ad\u{430}", "pаypal", "αda", "x ad\u{430}"] {
            assert_eq!(parse_person_name(invalid), Err(MIXED_SCRIPTS), "{invalid:?}");
        }
        assert_eq!(parse_person_name("\u{202e}nimda"), Err(INVALID_NAME));
    }

    #[test]
    fn hidden_characters_are_escaped() {
        assert_eq!(escape_hidden("ada"), "ada");
        assert_eq!(escape_hidden("größe 🎨 👩‍🎨"), "größe 🎨 👩‍🎨");
        assert_eq!(escape_hidden("\u{202e}nimda\n"), "\\u{202e}nimda\\u{a}");
        assert_eq!(escape_hidden_except("a\n\u{200b}", |character| character == '\n'), "a\n\\u{200b}");
    }
}
