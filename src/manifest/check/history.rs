//! Compares a manifest with the one that was published before, and reports changes that are not allowed.

use std::collections::BTreeMap;

use chrono::DateTime;
use semver::Version;

use super::names::{parse_lenient_version, release_of_version};
use super::{CheckOptions, shape};
use crate::manifest::finding::FindingCollector;
use crate::manifest::located::LocatedNode;
use crate::manifest::rules::{M110, M111, M112, M113, M114, M115, M116, M117};
use crate::manifest::text::SourceFile;

/// Fields of an entry that rule M117 ignores: the checksum has its own rule, and the time changes with other fields.
const MAY_CHANGE: [&str; 2] = ["sha256", "updated_at"];

pub(super) fn check(
    manifest: &LocatedNode<'_>,
    published: &SourceFile,
    options: &CheckOptions<'_>,
    findings: &mut FindingCollector,
) {
    let file = findings.next_file_id();
    let text = shape::read_text(published, file, findings);
    findings.add(published.clone());
    let Some(root) = text.and_then(|text| shape::parse_tree(&text, file, findings)) else { return };
    let previous = LocatedNode::root(&root, file);
    let (previous_skills, skills) = (skills_by_name(&previous), skills_by_name(manifest));
    for (name, entries) in &previous_skills {
        let Some(current) = skills.get(name) else {
            let message = format!("the skill `{}` was published, but is missing now", name.escape_debug());
            let location = manifest.get("skills").unwrap_or_else(|| manifest.clone());
            let finding = findings.report_at(&M112, &location, message);
            if let Some(entry) = entries.first() {
                finding.with_related(entry.span(), "it was published here");
            }
            continue;
        };
        for entry in entries {
            check_release(entry, current, findings);
        }
        check_newest(entries, current, options, findings);
    }
    check_generated_at(&previous, manifest, findings);
    check_repository_moved(&previous, manifest, findings);
}

/// The entries of each skill, in the order in which they are reported.
type SkillsByName<'a> = BTreeMap<&'a str, Vec<LocatedNode<'a>>>;

fn skills_by_name<'a>(manifest: &LocatedNode<'a>) -> SkillsByName<'a> {
    let mut skills = SkillsByName::new();
    for skill in manifest.skills() {
        if let Some((name, _)) = skill.text_of("name") {
            skills.entry(name).or_default().push(skill);
        }
    }
    skills
}

fn version_of_skill<'a>(skill: &LocatedNode<'a>) -> Option<&'a str> {
    skill.text_of("version").map(|(version, _)| version)
}

fn digest_of_skill(skill: &LocatedNode<'_>) -> Option<String> {
    skill.text_of("sha256").map(|(digest, _)| digest.trim().to_ascii_lowercase())
}

/// Checks one release that was published before.
fn check_release(previous: &LocatedNode<'_>, current: &[LocatedNode<'_>], findings: &mut FindingCollector) {
    let Some(before) = version_of_skill(previous) else { return };
    if let Some(same) = current.iter().find(|skill| version_of_skill(skill) == Some(before)) {
        if digest_of_skill(previous) == digest_of_skill(same) {
            check_unversioned_change(previous, same, findings);
            return;
        }
        let location = same.get("sha256").unwrap_or_else(|| same.clone());
        let previous_location = previous.get("sha256").unwrap_or_else(|| previous.clone());
        findings
            .report_at(
                &M113,
                &location,
                format!("the content of {} changed after it was published", before.escape_debug()),
            )
            .with_help("publish the change under a new version")
            .with_related(previous_location.span(), "the published value");
        return;
    }
    // Two versions are equal if they differ only in build metadata, or in their spelling, such as a leading `v`.
    let release = |text: &str| parse_lenient_version(text).map(|version| release_of_version(&version.to_string()));
    let is_equal = |skill: &&LocatedNode<'_>| {
        version_of_skill(skill).is_some_and(|version| release(version).is_some() && release(version) == release(before))
    };
    if let Some(other) = current.iter().find(is_equal)
        && digest_of_skill(other) != digest_of_skill(previous)
        && let (Some(location), Some(previous_location)) = (other.get("version"), previous.get("version"))
    {
        findings
            .report_at(
                &M110,
                &location,
                format!("the content changed, but this version equals {}", before.escape_debug()),
            )
            .with_help("raise the version")
            .with_related(previous_location.span(), "the published value");
    }
}

