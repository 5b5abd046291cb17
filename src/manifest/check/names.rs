//! Checks names, versions and texts.

mod lookalike;

use std::collections::HashMap;

use semver::{BuildMetadata, Version};
use unicode_normalization::UnicodeNormalization as _;

use crate::manifest::finding::{FindingCollector, SourceSpan};
use crate::manifest::located::LocatedNode;
use crate::manifest::rules::{M030, M031, M032, M033, M034, M035, M036, M037};
use crate::manifest::text::{JsonNode, child, element};

/// The maximum length of a name, in characters.
const LONGEST_NAME: usize = 64;
/// The maximum length of a text that agents read, in characters.
const LONGEST_TEXT: usize = 1024;

pub(super) fn check(manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let mut names = NameIndex::default();
    for skill in manifest.skills() {
        if let Some((name, place)) = skill.text_of("name") {
            skill_name(name, &place, findings);
            names.meet(name, &place, findings);
        }
        if let Some((text, place)) = skill.text_of("version") {
            version(text, &place, findings);
        }
        words(&skill, &[("title", true), ("description", false)], findings);
    }
    for api in manifest.apis() {
        words(&api, &[("title", true), ("product", true)], findings);
    }
    if let Some(repository) = manifest.get("repository") {
        words(&repository, &[("name", true)], findings);
    }
    releases(manifest, findings);
    hidden(manifest.node(), "", manifest, findings);
}

