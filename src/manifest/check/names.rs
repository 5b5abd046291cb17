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
const MAX_NAME_CHARS: usize = 64;
/// The maximum length of a text that agents read, in characters.
const MAX_TEXT_CHARS: usize = 1024;

pub(super) fn check(manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let mut names = NameIndex::default();
    for skill in manifest.skills() {
        if let Some((name, location)) = skill.text_of("name") {
            check_skill_name(name, &location, findings);
            names.check_and_add(name, &location, findings);
        }
        if let Some((text, location)) = skill.text_of("version") {
            check_version(text, &location, findings);
        }
        check_texts(&skill, &[("title", true), ("description", false)], findings);
    }
    for api in manifest.apis() {
        check_texts(&api, &[("title", true), ("product", true)], findings);
    }
    if let Some(repository) = manifest.get("repository") {
        check_texts(&repository, &[("name", true)], findings);
    }
    check_releases(manifest, findings);
    check_hidden_characters(manifest.node(), "", manifest, findings);
}

/// The names found so far, by the forms that no two names may share.
#[derive(Default)]
struct NameIndex<'a> {
    folded: HashMap<String, (&'a str, SourceSpan)>,
    skeletons: HashMap<String, (&'a str, SourceSpan)>,
}

// === impl NameIndex ===

impl<'a> NameIndex<'a> {
    fn check_and_add(&mut self, name: &'a str, location: &LocatedNode<'a>, findings: &mut FindingCollector) {
        let folded = fold(name);
        let skeleton = lookalike::skeleton(&folded);
        let (first, span) = self.folded.entry(folded).or_insert_with(|| (name, location.span()));
        if *first != name {
            let message = format!("`{}` differs from `{}` only in case or Unicode form", escaped(name), escaped(first));
            findings.report_at(&M031, location, message).with_related(span.clone(), "the other one");
            return;
        }
        let (first, span) = self.skeletons.entry(skeleton).or_insert_with(|| (name, location.span()));
        if *first != name {
            let message = format!("`{}` looks like `{}`", escaped(name), escaped(first));
            findings.report_at(&M032, location, message).with_related(span.clone(), "the other one");
        }
    }
}

fn escaped(text: &str) -> String {
    text.escape_debug().to_string()
}

/// Returns a form of a name that is equal for two names that a file system may treat as equal.
pub(super) fn fold(text: &str) -> String {
    text.nfkc().flat_map(char::to_lowercase).nfkc().collect()
}

fn check_skill_name(name: &str, location: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let length = name.chars().count();
    let is_allowed =
        |character: char| character == '-' || (character.is_alphanumeric() && character.to_lowercase().eq([character]));
    let message = if length == 0 {
        "the name of a skill is empty".to_owned()
    } else if length > MAX_NAME_CHARS {
        format!("the name has {length} characters; the maximum is {MAX_NAME_CHARS}")
    } else if let Some(character) = name.chars().find(|character| !is_allowed(*character)) {
        format!("a skill name must not contain `{}`", character.escape_debug())
    } else if name.starts_with('-') || name.ends_with('-') {
        "a skill name must not begin or end with a hyphen".to_owned()
    } else if name.contains("--") {
        "a skill name must not contain two hyphens in a row".to_owned()
    } else if !name.nfkc().eq(name.chars()) {
        "the name is not in Unicode form NFKC".to_owned()
    } else {
        return;
    };
    findings
        .report_at(&M030, location, message)
        .with_help("use lower-case letters and digits, with single hyphens between them");
}

fn check_version(text: &str, location: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let Err(error) = Version::parse(text) else { return };
    let message = format!("`{}` is not a semantic version: {error}", escaped(text));
    let finding = findings.report_at(&M033, location, message);
    if let Some(version) = parse_lenient_version(text) {
        finding.with_help(format!("write `{version}`"));
    }
}

/// Parses a version leniently: without a leading `v` or `=`, and with missing numbers added.
pub(in crate::manifest) fn parse_lenient_version(text: &str) -> Option<Version> {
    let text = text.trim().trim_start_matches(['v', 'V', '=']);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (core, suffix) = text.split_at(end);
    let mut numbers: Vec<&str> = core.split('.').collect();
    numbers.resize(numbers.len().max(3), "0");
    let numbers = numbers.iter().map(|number| number.parse::<u64>().map(|number| number.to_string()));
    let core = numbers.collect::<Result<Vec<_>, _>>().ok()?.join(".");
    Version::parse(&format!("{core}{suffix}")).ok()
}

/// Checks texts for people. Each key comes with a flag that is true if its text must be one line.
fn check_texts(object: &LocatedNode<'_>, keys: &[(&str, bool)], findings: &mut FindingCollector) {
    for (key, is_line) in keys {
        let Some((text, location)) = object.text_of(key) else { continue };
        let length = text.chars().count();
        let message = if text.trim().is_empty() {
            format!("`{key}` is empty")
        } else if text.trim() != text {
            format!("`{key}` has whitespace around it")
        } else if length > MAX_TEXT_CHARS {
            format!("`{key}` has {length} characters; the maximum is {MAX_TEXT_CHARS}")
        } else if *is_line && text.contains('\n') {
            format!("`{key}` has more than one line")
        } else {
            continue;
        };
        findings.report_at(&M034, &location, message);
    }
}

fn check_releases(manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let mut seen: HashMap<(&str, String), (Option<String>, LocatedNode<'_>)> = HashMap::new();
    for skill in manifest.skills() {
        let (Some((name, _)), Some((version, location))) = (skill.text_of("name"), skill.text_of("version")) else {
            continue;
        };
        let sum = skill.text_of("sha256").map(|(sum, _)| sum.to_ascii_lowercase());
        let Some((before, first)) = seen.get(&(name, release_of_version(version))) else {
            seen.insert((name, release_of_version(version)), (sum, location));
            continue;
        };
        // Two entries without a checksum count as different content.
        let is_same = sum.is_some() && *before == sum;
        let (rule, content) = if is_same { (&M037, "the same") } else { (&M036, "different") };
        let message = format!("`{}` {} is repeated, with {content} content", escaped(name), escaped(version));
        findings.report_at(rule, &location, message).with_related(first.span(), "first used here");
    }
}

/// Returns the identity of a release: the version without build metadata, or the text itself if it is not a version.
pub(in crate::manifest) fn release_of_version(version: &str) -> String {
    let parsed = Version::parse(version).map(|version| Version { build: BuildMetadata::EMPTY, ..version });
    parsed.map_or_else(|_| version.to_owned(), |version| version.to_string())
}

/// Checks all texts of the document, including those of unknown fields.
fn check_hidden_characters(
    node: &JsonNode,
    pointer: &str,
    manifest: &LocatedNode<'_>,
    findings: &mut FindingCollector,
) {
    for member in node.members() {
        let pointer = child(pointer, &member.key);
        let key = SourceSpan::new(manifest.file(), member.key_span.clone());
        report_hidden(&member.key, key, &pointer, findings);
        check_hidden_characters(&member.node, &pointer, manifest, findings);
    }
    for (index, element_node) in node.elements().iter().enumerate() {
        check_hidden_characters(element_node, &element(pointer, index), manifest, findings);
    }
    if let Some(text) = node.text() {
        report_hidden(text, SourceSpan::new(manifest.file(), node.span.clone()), pointer, findings);
    }
}

fn report_hidden(text: &str, span: SourceSpan, pointer: &str, findings: &mut FindingCollector) {
    let is_hidden = |character: &char| lookalike::is_hidden(*character);
    let Some(first) = text.chars().find(is_hidden) else { return };
    let count = text.chars().filter(is_hidden).count();
    let more = if count == 1 { String::new() } else { format!(" and {} more", count - 1) };
    let message = format!("the text contains the hidden character U+{:04X}{more}", u32::from(first));
    findings.report_in_file(&M035, span, pointer, message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_versions_are_parsed_leniently() {
        let lenient = |text| parse_lenient_version(text).map(|version| version.to_string());
        assert_eq!(lenient("v1.2"), Some("1.2.0".to_owned()));
        assert_eq!(lenient("01.2.3-rc.1"), Some("1.2.3-rc.1".to_owned()));
        assert_eq!(lenient("latest"), None);
        assert_eq!(lenient("1.2.3.4"), None);
    }

    #[test]
    fn build_metadata_does_not_change_the_release() {
        assert_eq!(release_of_version("1.0.0+a"), release_of_version("1.0.0+b"));
        assert_ne!(release_of_version("1.0.0-a"), release_of_version("1.0.0-b"));
    }
}
