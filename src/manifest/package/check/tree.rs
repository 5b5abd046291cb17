//! The checkout, with a cache of its folder listings, because many entries share a few folders.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::manifest::files::{FileKind, FileMetadata, FilesError, RepositoryFiles};
use crate::manifest::package::PackageLimits;
use crate::manifest::package::archive::{PathFault, fold, path_fault};

/// The result of a path lookup.
#[derive(Debug)]
pub(super) enum PathLookupOutcome {
    Found(FileMetadata),
    Missing,
    /// The path exists under a name that differs in case or Unicode composition.
    OtherSpelling(String),
    /// A part of the path is a link.
    Link(String),
    /// The path is invalid, for this reason.
    NotAPath(&'static str),
    Error(FilesError),
}

type FolderListing = BTreeMap<String, FileMetadata>;

pub(super) struct CheckoutCache<'a> {
    files: &'a dyn RepositoryFiles,
    listings: Mutex<HashMap<String, Option<Arc<FolderListing>>>>,
    /// For each folder, its names by their form without case and composition.
    folded: Mutex<HashMap<String, HashMap<String, String>>>,
}

impl<'a> CheckoutCache<'a> {
    pub(super) fn new(files: &'a dyn RepositoryFiles) -> Self {
        Self { files, listings: Mutex::default(), folded: Mutex::default() }
    }

    pub(super) fn files(&self) -> &'a dyn RepositoryFiles {
        self.files
    }

    /// Returns the entries of a folder, and caches them. Concurrent callers wait, because they most likely need the
    /// same folder.
    pub(super) fn list(&self, folder: &str) -> Result<Option<Arc<FolderListing>>, FilesError> {
        let mut listings = lock(&self.listings);
        if let Some(known) = listings.get(folder) {
            return Ok(known.clone());
        }
        let entries = self.files.list(folder)?;
        let entries = entries.map(|entries| entries.into_iter().map(|entry| (entry.name, entry.metadata)).collect());
        Ok(listings.entry(folder.to_owned()).or_insert(entries.map(Arc::new)).clone())
    }

    pub(super) fn find(&self, path: &str) -> PathLookupOutcome {
        let limits = PackageLimits { depth: 64, path_bytes: 4096, ..PackageLimits::default() };
        if let Some(PathFault::Unsafe(why) | PathFault::TooLarge(why)) = path_fault(path, &limits) {
            return PathLookupOutcome::NotAPath(why);
        }
        let mut parent = String::new();
        let mut found = PathLookupOutcome::Missing;
        for name in path.split('/') {
            found = match self.find_name(&parent, name) {
                Ok(PathLookupOutcome::Found(metadata)) => PathLookupOutcome::Found(metadata),
                Ok(outcome) => return outcome,
                Err(error) => return PathLookupOutcome::Error(error),
            };
            if !parent.is_empty() {
                parent.push('/');
            }
            parent.push_str(name);
        }
        found
    }

    fn find_name(&self, folder: &str, name: &str) -> Result<PathLookupOutcome, FilesError> {
        let full_path = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        let Some(listing) = self.list(folder)? else { return Ok(PathLookupOutcome::Missing) };
        Ok(match listing.get(name) {
            Some(FileMetadata { kind: FileKind::Link(_), .. }) => PathLookupOutcome::Link(full_path(name)),
            Some(metadata) => PathLookupOutcome::Found(metadata.clone()),
            None => {
                let folded_names = || listing.keys().map(|name| (fold(name), name.clone())).collect();
                let mut folded = lock(&self.folded);
                let folded = folded.entry(folder.to_owned()).or_insert_with(folded_names);
                folded
                    .get(&fold(name))
                    .map_or(PathLookupOutcome::Missing, |spelled| PathLookupOutcome::OtherSpelling(full_path(spelled)))
            }
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
