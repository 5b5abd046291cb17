//! The known agents and languages.

use crate::words::lines_of;

/// Ids of agents that read skills, spelled as installers spell them.
pub(super) const AGENTS: &[&str] = lines_of!("agents.txt");

/// Programming languages, and other formats that an API reference can state as its language.
pub(super) const LANGUAGES: &[&str] = lines_of!("languages.txt");

/// Returns true for a known programming language, and for a BCP 47 tag with a language of two or three letters.
pub(super) fn is_language(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    LANGUAGES.binary_search(&lower.as_str()).is_ok() || is_tag(text)
}

fn is_tag(text: &str) -> bool {
    let mut parts = text.split('-');
    let is_primary =
        parts.next().is_some_and(|part| (2..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_lowercase()));
    let is_part = |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_primary && parts.all(is_part) && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted() {
        assert!(AGENTS.is_sorted() && LANGUAGES.is_sorted());
    }

    #[test]
    fn both_kinds_of_languages_are_known() {
        for language in ["python", "Python", "c++", "en", "fil", "zh-Hans", "pt-BR", "de-1996"] {
            assert!(is_language(language), "{language}");
        }
        for language in ["pyhton", "", "english", "en-", "e", "en_US"] {
            assert!(!is_language(language), "{language}");
        }
    }
}
