//! The statements for records, except the writes of intents and outcomes, which each database makes in its own way.
//! The module [`record_queries`] reads records.

pub(in super::super) mod record_queries;

pub(super) use record_queries::{NO_LIMIT, find, list, push_key_id, push_user_id};

use std::time::Duration;

use super::decode::{optional_count, parsed};
use super::dialect::{DbPool, most_of_attempts, unknown_attempt_json};
use crate::gateway::store::{JobProgress, JobState, NodeId, RequestId, Timestamp};

/// The condition is written exactly like that of the partial index, so that a start reads only the running rows. If no
/// attempt was recorded, the row gets one for the account that the intent names, because it is unknown whether that
/// account was called.
/// The cost is the most that the recorded attempts can cost. Such an outcome is provisional: it has no duration.
pub(in super::super) const INTERRUPT: &str = concat!(
    "UPDATE records SET state = 'interrupted', \
    attempts = CASE WHEN attempts = '[]' AND account IS NOT NULL \
    THEN ",
    unknown_attempt_json!(),
    " \
    ELSE attempts END, \
    cost_nano_usd = CASE WHEN max_cost_nano_usd IS NULL THEN NULL ELSE ",
    most_of_attempts!(),
    " END, cost_reason = 'interrupted', \
    cost_basis = CASE WHEN max_cost_nano_usd IS NULL THEN 'unknown' ELSE 'estimated' END \
    WHERE state = 'running' AND node = $1"
);

/// The condition on the state is written exactly like that of the partial index.
pub(in super::super) const STATES_BY_FINGERPRINT: &str = "SELECT state FROM records \
    WHERE fingerprint = $1 AND created_at >= $2 AND state <> 'succeeded' \
    ORDER BY created_at DESC, seq DESC LIMIT $3";

pub(in super::super) async fn interrupt_running(pool: &DbPool, node: &NodeId) -> sqlx::Result<u64> {
    Ok(sqlx::query(INTERRUPT).bind(node.as_str()).execute(pool).await?.rows_affected())
}

/// Returns the states of the jobs with one fingerprint that have not succeeded, newest first.
pub(super) async fn states_by_fingerprint(
    pool: &DbPool,
    fingerprint: &[u8; 32],
    since: Timestamp,
    limit: u32,
) -> sqlx::Result<Vec<JobState>> {
    let query = sqlx::query(STATES_BY_FINGERPRINT);
    let rows =
        query.bind(fingerprint.as_slice()).bind(since.to_string()).bind(i64::from(limit)).fetch_all(pool).await?;
    rows.iter().map(|row| parsed(row, "state")).collect()
}

/// Returns the progress of the job of a request. Only the process of the job writes its duration.
pub(super) async fn job_progress(pool: &DbPool, request_id: &RequestId) -> sqlx::Result<Option<JobProgress>> {
    let query = sqlx::query("SELECT state, created_at, latency_ms FROM records WHERE request_id = $1");
    let Some(row) = query.bind(request_id.as_str()).fetch_optional(pool).await? else { return Ok(None) };
    let created_at: Timestamp = parsed(&row, "created_at")?;
    let duration = optional_count(&row, "latency_ms")?.map(Duration::from_millis);
    let ended_at = duration.map(|duration| created_at + duration);
    Ok(Some(JobProgress { state: parsed(&row, "state")?, ended_at }))
}
