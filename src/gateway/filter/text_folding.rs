//! Normalizes text as a reader sees it: all ways to write the same letters become one spelling.
//!
//! The module decides which characters are invisible, and which differences between letters do not count. It does not
//! know words. Each removed difference can make a rule miss a match or match wrongly, so only differences that a reader
//! does not see, or ignores, are removed.

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::decompose_compatible;

use super::letter_forms;

/// The replacement for an invisible character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvisibleReplacement {
    /// Nothing, as if the character were inside a word.
    Nothing,
    /// A space, as if the character were between two words.
    Space,
}

/// Returns the readings of a text, which are its normalized forms: the text without its invisible characters, and, if
/// it has any, also the text with a space in place of each.
pub(super) fn normalized_readings(text: &str) -> Vec<String> {
    let mut readings = vec![normalize(text, InvisibleReplacement::Nothing)];
    if text.chars().any(is_invisible) {
        readings.push(normalize(text, InvisibleReplacement::Space));
    }
    readings
}

/// Returns the normalized form of a rule.
pub(super) fn normalize_rule(text: &str) -> String {
    normalize(text, InvisibleReplacement::Nothing)
}

fn normalize(text: &str, replacement: InvisibleReplacement) -> String {
    let mut output = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii_graphic() {
            output.push(letter.to_ascii_lowercase());
        } else if is_invisible(letter) {
            if replacement == InvisibleReplacement::Space {
                push_space(&mut output);
            }
        } else if letter.is_whitespace() || letter.is_control() {
            push_space(&mut output);
        } else {
            push_decomposed(letter_forms::plain_form(letter), &mut output);
        }
    }
    // Decomposed syllables and vowel signs of other scripts are composed again, for the rules and for the prompts.
    if output.is_ascii() { output } else { output.nfc().collect() }
}

/// Appends the normalized form of one letter. A symbol that stands for letters, such as `™`, stays a symbol: its letters
/// would become part of the word before it.
fn push_decomposed(letter: char, output: &mut String) {
    let mut has_letters = false;
    decompose_compatible(letter, |part| has_letters |= part.is_alphabetic());
    if has_letters && !letter.is_alphanumeric() {
        output.push(letter);
    } else {
        decompose_compatible(letter, |part| push_normalized(part, output));
    }
}

/// Appends the normalized form of one letter of a decomposition.
fn push_normalized(letter: char, output: &mut String) {
    if letter.is_whitespace() {
        push_space(output);
    } else if !is_accent(letter) {
        // Lower case, upper case, then lower case: letters with the same upper case, such as `ς` and `σ`, become equal.
        let folded = letter.to_lowercase().flat_map(char::to_uppercase).flat_map(char::to_lowercase);
        output.extend(folded.filter(|letter| !is_accent(*letter)).map(letter_forms::without_marks));
    }
}

fn push_space(output: &mut String) {
    if !output.ends_with(' ') {
        output.push(' ');
    }
}

/// True for zero-width, joining, direction, variation and tag characters, and the soft hyphen.
const fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// True for marks that can be placed over any letter. The vowel signs of many scripts are not such marks.
const fn is_accent(letter: char) -> bool {
    matches!(letter,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(normalized_readings(text), expected, "{}", text.escape_unicode());
    }

    #[test]
    fn variants_of_the_same_letters_are_normalized_to_one_form() {
        for text in [
            "Example",
            "ＥＸＡＭＰＬＥ",
            "𝐞𝓍𝖆𝚖𝗽𝑙𝕖",
            "ⓔⓧⓐⓜⓟⓛⓔ",
            "🅴🆇🅰🅼🅿🅻🅴",
            "éxâmplè",
            "e\u{301}x\u{336}a\u{302}mple",
            "ᴇxᴀᴍᴘʟᴇ",
        ] {
            check(text, &["example"]);
        }
        check("STRASSE", &["strasse"]);
        check("STRAẞE", &["strasse"]);
        check("exa\u{345}mple", &["example"]);
        check("kiŀl KIĿL", &["kill kill"]);
        check("Acme™ Corp℠ Acme№1", &["acme™ corp℠ acme№1"]);
        check("Straße ﬁn ΟΔΟΣ οδος ſo İi ıI", &["strasse fin οδοσ οδοσ so ii ii"]);
        check("Ёлка й е\u{308}лка и\u{306}", &["елка и елка и"]);
        check("Łódź Tiếng Việt Ørsted", &["lodz tieng viet orsted"]);
        check("ñşộứžł ţũŵŷźƀ ＡＺ～ 𝒜𝔷𝟘𝟿 ℂℊℋ ⒜ⓩ", &["nsouzl tuwyzb az~ az09 cgh az"]);
        check("æœ÷×漢 がガ", &["æœ÷×漢 がガ"]);
    }

    #[test]
    fn spaces_and_line_ends_become_one_space() {
        check("a \t\r\n\u{a0}\u{3000}\u{2003}b\u{0}c", &["a b c"]);
    }

    #[test]
    fn invisible_characters_are_removed_or_become_a_space() {
        for invisible in "\u{200b}\u{200d}\u{feff}\u{ad}\u{2060}\u{202e}\u{fe0f}\u{e0041}\u{3164}\u{180e}".chars() {
            check(&format!("one{invisible}two"), &["onetwo", "one two"]);
        }
    }

    #[test]
    fn signs_that_belong_to_a_word_are_kept() {
        for text in ["क्षेत्र", "ภาษาไทย", "한국어", "漢字かな", "שָׁלוֹם", "العربية"]
        {
            check(text, &[text]);
        }
    }
}
