//! Checks tags, agents and API references.

mod known;

use std::collections::HashMap;

use super::CheckOptions;
use super::fields::nearest;
use super::paths::root_escape_reason;
use crate::manifest::finding::FindingCollector;
use crate::manifest::located::LocatedNode;
use crate::manifest::rules::{M060, M061, M062, M063, M064, M065, M066, Rule};

pub(super) fn check(manifest: &LocatedNode<'_>, options: &CheckOptions<'_>, findings: &mut FindingCollector) {
    let mut ids: HashMap<&str, LocatedNode<'_>> = HashMap::new();
    for api in manifest.apis() {
        check_words(&api, "tags", &M060, findings);
        if let Some((id, location)) = api.text_of("id") {
            check_api_id(id, &location, findings);
            if let Some(first) = ids.get(id) {
                findings
                    .report_at(&M063, &location, format!("the id `{}` is repeated", id.escape_debug()))
                    .with_related(first.span(), "first used here");
            } else {
                ids.insert(id, location);
            }
        }
        if let Some((language, location)) = api.text_of("language") {
            check_language(language, &location, findings);
        }
    }
    for skill in manifest.skills() {
        check_words(&skill, "tags", &M060, findings);
        check_words(&skill, "agents", &M061, findings);
        for agent in skill.elements_of("agents") {
            check_agent(&agent, findings);
        }
        for document in skill.elements_of("api_docs") {
            check_reference(&document, &ids, options, findings);
        }
    }
}

/// Checks the texts of a list: none may be empty, repeated, surrounded by whitespace, or written with capital letters.
fn check_words(object: &LocatedNode<'_>, key: &str, rule: &'static Rule, findings: &mut FindingCollector) {
    let mut seen: HashMap<String, LocatedNode<'_>> = HashMap::new();
    for location in object.elements_of(key) {
        let Some(text) = location.text() else { continue };
        if text.trim().is_empty() {
            findings.report_at(rule, &location, "this is empty");
            continue;
        }
        let plain = text.trim().to_lowercase();
        if plain != text {
            findings
                .report_at(
                    rule,
                    &location,
                    format!("`{}` has whitespace around it or capital letters", text.escape_debug()),
                )
                .with_help(format!("write `{}`", plain.escape_debug()));
        }
        if let Some(first) = seen.get(&plain) {
            findings
                .report_at(rule, &location, format!("`{}` is repeated", plain.escape_debug()))
                .with_related(first.span(), "first used here");
        } else {
            seen.insert(plain, location);
        }
    }
}

fn check_agent(location: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let Some(text) = location.text().map(|text| text.trim().to_lowercase()) else { return };
    if known::AGENTS.contains(&text.as_str()) {
        return;
    }
    if let Some(agent) = nearest(&text, known::AGENTS.iter().copied()) {
        findings
            .report_at(&M062, location, format!("`{}` is nearly the id of an agent", text.escape_debug()))
            .with_help(format!("did you mean `{agent}`?"));
    }
}

fn check_api_id(id: &str, location: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_./".contains(&byte);
    if id.is_empty() {
        findings.report_at(&M064, location, "the id is empty");
    } else if !id.bytes().all(is_allowed) {
        findings.report_at(
            &M064,
            location,
            format!("`{}` contains characters that are not allowed", id.escape_debug()),
        );
    }
}

fn check_language(text: &str, location: &LocatedNode<'_>, findings: &mut FindingCollector) {
    if known::is_language(text) {
        return;
    }
    let message = format!("`{}` is neither a known programming language nor a language tag", text.escape_debug());
    let finding = findings.report_at(&M065, location, message);
    if let Some(language) = nearest(text, known::LANGUAGES.iter().copied()) {
        finding.with_help(format!("did you mean `{language}`?"));
    }
}

/// Returns the path in an element of `api_docs`: the element itself if it is a text, otherwise its field `path`.
/// Returns `None` if there is neither, or if the text does not look like a path.
fn path_of<'a>(document: &LocatedNode<'a>) -> Option<(&'a str, LocatedNode<'a>)> {
    let (text, location) = match document.text() {
        Some(text) => (text, document.clone()),
        None => document.text_of("path")?,
    };
    (is_path(text) && !is_address(text)).then_some((text, location))
}

fn is_path(text: &str) -> bool {
    let file_extensions = ["md", "json", "yaml", "yml", "txt", "html", "rst", "mdx"];
    text.contains('/') || text.rsplit_once('.').is_some_and(|(_, ending)| file_extensions.contains(&ending))
}

fn is_address(text: &str) -> bool {
    text.contains("://")
}

fn check_reference(
    document: &LocatedNode<'_>,
    ids: &HashMap<&str, LocatedNode<'_>>,
    options: &CheckOptions<'_>,
    findings: &mut FindingCollector,
) {
    let id = match document.text() {
        Some(text) => Some((text, document.clone())),
        None => document.text_of("id"),
    };
    if id.as_ref().is_some_and(|(id, _)| ids.contains_key(id)) {
        return;
    }
    if let Some((text, location)) = path_of(document) {
        check_path_exists(text, &location, options, findings);
        return;
    }
    let Some((id, location)) = id.filter(|(id, _)| !is_address(id)) else { return };
    let finding = findings.report_at(&M066, &location, format!("there is no API reference `{}`", id.escape_debug()));
    if let Some(known) = nearest(id, ids.keys().copied()) {
        finding.with_help(format!("did you mean `{known}`?"));
    }
}

fn check_path_exists(
    text: &str,
    location: &LocatedNode<'_>,
    options: &CheckOptions<'_>,
    findings: &mut FindingCollector,
) {
    // This may just as well be the path of an HTTP endpoint.
    if text.starts_with('/') {
        return;
    }
    if let Some(reason) = root_escape_reason(text) {
        findings.report_at(&M066, location, reason);
    } else if let Some(files) = options.files
        // Paths that cannot be checked are reported by the rules about the checkout.
        && let Ok(None) = files.metadata(text.trim_end_matches('/'))
    {
        findings.report_at(&M066, location, format!("`{}` is not in the repository", text.escape_debug()));
    }
}
