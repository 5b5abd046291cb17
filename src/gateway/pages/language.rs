//! The languages of the pages, and their texts.
//!
//! The catalogues are `texts/en.json` and `texts/zh.json`, with the same keys and the same `{placeholders}`. The tests
//! compare them with each other, and with the keys that the pages use.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::LazyLock;

use crate::words::word_enum;

word_enum! {
    /// A language of the pages.
    pub(super) enum Language {
        /// English.
        En = "en",
        /// Chinese, in simplified characters.
        Zh = "zh",
    }
}

/// The texts of one language.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageTexts(pub(super) Language);

type TextCatalogue = HashMap<String, String>;

static EN: LazyLock<TextCatalogue> = LazyLock::new(|| parse_catalogue(include_str!("texts/en.json")));
static ZH: LazyLock<TextCatalogue> = LazyLock::new(|| parse_catalogue(include_str!("texts/zh.json")));

/// Parses a catalogue. A catalogue that cannot be parsed is empty, and pages then show the keys instead of texts; the
/// tests check that both catalogues can be parsed.
fn parse_catalogue(json: &str) -> TextCatalogue {
    serde_json::from_str(json).unwrap_or_default()
}

// === impl Language ===

impl Language {
    /// The language for a request: the chosen language, else the language that the browser prefers, else English.
    pub(super) fn choose(chosen: Option<&str>, accepted: &str) -> Self {
        chosen.and_then(|code| code.parse().ok()).or_else(|| Self::negotiate(accepted)).unwrap_or(Self::En)
    }

    /// The tag, as in `<html lang>`.
    pub(super) const fn tag(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::Zh => "zh-Hans",
        }
    }

    /// The name of the language in the language itself.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::En => "English",
            Self::Zh => "中文",
        }
    }

    /// The available language with the highest weight among the first 32 (our choice) of the header `Accept-Language`.
    fn negotiate(accepted: &str) -> Option<Self> {
        let mut best: Option<(f32, Self)> = None;
        for item in accepted.split(',').take(32) {
            let (tag, weight) = item.split_once(';').unwrap_or((item, "q=1"));
            let weight = weight.trim().strip_prefix("q=").and_then(|text| text.parse().ok()).unwrap_or(0.0_f32);
            let primary = tag.trim().split('-').next().unwrap_or_default().to_ascii_lowercase();
            let is_better = best.is_none_or(|(highest, _)| weight > highest);
            if let Some(language) = primary.parse().ok().filter(|_| weight > 0.0 && is_better) {
                best = Some((weight, language));
            }
        }
        best.map(|(_, language)| language)
    }
}

// === impl PageTexts ===

impl PageTexts {
    /// The text of a key; the key itself if it has no text.
    pub(super) fn get(self, key: &str) -> &str {
        catalogue(self.0).get(key).map_or(key, String::as_str)
    }

    /// The text of a key, in which a value replaces the placeholder.
    pub(super) fn get_with(self, key: &str, placeholder: &str, value: impl Display) -> String {
        self.get(key).replace(&format!("{{{placeholder}}}"), &value.to_string())
    }

    /// The text of a key for a number: the text of `key.one` or `key.other`, in which the number replaces `{n}`.
    pub(super) fn count(self, key: &str, number: i64) -> String {
        let form = if number == 1 { "one" } else { "other" };
        self.get_with(&format!("{key}.{form}"), "n", super::format::with_thousands_separators(number))
    }
}

/// The key of the text of a word, such as `role.admin` for the word `admin` of the family `role`; empty if there is none.
pub(super) fn word_key(family: &str, word: impl Display) -> &'static str {
    EN.get_key_value(&format!("{family}.{word}")).map_or("", |(key, _)| key)
}

/// The texts of a language.
pub(super) fn catalogue(language: Language) -> &'static TextCatalogue {
    match language {
        Language::En => &EN,
        Language::Zh => &ZH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_language_has_priority_over_the_browser() {
        assert_eq!(Language::choose(Some("zh"), "en"), Language::Zh);
        assert_eq!(Language::choose(Some("klingon"), "zh-CN,zh;q=0.9,en;q=0.8"), Language::Zh);
        assert_eq!(Language::choose(None, "de-DE,de;q=0.9,en;q=0.5,zh;q=0.4"), Language::En);
        assert_eq!(Language::choose(None, "en;q=0.3, ZH-tw;q=0.4"), Language::Zh);
        for header in ["", "*", "de", "zh;q=0", ";;;,,,", "zh;q=nan"] {
            assert_eq!(Language::choose(None, header), Language::En, "{header}");
        }
    }
}
