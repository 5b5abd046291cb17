//! The packages of a manifest that is published.
//!
//! Decides by the stamp that was taken before a package was checked whether a file is still the one that was found good: nothing
//! else is handed out, and nothing that the manifest does not name.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::EntityTag;
use super::stamps::Stamp;
use crate::manifest::{Manifest, Source};

/// A package that was checked.
#[derive(Debug)]
pub(crate) struct PublishedPackage {
    stamp: Stamp,
    /// The entity tag: its checksum.
    pub(crate) tag: EntityTag,
}

/// The packages that a manifest names, each with its stamp of those that were taken before the check.
pub(super) fn packages(
    source: &Source,
    folder: &Path,
    stamps: &[Stamp],
) -> Result<HashMap<String, Arc<PublishedPackage>>, String> {
    let manifest = Manifest::read(source).map_err(|error| error.to_string())?;
    let stamps: HashMap<PathBuf, &Stamp> = stamps.iter().map(|stamp| (stamp.path().to_owned(), stamp)).collect();
    let skills = manifest.registry().skills.iter();
    let package = |skill: &crate::manifest::Skill| {
        let stamp = (*stamps.get(&folder.join(&skill.package))?).clone();
        let tag = EntityTag::new(&skill.sha256.to_ascii_lowercase());
        Some((skill.package.clone(), Arc::new(PublishedPackage { stamp, tag })))
    };
    Ok(skills.filter_map(package).collect())
}

// === impl PublishedPackage ===

impl PublishedPackage {
    /// The file from its beginning, and its length; nothing where it is no longer the one that was checked.
    pub(crate) async fn open(self: &Arc<Self>) -> Option<(File, u64)> {
        let this = Arc::clone(self);
        tokio::runtime::Handle::current().spawn_blocking(move || this.stamp.open()).await.ok().flatten()
    }
}
