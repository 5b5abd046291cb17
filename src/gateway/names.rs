//! Decides which names people can give to keys, users, groups and tokens, and how a name is shown.
//!
//! This module decides which characters are visible, and which names look like others. It does not know what the names
//! are for.
//!
//! A name that was stored before these rules is shown with its hidden characters escaped, so that it is not mistaken
//! for another name. It carries finding F19 of the first review.

use std::borrow::Cow;

use icu_properties::props::{DefaultIgnorableCodePoint, ExtendedPictographic, GeneralCategory, Script};
use icu_properties::{CodePointMapData, CodePointSetData};
use unicode_normalization::UnicodeNormalization as _;

/// Long enough for the names of people, and short enough for a table on a page.
pub(crate) const MAX_NAME_CHARS: usize = 128;

/// The zero width joiner, which joins emoji to one picture.
const ZERO_WIDTH_JOINER: char = '\u{200d}';
/// Variation selector 16, which asks for the emoji form of a character.
const EMOJI_SELECTOR: char = '\u{fe0f}';

/// Returns the name in its composed form (NFC), so that names that look the same are the same; `None` if it cannot be a
/// name.
pub(crate) fn parse_name(text: &str) -> Option<String> {
    let name = to_nfc(text);
    let fits = (1..=MAX_NAME_CHARS).contains(&name.chars().count());
    let is_seen = name.chars().any(is_visible) && !has_hidden(&name) && !name.contains(is_unusual_space);
    (fits && is_seen).then_some(name)
}

/// Like [`parse_name`], for the name of a person, in which no word may mix scripts.
pub(crate) fn parse_person_name(text: &str) -> Result<String, &'static str> {
    match parse_name(text) {
        None => Err(INVALID_NAME),
        Some(name) if name.split(|letter: char| !letter.is_alphabetic()).any(mixes_scripts) => Err(MIXED_SCRIPTS),
        Some(name) => Ok(name),
    }
}

const INVALID_NAME: &str = "must have 1 to 128 visible characters, without control characters, invisible characters or characters that change the direction of the text";
const MIXED_SCRIPTS: &str =
    "has a word with letters of different scripts, such as Latin and Cyrillic, and could be mistaken for another name";

/// Returns the message for a name that cannot be used.
pub(crate) fn invalid_name_message(subject: &str) -> String {
    name_error_message(subject, INVALID_NAME)
}

/// Returns the message for a name that [`parse_person_name`] refuses for this reason.
pub(crate) fn name_error_message(subject: &str, reason: &str) -> String {
    format!("the name of the {subject} {reason}")
}

/// Returns the composed form (NFC) of a text.
pub(crate) fn to_nfc(text: &str) -> String {
    text.nfc().collect()
}

/// Returns a text in which every character is visible, because hidden ones are escaped.
pub(crate) fn escape_hidden(text: &str) -> Cow<'_, str> {
    escape_hidden_except(text, |_| false)
}

