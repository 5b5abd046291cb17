//! Tests that compare the text catalogues with each other and with the keys in use.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

use super::templates::files;
use crate::gateway::pages::language::{Language, PageTexts, catalogue};
use crate::gateway::pages::setting_fields::LIMIT_FIELDS;
use crate::gateway::usage::RECORD_COLUMNS;

fn keys(language: Language) -> BTreeSet<&'static str> {
    catalogue(language).keys().map(String::as_str).collect()
}

/// The placeholders in a text.
fn placeholders(text: &str) -> BTreeSet<String> {
    Regex::new(r"\{[a-z_]+\}").unwrap().find_iter(text).map(|found| found.as_str().to_owned()).collect()
}

#[test]
fn all_languages_have_the_same_texts_and_placeholders() {
    let english = catalogue(Language::En);
    assert!(english.len() > 200, "the catalogue cannot be read");
    assert_eq!(keys(Language::En), keys(Language::Zh));
    for (key, text) in english {
        let chinese = &catalogue(Language::Zh)[key];
        assert_eq!(placeholders(text), placeholders(chinese), "{key}");
        assert!(!text.trim().is_empty() && !chinese.trim().is_empty(), "{key}");
    }
}

#[test]
fn chinese_texts_have_chinese_characters() {
    let is_chinese = |character: char| ('\u{4e00}'..='\u{9fff}').contains(&character);
    for (key, text) in catalogue(Language::Zh) {
        // Some words are the same in both languages.
        let is_name = text.chars().all(|character| character.is_ascii_uppercase());
        assert!(is_name || text.chars().any(is_chinese), "{key}: {text}");
        assert!(!text.contains(", ") && !text.ends_with('.'), "{key}: {text}");
    }
}

/// The families of texts whose keys are not written in the code: the family, and the words of the admin API in it.
const WORD_FAMILIES: [(&str, &str); 8] = [
    ("state", "KeyState"),
    ("state", "RecordState"),
    ("reason", "RecordReason"),
    ("cost", "CostBasis"),
    ("cost", "CostReason"),
    ("role", "Role"),
    ("actor", "ActorKind"),
    ("test", "AccountTestResult"),
];

/// The words of completed changes, as the code writes them into addresses.
const NOTICES: [&str; 30] = [
    "disabled",
    "enabled",
    "deleted",
    "keys-disabled",
    "keys-enabled",
    "keys-deleted",
    "saved",
    "password",
    "signed-out",
    "ended",
    "session-ended",
    "sessions-ended",
    "factor-off",
    "disconnected",
    "person-disconnected",
    "factor-reset",
    "revoked",
    "group",
    "group-accounts",
    "group-deleted",
    "policy",
    "user-disabled",
    "user-enabled",
    "account-added",
    "account-deleted",
    "account-secret",
    "account-disabled",
    "account-enabled",
    "price",
    "price-deleted",
];

/// The keys of the texts of words, of the causes of a cooldown, and of completed changes.
fn word_keys() -> BTreeSet<String> {
    let document: Value = serde_json::from_str(crate::tables::ADMIN_OPENAPI).unwrap();
    let mut keys: BTreeSet<String> =
        ["exhausted", "throttled", "text_exhausted", "text_throttled", "unauthorized", "token"]
            .map(|cause| format!("cause.{cause}"))
            .into();
    keys.extend(NOTICES.map(|notice| format!("done.{}", notice.replace('-', "_"))));
    for (family, schema) in WORD_FAMILIES {
        let words = document["components"]["schemas"][schema]["enum"].as_array().unwrap();
        keys.extend(words.iter().map(|word| format!("{family}.{}", word.as_str().unwrap())));
    }
    keys
}

/// All quoted strings in the templates and the code that look like a key of a text, and whose part before the dot is
/// that of a key of the catalogue; and the keys of words and of the titles of columns.
fn used_keys() -> BTreeSet<String> {
    let pattern = Regex::new(r#""([a-z_]+\.[a-z_]+)""#).unwrap();
    let sections: BTreeSet<&str> = keys(Language::En).iter().filter_map(|key| key.split('.').next()).collect();
    let is_test = |path: &std::path::Path| path.components().any(|part| part.as_os_str() == "tests");
    let sources = files("html").into_iter().chain(files("rs").into_iter().filter(|(path, _)| !is_test(path)));
    let candidates = sources
        .flat_map(|(_, text)| pattern.captures_iter(&text).map(|captures| captures[1].to_owned()).collect::<Vec<_>>());
    // File names also have the form of a key.
    let is_file =
        |text: &str| [".html", ".csv", ".css", ".js", ".svg"].iter().any(|extension| text.ends_with(extension));
    let candidates =
        candidates.filter(|text| sections.contains(text.split('.').next().unwrap_or_default()) && !is_file(text));
    let titles = RECORD_COLUMNS.iter().filter_map(|column| column.title).map(str::to_owned);
    let limits = LIMIT_FIELDS.iter().flat_map(|field| [field.label, field.hint()]).filter(|key| !key.is_empty());
    candidates.chain(word_keys()).chain(titles).chain(limits.map(str::to_owned)).collect()
}

#[test]
fn the_catalogues_have_exactly_the_used_texts() {
    let (used, known) = (used_keys(), keys(Language::En));
    let stem = |key: &str| key.trim_end_matches(".one").trim_end_matches(".other").to_owned();
    let stems: BTreeSet<String> = known.iter().map(|key| stem(key)).collect();
    assert_eq!(used.difference(&stems).collect::<Vec<_>>(), Vec::<&String>::new(), "used, but missing");
    assert_eq!(stems.difference(&used).collect::<Vec<_>>(), Vec::<&String>::new(), "present, but unused");
    for key in known.iter().filter(|key| key.ends_with(".one")) {
        assert!(known.contains(key.replace(".one", ".other").as_str()), "{key}");
    }
}

#[test]
fn placeholders_are_replaced_by_numbers_and_names() {
    let (en, zh) = (PageTexts(Language::En), PageTexts(Language::Zh));
    assert_eq!(en.count("keys.total", 1), "1 key");
    assert_eq!(en.count("keys.total", 100_000), "100,000 keys");
    assert_eq!(zh.count("keys.total", 1), "1 个密钥");
    assert_eq!(en.get_with("delete.key", "name", "{name}").matches("{name}").count(), 1);
}
