//! The checks of the rule classes `Repository` and `Package`: the content of the checkout and of the packages.
//!
//! The module decides which rule a difference breaks and at which location it is reported. It must not know what an
//! archive may contain ([`archive`](super::archive)) or what a `SKILL.md` must state ([`skill`](super::skill)). Each
//! thread has one package in memory at a time.

mod document;
mod package;
#[cfg(test)]
mod tests;
mod tree;
mod unlisted;
mod verified_package;

use std::collections::BTreeMap;

use super::{PackageLimits, SKILL_FILE};
use crate::manifest::files::{FileKind, RepositoryFiles};
use crate::manifest::finding::FindingCollector;
use crate::manifest::located::LocatedNode;
use crate::manifest::rules::{
    M003, M028, M070, M071, M072, M073, M074, M075, M076, M079, M080, M081, M082, M083, M084, M085, M086, M087, M088,
    M091, M097, Rule, RuleClass,
};
use tree::{CheckoutCache, PathLookupOutcome};
pub use verified_package::VerifiedPackage;

/// The scope of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::manifest) enum CheckScope {
    /// Everything.
    Everything,
    /// Only that the packages are safe and are those of the manifest, for callers that have the packages but not the
    /// other files of the repository.
    Packages,
}

/// The rules of the scope `Packages`, apart from those of the class `Shape`: each needs only the manifest and a package.
/// `M028` is about the address from which packages are downloaded.
const PACKAGE_RULES: &[&Rule] = &[
    &M003, &M028, &M071, &M072, &M073, &M074, &M075, &M076, &M080, &M081, &M082, &M083, &M084, &M085, &M086, &M087,
    &M088, &M091, &M097,
];

// === impl CheckScope ===

impl CheckScope {
    /// Returns true if a rule is checked in this scope.
    pub(in crate::manifest) fn includes(self, rule: &Rule) -> bool {
        match self {
            Self::Everything => true,
            Self::Packages => rule.class == RuleClass::Shape || PACKAGE_RULES.iter().any(|known| known.id == rule.id),
        }
    }
}

/// A checker of the checkout and of the packages that a manifest names. Several threads may check skills with it at
/// once.
pub(in crate::manifest) struct RepositoryChecker<'a> {
    tree: CheckoutCache<'a>,
    display_root: &'a str,
    limits: PackageLimits,
    scope: CheckScope,
}

/// The checker of one thread.
struct CheckWorker<'l, 'f> {
    tree: &'l CheckoutCache<'l>,
    /// The folder that precedes the names of files in the report.
    display_root: &'l str,
    limits: &'l PackageLimits,
    scope: CheckScope,
    findings: &'f mut FindingCollector,
}

/// The files in the folder of a skill, with their sizes.
type FolderFileSizes = BTreeMap<String, u64>;

// === impl RepositoryChecker ===

impl<'a> RepositoryChecker<'a> {
    pub(in crate::manifest) fn new(files: &'a dyn RepositoryFiles, display_root: &'a str, scope: CheckScope) -> Self {
        Self { tree: CheckoutCache::new(files), display_root, limits: PackageLimits::default(), scope }
    }

    /// Checks the packages that these skills name and, in the scope `Everything`, their folders.
    pub(in crate::manifest) fn check_skills(&self, skills: &[LocatedNode<'_>], findings: &mut FindingCollector) {
        let mut check = self.worker(findings);
        for skill in skills {
            drop(check.check_skill(skill));
        }
    }

    /// Checks the package of one skill, and returns it if nothing forbids to install it.
    pub(in crate::manifest) fn verified_package(
        &self,
        skill: &LocatedNode<'_>,
        findings: &mut FindingCollector,
    ) -> Option<VerifiedPackage> {
        self.worker(findings).check_skill(skill)
    }

    /// Checks the documents of the API references, and reports skills and packages that the manifest does not list.
    pub(in crate::manifest) fn check_other_files(&self, manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
        if self.scope == CheckScope::Packages {
            return;
        }
        let mut check = self.worker(findings);
        for api in manifest.apis() {
            check.check_document_path(&api);
        }
        unlisted::check(manifest, &mut check);
    }

    fn worker<'l, 'f>(&'l self, findings: &'f mut FindingCollector) -> CheckWorker<'l, 'f> {
        let Self { tree, display_root, limits, scope } = self;
        CheckWorker { tree, display_root, limits, scope: *scope, findings }
    }
}

// === impl CheckWorker ===

impl CheckWorker<'_, '_> {
    fn check_skill(&mut self, skill: &LocatedNode<'_>) -> Option<VerifiedPackage> {
        let folder_files = if self.scope == CheckScope::Everything { self.skill_folder_files(skill) } else { None };
        self.check_package(skill, folder_files.as_ref())
    }

