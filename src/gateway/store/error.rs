//! What can be wrong with a database, as far as somebody can act on it.

use std::path::PathBuf;

/// Why the store could not do as asked. No variant ever holds a stored value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// Somebody else holds the database for longer than we wait. The same call may work later.
    #[error("the database is busy: another process has held it for too long")]
    Busy,
    /// It cannot be reached, read or written now: permissions, a full disk, a lost connection.
    #[error("the database is not available: {doing}")]
    Unavailable {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Files are damaged or missing. Nothing was changed; a human has to look.
    #[error("the data directory needs repair: {detail}")]
    Damaged {
        /// What is wrong and what to do about it.
        detail: String,
    },
    /// The master key of the configuration is not one, or cannot be used for what was asked.
    #[error("the master key cannot be used: {detail}")]
    MasterKey {
        /// Why, and what to do about it.
        detail: &'static str,
    },
    /// A newer imagate has written this database.
    #[error("the database has schema version {found}, this imagate knows up to {known}: use the newer program")]
    Newer {
        /// The version that this program does not have.
        found: i64,
        /// The newest version that it has.
        known: i64,
    },
    /// The file belongs to another program, or its schema history is not ours.
    #[error("this is not a database of imagate: {detail}")]
    Foreign {
        /// What gave it away.
        detail: String,
    },
    /// Another server already serves from this data directory.
    #[error("another imagate is already serving from {}", data_dir.display())]
    InUse {
        /// The directory both want.
        data_dir: PathBuf,
    },
    /// A value that must be unique is taken.
    #[error("the row exists already")]
    Conflict,
    /// The database will never take the row, or the row cannot be decoded: a bug of this program.
    #[error("the database refused a row")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// Whether the row itself is at fault, so that the same write can never succeed.
    pub(crate) fn blames_the_row(&self) -> bool {
        matches!(self, Self::Conflict | Self::Refused(_))
    }

    pub(super) fn damaged(detail: impl Into<String>) -> Self {
        Self::Damaged { detail: detail.into() }
    }

    /// For `map_err` on file operations.
    pub(super) fn io(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Unavailable { doing, source: source.into() }
    }
}
