//! The interface through which the checks read other files.

use std::collections::BTreeMap;

/// A source of the files of a repository.
///
/// Paths are relative to the root, with `/` between their parts, none of which is `.` or `..`. An implementation
/// refuses other paths and never follows a link out of the root. If
/// [`CheckOptions::threads`](super::CheckOptions::threads) allows it, several threads call these methods at once.
pub trait RepositoryFiles: Sync {
    /// Returns the bytes of a regular file, or `None` if there is no such file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is longer than `limit` bytes or cannot be read.
    fn read(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, FilesError>;

    /// Returns the entries of a folder, sorted by name, or `None` if there is no such folder.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be read.
    fn list(&self, path: &str) -> Result<Option<Vec<FolderEntry>>, FilesError>;

    /// Returns the metadata of a path. A link at the path itself is not followed. The path of the root is empty.
    ///
    /// # Errors
    ///
    /// Returns an error if the metadata cannot be read.
    fn metadata(&self, path: &str) -> Result<Option<FileMetadata>, FilesError>;

    /// Returns true if version control tracks the file, and `None` if that is unknown.
    fn is_tracked(&self, _path: &str) -> Option<bool> {
        None
    }
}

/// The metadata of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMetadata {
    /// The kind of the entry.
    pub kind: FileKind,
    /// The length of a file in bytes.
    pub size: u64,
    /// True if the file is executable.
    pub is_executable: bool,
}

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link, with its target.
    Link(String),
    /// A device, a pipe, a socket.
    Other,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderEntry {
    /// The name of the entry, spelled as in the folder.
    pub name: String,
    /// The metadata of the entry.
    pub metadata: FileMetadata,
}

/// The reason why a file could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// The path is invalid or leaves the root, or a link leads out of the root.
    #[error("{path} leads out of the repository")]
    Outside {
        /// The path as given.
        path: String,
    },
    /// The file is longer than the limit.
    #[error("{path} is {size} bytes long; at most {limit} are read")]
    TooLarge {
        /// The path as given.
        path: String,
        /// The length of the file in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The name of a file is not Unicode.
    #[error("{path} contains a name that is not Unicode")]
    Name {
        /// The path of the folder.
        path: String,
    },
    /// The file exists but cannot be read.
    #[error("{path} cannot be read: {reason}")]
    Unreadable {
        /// The path as given.
        path: String,
        /// The error message of the system.
        reason: String,
    },
}

/// Files in memory, for tests, browsers and unpacked archives.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles {
    entries: BTreeMap<String, (FileMetadata, Vec<u8>)>,
}

// === impl MemoryFiles ===

impl MemoryFiles {
    /// Creates an empty set of files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a regular file; its parent folders exist automatically.
    pub fn insert(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> &mut Self {
        let bytes = bytes.into();
        let metadata = FileMetadata { kind: FileKind::File, size: bytes.len() as u64, is_executable: false };
        self.entries.insert(path.into(), (metadata, bytes));
        self
    }

    /// Adds an entry of another kind.
    pub fn insert_other(&mut self, path: impl Into<String>, metadata: FileMetadata) -> &mut Self {
        self.entries.insert(path.into(), (metadata, Vec::new()));
        self
    }

    fn is_folder(&self, path: &str) -> bool {
        path.is_empty() || self.entries.range(format!("{path}/")..).next().is_some_and(|(at, _)| is_below(at, path))
    }
}

fn is_below(path: &str, folder: &str) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|remainder| remainder.starts_with('/'))
}

impl RepositoryFiles for MemoryFiles {
    fn read(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, FilesError> {
        match self.entries.get(path) {
            Some((FileMetadata { kind: FileKind::File, size, .. }, _)) if *size > limit => {
                Err(FilesError::TooLarge { path: path.to_owned(), size: *size, limit })
            }
            Some((FileMetadata { kind: FileKind::File, .. }, bytes)) => Ok(Some(bytes.clone())),
            _ => Ok(None),
        }
    }

    fn list(&self, path: &str) -> Result<Option<Vec<FolderEntry>>, FilesError> {
        if !self.is_folder(path) {
            return Ok(None);
        }
        let start = if path.is_empty() { 0 } else { path.len() + 1 };
        let below = self.entries.keys().filter(|at| is_below(at, path));
        let mut names: Vec<&str> = below.filter_map(|at| at[start..].split('/').next()).collect();
        names.sort_unstable();
        names.dedup();
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            let at = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            entries.extend(self.metadata(&at)?.map(|metadata| FolderEntry { name: name.to_owned(), metadata }));
        }
        Ok(Some(entries))
    }

    fn metadata(&self, path: &str) -> Result<Option<FileMetadata>, FilesError> {
        if let Some((metadata, _)) = self.entries.get(path) {
            return Ok(Some(metadata.clone()));
        }
        let folder = FileMetadata { kind: FileKind::Folder, size: 0, is_executable: false };
        Ok(self.is_folder(path).then_some(folder))
    }
}
