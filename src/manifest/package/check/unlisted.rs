//! Finds skills and packages that are next to published ones but not in the manifest.

use std::collections::BTreeSet;

use super::CheckWorker;
use crate::manifest::files::FileKind;
use crate::manifest::located::LocatedNode;
use crate::manifest::package::SKILL_FILE;
use crate::manifest::package::archive::ArchiveFormat;
use crate::manifest::rules::{M077, M078};

pub(super) fn check(manifest: &LocatedNode<'_>, check: &mut CheckWorker<'_, '_>) {
    let Some(location) = manifest.get("skills") else { return };
    let listed = |key: &str| -> BTreeSet<String> {
        manifest.skills().filter_map(|skill| skill.text_of(key).map(|(path, _)| path.to_owned())).collect()
    };
    let (paths, packages) = (listed("path"), listed("package"));
    for folder in parents(&paths) {
        for (path, kind) in files_inside(check, &folder) {
            let is_skill = || matches!(check.tree.files().metadata(&format!("{path}/{SKILL_FILE}")), Ok(Some(_)));
            if kind == FileKind::Folder && !paths.contains(&path) && is_skill() {
                check.findings.report_at(&M077, &location, format!("`{path}` is a skill that is not in the manifest"));
            }
        }
    }
    for folder in parents(&packages) {
        for (path, kind) in files_inside(check, &folder) {
            if kind == FileKind::File && ArchiveFormat::named(&path).is_some() && !packages.contains(&path) {
                check.findings.report_at(
                    &M078,
                    &location,
                    format!("`{path}` is a package that is not in the manifest"),
                );
            }
        }
    }
}

fn parents(paths: &BTreeSet<String>) -> BTreeSet<String> {
    paths.iter().filter_map(|path| path.rsplit_once('/')).map(|(folder, _)| folder.to_owned()).collect()
}

fn files_inside(check: &mut CheckWorker<'_, '_>, folder: &str) -> Vec<(String, FileKind)> {
    let Ok(Some(listing)) = check.tree.list(folder) else { return Vec::new() };
    listing.iter().map(|(name, metadata)| (format!("{folder}/{name}"), metadata.kind.clone())).collect()
}
