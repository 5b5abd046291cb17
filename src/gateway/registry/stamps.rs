//! Whether a folder is still the one that was looked at.
//!
//! Decides by what the system notes of each file and folder, which an editor cannot set back; and that what could not be
//! read was not looked at.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crate::manifest::{self, Files, FilesError, Listed};

/// A file or folder as it was; a link is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    path: PathBuf,
    /// Nothing where nothing was there.
    state: Option<State>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    bytes: u64,
    modified: SystemTime,
    identity: Identity,
}

/// Which file it is, and when anything of it was changed last, its rights and its times too.
type Identity = (u64, u64, i64, i64);

// === impl Stamp ===

impl Stamp {
    pub(super) fn of(path: PathBuf) -> Self {
        let state = state(&path);
        Self { path, state }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn still_holds(&self) -> bool {
        state(&self.path) == self.state
    }

    /// Opens the file and says how long it is, if it is still as it was: what has taken its place is not opened, and what takes
    /// it in that very moment is not handed out.
    pub(super) fn open(&self) -> Option<(File, u64)> {
        let before = self.state.as_ref().filter(|_| self.still_holds())?;
        let file = File::open(&self.path).ok()?;
        let metadata = file.metadata().ok()?;
        (metadata.is_file() && state_of(&metadata).as_ref() == Some(before)).then_some((file, before.bytes))
    }
}

fn state(path: &Path) -> Option<State> {
    state_of(&std::fs::symlink_metadata(path).ok()?)
}

fn state_of(metadata: &Metadata) -> Option<State> {
    let modified = metadata.modified().ok()?;
    Some(State { bytes: metadata.len(), modified, identity: identity(metadata) })
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn identity(_metadata: &Metadata) -> Identity {
    Identity::default()
}

/// These paths and the folders on their way. What leads elsewhere is nothing of ours.
pub(super) fn inside<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeSet<PathBuf> {
    let is_inside = |path: &&Path| path.components().all(|part| matches!(part, Component::Normal(_)));
    let ancestors = paths.map(Path::new).filter(is_inside).flat_map(Path::ancestors);
    ancestors.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned).collect()
}

/// Files, and whether each of them that was asked for could be read.
pub(super) struct Noting<'a> {
    files: &'a dyn Files,
    failed: AtomicBool,
}

// === impl Noting ===

impl<'a> Noting<'a> {
    pub(super) fn new(files: &'a dyn Files) -> Self {
        Self { files, failed: AtomicBool::new(false) }
    }

    pub(super) fn was_read(&self) -> bool {
        !self.failed.load(Ordering::Relaxed)
    }

    fn note<T>(&self, result: Result<T, FilesError>) -> Result<T, FilesError> {
        if matches!(result, Err(FilesError::Unreadable { .. })) {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl Files for Noting<'_> {
    fn read(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, FilesError> {
        self.note(self.files.read(path, limit))
    }

    fn list(&self, path: &str) -> Result<Option<Vec<Listed>>, FilesError> {
        self.note(self.files.list(path))
    }

    fn metadata(&self, path: &str) -> Result<Option<manifest::Metadata>, FilesError> {
        self.note(self.files.metadata(path))
    }

    fn is_tracked(&self, path: &str) -> Option<bool> {
        self.files.is_tracked(path)
    }
}
