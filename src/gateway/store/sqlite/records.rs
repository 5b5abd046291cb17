//! The writes of records: intents, and the outcomes that close them. The module [`record_queries`] reads them.
//!
//! A trigger of the database counts each record in the statement that closes it.

mod record_queries;

#[cfg(test)]
pub(super) use record_queries::select_query;
pub(super) use record_queries::{NO_LIMIT, find, list, push_key_id, push_user_id};

use rusqlite::{Connection, params};
use sqlx::SqlitePool;

use super::decode::parsed;
use crate::gateway::money::Usd;
use crate::gateway::store::{CostBasis, CostReason, JobState, KeyId, NodeId, Record, Timestamp, UserId};

const OPEN: &str = "INSERT INTO records (request_id, node, created_at, operation, model, stream, state, size, quality, \
    output_format, n, account, group_name, user_id, key_id, end_user, injected_tool, fingerprint, max_cost_nano_usd) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'running', ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18) ON CONFLICT DO NOTHING";

const CLOSE: &str = "UPDATE records SET state = ?2, error_code = ?3, delivered = ?4, input_tokens = ?5, \
    input_image_tokens = ?6, input_text_tokens = ?7, output_tokens = ?8, output_image_tokens = ?9, \
    output_text_tokens = ?10, total_tokens = ?11, cost_nano_usd = ?12, latency_ms = ?13, first_byte_ms = ?14, \
    attempts = ?15, account = ?16, fallback = ?17, response_id = ?18, error_reason = ?19, \
    error_detail = ?20, image_model = ?21, host_model = ?22, host_input_tokens = ?23, host_output_tokens = ?24, \
    host_total_tokens = ?25, maybe_paid_twice = ?26, \
    input_cached_image_tokens = ?27, input_cached_text_tokens = ?28, host_input_cached_tokens = ?29, \
    cost_basis = ?30, cost_reason = ?31, price_version = ?32 \
    WHERE request_id = ?1 AND state = 'running'";

/// The condition is written exactly like that of the partial index, so that a start reads only the running rows. If no
/// attempt was recorded, the row gets one for the account that the intent names, because it is unknown whether that
/// account was called.
pub(super) const INTERRUPT: &str = "UPDATE records SET state = 'interrupted', \
    attempts = CASE WHEN attempts = '[]' AND account IS NOT NULL \
    THEN json_array(json_object('account', account, 'class', 'X', 'status', NULL, 'latency_ms', NULL)) \
    ELSE attempts END, \
    cost_nano_usd = max_cost_nano_usd, cost_reason = 'interrupted', \
    cost_basis = CASE WHEN max_cost_nano_usd IS NULL THEN 'unknown' ELSE 'estimated' END \
    WHERE state = 'running' AND node = $1";

/// The condition on the state is written exactly like that of the partial index.
pub(super) const STATES_BY_FINGERPRINT: &str = "SELECT state FROM records \
    WHERE fingerprint = $1 AND created_at >= $2 AND state <> 'succeeded' \
    ORDER BY created_at DESC, seq DESC LIMIT $3";

const UPDATE_ATTEMPTS: &str =
    "UPDATE records SET attempts = ?2, account = ?3, maybe_paid_twice = ?4 WHERE request_id = ?1 AND state = 'running'";

/// Inserts an intent. Returns 0 if the request id is taken.
pub(super) fn open(connection: &Connection, node: &NodeId, record: &Record) -> rusqlite::Result<usize> {
    connection.prepare_cached(OPEN)?.execute(params![
        record.request_id.as_str(),
        node.as_str(),
        record.created_at.to_string(),
        record.operation,
        record.model,
        record.stream,
        record.size,
        record.quality,
        record.output_format,
        record.n,
        record.account,
        record.group,
        record.user.as_str(),
        record.key.as_str(),
        record.end_user,
        record.injected_tool,
        record.fingerprint.as_ref().map(<[u8; 32]>::as_slice),
        to_sql_integer(record.max_cost_usd.map(Usd::nanos)),
    ])
}

