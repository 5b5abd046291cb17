//! The checks of classes R and P: what the checkout holds, and what the packages hold.
//!
//! Decides which rule a difference breaks and where that is shown; refuses to know what an archive may do
//! ([`archive`](super::archive)) or what a `SKILL.md` must say ([`skill`](super::skill)).
//! Each thread has one package in memory at a time.

mod document;
mod orphans;
mod package;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;

use super::{Limits, SKILL_FILE};
use crate::manifest::files::{Files, Kind};
use crate::manifest::finding::Findings;
use crate::manifest::located::Located;
use crate::manifest::rules::{M070, M074, M076, M079, Rule};
use tree::{Found, Tree};

/// What a check looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::manifest) enum Scope {
    /// Everything.
    Everything,
    /// Only whether the packages are the ones of the manifest, and safe: for whoever has no checkout.
    Packages,
}

/// A look at the checkout and at the packages that a manifest names. Several threads may take skills of it at once.
pub(in crate::manifest) struct Look<'a> {
    tree: Tree<'a>,
    limits: Limits,
    scope: Scope,
}

/// What one thread looks at.
struct Check<'l, 'f> {
    tree: &'l Tree<'l>,
    limits: &'l Limits,
    scope: Scope,
    findings: &'f mut Findings,
}

/// A file of a skill's folder, and what is known of it.
type Folder = BTreeMap<String, u64>;

// === impl Look ===

impl<'a> Look<'a> {
    pub(in crate::manifest) fn new(files: &'a dyn Files, scope: Scope) -> Self {
        Self { tree: Tree::new(files), limits: Limits::default(), scope }
    }

    /// What these skills name.
    pub(in crate::manifest) fn skills(&self, skills: &[Located<'_>], findings: &mut Findings) {
        let mut check = self.check(findings);
        skills.iter().for_each(|skill| check.skill(skill));
    }

    /// What no skill names.
    pub(in crate::manifest) fn others(&self, manifest: &Located<'_>, findings: &mut Findings) {
        if self.scope == Scope::Packages {
            return;
        }
        let mut check = self.check(findings);
        for api in manifest.apis() {
            check.document_path(&api);
        }
        orphans::check(manifest, &mut check);
    }

    fn check<'l, 'f>(&'l self, findings: &'f mut Findings) -> Check<'l, 'f> {
        Check { tree: &self.tree, limits: &self.limits, scope: self.scope, findings }
    }
}

// === impl Check ===

impl Check<'_, '_> {
    fn skill(&mut self, skill: &Located<'_>) {
        let folder = if self.scope == Scope::Everything { self.folder(skill) } else { None };
        self.package(skill, folder.as_ref());
    }

    /// What lies at the path that an entry names, if it is there as it should be.
    fn at<'p>(&mut self, place: &Located<'p>, missing: &'static Rule) -> Option<(&'p str, Kind, u64)> {
        let path = place.text()?;
        match self.tree.find(path) {
            Found::There(metadata) => return Some((path, metadata.kind, metadata.size)),
            // Some of these break a static rule as well; but what was not looked at is never taken for good.
            Found::NotAPath(why) => {
                let message = format!("nothing was looked for at `{}`: it {why}", path.escape_debug());
                self.findings.at(missing, place, message);
            }
            Found::Missing => {
                self.findings.at(missing, place, format!("there is no `{path}` in the repository"));
            }
            Found::Spelled(spelled) => {
                let finding =
                    self.findings.at(&M076, place, format!("`{path}` is spelled `{spelled}` in the repository"));
                finding.with_help(format!("write `{spelled}`"));
            }
            Found::Link(link) => {
                self.findings.at(&M074, place, format!("`{link}` is a symbolic link"));
            }
            Found::Error(error) => {
                self.findings.at(missing, place, error.to_string());
            }
        }
        None
    }

    /// The files of the folder that an entry names.
    fn folder(&mut self, skill: &Located<'_>) -> Option<Folder> {
        let place = skill.get("path")?;
        let (path, kind, _) = self.at(&place, &M070)?;
        if kind != Kind::Folder {
            self.findings.at(&M070, &place, format!("`{path}` is not a folder"));
            return None;
        }
        let mut folder = Folder::new();
        self.gather(&place, path, "", &mut folder)?;
        if folder.contains_key(SKILL_FILE) {
            return Some(folder);
        }
        self.findings.at(&M070, &place, format!("there is no `{SKILL_FILE}` in `{path}`"));
        None
    }

    /// Every file below a folder that belongs into a package. Nothing, where the folder cannot be read or is too large.
    fn gather(&mut self, place: &Located<'_>, root: &str, below: &str, folder: &mut Folder) -> Option<()> {
        let at = if below.is_empty() { root.to_owned() } else { format!("{root}/{below}") };
        let listed = match self.tree.files().list(&at) {
            Ok(listed) => listed.unwrap_or_default(),
            Err(error) => {
                self.findings.at(&M070, place, error.to_string());
                return None;
            }
        };
        for entry in listed {
            let path = if below.is_empty() { entry.name } else { format!("{below}/{}", entry.name) };
            if super::unwanted(&path).is_some() {
                continue;
            }
            match entry.metadata.kind {
                Kind::File => {
                    folder.insert(path, entry.metadata.size);
                }
                Kind::Folder if path.matches('/').count() < self.limits.depth => {
                    self.gather(place, root, &path, folder)?;
                }
                Kind::Folder => {
                    self.findings.at(&M070, place, format!("`{root}/{path}` lies deeper than a package may"));
                }
                Kind::Link(_) | Kind::Other => {
                    self.findings.at(&M074, place, format!("`{root}/{path}` is a link or no plain file"));
                }
            }
            if u64::try_from(folder.len()).unwrap_or(u64::MAX) > self.limits.entries {
                let message = format!("`{root}` holds more than {} files, the most of a package", self.limits.entries);
                self.findings.at(&M070, place, message);
                return None;
            }
        }
        Some(())
    }

    /// The document that an API reference names.
    fn document_path(&mut self, api: &Located<'_>) {
        let Some(place) = api.get("path") else { return };
        if let Some((path, kind, _)) = self.at(&place, &M079)
            && kind != Kind::File
        {
            self.findings.at(&M079, &place, format!("`{path}` is not a file"));
        }
    }
}
