//! The rows of records with their indexes and counts, and the bindings to accounts.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::gateway::money::Usd;
use crate::gateway::store::record::to_sql_integer;
use crate::gateway::store::{JobRecord, JobState, NodeId, Timestamp, UtcDay};

const INSERT: &str = "INSERT INTO records (request_id, node, created_at, operation, state, model, account, group_name, \
    user_id, key_id, end_user, error_code, error_reason, fingerprint, latency_ms, images, input_tokens, output_tokens, \
    total_tokens, cost_nano_usd, max_cost_nano_usd, max_job_cost_nano_usd, document) VALUES \
    (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23) \
    ON CONFLICT DO NOTHING";

/// A trigger of the database counts the record if this closes it.
const UPDATE: &str = "UPDATE records SET state = ?2, account = ?3, error_code = ?4, error_reason = ?5, latency_ms = ?6, \
    images = ?7, input_tokens = ?8, output_tokens = ?9, total_tokens = ?10, cost_nano_usd = ?11, document = ?12 \
    WHERE request_id = ?1 AND state = 'running'";

const COUNT: &str = "INSERT INTO usage_days (key_id, day, user_id, group_name, requests, succeeded, failed, images, \
    input_tokens, output_tokens, total_tokens, cost_nano_usd, cost_unknown, assumed_nano_usd) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?5 - ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) \
    ON CONFLICT (key_id, day, user_id, group_name) DO UPDATE SET requests = requests + excluded.requests, \
    succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed, images = images + excluded.images, \
    input_tokens = min(input_tokens + excluded.input_tokens, 9223372036854775807), \
    output_tokens = min(output_tokens + excluded.output_tokens, 9223372036854775807), \
    total_tokens = min(total_tokens + excluded.total_tokens, 9223372036854775807), \
    cost_nano_usd = min(cost_nano_usd + excluded.cost_nano_usd, 9223372036854775807), \
    cost_unknown = cost_unknown + excluded.cost_unknown, \
    assumed_nano_usd = min(assumed_nano_usd + excluded.assumed_nano_usd, 9223372036854775807)";

const COUNT_END_USER: &str = "INSERT INTO end_user_days (end_user, key_id, day, user_id, group_name, requests, \
    succeeded, failed, images, input_tokens, output_tokens, total_tokens, cost_nano_usd, cost_unknown) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?6 - ?7, ?8, ?9, ?10, ?11, ?12, ?13) \
    ON CONFLICT (end_user, day, key_id, user_id, group_name) DO UPDATE SET requests = requests + excluded.requests, \
    succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed, images = images + excluded.images, \
    input_tokens = min(input_tokens + excluded.input_tokens, 9223372036854775807), \
    output_tokens = min(output_tokens + excluded.output_tokens, 9223372036854775807), \
    total_tokens = min(total_tokens + excluded.total_tokens, 9223372036854775807), \
    cost_nano_usd = min(cost_nano_usd + excluded.cost_nano_usd, 9223372036854775807), \
    cost_unknown = cost_unknown + excluded.cost_unknown";

const BIND: &str = "INSERT INTO account_bindings (digest, owner, account, used_on) VALUES (?1, ?2, ?3, ?4) \
    ON CONFLICT (digest, owner) DO UPDATE SET account = excluded.account, used_on = excluded.used_on";

/// The values of a row of `records`. In the journal, it is a JSON object with the names of the columns.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordRow {
    pub(super) request_id: String,
    node: String,
    created_at: String,
    operation: String,
    state: JobState,
    model: Option<String>,
    account: Option<String>,
    group_name: String,
    user_id: String,
    key_id: String,
    end_user: Option<String>,
    error_code: Option<String>,
    error_reason: Option<String>,
    fingerprint: Option<[u8; 32]>,
    latency_ms: Option<i64>,
    images: i64,
    input_tokens: Option<i64>,
    output_tokens: Option<i64>,
    total_tokens: Option<i64>,
    cost_nano_usd: Option<i64>,
    max_cost_nano_usd: Option<i64>,
    max_job_cost_nano_usd: Option<i64>,
    document: Box<RawValue>,
}

