//! Writes records and claims on a connection of their own, all waiting writes in one transaction.
//!
//! If the connection is lost while the server commits, nobody knows whether the batch is in the database. The writer
//! removes what the batch may have opened, under a lock that waits for a commit that is still running, and then writes
//! the batch once more. If that fails too, the callers get an error, and the removal is made up for before the next
//! write. So an intent or a claim that was reported as failed is never left in the database, unless the process ends
//! first; then the next start closes it as interrupted. Outcomes need no removal: the row of a request is closed once,
//! whoever repeats it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use tokio::sync::{Mutex, MutexGuard};

use super::connection::DatabaseUrl;
use super::error_conversion::{during, is_connection_lost, may_succeed_again};
use super::record_rows::{self, RecordWriteKind};
use super::replay_writes;
use crate::gateway::store::{NodeId, ReplayWrite, RowWrite, RowWriteOutcome, StoreError, Timestamp};

/// The longest time for one try of a batch, with the connection if there is none (our choice). It is shorter than the
/// time that a job waits for its intent, so that a second try fits.
const TRY_TIMEOUT: Duration = Duration::from_secs(3);

/// The connection for records and claims. It is opened at the first write, because most commands write no record.
#[derive(Debug)]
pub(in super::super) struct BatchWriter {
    url: DatabaseUrl,
    /// True if each commit waits for the disk of the server.
    syncs_commits: bool,
    state: Mutex<WriterState>,
}

#[derive(Debug, Default)]
struct WriterState {
    connection: Option<PgConnection>,
    /// The requests whose intents and claims may be in the database although their write was reported as failed.
    uncertain_requests: Vec<String>,
    is_closed: bool,
}

// === impl BatchWriter ===

impl BatchWriter {
    pub(super) fn new(url: DatabaseUrl) -> Self {
        Self { url, syncs_commits: true, state: Mutex::default() }
    }

    /// Makes commits that survive the end of the process, but perhaps not a failure of the server.
    pub(super) fn without_commit_sync(self) -> Self {
        Self { syncs_commits: false, ..self }
    }

