//! Writes the rows of records with their indexes and counts, and the bindings to accounts.

use std::collections::BTreeMap;

use rusqlite::{Connection, ToSql, params};

use crate::gateway::store::record_row::RecordRow;
use crate::gateway::store::{JobRecord, JobState, UtcDay};

const INSERT: &str = "INSERT INTO records (request_id, node, created_at, operation, state, model, account, group_name, \
    user_id, key_id, end_user, error_code, error_reason, fingerprint, latency_ms, images, input_tokens, output_tokens, \
    total_tokens, cost_nano_usd, max_cost_nano_usd, max_job_cost_nano_usd, document) VALUES \
    (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, unhex(substr(?14, 3)), ?15, ?16, ?17, ?18, ?19, ?20, ?21, \
    ?22, ?23) ON CONFLICT DO NOTHING";

const UPDATE: &str = "UPDATE records SET state = ?2, account = ?3, error_code = ?4, error_reason = ?5, latency_ms = ?6, \
    images = ?7, input_tokens = ?8, output_tokens = ?9, total_tokens = ?10, cost_nano_usd = ?11, document = ?12 \
    WHERE request_id = ?1 AND state = 'running'";

/// Returns the statement that adds counts to those of a table. A sum stops at the largest number: a larger one would be a
/// real number, which the table refuses, and with it the outcome.
macro_rules! add_counts {
    ($table:literal, $last_column:literal, $key:literal, $last_sum:literal) => {
        concat!(
            "INSERT INTO ",
            $table,
            " (key_id, day, user_id, group_name, requests, succeeded, failed, images, input_tokens, output_tokens, ",
            "total_tokens, cost_nano_usd, cost_unknown, ",
            $last_column,
            ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?5 - ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT (",
            $key,
            ") DO UPDATE SET requests = requests + excluded.requests, succeeded = succeeded + excluded.succeeded, ",
            "failed = failed + excluded.failed, images = images + excluded.images, ",
            "input_tokens = min(input_tokens + excluded.input_tokens, 9223372036854775807), ",
            "output_tokens = min(output_tokens + excluded.output_tokens, 9223372036854775807), ",
            "total_tokens = min(total_tokens + excluded.total_tokens, 9223372036854775807), ",
            "cost_nano_usd = min(cost_nano_usd + excluded.cost_nano_usd, 9223372036854775807), ",
            "cost_unknown = cost_unknown + excluded.cost_unknown",
            $last_sum
        )
    };
}

const COUNT: &str = add_counts!(
    "usage_days",
    "assumed_nano_usd",
    "key_id, day, user_id, group_name",
    ", assumed_nano_usd = min(assumed_nano_usd + excluded.assumed_nano_usd, 9223372036854775807)"
);
const COUNT_END_USER: &str = add_counts!("end_user_days", "end_user", "end_user, day, key_id, user_id, group_name", "");

const BIND: &str = "INSERT INTO account_bindings (digest, owner, account, used_on) VALUES (?1, ?2, ?3, ?4) \
    ON CONFLICT (digest, owner) DO UPDATE SET account = excluded.account, used_on = excluded.used_on";

/// Writes rows of records in a transaction, and counts those that it closes. The counts of all of them are written
/// together, by [`RecordWriter::finish`].
pub(super) struct RecordWriter<'c> {
    connection: &'c Connection,
    counts: BTreeMap<DayCountKey, [i64; 9]>,
}

/// The key, day, user, group and end user of a count.
type DayCountKey = (String, String, String, String, Option<String>);

// === impl RecordWriter ===

impl<'c> RecordWriter<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection, counts: BTreeMap::new() }
    }

    pub(super) const fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// Inserts the row. Returns false if the request id is taken.
    pub(super) fn insert(&mut self, row: &RecordRow) -> rusqlite::Result<bool> {
        let inserted = self.connection.prepare_cached(INSERT)?.execute(params![
            row.request_id,
            row.node,
            row.created_at,
            row.operation,
            row.state.as_str(),
            row.model,
            row.account,
            row.group_name,
            row.user_id,
            row.key_id,
            row.end_user,
            row.error_code,
            row.error_reason,
            row.fingerprint,
            row.latency_ms,
            row.images,
            row.input_tokens,
            row.output_tokens,
            row.total_tokens,
            row.cost_nano_usd,
            row.max_cost_nano_usd,
            row.max_job_cost_nano_usd,
            row.document.get(),
        ])?;
        Ok(self.count_if_closed(row, inserted == 1))
    }

    /// Writes the attempts so far, or the outcome, into the running row of the request. Returns false if there is none,
    /// because the record is closed already.
    pub(super) fn update(&mut self, row: &RecordRow) -> rusqlite::Result<bool> {
        let changed = self.connection.prepare_cached(UPDATE)?.execute(params![
            row.request_id,
            row.state.as_str(),
            row.account,
            row.error_code,
            row.error_reason,
            row.latency_ms,
            row.images,
            row.input_tokens,
            row.output_tokens,
            row.total_tokens,
            row.cost_nano_usd,
            row.document.get(),
        ])?;
        Ok(self.count_if_closed(row, changed == 1))
    }

    /// Writes the counts.
    pub(super) fn finish(self) -> rusqlite::Result<()> {
        for ((key, day, user, group, end_user), counts) in &self.counts {
            let [requests, succeeded, images, input, output, total, cost, unknown, assumed] = counts;
            let write = |statement: &str, last: &dyn ToSql| {
                self.connection.prepare_cached(statement)?.execute(params![
                    key, day, user, group, requests, succeeded, images, input, output, total, cost, unknown, last
                ])
            };
            write(COUNT, assumed)?;
            if let Some(end_user) = end_user {
                write(COUNT_END_USER, end_user)?;
            }
        }
        Ok(())
    }

    /// Counts a record if it was written and is closed now. Returns `is_written`.
    fn count_if_closed(&mut self, row: &RecordRow, is_written: bool) -> bool {
        if !(is_written && row.is_closed()) {
            return is_written;
        }
        let day = row.created_at.get(..10).unwrap_or_default().to_owned();
        let key = (row.key_id.clone(), day, row.user_id.clone(), row.group_name.clone(), row.end_user.clone());
        let assumed = row.max_job_cost_nano_usd.or(row.max_cost_nano_usd).filter(|_| row.cost_nano_usd.is_none());
        let counts = [
            Some(1),
            Some(i64::from(row.state == JobState::Succeeded)),
            Some(row.images),
            row.input_tokens,
            row.output_tokens,
            row.total_tokens,
            row.cost_nano_usd,
            Some(i64::from(row.cost_nano_usd.is_none())),
            assumed,
        ];
        for (sum, count) in self.counts.entry(key).or_default().iter_mut().zip(counts) {
            *sum = sum.saturating_add(count.unwrap_or_default());
        }
        true
    }
}

/// Writes the values that belong to the account of the record.
pub(super) fn bind(connection: &Connection, record: &JobRecord, today: UtcDay) -> rusqlite::Result<()> {
    for row in record.binding_rows(today) {
        let day = row.used_on.to_string();
        connection.prepare_cached(BIND)?.execute(params![row.digest.as_str(), row.owner, row.account, day])?;
    }
    Ok(())
}
