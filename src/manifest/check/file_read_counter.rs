//! The files of a repository, and the number of those that were read.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::manifest::files::{FileMetadata, FilesError, FolderEntry, RepositoryFiles};

/// Files that several threads may read at once. A file counts once.
pub(super) struct FileReadCounter<'a> {
    files: &'a dyn RepositoryFiles,
    read: Mutex<BTreeSet<String>>,
}

// === impl FileReadCounter ===

impl<'a> FileReadCounter<'a> {
    pub(super) fn new(files: &'a dyn RepositoryFiles) -> Self {
        Self { files, read: Mutex::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl RepositoryFiles for FileReadCounter<'_> {
    fn read(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, FilesError> {
        let bytes = self.files.read(path, limit)?;
        if bytes.is_some() {
            self.read.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
        }
        Ok(bytes)
    }

    fn list(&self, path: &str) -> Result<Option<Vec<FolderEntry>>, FilesError> {
        self.files.list(path)
    }

    fn metadata(&self, path: &str) -> Result<Option<FileMetadata>, FilesError> {
        self.files.metadata(path)
    }

    fn is_tracked(&self, path: &str) -> Option<bool> {
        self.files.is_tracked(path)
    }
}
