//! The journal of records: what a request waits for.
//!
//! The intent and the outcome of a job are appended to a table without an index, so a commit changes few pages. The
//! thread that has appended them moves the records of closed jobs later, many at a time, from memory into the table with
//! indexes, and counts them. The intents of running jobs stay in the journal, because most of them end soon.
//!
//! The entries that are not in memory are those of another process, or of one that was killed. They are moved by
//! [`move_all`], which reads them: at the start of a node, and before somebody reads records. A record is moved and
//! removed from the journal in one transaction, so whoever is first moves it, and it is counted once.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use super::record_writes::RecordWriter;
use crate::gateway::store::record_row::RecordRow;
use crate::gateway::store::{JobRecord, NodeId};
use crate::wire::admin::types;

/// The version of the form of an entry.
const VERSION: u32 = 1;

/// The number of entries after which a move looks at the clock (our choice).
const CLOCK_INTERVAL: usize = 8;

const APPEND: &str = "INSERT INTO record_journal (request_id, body) VALUES (?1, ?2)";
const NEWEST: &str = "SELECT max(seq) FROM record_journal";
const READ: &str = "SELECT seq, body FROM record_journal WHERE seq <= ?1 ORDER BY seq LIMIT ?2";
/// With the request id: if another process has removed the entry, a later one may have its number.
const REMOVE: &str = "DELETE FROM record_journal WHERE seq = ?1 AND request_id = ?2";

/// An entry of the journal, as it is stored: the document of a record, and what its row has beside it. The other values
/// of the row are those of the document, and an entry of half the size changes fewer pages.
#[derive(Debug, Serialize, Deserialize)]
struct JournalEntry<D> {
    version: u32,
    /// True for an intent, which adds a record. Other entries change it.
    is_intent: bool,
    node: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost_nano_usd: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_cost_nano_usd: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_job_cost_nano_usd: Option<i64>,
    document: D,
}

/// An entry that was appended in a transaction which is not committed yet.
#[derive(Debug)]
pub(super) struct AppendedEntry {
    seq: i64,
    row: RecordRow,
}

/// The entries that this process has appended, as far as it needs them to move the records of closed jobs.
#[derive(Debug, Default)]
pub(super) struct RecordJournal {
    /// The numbers of the entries of each running job.
    running: HashMap<String, Vec<i64>>,
    /// The closed jobs, in the order of their outcomes.
    closed: VecDeque<ClosedJob>,
}

#[derive(Debug)]
struct ClosedJob {
    /// The numbers of all entries of the job.
    entries: Vec<i64>,
    row: RecordRow,
}

// === impl AppendedEntry ===

impl AppendedEntry {
    /// Appends a row to the journal. The entry is noted with [`RecordJournal::note`] after the commit.
    pub(super) fn append(connection: &Connection, is_intent: bool, row: RecordRow) -> rusqlite::Result<Self> {
        let entry = JournalEntry {
            version: VERSION,
            is_intent,
            node: row.node.clone(),
            fingerprint: row.fingerprint.clone(),
            cost_nano_usd: row.cost_nano_usd,
            max_cost_nano_usd: row.max_cost_nano_usd,
            max_job_cost_nano_usd: row.max_job_cost_nano_usd,
            document: &row.document,
        };
        connection.prepare_cached(APPEND)?.execute(params![row.request_id, to_json(&entry)?])?;
        Ok(Self { seq: connection.last_insert_rowid(), row })
    }
}

// === impl RecordJournal ===

impl RecordJournal {
    /// Notes an entry whose transaction has been committed.
    pub(super) fn note(&mut self, entry: AppendedEntry) {
        let AppendedEntry { seq, row } = entry;
        if !row.is_closed() {
            self.running.entry(row.request_id).or_default().push(seq);
            return;
        }
        let mut entries = self.running.remove(&row.request_id).unwrap_or_default();
        entries.push(seq);
        self.closed.push_back(ClosedJob { entries, row });
    }

    /// Moves the records of closed jobs, the first ones first, and begins no further record after `duration`. Returns
    /// their number. Must be called in a transaction, after whose commit [`RecordJournal::forget_moved`] is called.
    pub(super) fn move_closed(&self, connection: &Connection, duration: Duration) -> rusqlite::Result<usize> {
        let (start, mut writer, mut moved) = (Instant::now(), RecordWriter::new(connection), 0);
        for job in &self.closed {
            job.write(&mut writer)?;
            moved += 1;
            if moved % CLOCK_INTERVAL == 0 && start.elapsed() >= duration {
                break;
            }
        }
        writer.finish()?;
        Ok(moved)
    }

    /// Forgets the first closed jobs, whose records were moved. Returns the number of those that are left.
    pub(super) fn forget_moved(&mut self, moved: usize) -> usize {
        self.closed.drain(..moved.min(self.closed.len()));
        self.closed.len()
    }

    /// True if the journal has the intent of this request, and no outcome.
    pub(super) fn is_running(&self, request_id: &str) -> bool {
        self.running.contains_key(request_id)
    }

