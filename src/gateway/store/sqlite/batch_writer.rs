//! Writes records and claims on a connection of their own, all waiting writes in one transaction.
//!
//! The connection is used on the thread of the caller. A driver with a thread for each connection would wake that thread
//! and the caller once for each statement; here a batch of any size costs neither.
//!
//! Records are appended to their journal, and moved from there later: see [`super::record_journal`].

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::error_conversion::during_batch;
use super::open::{BUSY_TIMEOUT, PRAGMAS};
use super::record_journal::{self, AppendedEntry, RecordJournal};
use super::record_writes;
use super::replay_writes;
use crate::gateway::store::record_row::RecordRow;
use crate::gateway::store::{JobRecord, NodeId, RowWrite, RowWriteOutcome, StoreError, Timestamp};

/// The further settings of this connection.
///
/// - The columns are written from enums and arrays, which cannot hold a value that their `CHECK` constraints refuse. A
///   constraint with a list of words costs a temporary table for each statement: half of the instructions of a row.
/// - A checkpoint writes each changed page once, and most changed pages are the same few. So a longer log, which is
///   still within its size limit, costs fewer writes.
const WRITER_PRAGMAS: [(&str, &str); 2] = [("ignore_check_constraints", "ON"), ("wal_autocheckpoint", "4000")];

/// The most entries of the journal that one transaction moves for a reader (our choice): it takes about 10 ms, for which
/// intents wait.
const MOVED_FOR_READER: usize = 500;
/// The pause between two such transactions, in which intents are written, and the time that such a transaction waits for
/// another connection (our choices).
const READER_PAUSE: Duration = Duration::from_millis(2);
const READER_BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// The most prepared statements that this connection keeps (our choice): more than there are.
const STATEMENTS: usize = 32;

/// The connection for records and claims. It is opened at the first write, because most commands write no record.
#[derive(Debug)]
pub(super) struct BatchWriter {
    database: PathBuf,
    /// True if each commit waits for the disk.
    syncs_commits: bool,
    state: Mutex<WriterState>,
}

