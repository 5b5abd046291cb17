//! Detects whether a folder has changed since it was checked.
//!
//! It compares the metadata of files and folders. On Unix they include the time of the last change (`ctime`), which
//! no program can set back. A file that could not be read counts as not checked.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crate::manifest::{self, FilesError, FolderEntry, RepositoryFiles};

/// The state of a file or folder at one moment. Links are not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    path: PathBuf,
    /// `None` if nothing existed at the path, or its metadata could not be read.
    state: Option<FileStampState>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FileStampState {
    bytes: u64,
    modified: SystemTime,
    identity: FileIdentity,
}

/// The identity of a file (device and inode) and the time of its last change, including changes of its rights and
/// times.
type FileIdentity = (u64, u64, i64, i64);

// === impl FileStamp ===

impl FileStamp {
    pub(super) fn from_path(path: PathBuf) -> Self {
        let state = read_state(&path);
        Self { path, state }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_unchanged(&self) -> bool {
        read_state(&self.path) == self.state
    }

    /// Opens the file and returns it with its length; `None` if it has changed or cannot be opened. The metadata are
    /// compared before and after the file is opened, because another file can replace it between the two.
    pub(super) fn open(&self) -> Option<(File, u64)> {
        let expected = self.state.as_ref().filter(|_| self.is_unchanged())?;
        let file = File::open(&self.path).ok()?;
        let metadata = file.metadata().ok()?;
        (metadata.is_file() && state_from_metadata(&metadata).as_ref() == Some(expected))
            .then_some((file, expected.bytes))
    }
}

fn read_state(path: &Path) -> Option<FileStampState> {
    state_from_metadata(&std::fs::symlink_metadata(path).ok()?)
}

fn state_from_metadata(metadata: &Metadata) -> Option<FileStampState> {
    let modified = metadata.modified().ok()?;
    Some(FileStampState { bytes: metadata.len(), modified, identity: identity(metadata) })
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> FileIdentity {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn identity(_metadata: &Metadata) -> FileIdentity {
    FileIdentity::default()
}

/// Returns these relative paths and all of their parent folders. Leaves out absolute paths, and paths that
/// contain `..` or begin with `.`.
pub(super) fn paths_with_parents<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeSet<PathBuf> {
    let is_inside = |path: &&Path| path.components().all(|part| matches!(part, Component::Normal(_)));
    let ancestors = paths.map(Path::new).filter(is_inside).flat_map(Path::ancestors);
    ancestors.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned).collect()
}

/// The files of a repository, with a flag that is set if a requested file or folder cannot be read.
pub(super) struct TrackedFiles<'a> {
    files: &'a dyn RepositoryFiles,
    failed: AtomicBool,
}

// === impl TrackedFiles ===

impl<'a> TrackedFiles<'a> {
    pub(super) fn new(files: &'a dyn RepositoryFiles) -> Self {
        Self { files, failed: AtomicBool::new(false) }
    }

    pub(super) fn was_fully_read(&self) -> bool {
        !self.failed.load(Ordering::Relaxed)
    }

    fn track<T>(&self, result: Result<T, FilesError>) -> Result<T, FilesError> {
        if matches!(result, Err(FilesError::Unreadable { .. })) {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl RepositoryFiles for TrackedFiles<'_> {
    fn read(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, FilesError> {
        self.track(self.files.read(path, limit))
    }

    fn list(&self, path: &str) -> Result<Option<Vec<FolderEntry>>, FilesError> {
        self.track(self.files.list(path))
    }

    fn metadata(&self, path: &str) -> Result<Option<manifest::FileMetadata>, FilesError> {
        self.track(self.files.metadata(path))
    }

    fn is_tracked(&self, path: &str) -> Option<bool> {
        self.files.is_tracked(path)
    }
}