/// The names found so far, indexed by the forms that must not be equal for two names.
#[derive(Default)]
struct NameIndex<'a> {
    folded: HashMap<String, (&'a str, SourceSpan)>,
    skeletons: HashMap<String, (&'a str, SourceSpan)>,
}

// === impl NameIndex ===

impl<'a> NameIndex<'a> {
    fn meet(&mut self, name: &'a str, place: &LocatedNode<'a>, findings: &mut FindingCollector) {
        let folded = fold(name);
        let skeleton = lookalike::skeleton(&folded);
        let (first, span) = self.folded.entry(folded).or_insert_with(|| (name, place.span()));
        if *first != name {
            let message = format!("`{}` differs from `{}` only in case or form", shown(name), shown(first));
            findings.at(&M031, place, message).with_related(span.clone(), "the other one");
            return;
        }
        let (first, span) = self.skeletons.entry(skeleton).or_insert_with(|| (name, place.span()));
        if *first != name {
            let message = format!("`{}` looks like `{}`", shown(name), shown(first));
            findings.at(&M032, place, message).with_related(span.clone(), "the other one");
        }
    }
}

fn shown(text: &str) -> String {
    text.escape_debug().to_string()
}

/// Returns a form of a name that is equal for two names that a file system may treat as one.
pub(super) fn fold(text: &str) -> String {
    text.nfkc().flat_map(char::to_lowercase).nfkc().collect()
}

fn skill_name(name: &str, place: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let length = name.chars().count();
    let is_letter = |letter: char| letter == '-' || (letter.is_alphanumeric() && letter.to_lowercase().eq([letter]));
    let flaw = if length == 0 {
        "a skill has no empty name".to_owned()
    } else if length > LONGEST_NAME {
        format!("the name has {length} characters, and {LONGEST_NAME} is the most")
    } else if let Some(letter) = name.chars().find(|letter| !is_letter(*letter)) {
        format!("a skill name does not hold `{}`", letter.escape_debug())
    } else if name.starts_with('-') || name.ends_with('-') {
        "a skill name does not begin or end with a hyphen".to_owned()
    } else if name.contains("--") {
        "a skill name does not hold two hyphens in a row".to_owned()
    } else if !name.nfkc().eq(name.chars()) {
        "the name is not in Unicode form NFKC".to_owned()
    } else {
        return;
    };
    findings.at(&M030, place, flaw).with_help("small letters and digits, with single hyphens between them");
}

fn version(text: &str, place: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let Err(error) = Version::parse(text) else { return };
    let message = format!("`{}` is not a semantic version: {error}", shown(text));
    let finding = findings.at(&M033, place, message);
    if let Some(version) = lenient(text) {
        finding.with_help(format!("write `{version}`"));
    }
}

/// Returns the version that was most likely meant: without the `v`, and with the missing numbers added.
pub(in crate::manifest) fn lenient(text: &str) -> Option<Version> {
    let text = text.trim().trim_start_matches(['v', 'V', '=']);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (core, rest) = text.split_at(end);
    let mut numbers: Vec<&str> = core.split('.').collect();
    numbers.resize(numbers.len().max(3), "0");
    let numbers = numbers.iter().map(|number| number.parse::<u64>().map(|number| number.to_string()));
    let core = numbers.collect::<Result<Vec<_>, _>>().ok()?.join(".");
    Version::parse(&format!("{core}{rest}")).ok()
}

/// Checks texts for people. Each key comes with a flag that is true if its text must be one line.
fn words(object: &LocatedNode<'_>, keys: &[(&str, bool)], findings: &mut FindingCollector) {
    for (key, is_line) in keys {
        let Some((text, place)) = object.text_of(key) else { continue };
        let length = text.chars().count();
        let flaw = if text.trim().is_empty() {
            format!("`{key}` is empty")
        } else if text.trim() != text {
            format!("`{key}` has blanks around it")
        } else if length > LONGEST_TEXT {
            format!("`{key}` has {length} characters, and {LONGEST_TEXT} is the most")
        } else if *is_line && text.contains('\n') {
            format!("`{key}` has more than one line")
        } else {
            continue;
        };
        findings.at(&M034, &place, flaw);
    }
}

fn releases(manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let mut seen: HashMap<(&str, String), (Option<String>, LocatedNode<'_>)> = HashMap::new();
    for skill in manifest.skills() {
        let (Some((name, _)), Some((version, place))) = (skill.text_of("name"), skill.text_of("version")) else {
            continue;
        };
        let sum = skill.text_of("sha256").map(|(sum, _)| sum.to_ascii_lowercase());
        let Some((before, first)) = seen.get(&(name, release(version))) else {
            seen.insert((name, release(version)), (sum, place));
            continue;
        };
        // Two entries without a checksum count as different content.
        let is_same = sum.is_some() && *before == sum;
        let (rule, content) = if is_same { (&M037, "the same") } else { (&M036, "another") };
        let message = format!("`{}` {} stands here again, with {content} content", shown(name), shown(version));
        findings.at(rule, &place, message).with_related(first.span(), "it stood here first");
    }
}

/// Returns the identity of a release: the version without build metadata, or the text itself if it is not a version.
pub(in crate::manifest) fn release(version: &str) -> String {
    let parsed = Version::parse(version).map(|version| Version { build: BuildMetadata::EMPTY, ..version });
    parsed.map_or_else(|_| version.to_owned(), |version| version.to_string())
}

/// Checks all texts of the document, including those of unknown fields.
fn hidden(node: &JsonNode, pointer: &str, manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
    for member in node.members() {
        let pointer = child(pointer, &member.key);
        let key = SourceSpan::new(manifest.file(), member.key_span.clone());
        report_hidden(&member.key, key, &pointer, findings);
        hidden(&member.node, &pointer, manifest, findings);
    }
    for (index, one) in node.elements().iter().enumerate() {
        hidden(one, &element(pointer, index), manifest, findings);
    }
    if let Some(text) = node.text() {
        report_hidden(text, SourceSpan::new(manifest.file(), node.span.clone()), pointer, findings);
    }
}

fn report_hidden(text: &str, span: SourceSpan, pointer: &str, findings: &mut FindingCollector) {
    let is_hidden = |letter: &char| lookalike::is_hidden(*letter);
    let Some(first) = text.chars().find(is_hidden) else { return };
    let count = text.chars().filter(is_hidden).count();
    let more = if count == 1 { String::new() } else { format!(" and {} more", count - 1) };
    let message = format!("the text holds the hidden character U+{:04X}{more}", u32::from(first));
    findings.in_file(&M035, span, pointer, message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_for_a_version_is_guessed() {
        let meant = |text| lenient(text).map(|version| version.to_string());
        assert_eq!(meant("v1.2"), Some("1.2.0".to_owned()));
        assert_eq!(meant("01.2.3-rc.1"), Some("1.2.3-rc.1".to_owned()));
        assert_eq!(meant("latest"), None);
        assert_eq!(meant("1.2.3.4"), None);
    }

    #[test]
    fn build_metadata_makes_no_other_release() {
        assert_eq!(release("1.0.0+a"), release("1.0.0+b"));
        assert_ne!(release("1.0.0-a"), release("1.0.0-b"));
    }
}
