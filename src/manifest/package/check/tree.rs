//! The checkout, with what its folders hold kept: a thousand entries share a few folders.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::manifest::files::{Files, FilesError, Kind, Metadata};
use crate::manifest::package::Limits;
use crate::manifest::package::archive::{NameFault, fold, path_fault};

/// What lies at a path.
#[derive(Debug)]
pub(super) enum Found {
    There(Metadata),
    Missing,
    /// It is there under a name that differs in case or composition.
    Spelled(String),
    /// A link lies on the way.
    Link(String),
    /// Not a path that can be looked for, and why.
    NotAPath(&'static str),
    Error(FilesError),
}

type Listing = BTreeMap<String, Metadata>;

pub(super) struct Tree<'a> {
    files: &'a dyn Files,
    listings: Mutex<HashMap<String, Option<Arc<Listing>>>>,
    /// The names of a folder by how they look where case and composition do not count.
    folded: Mutex<HashMap<String, HashMap<String, String>>>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(files: &'a dyn Files) -> Self {
        Self { files, listings: Mutex::default(), folded: Mutex::default() }
    }

    pub(super) fn files(&self) -> &'a dyn Files {
        self.files
    }

    /// What a folder holds. It is kept; whoever else asks meanwhile waits, for it is most likely the same folder.
    pub(super) fn list(&self, folder: &str) -> Result<Option<Arc<Listing>>, FilesError> {
        let mut listings = lock(&self.listings);
        if let Some(known) = listings.get(folder) {
            return Ok(known.clone());
        }
        let listed = self.files.list(folder)?;
        let listed = listed.map(|listed| listed.into_iter().map(|entry| (entry.name, entry.metadata)).collect());
        Ok(listings.entry(folder.to_owned()).or_insert(listed.map(Arc::new)).clone())
    }

    pub(super) fn find(&self, path: &str) -> Found {
        let limits = Limits { depth: 64, path_bytes: 4096, ..Limits::default() };
        if let Some(NameFault::Unsafe(why) | NameFault::TooLarge(why)) = path_fault(path, &limits) {
            return Found::NotAPath(why);
        }
        let mut folder = String::new();
        let mut found = Found::Missing;
        for name in path.split('/') {
            found = match self.step(&folder, name) {
                Ok(Found::There(metadata)) => Found::There(metadata),
                Ok(other) => return other,
                Err(error) => return Found::Error(error),
            };
            if !folder.is_empty() {
                folder.push('/');
            }
            folder.push_str(name);
        }
        found
    }

    fn step(&self, folder: &str, name: &str) -> Result<Found, FilesError> {
        let whole = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        let Some(listing) = self.list(folder)? else { return Ok(Found::Missing) };
        Ok(match listing.get(name) {
            Some(Metadata { kind: Kind::Link(_), .. }) => Found::Link(whole(name)),
            Some(metadata) => Found::There(metadata.clone()),
            None => {
                let names = || listing.keys().map(|name| (fold(name), name.clone())).collect();
                let mut folded = lock(&self.folded);
                let folded = folded.entry(folder.to_owned()).or_insert_with(names);
                folded.get(&fold(name)).map_or(Found::Missing, |other| Found::Spelled(whole(other)))
            }
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
