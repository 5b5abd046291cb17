//! Writes records and claims on a connection of their own, all waiting writes in one transaction.
//!
//! The connection is used on the thread of the caller. A driver with a thread for each connection would wake that thread
//! and the caller once for each statement; here a batch of any size costs neither.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::open::{BUSY_TIMEOUT, PRAGMAS};
use super::{records, replays};
use crate::gateway::store::{NodeId, RowWrite, RowWriteOutcome};

/// The connection for records and claims. It is opened at the first write, because most commands write no record.
#[derive(Debug)]
pub(super) struct BatchWriter {
    database: PathBuf,
    /// True if each commit waits for the disk.
    syncs_commits: bool,
    connection: Mutex<Option<Connection>>,
}

// === impl BatchWriter ===

impl BatchWriter {
    pub(super) fn new(database: PathBuf) -> Self {
        Self { database, syncs_commits: true, connection: Mutex::default() }
    }

    /// Makes commits that survive the end of the process, but perhaps not a power failure.
    pub(super) fn without_commit_sync(self) -> Self {
        Self { syncs_commits: false, ..self }
    }

    /// Commits the writes in one transaction. Blocks until they are durable. Returns one outcome for each write,
    /// in the same order.
    pub(super) fn write(&self, node: &NodeId, writes: &[RowWrite<'_>]) -> rusqlite::Result<Vec<RowWriteOutcome>> {
        let mut slot = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match &mut *slot {
            Some(connection) => connection,
            None => slot.insert(self.connect()?),
        };
        let result = write_all(connection, node, writes);
        if result.is_err() {
            // A failed connection is replaced: if the disk is full, SQLite may have ended the transaction by itself.
            *slot = None;
        }
        result
    }

    /// Closes the connection. The next write opens another one.
    pub(super) fn close(&self) {
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.database, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        for (name, value) in PRAGMAS {
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
        let mut slot = self.connection.lock().unwrap();
        slot.get_or_insert_with(|| self.connect().unwrap()).pragma_update(None, name, value).unwrap();
    }

    #[cfg(test)]
    pub(super) fn pragma(&self, name: &str) -> String {
        let mut slot = self.connection.lock().unwrap();
        let connection = slot.get_or_insert_with(|| self.connect().unwrap());
        let value = |row: &rusqlite::Row<'_>| row.get::<_, rusqlite::types::Value>(0);
        match connection.pragma_query_value(None, name, value).unwrap() {
            rusqlite::types::Value::Text(text) => text,
            rusqlite::types::Value::Integer(number) => number.to_string(),
            other => format!("{other:?}"),
        }
    }
}

fn write_all(
    connection: &mut Connection,
    node: &NodeId,
    writes: &[RowWrite<'_>],
) -> rusqlite::Result<Vec<RowWriteOutcome>> {
    // A single statement is a transaction by itself.
    if let [write] = writes {
        return Ok(vec![write_one(connection, node, *write)?]);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let outcomes = writes.iter().map(|write| write_one(&transaction, node, *write)).collect::<rusqlite::Result<_>>()?;
    transaction.commit()?;
    Ok(outcomes)
}

fn write_one(connection: &Connection, node: &NodeId, write: RowWrite<'_>) -> rusqlite::Result<RowWriteOutcome> {
    let changed = match write {
        RowWrite::Open(record) => records::open(connection, node, record)?,
        RowWrite::RecordAttempts(record) => records::update_attempts(connection, record)?,
        RowWrite::Close(record) => records::close(connection, record)?,
        RowWrite::Replay(write) => return replays::write(connection, write),
    };
    Ok(RowWriteOutcome::of_changed_rows(changed))
}