/// The counts by day of records that are closed when they are inserted: a row for each key, day, user, group and end
/// user.
#[derive(Debug, Default)]
pub(super) struct DayCountRows(BTreeMap<DayCountKey, [i64; 9]>);

/// The key, day, user, group and end user of a count.
type DayCountKey = (String, String, String, String, Option<String>);

// === impl RecordRow ===

impl RecordRow {
    pub(super) fn new(node: &NodeId, record: &JobRecord) -> serde_json::Result<Self> {
        let (document, columns) = (&record.document, record.outcome_columns());
        let [input_tokens, output_tokens, total_tokens] = columns.tokens;
        Ok(Self {
            request_id: document.request_id.clone(),
            node: node.as_str().to_owned(),
            created_at: Timestamp::from(document.created_at).to_string(),
            operation: document.operation.clone(),
            state: document.state,
            model: document.model.clone(),
            account: columns.account,
            group_name: document.group.clone(),
            user_id: document.user.clone(),
            key_id: document.key.clone(),
            end_user: document.end_user.clone(),
            error_code: columns.error_code,
            error_reason: columns.error_reason.map(str::to_owned),
            fingerprint: record.fingerprint,
            latency_ms: columns.latency_ms,
            images: columns.images,
            input_tokens,
            output_tokens,
            total_tokens,
            cost_nano_usd: columns.cost_nano_usd,
            max_cost_nano_usd: to_sql_integer(record.max_cost.map(Usd::nanos)),
            max_job_cost_nano_usd: to_sql_integer(record.max_job_cost.map(Usd::nanos)),
            document: to_raw_value(document)?,
        })
    }

    /// Inserts the row. Returns false if the request id is taken.
    pub(super) fn insert(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let inserted = connection.prepare_cached(INSERT)?.execute(params![
            self.request_id,
            self.node,
            self.created_at,
            self.operation,
            self.state.as_str(),
            self.model,
            self.account,
            self.group_name,
            self.user_id,
            self.key_id,
            self.end_user,
            self.error_code,
            self.error_reason,
            self.fingerprint,
            self.latency_ms,
            self.images,
            self.input_tokens,
            self.output_tokens,
            self.total_tokens,
            self.cost_nano_usd,
            self.max_cost_nano_usd,
            self.max_job_cost_nano_usd,
            self.document.get(),
        ])?;
        Ok(inserted == 1)
    }

    /// Writes the attempts so far, or the outcome, into the running row of the request. Returns false if there is none,
    /// because the record is closed already.
    pub(super) fn update(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let changed = connection.prepare_cached(UPDATE)?.execute(params![
            self.request_id,
            self.state.as_str(),
            self.account,
            self.error_code,
            self.error_reason,
            self.latency_ms,
            self.images,
            self.input_tokens,
            self.output_tokens,
            self.total_tokens,
            self.cost_nano_usd,
            self.document.get(),
        ])?;
        Ok(changed == 1)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state != JobState::Running
    }
}

// === impl DayCountRows ===

impl DayCountRows {
    /// Counts a record that was inserted.
    pub(super) fn add(&mut self, row: &RecordRow) {
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
        for (sum, count) in self.0.entry(key).or_default().iter_mut().zip(counts) {
            *sum = sum.saturating_add(count.unwrap_or_default());
        }
    }

    /// Adds the counts to those of the database.
    pub(super) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        for ((key, day, user, group, end_user), counts) in &self.0 {
            let [requests, succeeded, images, input, output, total, cost, unknown, assumed] = counts;
            connection.prepare_cached(COUNT)?.execute(params![
                key, day, user, group, requests, succeeded, images, input, output, total, cost, unknown, assumed
            ])?;
            if let Some(end_user) = end_user {
                connection.prepare_cached(COUNT_END_USER)?.execute(params![
                    end_user, key, day, user, group, requests, succeeded, images, input, output, total, cost, unknown
                ])?;
            }
        }
        Ok(())
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
