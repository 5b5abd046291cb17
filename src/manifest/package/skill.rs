//! The rules of Agent Skills for the content of a `SKILL.md`.
//!
//! The functions are pure, and as strict as the reference validator of the format, so a skill that passes here passes
//! there.

use std::ops::Range;

use unicode_normalization::UnicodeNormalization as _;

use super::front::{SkillFile, SkillFrontMatter, SpannedText};

/// The maximum numbers of characters, from the specification of Agent Skills.
const NAME_CHARACTERS: usize = 64;
const DESCRIPTION_CHARACTERS: usize = 1024;
const COMPATIBILITY_CHARACTERS: usize = 500;

/// A fault of the front matter: a value that is wrong or missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontMatterFault {
    /// The fault, as a sentence.
    pub message: String,
    /// The location of the fault.
    pub span: Range<usize>,
    /// True if the only fault is that the format does not define the field, which some agents nevertheless use.
    pub is_extra: bool,
}

impl FrontMatterFault {
    pub(in crate::manifest) fn new(message: String, span: Range<usize>) -> Self {
        Self { message, span, is_extra: false }
    }
}

/// Returns all faults of the front matter of a skill whose folder has this name.
#[must_use]
pub fn faults(file: &SkillFile<'_>, folder: Option<&str>) -> Vec<FrontMatterFault> {
    let SkillFrontMatter { name, description, compatibility, .. } = &file.front;
    let mut faults = Vec::new();
    match name {
        Some(name) => name_faults(name, folder, &mut faults),
        None => add_missing("name", file, &mut faults),
    }
    match description {
        Some(description) => check_length(description, "description", DESCRIPTION_CHARACTERS, &mut faults),
        None => add_missing("description", file, &mut faults),
    }
    if let Some(compatibility) = compatibility {
        check_length(compatibility, "compatibility", COMPATIBILITY_CHARACTERS, &mut faults);
    }
    for key in &file.front.unknown {
        let message = format!("`{}` is not a field of Agent Skills; put it under `metadata`", key.text);
        faults.push(FrontMatterFault { message, span: key.span.clone(), is_extra: true });
    }
    faults
}

fn add_missing(field: &str, file: &SkillFile<'_>, faults: &mut Vec<FrontMatterFault>) {
    faults.push(FrontMatterFault::new(format!("`{field}` is missing"), file.front_span.clone()));
}

fn check_length(value: &SpannedText, field: &str, max_characters: usize, faults: &mut Vec<FrontMatterFault>) {
    let characters = value.text.chars().count();
    let message = if value.text.trim().is_empty() {
        format!("`{field}` is empty")
    } else if characters > max_characters {
        format!("`{field}` has {characters} characters; the maximum is {max_characters}")
    } else {
        return;
    };
    faults.push(FrontMatterFault::new(message, value.span.clone()));
}

fn name_faults(value: &SpannedText, folder: Option<&str>, faults: &mut Vec<FrontMatterFault>) {
    let earlier_faults = faults.len();
    check_length(value, "name", NAME_CHARACTERS, faults);
    if faults.len() > earlier_faults {
        return;
    }
    let name = normal_name(value.text.trim());
    let mut add = |message: String| faults.push(FrontMatterFault::new(message, value.span.clone()));
    if let Some(why) = name_fault(&name) {
        add(format!("`name` {why}"));
    }
    if let Some(folder) = folder.filter(|folder| !is_same_name(folder, &name)) {
        add(format!("`name` is `{name}`, but the folder is `{folder}`; they must be the same"));
    }
}

/// Returns true if two names of skills are equal, whatever the Unicode form of each.
#[must_use]
pub fn is_same_name(first: &str, second: &str) -> bool {
    first.trim().nfkc().eq(second.trim().nfkc())
}

/// Returns a name in the form in which names are compared, Unicode normal form KC.
pub(crate) fn normal_name(name: &str) -> String {
    name.nfkc().collect()
}

fn name_fault(name: &str) -> Option<&'static str> {
    if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        Some("begins or ends with a hyphen, or has two in a row")
    } else if name.to_lowercase() != name {
        Some("has capital letters")
    } else if !name.chars().all(|character| character.is_alphanumeric() || character == '-') {
        Some("has characters other than letters, digits and hyphens")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::package::front;

    fn messages(front: &str, folder: Option<&str>) -> Vec<String> {
        let text = format!("---\n{front}---\nText.\n");
        let file = front::read(text.as_bytes()).expect("front matter");
        faults(&file, folder).into_iter().map(|fault| fault.message).collect()
    }

    #[test]
    fn good_front_matter_has_no_faults() {
        for front in [
            "name: demo\ndescription: d\n",
            "name: demo-2\ndescription: d\ncompatibility: c\nlicense: MIT\nmetadata:\n  a: b\n",
        ] {
            assert_eq!(messages(front, None), Vec::<String>::new(), "{front}");
        }
        assert!(messages("name: größe\ndescription: d\n", Some("größe")).is_empty());
    }

    #[test]
    fn each_broken_rule_is_reported_with_its_field() {
        let overlong_field = |field: &str, length| format!("{field}: {}\n", "x".repeat(length));
        for (front, word) in [
            ("description: d\n".to_owned(), "`name` is missing"),
            ("name: demo\n".to_owned(), "`description` is missing"),
            ("name: Demo\ndescription: d\n".to_owned(), "capital"),
            ("name: -demo\ndescription: d\n".to_owned(), "hyphen"),
            ("name: de--mo\ndescription: d\n".to_owned(), "hyphen"),
            ("name: de_mo\ndescription: d\n".to_owned(), "characters other"),
            ("name: \" \"\ndescription: d\n".to_owned(), "empty"),
            ("name: demo\ndescription: \"\"\n".to_owned(), "empty"),
            (overlong_field("name", 65) + "description: d\n", "the maximum is 64"),
            (overlong_field("description", 1025) + "name: demo\n", "the maximum is 1024"),
            (overlong_field("compatibility", 501) + "name: demo\ndescription: d\n", "the maximum is 500"),
            ("name: demo\ndescription: d\nversion: \"1\"\n".to_owned(), "not a field"),
        ] {
            let messages = messages(&front, None);
            assert!(messages.len() == 1 && messages[0].contains(word), "{front}: {messages:?}");
        }
        assert!(messages("name: demo\ndescription: d\n", Some("other"))[0].contains("the folder is `other`"));
    }
}
