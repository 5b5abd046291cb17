//! The packages of a published manifest.
//!
//! This module decides whether a file is still the file that passed the check: it compares the file with the stamp that
//! was taken before the check. It opens only files that the manifest names.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::EntityTag;
use super::file_stamps::FileStamp;
use crate::manifest::{Manifest, SourceFile};

/// A package that passed the check.
#[derive(Debug)]
pub(crate) struct PublishedPackage {
    stamp: FileStamp,
    /// The entity tag, which is the checksum of the package.
    pub(crate) tag: EntityTag,
}

/// Returns the packages that a manifest names, each with its stamp from before the check.
pub(super) fn packages(
    source: &SourceFile,
    folder: &Path,
    stamps: &[FileStamp],
) -> Result<HashMap<String, Arc<PublishedPackage>>, String> {
    let manifest = Manifest::read(source).map_err(|error| error.to_string())?;
    let stamps: HashMap<PathBuf, &FileStamp> = stamps.iter().map(|stamp| (stamp.path().to_owned(), stamp)).collect();
    let skills = manifest.registry().skills.iter();
    let to_entry = |skill: &crate::manifest::Skill| {
        let stamp = (*stamps.get(&folder.join(&skill.package))?).clone();
        let tag = EntityTag::new(&skill.sha256.to_ascii_lowercase());
        Some((skill.package.clone(), Arc::new(PublishedPackage { stamp, tag })))
    };
    Ok(skills.filter_map(to_entry).collect())
}

// === impl PublishedPackage ===

impl PublishedPackage {
    /// Opens the file at its beginning and returns it with its length; `None` if it is no longer the file that was
    /// checked, or cannot be opened.
    pub(crate) async fn open(self: &Arc<Self>) -> Option<(File, u64)> {
        let package = Arc::clone(self);
        tokio::runtime::Handle::current().spawn_blocking(move || package.stamp.open()).await.ok().flatten()
    }
}
