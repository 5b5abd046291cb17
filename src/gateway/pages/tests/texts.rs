//! The catalogues, compared with each other and with the keys in use.

use std::collections::BTreeSet;

use regex::Regex;

use super::templates::files;
use crate::gateway::pages::language::{Language, PageTexts, catalogue};

fn keys(language: Language) -> BTreeSet<&'static str> {
    catalogue(language).keys().map(String::as_str).collect()
}

fn places(text: &str) -> BTreeSet<String> {
    Regex::new(r"\{[a-z_]+\}").unwrap().find_iter(text).map(|place| place.as_str().to_owned()).collect()
}

#[test]
fn every_language_has_every_text_with_the_same_places() {
    let english = catalogue(Language::En);
    assert!(english.len() > 200, "the catalogue cannot be read");
    assert_eq!(keys(Language::En), keys(Language::Zh));
    for (key, text) in english {
        let other = &catalogue(Language::Zh)[key];
        assert_eq!(places(text), places(other), "{key}");
        assert!(!text.trim().is_empty() && !other.trim().is_empty(), "{key}");
    }
}

#[test]
fn a_chinese_text_is_chinese() {
    let is_chinese = |letter: char| ('\u{4e00}'..='\u{9fff}').contains(&letter);
    for (key, text) in catalogue(Language::Zh) {
        // Some words are the same in both languages.
        let is_name = text.chars().all(|letter| letter.is_ascii_uppercase());
        assert!(is_name || text.chars().any(is_chinese), "{key}: {text}");
        assert!(!text.contains(", ") && !text.ends_with('.'), "{key}: {text}");
    }
}

/// Every text in quotes that has the form of a key, in the templates and in the code.
fn used() -> BTreeSet<String> {
    let form = Regex::new(r#""([a-z_]+\.[a-z_]+)""#).unwrap();
    let sections: BTreeSet<&str> = keys(Language::En).iter().filter_map(|key| key.split('.').next()).collect();
    let is_test = |path: &std::path::Path| path.components().any(|part| part.as_os_str() == "tests");
    let sources = files("html").into_iter().chain(files("rs").into_iter().filter(|(path, _)| !is_test(path)));
    let found =
        sources.flat_map(|(_, text)| form.captures_iter(&text).map(|found| found[1].to_owned()).collect::<Vec<_>>());
    // File names also have the form of a key.
    let is_file = |text: &str| [".html", ".csv", ".css", ".js", ".svg"].iter().any(|ending| text.ends_with(ending));
    found.filter(|text| sections.contains(text.split('.').next().unwrap_or_default()) && !is_file(text)).collect()
}

#[test]
fn every_text_is_used_and_every_text_that_is_used_is_there() {
    let (used, known) = (used(), keys(Language::En));
    let stem = |key: &str| key.trim_end_matches(".one").trim_end_matches(".other").to_owned();
    let stems: BTreeSet<String> = known.iter().map(|key| stem(key)).collect();
    assert_eq!(used.difference(&stems).collect::<Vec<_>>(), Vec::<&String>::new(), "used, and not there");
    assert_eq!(stems.difference(&used).collect::<Vec<_>>(), Vec::<&String>::new(), "there, and not used");
    for key in known.iter().filter(|key| key.ends_with(".one")) {
        assert!(known.contains(key.replace(".one", ".other").as_str()), "{key}");
    }
}

#[test]
fn numbers_and_names_are_put_into_their_places() {
    let (en, zh) = (PageTexts(Language::En), PageTexts(Language::Zh));
    assert_eq!(en.count("keys.total", 1), "1 key");
    assert_eq!(en.count("keys.total", 100_000), "100,000 keys");
    assert_eq!(zh.count("keys.total", 1), "1 个密钥");
    assert_eq!(en.get_with("delete.key", "name", "{name}").matches("{name}").count(), 1);
}