    /// Returns the path, kind and size of the entry that a field names, or reports why there is no such entry.
    fn find_path<'p>(&mut self, location: &LocatedNode<'p>, rule: &'static Rule) -> Option<(&'p str, FileKind, u64)> {
        let path = location.text()?;
        match self.tree.find(path) {
            PathLookupOutcome::Found(metadata) => return Some((path, metadata.kind, metadata.size)),
            // Some of these paths also break a static rule, but a path that was not checked must never pass.
            PathLookupOutcome::NotAPath(why) => {
                let message = format!("`{}` was not checked: it {why}", path.escape_debug());
                self.findings.report_at(rule, location, message);
            }
            PathLookupOutcome::Missing => {
                self.findings.report_at(rule, location, format!("there is no `{path}` in the repository"));
            }
            PathLookupOutcome::OtherSpelling(spelled) => {
                let finding = self.findings.report_at(
                    &M076,
                    location,
                    format!("`{path}` is spelled `{spelled}` in the repository"),
                );
                finding.with_help(format!("write `{spelled}`"));
            }
            PathLookupOutcome::Link(link) => {
                self.findings.report_at(&M074, location, format!("`{link}` is a symbolic link"));
            }
            PathLookupOutcome::Error(error) => {
                self.findings.report_at(rule, location, error.to_string());
            }
        }
        None
    }

    /// Returns the files of the folder that a skill names.
    fn skill_folder_files(&mut self, skill: &LocatedNode<'_>) -> Option<FolderFileSizes> {
        let location = skill.get("path")?;
        let (path, kind, _) = self.find_path(&location, &M070)?;
        if kind != FileKind::Folder {
            self.findings.report_at(&M070, &location, format!("`{path}` is not a folder"));
            return None;
        }
        let mut sizes = FolderFileSizes::new();
        self.collect_files(&location, path, "", &mut sizes)?;
        if sizes.contains_key(SKILL_FILE) {
            return Some(sizes);
        }
        self.findings.report_at(&M070, &location, format!("there is no `{SKILL_FILE}` in `{path}`"));
        None
    }

    /// Collects all files below a folder that belong in a package. Returns `None` if the folder cannot be read or is
    /// too large.
    fn collect_files(
        &mut self,
        location: &LocatedNode<'_>,
        root: &str,
        subfolder: &str,
        sizes: &mut FolderFileSizes,
    ) -> Option<()> {
        let folder = if subfolder.is_empty() { root.to_owned() } else { format!("{root}/{subfolder}") };
        let entries = match self.tree.files().list(&folder) {
            Ok(entries) => entries.unwrap_or_default(),
            Err(error) => {
                self.findings.report_at(&M070, location, error.to_string());
                return None;
            }
        };
        for entry in entries {
            let path = if subfolder.is_empty() { entry.name } else { format!("{subfolder}/{}", entry.name) };
            if super::unwanted(&path).is_some() {
                continue;
            }
            match entry.metadata.kind {
                FileKind::File => {
                    sizes.insert(path, entry.metadata.size);
                }
                FileKind::Folder if path.matches('/').count() < self.limits.depth => {
                    self.collect_files(location, root, &path, sizes)?;
                }
                FileKind::Folder => {
                    self.findings.report_at(
                        &M070,
                        location,
                        format!("`{root}/{path}` is nested deeper than packages allow"),
                    );
                }
                FileKind::Link(_) | FileKind::Other => {
                    self.findings.report_at(
                        &M074,
                        location,
                        format!("`{root}/{path}` is a link or not a regular file"),
                    );
                }
            }
            if sizes.len() as u64 > self.limits.entries {
                let message =
                    format!("`{root}` contains more than {} files, the maximum of a package", self.limits.entries);
                self.findings.report_at(&M070, location, message);
                return None;
            }
        }
        Some(())
    }

    /// Checks the document that an API reference names.
    fn check_document_path(&mut self, api: &LocatedNode<'_>) {
        let Some(location) = api.get("path") else { return };
        if let Some((path, kind, _)) = self.find_path(&location, &M079)
            && kind != FileKind::File
        {
            self.findings.report_at(&M079, &location, format!("`{path}` is not a file"));
        }
    }
}
