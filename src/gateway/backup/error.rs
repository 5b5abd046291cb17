//! The reasons why a backup was not made or not restored.

use std::io;
use std::path::{Path, PathBuf};

use crate::gateway::store::{EmptyDataDirError, StoreError};

/// The reason why a backup was not made or not restored. No variant holds a stored value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupError {
    /// There is nothing to back up.
    #[error("there is no installation in {}", .0.display())]
    NoInstallation(PathBuf),
    /// The file for the backup is there already.
    #[error("{} exists already", .0.display())]
    FileExists(PathBuf),
    /// The file was not made by this program.
    #[error("{} is not a backup of imagate: {detail}", file.display())]
    NotABackup {
        /// The file.
        file: PathBuf,
        /// The evidence.
        detail: String,
    },
    /// The file is sealed, and no key was given.
    #[error("{} is sealed", .0.display())]
    Sealed(PathBuf),
    /// The file is not sealed, and a key was given.
    #[error("{} is not sealed, so no key opens it", .0.display())]
    NotSealed(PathBuf),
    /// The file is sealed for other keys.
    #[error("{} is sealed for another key", .0.display())]
    OtherIdentity(PathBuf),
    /// The file with the keys has something else.
    #[error("{} is not a file of keys `AGE-SECRET-KEY-1…`", .0.display())]
    NotIdentities(PathBuf),
    /// The file is a backup, but not as it was made.
    #[error("the backup is damaged: {detail}")]
    DamagedBackup {
        /// The difference.
        detail: String,
    },
    /// A newer version of imagate has made the backup.
    #[error(
        "the backup was made by imagate {version}, which is newer: its {what} is {found}, and this version knows at most {known}"
    )]
    NewerBackup {
        /// The version that made it.
        version: String,
        /// The property that is too new.
        what: &'static str,
        /// The value in the backup.
        found: i64,
        /// The newest value that this program knows.
        known: i64,
    },
    /// The files of the backup are as they were made, but they cannot be used.
    #[error("the files of the backup cannot be used: {0}")]
    Unusable(String),
    /// The data directory cannot take a restored installation.
    #[error("{} cannot be restored into: {problem}", data_dir.display())]
    Target {
        /// The directory.
        data_dir: PathBuf,
        /// The reason.
        problem: String,
    },
    /// A file or folder cannot be read or written.
    #[error("{doing} {}", path.display())]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl BackupError ===

impl BackupError {
    pub(super) fn damaged(detail: impl Into<String>) -> Self {
        Self::DamagedBackup { detail: detail.into() }
    }

    /// Returns a function for `map_err` when the file of a backup is read: contents that cannot be opened were changed.
    pub(super) fn reading(path: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::changed_or_io("reading", path)
    }

    /// Like [`Self::reading`], for a file within the backup.
    pub(super) fn copying(path: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::changed_or_io("copying", path)
    }

    fn changed_or_io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Self::damaged(error.to_string()),
            _ => Self::io(doing, &path)(error),
        }
    }

    /// Returns a function for `map_err` on file operations.
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }

    pub(super) fn target(data_dir: &Path, error: EmptyDataDirError) -> Self {
        match error {
            EmptyDataDirError::NotEmpty(_) => {
                Self::Target { data_dir: data_dir.to_owned(), problem: error.to_string() }
            }
            EmptyDataDirError::Store(error) => error.into(),
        }
    }
}