#[derive(Debug, Default)]
struct WriterState {
    connection: BatchConnection,
    journal: RecordJournal,
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
        Self { database, syncs_commits: true, state: Mutex::default() }
    }

    /// Makes commits that survive the end of the process, but perhaps not a power failure.
    pub(super) fn without_commit_sync(&self) -> Self {
        Self { database: self.database.clone(), syncs_commits: false, state: Mutex::default() }
    }

    /// Commits the writes in one transaction. Blocks until they are durable. Returns one outcome for each write, in the
    /// same order.
    pub(super) fn write(&self, node: &NodeId, writes: &[RowWrite<'_>]) -> Result<Vec<RowWriteOutcome>, StoreError> {
        self.with_connection("writing records and claims", |connection, journal| {
            let written = write_all(connection, journal, node, writes)?;
            let note = |written| match written {
                WrittenRow::Record(entry) => {
                    journal.note(*entry);
                    RowWriteOutcome::Done
                }
                WrittenRow::Other(outcome) => outcome,
            };
            Ok(written.into_iter().map(note).collect())
        })
    }

    /// Moves the records of closed jobs out of the journal, for about this time. Returns the number of those that are left.
    /// Fails with [`StoreError::Busy`] if another connection writes.
    pub(super) fn move_closed(&self, duration: Duration) -> Result<usize, StoreError> {
        self.with_connection("moving records", |connection, journal| {
            if journal.closed_jobs() == 0 {
                return Ok(0);
            }
            let moved =
                self.move_with(connection, Duration::ZERO, |connection| journal.move_closed(connection, duration))?;
            Ok(journal.forget_moved(moved))
        })
    }

    /// Moves all records out of the journal that are in it now, whatever process has written them.
    pub(super) fn move_all(&self) -> Result<(), StoreError> {
        const DOING: &str = "moving records";
        let newest = self.with_connection(DOING, |connection, _| record_journal::newest_entry(connection))?;
        let Some(newest) = newest else { return Ok(()) };
        loop {
            let work = |connection: &Connection| record_journal::move_all(connection, newest, MOVED_FOR_READER);
            let moved =
                self.with_connection(DOING, |connection, _| self.move_with(connection, READER_BUSY_TIMEOUT, work))?;
            if moved < MOVED_FOR_READER {
                return Ok(());
            }
            let_others_write();
        }
    }

    /// Makes a commit like that of a record.
    pub(super) fn check_writable(&self) -> Result<(), StoreError> {
        self.with_connection("checking whether the database takes writes", |connection, _| {
            connection.execute("UPDATE write_check SET times = (times + 1) % 1000000", []).map(drop)
        })
    }

    /// Closes the connection for good. Waits for a write that is running, and moves the records out of the journal.
    pub(super) fn close(&self) {
        if matches!(self.lock().connection, BatchConnection::Open(_))
            && let Err(error) = self.move_all()
        {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "the records of the journal could not be moved; the next start does it");
        }
        self.lock().connection = BatchConnection::Closed;
    }

    /// Runs a transaction that moves records, and waits for at most `busy_timeout` for another connection that writes. Its
    /// commit does not wait for the disk: after a power failure, either it is there or the database is as before it, and
    /// the next commit of a record makes it durable, too.
    fn move_with<T>(
        &self,
        connection: &Connection,
        busy_timeout: Duration,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.busy_timeout(busy_timeout)?;
        let result = in_transaction(connection, work);
        connection.busy_timeout(BUSY_TIMEOUT)?;
        if self.syncs_commits {
            connection.pragma_update(None, "synchronous", "FULL")?;
        }
        result
    }

    fn with_connection<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection, &mut RecordJournal) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let mut state = self.lock();
        let WriterState { connection: state, journal } = &mut *state;
        // Meanwhile the next write would open a connection: after a panic, this one may be in a transaction.
        let connection = match std::mem::take(state) {
            BatchConnection::Open(connection) => connection,
            BatchConnection::Unopened => self.connect().map_err(during_batch(doing))?,
            BatchConnection::Closed => {
                *state = BatchConnection::Closed;
                return Err(StoreError::Unavailable { doing, source: "the store is closed".into() });
            }
        };
        let result = work(&connection, journal);
        // A failed connection is replaced: if the disk is full, SQLite may have ended the transaction by itself.
        if result.as_ref().err().is_none_or(is_harmless) && connection.is_autocommit() {
            *state = BatchConnection::Open(connection);
        }
        result.map_err(during_batch(doing))
    }

    fn lock(&self) -> MutexGuard<'_, WriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.database, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
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
        self.with_connection("a test", |connection, _| connection.pragma_update(None, name, value)).unwrap();
    }

    #[cfg(test)]
    pub(super) fn pragma(&self, name: &str) -> String {
        use rusqlite::types::Value;
        let query = |connection: &Connection, _: &mut _| {
            connection.pragma_query_value(None, name, |row| row.get::<_, Value>(0))
        };
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

#[expect(clippy::disallowed_methods, reason = "on a thread that may block")]
fn let_others_write() {
    std::thread::sleep(READER_PAUSE);
}

/// A row that was written in a transaction.
enum WrittenRow {
    Record(Box<AppendedEntry>),
    Other(RowWriteOutcome),
}

fn write_all(
    connection: &Connection,
    journal: &RecordJournal,
    node: &NodeId,
    writes: &[RowWrite<'_>],
) -> rusqlite::Result<Vec<WrittenRow>> {
    // A single statement is a transaction by itself.
    if let [write] = writes
        && !write.has_bindings()
    {
        return Ok(vec![write_one(connection, journal, node, *write)?]);
    }
    in_transaction(connection, |connection| {
        writes.iter().map(|write| write_one(connection, journal, node, *write)).collect()
    })
}

/// The statements are prepared once; a transaction of the driver would prepare them for each batch.
pub(super) fn in_transaction<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let committed = match work(connection) {
        Ok(value) => connection.prepare_cached("COMMIT")?.execute([]).map(|_| value),
        Err(error) => Err(error),
    };
    if committed.is_err() && !connection.is_autocommit() {
        connection.prepare_cached("ROLLBACK")?.execute([])?;
    }
    committed
}

fn write_one(
    connection: &Connection,
    journal: &RecordJournal,
    node: &NodeId,
    write: RowWrite<'_>,
) -> rusqlite::Result<WrittenRow> {
    match write {
        RowWrite::Open(record) if journal.is_running(&record.document.request_id) => {
            Ok(WrittenRow::Other(RowWriteOutcome::NoEffect))
        }
        RowWrite::Open(record) => append(connection, node, record, true),
        RowWrite::RecordAttempts(record) => append(connection, node, record, false),
        RowWrite::Close(record) => {
            record_writes::bind(connection, record, Timestamp::now().into())?;
            append(connection, node, record, false)
        }
        RowWrite::Replay(write) => replay_writes::write(connection, write).map(WrittenRow::Other),
    }
}

fn append(connection: &Connection, node: &NodeId, record: &JobRecord, is_intent: bool) -> rusqlite::Result<WrittenRow> {
    let row = RecordRow::new(node, record).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    AppendedEntry::append(connection, is_intent, row).map(|entry| WrittenRow::Record(Box::new(entry)))
}