    /// Commits the writes in one transaction. Returns one outcome for each write, in the same order.
    pub(in super::super) async fn write(
        &self,
        node: &NodeId,
        writes: &[RowWrite<'_>],
    ) -> Result<Vec<RowWriteOutcome>, StoreError> {
        const DOING: &str = "writing records and claims";
        let mut state = self.lock(DOING).await?;
        let mut result = self.try_write(&mut state, node, writes, false).await;
        if result.as_ref().is_err_and(may_succeed_again) {
            result = self.try_write(&mut state, node, writes, true).await;
        }
        result.map_err(during(DOING))
    }

    /// Makes a commit like that of a record.
    pub(in super::super) async fn check_writable(&self, node: &NodeId) -> Result<(), StoreError> {
        const DOING: &str = "checking whether the database takes writes";
        let mut state = self.lock(DOING).await?;
        let mut result = self.try_check(&mut state, node).await;
        if result.as_ref().is_err_and(may_succeed_again) {
            result = self.try_check(&mut state, node).await;
        }
        result.map_err(during(DOING))
    }

    /// Closes the connection for good. Waits for a write that is running.
    pub(in super::super) async fn close(&self) {
        let mut state = self.state.lock().await;
        state.is_closed = true;
        if let Some(connection) = state.connection.take() {
            // The server ends the session even if the message does not arrive.
            let _ = connection.close().await;
        }
    }

    /// Sets the state that a loss of the connection leaves while the server commits this batch.
    #[cfg(test)]
    pub(super) async fn assume_lost(&self, writes: &[RowWrite<'_>]) {
        let mut state = self.state.lock().await;
        state.connection = None;
        state.uncertain_requests.extend(writes.iter().filter_map(opened_request));
    }

    /// Returns the number of requests whose rows must be removed before the next write.
    #[cfg(test)]
    pub(super) async fn uncertain_count(&self) -> usize {
        self.state.lock().await.uncertain_requests.len()
    }

    async fn lock(&self, doing: &'static str) -> Result<MutexGuard<'_, WriterState>, StoreError> {
        let state = self.state.lock().await;
        if state.is_closed {
            return Err(StoreError::Unavailable { doing, source: "the store is closed".into() });
        }
        Ok(state)
    }

    async fn try_write(
        &self,
        state: &mut WriterState,
        node: &NodeId,
        writes: &[RowWrite<'_>],
        is_second_try: bool,
    ) -> sqlx::Result<Vec<RowWriteOutcome>> {
        // Without a connection nothing is sent, so nothing is uncertain, however long the server is away.
        let mut is_sent = false;
        let result = within_try_timeout(async {
            let mut connection = self.take_connection(state, node).await?;
            is_sent = true;
            let result = write_all(&mut connection, node, writes, is_second_try).await;
            if result.as_ref().err().is_none_or(is_row_fault) {
                state.connection = Some(connection);
            }
            result
        })
        .await;
        if is_sent && result.as_ref().is_err_and(is_connection_lost) {
            state.uncertain_requests.extend(writes.iter().filter_map(opened_request));
        }
        result
    }

    async fn try_check(&self, state: &mut WriterState, node: &NodeId) -> sqlx::Result<()> {
        within_try_timeout(async {
            let mut connection = self.take_connection(state, node).await?;
            sqlx::query("UPDATE write_check SET times = (times + 1) % 1000000").execute(&mut connection).await?;
            state.connection = Some(connection);
            Ok(())
        })
        .await
    }

    /// Returns the connection, or a new one. The connection is not put back after a failure, or if the time is over.
    async fn take_connection(&self, state: &mut WriterState, node: &NodeId) -> sqlx::Result<PgConnection> {
        let mut connection = match state.connection.take() {
            Some(connection) => connection,
            None => self.url.connect_for_writes(self.syncs_commits).await?,
        };
        if !state.uncertain_requests.is_empty() {
            remove_uncertain_rows(&mut connection, node, &state.uncertain_requests).await?;
            state.uncertain_requests.clear();
        }
        Ok(connection)
    }
}

async fn within_try_timeout<T>(work: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let elapsed = |_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
    tokio::time::timeout(TRY_TIMEOUT, work).await.map_err(elapsed)?
}

/// True if the error is caused by a value of a row, so that the connection is in order.
fn is_row_fault(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| {
        // Values that do not fit, and broken constraints.
        code.starts_with("22") || code.starts_with("23")
    })
}

/// Returns the request whose row the write adds; `None` if it adds none.
fn opened_request(write: &RowWrite<'_>) -> Option<String> {
    match write {
        RowWrite::Open(record) => Some(record.document.request_id.clone()),
        RowWrite::Replay(ReplayWrite::Claim(claim)) => Some(claim.request_id.to_string()),
        RowWrite::RecordAttempts(_)
        | RowWrite::Close(_)
        | RowWrite::Replay(ReplayWrite::Finish { .. } | ReplayWrite::EndRetry { .. } | ReplayWrite::Remove { .. }) => {
            None
        }
    }
}

/// Waits until no other session writes for this node. The lock ends with the transaction.
async fn lock_writes(connection: &mut PgConnection, node: &NodeId) -> sqlx::Result<()> {
    let query = sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))").bind(node.as_str());
    query.execute(connection).await?;
    Ok(())
}

async fn remove_uncertain_rows(connection: &mut PgConnection, node: &NodeId, requests: &[String]) -> sqlx::Result<()> {
    let mut transaction = connection.begin().await?;
    lock_writes(&mut transaction, node).await?;
    for statement in [
        "DELETE FROM records WHERE request_id = ANY ($1) AND state = 'running' AND node = $2",
        "DELETE FROM replays WHERE request_id = ANY ($1) AND status IS NULL AND node = $2",
    ] {
        sqlx::query(statement).bind(requests).bind(node.as_str()).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

/// Makes the writes in one transaction. `is_second_try` tells that an earlier try may have made them.
async fn write_all(
    connection: &mut PgConnection,
    node: &NodeId,
    writes: &[RowWrite<'_>],
    is_second_try: bool,
) -> sqlx::Result<Vec<RowWriteOutcome>> {
    let mut outcomes = vec![RowWriteOutcome::NoEffect; writes.len()];
    let single_writes = single_writes(writes);
    let bindings = record_rows::bindings_json(writes, Timestamp::now().into())?;
    let is_outcome = |write: &RowWrite<'_>| matches!(write, RowWrite::Close(_));
    if single_writes.len() == writes.len() && writes.iter().all(is_outcome) && bindings.is_none() {
        // A single statement is a transaction by itself. Only an outcome may be written later than its writer believes,
        // if the connection is lost: the row of a request is closed once.
        write_records(connection, node, writes, &single_writes, &mut outcomes).await?;
        return Ok(outcomes);
    }
    let mut transaction = connection.begin().await?;
    if single_writes.is_empty() {
        lock_writes(&mut transaction, node).await?;
    }
    write_records(&mut transaction, node, writes, &single_writes, &mut outcomes).await?;
    // Several writes of one request must be made in their order.
    for (position, write) in writes.iter().enumerate() {
        if let RowWrite::Replay(write) = write {
            outcomes[position] = replay_writes::write(&mut transaction, write, is_second_try).await?;
        } else if single_writes.binary_search(&position).is_err() {
            write_records(&mut transaction, node, writes, &[position], &mut outcomes).await?;
        }
    }
    // The bindings are written last, so that other nodes wait for these rows only until the commit.
    if let Some(rows) = bindings {
        sqlx::query(record_rows::BIND).bind(rows).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    Ok(outcomes)
}

/// Returns the positions of the writes of records that are the only ones of their requests, in ascending order.
fn single_writes(writes: &[RowWrite<'_>]) -> Vec<usize> {
    let records = writes.iter().map(|write| RecordWriteKind::of_write(write).map(|(_, record)| record));
    let requests: Vec<Option<&str>> =
        records.map(|record| record.map(|record| record.document.request_id.as_str())).collect();
    let mut counts = HashMap::<&str, usize>::new();
    for request in requests.iter().copied().flatten() {
        *counts.entry(request).or_default() += 1;
    }
    let is_single = |request: &Option<&str>| request.is_some_and(|request| counts.get(request) == Some(&1));
    requests.iter().enumerate().filter(|(_, request)| is_single(request)).map(|(position, _)| position).collect()
}

/// Makes the writes at these positions, which are of different requests.
async fn write_records(
    connection: &mut PgConnection,
    node: &NodeId,
    writes: &[RowWrite<'_>],
    positions: &[usize],
    outcomes: &mut [RowWriteOutcome],
) -> sqlx::Result<()> {
    if positions.is_empty() {
        return Ok(());
    }
    let records = || positions.iter().filter_map(|position| RecordWriteKind::of_write(writes.get(*position)?));
    let rows = |wanted| {
        let of_kind = records().filter(move |(kind, _)| *kind == wanted).map(|(_, record)| record);
        record_rows::to_json_list(node, of_kind)
    };
    let query = sqlx::query_scalar(record_rows::WRITE).bind(node.as_str());
    let query = query.bind(rows(RecordWriteKind::Intent)?).bind(rows(RecordWriteKind::Change)?);
    let written: HashSet<String> = query.fetch_all(connection).await?.into_iter().collect();
    for (position, (_, record)) in positions.iter().zip(records()) {
        if written.contains(&record.document.request_id)
            && let Some(outcome) = outcomes.get_mut(*position)
        {
            *outcome = RowWriteOutcome::Done;
        }
    }
    Ok(())
}
