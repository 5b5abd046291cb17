//! Checks paths as they are written: they must stay in the repository, and every system must support them.

mod flaws;

use std::collections::HashMap;

use super::names::fold;
use crate::manifest::finding::{FindingCollector, SourceSpan};
use crate::manifest::located::LocatedNode;
use crate::manifest::rules::{M050, M051, M052, M053, M054, M055, M056, M057, Rule};

pub(in crate::manifest) use flaws::root_escape_reason;

/// The file name extensions of packages.
pub(in crate::manifest) const PACKAGE_ENDINGS: [&str; 3] = [".zip", ".tar.gz", ".tgz"];

pub(super) fn check(manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let mut seen = PathIndex::default();
    for skill in manifest.skills() {
        if let Some((text, location)) = skill.text_of("path") {
            check_path(text, &location, &mut seen, findings);
        }
        if let Some((text, location)) = skill.text_of("package") {
            check_path(text, &location, &mut seen, findings);
            check_package_path(text, &location, &skill, findings);
        }
    }
    for api in manifest.apis() {
        if let Some((text, location)) = api.text_of("path") {
            check_path(text, &location, &mut seen, findings);
        }
    }
}

type PathIndex<'a> = HashMap<String, (&'a str, SourceSpan)>;

fn check_path<'a>(
    text: &'a str,
    location: &LocatedNode<'a>,
    seen: &mut PathIndex<'a>,
    findings: &mut FindingCollector,
) {
    if let Some(reason) = root_escape_reason(text) {
        findings.report_at(&M050, location, reason).with_help("write the path from the root of the repository");
        return;
    }
    let rules: [(&'static Rule, Option<String>); 4] = [
        (&M051, flaws::unusual_form_reason(text)),
        (&M052, flaws::portability_reason(text)),
        (&M053, flaws::normalization_reason(text)),
        (&M054, flaws::length_reason(text)),
    ];
    for (rule, reason) in rules {
        if let Some(reason) = reason {
            findings.report_at(rule, location, reason);
        }
    }
    let (first, span) = seen.entry(fold(text)).or_insert_with(|| (text, location.span()));
    if *first != text {
        let message = format!("this differs from `{}` only in case or Unicode form", first.escape_debug());
        findings.report_at(&M057, location, message).with_related(span.clone(), "the other one");
    }
}

fn check_package_path(
    text: &str,
    location: &LocatedNode<'_>,
    skill: &LocatedNode<'_>,
    findings: &mut FindingCollector,
) {
    let file = text.rsplit('/').next().unwrap_or(text);
    let Some(ending) = PACKAGE_ENDINGS.into_iter().find(|ending| file.ends_with(ending)) else {
        let finding =
            findings.report_at(&M055, location, format!("`{}` is not a known kind of package", file.escape_debug()));
        finding.with_help("packages end with `.zip`, `.tar.gz` or `.tgz`");
        return;
    };
    let (Some((name, _)), Some((version, _))) = (skill.text_of("name"), skill.text_of("version")) else { return };
    let expected = format!("{name}-{version}{ending}");
    if file != expected {
        findings
            .report_at(&M056, location, "the file is not named after its skill and version")
            .with_help(format!("name it `{}`", expected.escape_debug()));
    }
}
