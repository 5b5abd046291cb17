//! The writes of records: intents, and the outcomes that close them.
//!
//! A trigger of the database counts each record in the statement that closes it.

use rusqlite::{Connection, params};

use crate::gateway::money::Usd;
use crate::gateway::store::{CostBasis, CostReason, NodeId, Record, UtcDay};

const OPEN: &str = "INSERT INTO records (request_id, node, created_at, operation, model, stream, state, size, quality, \
    output_format, n, account, group_name, user_id, key_id, end_user, injected_tool, fingerprint, max_cost_nano_usd, \
    max_job_cost_nano_usd, adapted) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'running', ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20) \
    ON CONFLICT DO NOTHING";

const CLOSE: &str = "UPDATE records SET state = ?2, error_code = ?3, delivered = ?4, input_tokens = ?5, \
    input_image_tokens = ?6, input_text_tokens = ?7, output_tokens = ?8, output_image_tokens = ?9, \
    output_text_tokens = ?10, total_tokens = ?11, cost_nano_usd = ?12, latency_ms = ?13, first_byte_ms = ?14, \
    attempts = ?15, account = ?16, fallback = ?17, error_reason = ?18, \
    error_detail = ?19, image_model = ?20, host_model = ?21, host_input_tokens = ?22, host_output_tokens = ?23, \
    host_total_tokens = ?24, maybe_paid_twice = ?25, \
    input_cached_image_tokens = ?26, input_cached_text_tokens = ?27, host_input_cached_tokens = ?28, \
    cost_basis = ?29, cost_reason = ?30, price_version = ?31, \
    size = ?32, quality = ?33, output_format = ?34, injected_tool = ?35 \
    WHERE request_id = ?1 AND state = 'running'";

const UPDATE_ATTEMPTS: &str =
    "UPDATE records SET attempts = ?2, account = ?3, maybe_paid_twice = ?4 WHERE request_id = ?1 AND state = 'running'";

const BIND: &str = "INSERT INTO account_bindings (digest, owner, account, used_on) VALUES (?1, ?2, ?3, ?4) \
    ON CONFLICT (digest, owner) DO UPDATE SET account = excluded.account, used_on = excluded.used_on";

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
        to_sql_integer(record.max_job_cost_usd.map(Usd::nanos)),
        record.adapted,
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
        record.size,
        record.quality,
        record.output_format,
        record.injected_tool,
    ])
}

/// Writes the values that belong to the account of the record.
pub(super) fn bind(connection: &Connection, record: &Record, today: UtcDay) -> rusqlite::Result<()> {
    for row in record.binding_rows(today) {
        let day = row.used_on.to_string();
        connection.prepare_cached(BIND)?.execute(params![row.digest.as_str(), row.owner, row.account, day])?;
    }
    Ok(())
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

/// Limits a count to the largest integer of the database, 2^63 - 1.
fn to_sql_integer(value: Option<u64>) -> Option<i64> {
    value.map(|value| i64::try_from(value).unwrap_or(i64::MAX))
}

fn to_json<T: serde::Serialize>(list: &[T]) -> rusqlite::Result<String> {
    serde_json::to_string(list).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}
