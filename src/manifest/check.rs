//! The check: one pass from the bytes of a manifest to all of its findings.
//!
//! The module decides the order in which the rules are checked, and the level of a finding after the options are
//! applied.

mod digests;
mod fields;
mod file_read_counter;
mod history;
mod layout;
mod lists;
mod names;
mod network;
mod options;
mod paths;
mod shape;
mod times;
mod urls;

pub(super) use fields::nearest;
use file_read_counter::FileReadCounter;
pub(super) use names::parse_lenient_version;
pub use options::{CheckOptions, RuleOverride, RuleOverrideError, RuleOverrides};
pub(super) use shape::problem as shape_problem;
pub use urls::may_be_requested;

use super::files::RepositoryFiles;
use super::finding::{CheckReport, CheckedCounts, FindingCollector};
use super::located::LocatedNode;
use super::package::{self, CheckScope, VerifiedPackage};
use super::text::SourceFile;
use super::threads::ThreadLimit;

/// The schema, which defines the shape of a manifest.
pub(super) const SCHEMA: &str = include_str!("../../schemas/skills-registry.schema.json");

/// The number of skills in one unit of work (our choice).
const SKILLS_PER_ITEM: usize = 64;

/// Checks a manifest against all rules that apply.
///
/// It never fails: input that cannot be read is a finding.
#[must_use]
pub fn check(source: SourceFile, options: &CheckOptions<'_>) -> CheckReport {
    check_source(source, options, CheckScope::Everything, |manifest, text, findings| {
        check_everything(manifest, text, options, findings);
    })
}

/// Checks only the shape of the manifest and the packages: for callers that have no checkout.
///
/// The packages must be safe, have no files with secrets, and be those of the skills that the manifest names. Of their
/// contents, only errors are reported.
#[must_use]
pub fn verify(source: SourceFile, options: &CheckOptions<'_>) -> CheckReport {
    let scope = CheckScope::Packages;
    check_source(source, options, scope, |manifest, _, findings| {
        run_checks(manifest, &[&|findings| verify_manifest(manifest, findings)], options, scope, findings);
    })
}

/// Checks the shape of the manifest and the package of one of its skills, which `index` names, as [`verify`] does.
/// Returns the package only if there are no errors.
#[must_use]
pub fn verify_package(
    source: SourceFile,
    index: usize,
    files: &dyn RepositoryFiles,
) -> (CheckReport, Option<VerifiedPackage>) {
    let (options, scope) = (CheckOptions { files: Some(files), ..CheckOptions::default() }, CheckScope::Packages);
    let mut package = None;
    let report = check_source(source, &options, scope, |manifest, _, findings| {
        verify_manifest(manifest, findings);
        let checker = package::RepositoryChecker::new(files, options.display_root, scope);
        package = manifest.skills().nth(index).and_then(|skill| checker.verified_package(&skill, findings));
    });
    let package = package.filter(|_| !report.has_errors());
    (report, package)
}

/// Checks what [`verify`] requires of the manifest by itself.
fn verify_manifest(manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
    shape::check(manifest, findings);
    urls::check_unsafe(manifest, findings);
}

fn check_source(
    source: SourceFile,
    options: &CheckOptions<'_>,
    scope: CheckScope,
    inspect: impl FnOnce(&LocatedNode<'_>, &str, &mut FindingCollector),
) -> CheckReport {
    let mut findings = FindingCollector::default();
    let file = findings.next_file_id();
    let text = shape::read_text(&source, file, &mut findings);
    findings.add(source);
    let root = text.as_ref().and_then(|text| shape::parse_tree(text, file, &mut findings));
    if let (Some(text), Some(root)) = (&text, &root) {
        inspect(&LocatedNode::root(root, file), text, &mut findings);
    }
    findings.finish(options.checked_rules(root.is_some(), scope), |finding| options.apply_level(finding))
}

/// A check of the manifest by itself.
type ManifestCheck<'a> = &'a (dyn Fn(&mut FindingCollector) + Sync);

/// The unit of work of one thread. It does not depend on the results of other units.
#[derive(Clone, Copy)]
enum CheckWorkItem<'a, 'm> {
    ManifestOnly(ManifestCheck<'a>),
    /// The files and packages of a group of skills.
    Skills(&'a package::RepositoryChecker<'a>, &'a [LocatedNode<'m>]),
}

fn run_checks(
    manifest: &LocatedNode<'_>,
    manifest_checks: &[ManifestCheck<'_>],
    options: &CheckOptions<'_>,
    scope: CheckScope,
    findings: &mut FindingCollector,
) {
    let files = options.files.map(FileReadCounter::new);
    let checker = files.as_ref().map(|files| package::RepositoryChecker::new(files, options.display_root, scope));
    let skills: Vec<LocatedNode<'_>> = checker.iter().flat_map(|_| manifest.skills()).collect();
    let mut items: Vec<CheckWorkItem<'_, '_>> =
        manifest_checks.iter().copied().map(CheckWorkItem::ManifestOnly).collect();
    items.extend(
        checker
            .iter()
            .flat_map(|checker| skills.chunks(SKILLS_PER_ITEM).map(|group| CheckWorkItem::Skills(checker, group))),
    );
    let parts = ThreadLimit::new(options.threads).map_in_parallel(&items, |item| {
        let mut part = findings.separate_part();
        match item {
            CheckWorkItem::ManifestOnly(rules) => rules(&mut part),
            CheckWorkItem::Skills(checker, skills) => checker.check_skills(skills, &mut part),
        }
        part
    });
    for part in parts {
        findings.append(part);
    }
    if let Some(checker) = checker {
        checker.check_other_files(manifest, findings);
    }
    let files = files.map_or(0, |files| files.count());
    findings.set_checked(CheckedCounts { skills: manifest.skills().count(), files });
}

/// Runs all checks that have input, even if the shape is wrong: one missing field hides no other finding.
fn check_everything(
    manifest: &LocatedNode<'_>,
    text: &str,
    options: &CheckOptions<'_>,
    findings: &mut FindingCollector,
) {
    let manifest_checks: [ManifestCheck<'_>; 8] = [
        &|findings| shape::check(manifest, findings),
        &|findings| fields::check(manifest, findings),
        &|findings| times::check(manifest, options.now, findings),
        &|findings| urls::check(manifest, options, findings),
        &|findings| names::check(manifest, findings),
        &|findings| digests::check(manifest, findings),
        &|findings| paths::check(manifest, findings),
        &|findings| lists::check(manifest, options, findings),
    ];
    run_checks(manifest, &manifest_checks, options, CheckScope::Everything, findings);
    if let Some(web) = options.web {
        network::check(manifest, web, options, findings);
    }
    if let Some(previous) = options.previous {
        history::check(manifest, previous, options, findings);
    }
    layout::check(manifest, text, findings);
}