    /// The number of closed jobs whose records were not moved.
    pub(super) fn closed_jobs(&self) -> usize {
        self.closed.len()
    }
}

// === impl ClosedJob ===

impl ClosedJob {
    fn write(&self, writer: &mut RecordWriter<'_>) -> rusqlite::Result<()> {
        let remove = |seq: &i64| remove(writer.connection(), *seq, &self.row);
        let Some((outcome, earlier)) = self.entries.split_last() else { return Ok(()) };
        // The outcome comes first: it can have the number that an earlier entry had, which a reader has moved. If it is
        // not there, somebody else has moved the record.
        if remove(outcome)? == 0 {
            return Ok(());
        }
        earlier.iter().try_for_each(|seq| remove(seq).map(drop))?;
        // Without an intent in memory, or if another process has moved it, the table has the running record.
        if self.entries.len() > 1 && writer.insert(&self.row)? {
            return Ok(());
        }
        update(writer, &self.row)
    }
}

/// Removes an entry, and returns the number of those that were removed.
fn remove(connection: &Connection, seq: i64, row: &RecordRow) -> rusqlite::Result<usize> {
    connection.prepare_cached(REMOVE)?.execute(params![seq, row.request_id])
}

fn update(writer: &mut RecordWriter<'_>, row: &RecordRow) -> rusqlite::Result<()> {
    if !writer.update(row)? {
        // An earlier write has succeeded although it reported an error.
        tracing::warn!(request_id = %row.request_id, "the record was already closed");
    }
    Ok(())
}

/// Returns the number of the newest entry, of whatever process; `None` if there is none.
pub(super) fn newest_entry(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(NEWEST)?.query_row([], |row| row.get(0))
}

/// Moves at most this number of entries of the whole journal up to the entry `newest`, the oldest first, also those of
/// running jobs. Returns the number. Must be called in a transaction.
pub(super) fn move_all(connection: &Connection, newest: i64, limit: usize) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached(READ)?;
    let read = statement.query_map([newest, i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
        Ok((row.get(0)?, from_json(row.get_ref(1)?.as_str()?)?))
    })?;
    let entries = read.collect::<rusqlite::Result<Vec<(i64, (bool, RecordRow))>>>()?;
    let (moved, mut added, mut writer) = (entries.len(), AddedRecords::default(), RecordWriter::new(connection));
    for (seq, (is_intent, row)) in entries {
        remove(connection, seq, &row)?;
        if is_intent {
            added.add(row);
        } else if let Some(row) = added.change(row) {
            update(&mut writer, &row)?;
        }
    }
    for row in &added.rows {
        if !writer.insert(row)? {
            update(&mut writer, row)?;
        }
    }
    writer.finish()?;
    Ok(moved)
}

/// The records that a move adds, each with its newest entry.
#[derive(Debug, Default)]
struct AddedRecords {
    rows: Vec<RecordRow>,
    /// The position in `rows` of the record of each request.
    positions: HashMap<String, usize>,
}

// === impl AddedRecords ===

impl AddedRecords {
    /// Adds an intent. A second one of the same request has no effect.
    fn add(&mut self, row: RecordRow) {
        if !self.positions.contains_key(&row.request_id) {
            self.positions.insert(row.request_id.clone(), self.rows.len());
            self.rows.push(row);
        }
    }

    /// Replaces the row of a running record. Returns the new row if the record is not among the added ones.
    fn change(&mut self, row: RecordRow) -> Option<RecordRow> {
        let Some(added) = self.positions.get(&row.request_id).and_then(|position| self.rows.get_mut(*position)) else {
            return Some(row);
        };
        if !added.is_closed() {
            *added = row;
        }
        None
    }
}

fn to_json(entry: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(entry).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// Reads the row of an entry, and true if it is an intent.
fn from_json(body: &str) -> rusqlite::Result<(bool, RecordRow)> {
    let unreadable = |error: Box<dyn std::error::Error + Send + Sync>| {
        rusqlite::Error::FromSqlConversionFailure(1, rusqlite::types::Type::Text, error)
    };
    let entry: JournalEntry<types::Record> = serde_json::from_str(body).map_err(|error| unreadable(error.into()))?;
    if entry.version != VERSION {
        let found = format!("an entry of the journal has version {}, and not {VERSION}", entry.version);
        return Err(unreadable(found.into()));
    }
    let record = JobRecord { document: entry.document, ..JobRecord::default() };
    let row = RecordRow::new(&NodeId::from(entry.node), &record).map_err(|error| unreadable(error.into()))?;
    Ok((
        entry.is_intent,
        RecordRow {
            fingerprint: entry.fingerprint,
            cost_nano_usd: entry.cost_nano_usd,
            max_cost_nano_usd: entry.max_cost_nano_usd,
            max_job_cost_nano_usd: entry.max_job_cost_nano_usd,
            ..row
        },
    ))
}