/// Like [`escape_hidden`], but leaves the characters for which `keep` is true as they are.
pub(crate) fn escape_hidden_except(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    // Fast path, because nearly all texts are plain ASCII.
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for (letter, is_hidden) in with_hidden_flags(text) {
        if is_hidden && !keep(letter) {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

fn has_hidden(text: &str) -> bool {
    with_hidden_flags(text).any(|(_, is_hidden)| is_hidden)
}

/// Returns the characters, each with true if it is hidden at its position.
fn with_hidden_flags(text: &str) -> impl Iterator<Item = (char, bool)> {
    let mut before = None;
    let mut rest = text.chars();
    std::iter::from_fn(move || {
        let letter = rest.next()?;
        let is_hidden = is_hidden(before, letter, rest.clone().next());
        before = Some(letter);
        Some((letter, is_hidden))
    })
}

/// Returns true if the character is hidden at its position. Joiners and selectors count as visible only if they form an
/// emoji.
fn is_hidden(before: Option<char>, letter: char, after: Option<char>) -> bool {
    let is_picture = |letter: char| CodePointSetData::new::<ExtendedPictographic>().contains(letter);
    let ends_picture =
        |letter: char| is_picture(letter) || letter == EMOJI_SELECTOR || ('\u{1f3fb}'..='\u{1f3ff}').contains(&letter);
    match letter {
        EMOJI_SELECTOR => !before.is_some_and(is_picture),
        ZERO_WIDTH_JOINER => !(before.is_some_and(ends_picture) && after.is_some_and(is_picture)),
        _ => is_invisible(letter),
    }
}

fn is_invisible(letter: char) -> bool {
    use GeneralCategory::{Control, Format, LineSeparator, ParagraphSeparator, PrivateUse, Surrogate, Unassigned};
    let category = CodePointMapData::<GeneralCategory>::new().get(letter);
    let is_nothing =
        matches!(category, Control | Format | LineSeparator | ParagraphSeparator | PrivateUse | Surrogate | Unassigned);
    // U+2800 is the blank pattern of Braille.
    is_nothing || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(letter) || letter == '\u{2800}'
}

/// Returns true if a text that consists of this character alone would be visible.
fn is_visible(letter: char) -> bool {
    use GeneralCategory::{EnclosingMark, NonspacingMark, SpaceSeparator};
    let category = CodePointMapData::<GeneralCategory>::new().get(letter);
    !is_invisible(letter) && !matches!(category, EnclosingMark | NonspacingMark | SpaceSeparator)
}

/// Returns true for a space that looks like U+0020 but is not; the ideographic space looks different.
fn is_unusual_space(letter: char) -> bool {
    let is_space = CodePointMapData::<GeneralCategory>::new().get(letter) == GeneralCategory::SpaceSeparator;
    is_space && !matches!(letter, ' ' | '\u{3000}')
}

/// Returns true if a word has letters of scripts that no language writes together.
fn mixes_scripts(word: &str) -> bool {
    let mut first = None;
    word.chars().filter_map(letter_script).any(|writing| *first.get_or_insert(writing) != writing)
}

/// Returns the script of a letter; the scripts of Chinese, Japanese and Korean count as one, because their languages
/// mix them.
fn letter_script(letter: char) -> Option<Script> {
    match CodePointMapData::<Script>::new().get(letter) {
        Script::Common | Script::Inherited => None,
        Script::Hiragana | Script::Katakana | Script::Bopomofo | Script::Hangul => Some(Script::Han),
        script => Some(script),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_only_letters_that_can_be_seen() {
        for good in [
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
            assert_eq!(parse_name(good).as_deref(), Some(good), "{good:?}");
        }
        for bad in [
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
            assert_eq!(parse_name(bad), None, "{bad:?}");
        }
        assert_eq!(parse_name(&"é".repeat(128)).map(|name| name.len()), Some(256));
        assert_eq!(parse_name(&"é".repeat(129)), None);
    }

    #[test]
    fn names_that_look_the_same_are_the_same() {
        assert_eq!(parse_name("Jose\u{301}"), Some("José".to_owned()));
    }

    #[test]
    fn no_word_of_a_persons_name_mixes_scripts() {
        for good in ["ada", "ада", "Ада Lovelace", "山田たろう", "ada-ада", "李雷2", "김 kim"] {
            assert_eq!(parse_person_name(good).as_deref(), Ok(good));
        }
        for bad in ["\u{430}da", "ad\u{430}", "pаypal", "αda", "x ad\u{430}"] {
            assert_eq!(parse_person_name(bad), Err(MIXED_SCRIPTS), "{bad:?}");
        }
        assert_eq!(parse_person_name("\u{202e}nimda"), Err(INVALID_NAME));
    }

    #[test]
    fn what_is_hidden_is_shown() {
        assert_eq!(escape_hidden("ada"), "ada");
        assert_eq!(escape_hidden("größe 🎨 👩‍🎨"), "größe 🎨 👩‍🎨");
        assert_eq!(escape_hidden("\u{202e}nimda\n"), "\\u{202e}nimda\\u{a}");
        assert_eq!(escape_hidden_except("a\n\u{200b}", |letter| letter == '\n'), "a\n\\u{200b}");
    }
}
