//! Writes records and claims on a connection of their own, all waiting writes in one transaction.
//!
//! The connection is used on the thread of the caller. A driver with a thread for each connection would wake that thread
//! and the caller once for each statement; here a batch of any size costs neither.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::error_conversion::during_batch;
use super::open::{BUSY_TIMEOUT, PRAGMAS};
use super::{record_writes, replay_writes};
use crate::gateway::store::{NodeId, RowWrite, RowWriteOutcome, StoreError, Timestamp};

/// The further settings of this connection.
///
/// - The columns are written from enums and arrays, which cannot hold a value that their `CHECK` constraints refuse. A
///   constraint with a list of words costs a temporary table for each statement: half of the instructions of a row.
/// - A checkpoint writes each changed page once, and most changed pages are the same few. So a longer log, which is
///   still within its size limit, costs fewer writes.
const WRITER_PRAGMAS: [(&str, &str); 2] = [("ignore_check_constraints", "ON"), ("wal_autocheckpoint", "4000")];

/// The connection for records and claims. It is opened at the first write, because most commands write no record.
#[derive(Debug)]
pub(super) struct BatchWriter {
    database: PathBuf,
    /// True if each commit waits for the disk.
    syncs_commits: bool,
    connection: Mutex<BatchConnection>,
}

#[derive(Debug, Default)]
enum BatchConnection {
    /// The next write opens a connection.
    #[default]
    Unopened,
    Open(Connection),
    /// No write is possible any more.
    Closed,
}

// === impl BatchWriter ===

impl BatchWriter {
    pub(super) fn new(database: PathBuf) -> Self {
        Self { database, syncs_commits: true, connection: Mutex::default() }
    }

    /// Makes commits that survive the end of the process, but perhaps not a power failure.
    pub(super) fn without_commit_sync(&self) -> Self {
        Self { database: self.database.clone(), syncs_commits: false, connection: Mutex::default() }
    }

    /// Commits the writes in one transaction. Blocks until they are durable. Returns one outcome for each write, in the
    /// same order.
    pub(super) fn write(&self, node: &NodeId, writes: &[RowWrite<'_>]) -> Result<Vec<RowWriteOutcome>, StoreError> {
        self.with_connection("writing records and claims", |connection| write_all(connection, node, writes))
    }

    /// Makes a commit like that of a record.
    pub(super) fn check_writable(&self) -> Result<(), StoreError> {
        self.with_connection("checking whether the database takes writes", |connection| {
            connection.execute("UPDATE write_check SET times = (times + 1) % 1000000", []).map(drop)
        })
    }

    /// Closes the connection for good. Waits for a write that is running.
    pub(super) fn close(&self) {
        *self.lock() = BatchConnection::Closed;
    }

    fn with_connection<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let mut state = self.lock();
        if matches!(*state, BatchConnection::Unopened) {
            *state = BatchConnection::Open(self.connect().map_err(during_batch(doing))?);
        }
        let BatchConnection::Open(connection) = &mut *state else {
            return Err(StoreError::Unavailable { doing, source: "the store is closed".into() });
        };
        let result = work(connection);
        if let Err(error) = &result
            && !(is_harmless(error) && connection.is_autocommit())
        {
            // A failed connection is replaced: if the disk is full, SQLite may have ended the transaction by itself.
            *state = BatchConnection::Unopened;
        }
        result.map_err(during_batch(doing))
    }

    fn lock(&self) -> MutexGuard<'_, BatchConnection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.database, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        for (name, value) in PRAGMAS.into_iter().chain(WRITER_PRAGMAS) {
            connection.pragma_update(None, name, value)?;
        }
        if !self.syncs_commits {
            // Only checkpoints wait for the disk. The system still writes every commit of a process that was killed.
            connection.pragma_update(None, "synchronous", "NORMAL")?;
        }
        Ok(connection)
    }

    #[cfg(test)]
    pub(super) fn run_pragma(&self, name: &str, value: i64) {
        self.with_connection("a test", |connection| connection.pragma_update(None, name, value)).unwrap();
    }

    #[cfg(test)]
    pub(super) fn pragma(&self, name: &str) -> String {
        use rusqlite::types::Value;
        let query =
            |connection: &mut Connection| connection.pragma_query_value(None, name, |row| row.get::<_, Value>(0));
        match self.with_connection("a test", query).unwrap() {
            Value::Text(text) => text,
            Value::Integer(number) => number.to_string(),
            other => format!("{other:?}"),
        }
    }
}

/// True if the connection is as good as before the error: another process had the lock, or a row was refused.
fn is_harmless(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::ConstraintViolation))
}

fn write_all(
    connection: &mut Connection,
    node: &NodeId,
    writes: &[RowWrite<'_>],
) -> rusqlite::Result<Vec<RowWriteOutcome>> {
    // A single statement is a transaction by itself.
    if let [write] = writes
        && !write.has_bindings()
    {
        return Ok(vec![write_one(connection, node, *write)?]);
    }
    // The statements are prepared once; a transaction of the driver would prepare them for each batch.
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let written = writes.iter().map(|write| write_one(connection, node, *write)).collect();
    let committed = match written {
        Ok(outcomes) => connection.prepare_cached("COMMIT")?.execute([]).map(|_| outcomes),
        Err(error) => Err(error),
    };
    if committed.is_err() && !connection.is_autocommit() {
        connection.prepare_cached("ROLLBACK")?.execute([])?;
    }
    committed
}

fn write_one(connection: &Connection, node: &NodeId, write: RowWrite<'_>) -> rusqlite::Result<RowWriteOutcome> {
    let changed = match write {
        RowWrite::Open(record) => record_writes::open(connection, node, record)?,
        RowWrite::RecordAttempts(record) => record_writes::update(connection, record)?,
        RowWrite::Close(record) => {
            record_writes::bind(connection, record, Timestamp::now().into())?;
            record_writes::update(connection, record)?
        }
        RowWrite::Replay(write) => return replay_writes::write(connection, write),
    };
    Ok(RowWriteOutcome::of_changed_rows(changed))
}
