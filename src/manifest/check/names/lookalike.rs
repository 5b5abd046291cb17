//! Detects characters that look alike, and characters that are invisible.

use crate::words::lines_of;

/// Characters that look like a Latin letter, each with that letter.
const LETTERS: &[&str] = lines_of!("lookalikes.txt");

/// Pairs of letters that look like one letter.
const PAIRS: [(&str, &str); 2] = [("rn", "m"), ("vv", "w")];

/// Returns a form of a name that is equal for two names that look alike, or that differ only in hyphens, underscores,
/// dots and spaces. The name must be in lower case.
pub(super) fn skeleton(name: &str) -> String {
    let letters = name.chars().filter(|letter| !matches!(letter, '-' | '_' | '.' | ' '));
    let to_latin = |letter: char| {
        let latin = LETTERS.iter().find_map(|pair| pair.strip_prefix(letter)?.chars().next());
        latin.unwrap_or(letter)
    };
    let latin: String = letters.map(to_latin).collect();
    PAIRS.iter().fold(latin, |name, (pair, letter)| name.replace(pair, letter))
}

/// Returns true for control characters except tab and line breaks, for characters without width, and for characters
/// that change the direction of text. Joiners (U+200C, U+200D) are allowed: Persian words and emoji need them.
pub(super) fn is_hidden(letter: char) -> bool {
    match letter {
        '\t' | '\n' | '\r' => false,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}' => true,
        '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}' => true,
        '\u{e0000}'..='\u{e007f}' => true,
        other => other.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_alike_have_one_skeleton() {
        for (first, second) in
            [("pdf-tools", "pdf-too1s"), ("modern", "modem"), ("paypal", "раураl"), ("foo-bar", "foobar")]
        {
            assert_eq!(skeleton(first), skeleton(second), "{first} {second}");
        }
        assert_ne!(skeleton("images"), skeleton("image"));
    }

    #[test]
    fn invisible_characters_are_hidden() {
        assert!(['\u{202e}', '\u{200b}', '\u{7}', '\u{e0041}', '\u{7f}'].into_iter().all(is_hidden));
        assert!(!['a', '\n', '\u{200d}', 'ä', '中', '👩'].into_iter().any(is_hidden));
    }
}
