//! A database file as backups and checks see it: it is opened without a migration, and reading it changes nothing.
//!
//! SQLite makes the files of its write-ahead log for every reader. They are removed at the end if they were not there
//! before, and kept as they are otherwise: a log that a killed process left is merged only by the next program that
//! opens the store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Params};

use super::batch_writer::in_transaction;
use super::error_conversion::during_batch;
use super::migrations::newest_version;
use super::open::{APPLICATION_ID, BUSY_TIMEOUT, check_not_lost};
use super::record_journal;
use crate::gateway::store::data_dir::DataDir;
use crate::gateway::store::data_keys::{PEPPER, VAULT, WrappedDataKeys};
use crate::gateway::store::installation::LISTED_TABLES;
use crate::gateway::store::{StoreError, Timestamp};

/// The most findings of the integrity check that are returned (our choice).
const MAX_FINDINGS: usize = 10;
const READING: &str = "reading the database";

/// An open database file.
#[derive(Debug)]
pub(crate) struct DatabaseFile {
    connection: Connection,
    path: PathBuf,
}

/// The newest version of the schema that this program knows.
pub(crate) fn newest_schema_version() -> i64 {
    newest_version()
}

// === impl DatabaseFile ===

impl DatabaseFile {
    /// Opens the database of a data directory. Returns `None` if the directory is missing, or was never used.
    ///
    /// # Errors
    ///
    /// Returns an error if the database is lost, cannot be read, is not one of imagate, or is newer than this program.
    pub(crate) fn open(data_dir: &Path) -> Result<Option<Self>, StoreError> {
        let data_dir = DataDir::at(data_dir);
        check_not_lost(&data_dir)?;
        let path = data_dir.database_path();
        let is_used = std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() > 0);
        if !is_used {
            return Ok(None);
        }
        let connection = connect(&path).map_err(during_batch("opening the database"))?;
        let file = Self { connection, path };
        file.check_owner()?;
        Ok(Some(file))
    }

    /// Refuses the file of another program, and one that is newer than this program.
    fn check_owner(&self) -> Result<(), StoreError> {
        let application: i64 = self.query("SELECT application_id FROM pragma_application_id", [])?;
        if application != APPLICATION_ID {
            let detail = format!("imagate.db has the application id {application}");
            return Err(StoreError::ForeignDatabase { detail });
        }
        let (found, known) = (self.schema_version()?, newest_version());
        if found > known { Err(StoreError::NewerSchema { found, known }) } else { Ok(()) }
    }

    /// The version of the schema.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub(crate) fn schema_version(&self) -> Result<i64, StoreError> {
        self.query("SELECT coalesce(max(version), 0) FROM _sqlx_migrations WHERE success", [])
    }

    /// Reads the whole file, and returns the damage that SQLite finds; nothing if there is none.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub(crate) fn find_damage(&self) -> Result<Vec<String>, StoreError> {
        let read = || {
            let mut check = self.connection.prepare(&format!("PRAGMA quick_check({MAX_FINDINGS})"))?;
            check.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()
        };
        let findings = read().map_err(during_batch("checking the database"))?;
        Ok(if findings == ["ok"] { Vec::new() } else { findings })
    }

    /// Writes a copy of one moment to a file that is missing or empty. Other processes go on reading and writing. With the
    /// newest schema, the copy has no record in its journal: whoever counts or reads its rows finds all records.
    ///
    /// # Errors
    ///
    /// Returns an error if the database cannot be read or the copy cannot be written.
    pub(crate) fn copy_to(&self, copy: &Path) -> Result<(), StoreError> {
        const DOING: &str = "copying the database";
        let target = copy.to_str().ok_or_else(|| StoreError::Unavailable {
            doing: DOING,
            source: format!("{} is not valid text", copy.display()).into(),
        })?;
        let has_journal = self.schema_version()? == newest_version();
        let copied = self.connection.execute("VACUUM INTO ?1", [target]).and_then(|_| {
            if !has_journal {
                return Ok(0);
            }
            let copy = Connection::open(copy)?;
            in_transaction(&copy, |copy| match record_journal::newest_entry(copy)? {
                Some(newest) => record_journal::move_all(copy, newest, usize::MAX),
                None => Ok(0),
            })
        });
        copied.map(drop).map_err(during_batch(DOING))
    }

    /// The number of rows of each table that people know of.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub(crate) fn row_counts(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        self.count_rows(|_| "TRUE")
    }

    /// The number of rows of these tables that lists show.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub(crate) fn listed_row_counts(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        self.count_rows(|condition| condition)
    }

    fn count_rows(&self, choose: impl Fn(&'static str) -> &'static str) -> Result<BTreeMap<String, u64>, StoreError> {
        let mut counts = BTreeMap::new();
        for (table, condition) in LISTED_TABLES {
            let count: i64 = self.query(&format!("SELECT count(*) FROM {table} WHERE {}", choose(condition)), [])?;
            counts.insert(table.to_owned(), count.cast_unsigned());
        }
        Ok(counts)
    }

    /// The id and the name of each key that is neither disabled nor deleted, oldest first.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub(crate) fn enabled_keys(&self) -> Result<Vec<(String, String)>, StoreError> {
        const KEYS: &str = "SELECT id, name FROM keys WHERE disabled_at IS NULL AND deleted_at IS NULL \
            AND (expires_at IS NULL OR expires_at > ?1) ORDER BY created_at, rowid";
        let now = Timestamp::now().to_string();
        self.rows(KEYS, [now], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// The wrapped data keys; `None` if there are none yet.
    pub(in crate::gateway::store) fn wrapped_data_keys(&self) -> Result<Option<WrappedDataKeys>, StoreError> {
        let find = |purpose: &str| {
            let row = self.connection.query_row("SELECT wrapped FROM data_keys WHERE purpose = ?1", [purpose], |row| {
                row.get::<_, Vec<u8>>(0)
            });
            row.optional().map_err(during_batch("reading the data keys"))
        };
        match (find(VAULT)?, find(PEPPER)?) {
            (None, None) => Ok(None),
            (Some(vault), Some(pepper)) => Ok(Some(WrappedDataKeys { vault, pepper })),
            _ => Err(StoreError::damaged("imagate.db has lost one of its data keys: restore it from a backup")),
        }
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn query<T: rusqlite::types::FromSql>(&self, sql: &str, params: impl Params) -> Result<T, StoreError> {
        self.connection.query_row(sql, params, |row| row.get(0)).map_err(during_batch(READING))
    }

    fn rows<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: fn(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = || self.connection.prepare(sql)?.query_map(params, read)?.collect::<rusqlite::Result<Vec<T>>>();
        rows().map_err(during_batch(READING))
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let log = DataDir::log_of_database(path);
    let has_log = std::fs::metadata(log).is_ok_and(|metadata| metadata.len() > 0);
    // A connection that could not write would leave the files of the log behind. It writes nothing all the same.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "trusted_schema", "OFF")?;
    Ok(connection)
}
