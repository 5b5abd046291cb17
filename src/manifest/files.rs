//! How the checks see other files: through whoever has them.

use std::collections::BTreeMap;

/// The files of a repository.
///
/// Paths are relative to its root, with `/` between their parts and none of them `.` or `..`; whoever implements this refuses
/// others, and never follows a link out of the root. Several threads may ask at once, where
/// [`Options::threads`](super::Options::threads) allows it.
pub trait Files: Sync {
    /// The bytes of a regular file, or nothing where there is none.
    ///
    /// # Errors
    ///
    /// It is longer than `limit` bytes, or cannot be read.
    fn read(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, FilesError>;

    /// What a folder holds, sorted by name, or nothing where there is no folder.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    fn list(&self, path: &str) -> Result<Option<Vec<Listed>>, FilesError>;

    /// What stands at a path, without following it if it is a link; the path of the root is empty.
    ///
    /// # Errors
    ///
    /// It cannot be known.
    fn metadata(&self, path: &str) -> Result<Option<Metadata>, FilesError>;

    /// Whether version control knows the file, where somebody can say.
    fn is_tracked(&self, _path: &str) -> Option<bool> {
        None
    }
}

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// File, folder or something else.
    pub kind: Kind,
    /// The length of a file in bytes.
    pub size: u64,
    /// Whether it may be executed.
    pub is_executable: bool,
}

/// What kind of thing stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link, and what it says.
    Link(String),
    /// A device, a pipe, a socket.
    Other,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name in the folder, spelled as the folder spells it.
    pub name: String,
    /// What it is.
    pub metadata: Metadata,
}

/// Why a file could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// The path is not one inside of the root, or a link leads out of it.
    #[error("{path} leads out of the repository")]
    Outside {
        /// The path as given.
        path: String,
    },
    /// There is more of it than is read.
    #[error("{path} is {size} bytes long; no more than {limit} are read")]
    TooLarge {
        /// The path as given.
        path: String,
        /// Its length in bytes.
        size: u64,
        /// How much would have been read.
        limit: u64,
    },
    /// The name of a file is not Unicode.
    #[error("{path} holds a name that is not Unicode")]
    Name {
        /// The folder.
        path: String,
    },
    /// It is there, and cannot be read.
    #[error("{path} cannot be read: {reason}")]
    Unreadable {
        /// The path as given.
        path: String,
        /// What the system says.
        reason: String,
    },
}

/// Files that are in memory: for tests, for browsers, and for archives that were read.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles {
    entries: BTreeMap<String, (Metadata, Vec<u8>)>,
}

// === impl MemoryFiles ===

impl MemoryFiles {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a regular file there; the folders around it come with it.
    pub fn insert(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> &mut Self {
        let bytes = bytes.into();
        let metadata = Metadata { kind: Kind::File, size: bytes.len() as u64, is_executable: false };
        self.entries.insert(path.into(), (metadata, bytes));
        self
    }

    /// Puts something else there.
    pub fn insert_other(&mut self, path: impl Into<String>, metadata: Metadata) -> &mut Self {
        self.entries.insert(path.into(), (metadata, Vec::new()));
        self
    }

    fn is_folder(&self, path: &str) -> bool {
        path.is_empty() || self.entries.range(format!("{path}/")..).next().is_some_and(|(at, _)| is_below(at, path))
    }
}

fn is_below(path: &str, folder: &str) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

impl Files for MemoryFiles {
    fn read(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, FilesError> {
        match self.entries.get(path) {
            Some((Metadata { kind: Kind::File, size, .. }, _)) if *size > limit => {
                Err(FilesError::TooLarge { path: path.to_owned(), size: *size, limit })
            }
            Some((Metadata { kind: Kind::File, .. }, bytes)) => Ok(Some(bytes.clone())),
            _ => Ok(None),
        }
    }

    fn list(&self, path: &str) -> Result<Option<Vec<Listed>>, FilesError> {
        if !self.is_folder(path) {
            return Ok(None);
        }
        let start = if path.is_empty() { 0 } else { path.len() + 1 };
        let below = self.entries.keys().filter(|at| is_below(at, path));
        let mut names: Vec<&str> = below.filter_map(|at| at[start..].split('/').next()).collect();
        names.sort_unstable();
        names.dedup();
        let mut listed = Vec::with_capacity(names.len());
        for name in names {
            let at = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            listed.extend(self.metadata(&at)?.map(|metadata| Listed { name: name.to_owned(), metadata }));
        }
        Ok(Some(listed))
    }

    fn metadata(&self, path: &str) -> Result<Option<Metadata>, FilesError> {
        if let Some((metadata, _)) = self.entries.get(path) {
            return Ok(Some(metadata.clone()));
        }
        let folder = Metadata { kind: Kind::Folder, size: 0, is_executable: false };
        Ok(self.is_folder(path).then_some(folder))
    }
}