/// Writes an outcome. Returns 0 if there is no running row of the request.
pub(super) fn close(connection: &Connection, record: &Record) -> rusqlite::Result<usize> {
    let usage = record.usage.clone().unwrap_or_default();
    let host = record.host_usage.clone().unwrap_or_default();
    let input = usage.input_tokens_details.unwrap_or_default();
    let output = usage.output_tokens_details.unwrap_or_default();
    let cached = usage.cached_tokens_details.unwrap_or_default();
    connection.prepare_cached(CLOSE)?.execute(params![
        record.request_id.as_str(),
        record.state.as_str(),
        record.error_code,
        to_json(&record.delivered)?,
        to_sql_integer(usage.input_tokens),
        to_sql_integer(input.image_tokens),
        to_sql_integer(input.text_tokens),
        to_sql_integer(usage.output_tokens),
        to_sql_integer(output.image_tokens),
        to_sql_integer(output.text_tokens),
        to_sql_integer(usage.total_tokens),
        to_sql_integer(record.cost_usd.map(Usd::nanos)),
        to_sql_integer(record.latency_ms),
        to_sql_integer(record.first_byte_ms),
        to_json(&record.attempts)?,
        record.account,
        record.fallback,
        record.response_id,
        record.error_reason,
        record.error_detail,
        record.image_model,
        record.host_model,
        to_sql_integer(host.input_tokens),
        to_sql_integer(host.output_tokens),
        to_sql_integer(host.total_tokens),
        record.maybe_paid_twice,
        to_sql_integer(cached.image_tokens),
        to_sql_integer(cached.text_tokens),
        to_sql_integer(host.cached_tokens_details.and_then(|details| details.text_tokens)),
        record.cost_basis.map(CostBasis::as_str),
        record.cost_reason.map(CostReason::as_str),
        record.price_version,
    ])
}

/// Writes the attempts so far. Returns 0 if there is no running row of the request.
pub(super) fn update_attempts(connection: &Connection, record: &Record) -> rusqlite::Result<usize> {
    connection.prepare_cached(UPDATE_ATTEMPTS)?.execute(params![
        record.request_id.as_str(),
        to_json(&record.attempts)?,
        record.account,
        record.maybe_paid_twice,
    ])
}

pub(super) async fn interrupt_running(pool: &SqlitePool, node: &NodeId) -> sqlx::Result<u64> {
    Ok(sqlx::query(INTERRUPT).bind(node.as_str()).execute(pool).await?.rows_affected())
}

/// Returns the states of the jobs with one fingerprint that have not succeeded, newest first.
pub(super) async fn states_by_fingerprint(
    pool: &SqlitePool,
    fingerprint: &[u8; 32],
    since: Timestamp,
    limit: u32,
) -> sqlx::Result<Vec<JobState>> {
    let query = sqlx::query(STATES_BY_FINGERPRINT);
    let rows = query.bind(fingerprint.as_slice()).bind(since.to_string()).bind(limit).fetch_all(pool).await?;
    rows.iter().map(|row| parsed(row, "state")).collect()
}

/// Returns the account that made this response for this user, or for this key if there is no user. If an upstream uses
/// an id twice, the newest record counts.
pub(super) async fn account_of_response(
    pool: &SqlitePool,
    response_id: &str,
    user: &UserId,
    key: &KeyId,
) -> sqlx::Result<Option<String>> {
    let query = sqlx::query_scalar(
        "SELECT account FROM records WHERE response_id = $1 AND user_id = $2 AND ($3 IS NULL OR key_id = $3) \
         AND account IS NOT NULL ORDER BY seq DESC LIMIT 1",
    );
    let key = user.is_nobody().then_some(key.as_str());
    query.bind(response_id).bind(user.as_str()).bind(key).fetch_optional(pool).await
}

/// Limits a count to the largest integer of the database, 2^63 - 1.
fn to_sql_integer(value: Option<u64>) -> Option<i64> {
    value.map(|value| i64::try_from(value).unwrap_or(i64::MAX))
}

fn to_json<T: serde::Serialize>(list: &[T]) -> rusqlite::Result<String> {
    serde_json::to_string(list).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}
