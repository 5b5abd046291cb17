//! The kinds of database errors, as far as the calling code or an operator can act on them.

use std::path::PathBuf;

/// The reason why the store could not carry out a call. No variant ever holds a stored value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// Another process holds the database for longer than the store waits. The same call may succeed later.
    #[error("the database is busy: another process has held it for too long")]
    Busy,
    /// The database cannot be reached, read or written now: permissions, a full disk, a lost connection.
    #[error("the database is not available: {doing}")]
    Unavailable {
        /// The operation that failed.
        doing: &'static str,
        /// The error of the system.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Files are damaged or missing. Nothing was changed; an operator must act.
    #[error("the data directory needs repair: {detail}")]
    Damaged {
        /// The damage, and the remedy.
        detail: String,
    },
    /// The text of a master key is invalid, or a change of the master key of the configuration lacks the new key.
    #[error("the master key cannot be used: {detail}")]
    MasterKey {
        /// The reason, and the remedy.
        detail: &'static str,
    },
    /// The address of the database cannot be parsed. The message never repeats it, because it may contain a password.
    #[error("`database_url` {detail}")]
    DatabaseUrl {
        /// The reason.
        detail: &'static str,
    },
    /// A newer version of imagate has written this database.
    #[error(
        "the database has schema version {found}, but this version of imagate supports at most {known}: use a newer version"
    )]
    NewerSchema {
        /// The schema version of the database, which is newer than this program.
        found: i64,
        /// The newest schema version that this program supports.
        known: i64,
    },
    /// The file belongs to another program, or its schema history is not that of imagate.
    #[error("this is not an imagate database: {detail}")]
    ForeignDatabase {
        /// The evidence.
        detail: String,
    },
    /// Another server already serves from this data directory.
    #[error("another gateway is already running with the data directory {}", data_dir.display())]
    InUse {
        /// The directory that both servers use.
        data_dir: PathBuf,
    },
    /// The database has to be migrated, but a gateway of an older version serves from this data directory.
    #[error(
        "a gateway of an older version serves from the data directory {}: start that gateway again with this version first",
        data_dir.display()
    )]
    OlderGateway {
        /// The directory from which the gateway serves.
        data_dir: PathBuf,
    },
    /// The database of an import has other rows in the place of those of the source.
    #[error(
        "both databases were used since the last import, so {table} cannot be copied: import into an empty database"
    )]
    Diverged {
        /// The first table with such rows.
        table: &'static str,
    },
    /// A value that must be unique is taken.
    #[error("the row already exists")]
    Conflict,
    /// The database will never accept the row, or the row cannot be decoded: a bug of this program.
    #[error("the database refused a row")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// True if the row itself is at fault, so that the same write can never succeed.
    pub(crate) fn is_row_fault(&self) -> bool {
        matches!(self, Self::Conflict | Self::Refused(_))
    }

    /// Returns the error for damaged or missing files.
    pub(crate) fn damaged(detail: impl Into<String>) -> Self {
        Self::Damaged { detail: detail.into() }
    }

    /// Returns a function for `map_err` on file operations.
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Unavailable { doing, source: source.into() }
    }
}