fn check_unversioned_change(previous: &LocatedNode<'_>, same: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let keys =
        |skill: &LocatedNode<'_>| skill.node().members().iter().map(|member| member.key.clone()).collect::<Vec<_>>();
    let mut changed: Vec<String> = keys(previous).into_iter().chain(keys(same)).collect();
    changed.sort_unstable();
    changed.dedup();
    changed.retain(|key| {
        let value = |skill: &LocatedNode<'_>| skill.node().get(key).map(|node| node.to_json());
        !MAY_CHANGE.contains(&key.as_str()) && value(previous) != value(same)
    });
    let Some(first) = changed.first() else { return };
    let location = same.get(first).or_else(|| same.get("version")).unwrap_or_else(|| same.clone());
    let fields: Vec<String> = changed.iter().map(|key| format!("`{}`", key.escape_debug())).collect();
    let message = format!("{} changed, but the version did not", fields.join(", "));
    findings.report_at(&M117, &location, message).with_related(previous.span(), "the published value");
}

fn check_newest(
    previous: &[LocatedNode<'_>],
    current: &[LocatedNode<'_>],
    options: &CheckOptions<'_>,
    findings: &mut FindingCollector,
) {
    let (Some((before, previous_skill)), Some((now, skill))) = (highest(previous), highest(current)) else { return };
    let Some(location) = skill.get("version") else { return };
    if now.cmp_precedence(&before).is_lt() {
        let previous_location = previous_skill.get("version").unwrap_or(previous_skill);
        findings
            .report_at(&M111, &location, format!("the newest version is {now}, but {before} was published"))
            .with_related(previous_location.span(), "the published value");
    }
    check_changelog(&before, &now, &skill, options, findings);
}

fn highest<'a>(skills: &[LocatedNode<'a>]) -> Option<(Version, LocatedNode<'a>)> {
    let versions =
        skills.iter().filter_map(|skill| Some((parse_lenient_version(version_of_skill(skill)?)?, skill.clone())));
    versions.max_by(|(first, _), (second, _)| first.cmp_precedence(second))
}

fn check_changelog(
    before: &Version,
    now: &Version,
    skill: &LocatedNode<'_>,
    options: &CheckOptions<'_>,
    findings: &mut FindingCollector,
) {
    let (Some(files), Some((path, _)), Some(location)) = (options.files, skill.text_of("path"), skill.get("version"))
    else {
        return;
    };
    if now.major <= before.major || path.trim().is_empty() || super::paths::root_escape_reason(path).is_some() {
        return;
    }
    // Paths that cannot be checked are reported by the rules about the checkout.
    if let Ok(None) = files.metadata(&format!("{}/CHANGELOG.md", path.trim_end_matches('/'))) {
        findings.report_at(&M114, &location, format!("{now} follows {before} without a `CHANGELOG.md`"));
    }
}

fn check_generated_at(previous: &LocatedNode<'_>, manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let (Some((before, previous_location)), Some((now, location))) =
        (previous.text_of("generated_at"), manifest.text_of("generated_at"))
    else {
        return;
    };
    let time = |text: &str| DateTime::parse_from_rfc3339(text).ok();
    let (Some(before), Some(now)) = (time(before), time(now)) else { return };
    let is_changed = previous.node().to_json() != manifest.node().to_json();
    if now < before || (now == before && is_changed) {
        findings
            .report_at(&M115, &location, "the manifest changed, but its time is not later")
            .with_related(previous_location.span(), "the previous time");
    }
}

fn check_repository_moved(previous: &LocatedNode<'_>, manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let (Some(previous), Some(new)) = (previous.get("repository"), manifest.get("repository")) else { return };
    for key in ["git_url", "raw_base_url"] {
        if let (Some((before, previous_location)), Some((now, location))) = (previous.text_of(key), new.text_of(key))
            && before != now
        {
            findings
                .report_at(&M116, &location, format!("`{key}` changed"))
                .with_related(previous_location.span(), "the previous value");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::check;

    #[test]
    fn removed_skills_are_reported_in_the_order_of_their_names() {
        let manifest = |skills: &str| SourceFile::new("skills.json", format!("{{\"skills\": [{skills}]}}"));
        let names: Vec<String> = (10..40).rev().map(|number| format!("skill-{number}")).collect();
        let entries: Vec<String> = names.iter().map(|name| format!("{{\"name\": \"{name}\"}}")).collect();
        let previous = manifest(&entries.join(", "));
        let report = check(manifest(""), &CheckOptions { previous: Some(&previous), ..CheckOptions::default() });
        let removed = report.findings().iter().filter(|finding| *finding.rule() == M112).map(|found| found.message());
        let expected = names.iter().rev().map(|name| format!("the skill `{name}` was published, but is missing now"));
        assert_eq!(removed.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}
