//! The writes of records: intents, and the states that follow them.
//!
//! A trigger of the database counts each record in the statement that closes it.

use rusqlite::{Connection, params};

use crate::gateway::money::Usd;
use crate::gateway::store::record::to_sql_integer;
use crate::gateway::store::{JobRecord, NodeId, Timestamp, UtcDay};

const OPEN: &str = "INSERT INTO records (request_id, node, created_at, operation, state, model, account, group_name, \
    user_id, key_id, end_user, fingerprint, max_cost_nano_usd, max_job_cost_nano_usd, document) \
    VALUES (?1, ?2, ?3, ?4, 'running', ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) ON CONFLICT DO NOTHING";

const UPDATE: &str = "UPDATE records SET state = ?2, account = ?3, error_code = ?4, error_reason = ?5, latency_ms = ?6, \
    images = ?7, input_tokens = ?8, output_tokens = ?9, total_tokens = ?10, cost_nano_usd = ?11, document = ?12 \
    WHERE request_id = ?1 AND state = 'running'";

const BIND: &str = "INSERT INTO account_bindings (digest, owner, account, used_on) VALUES (?1, ?2, ?3, ?4) \
    ON CONFLICT (digest, owner) DO UPDATE SET account = excluded.account, used_on = excluded.used_on";

/// Inserts an intent. Returns 0 if the request id is taken.
pub(super) fn open(connection: &Connection, node: &NodeId, record: &JobRecord) -> rusqlite::Result<usize> {
    let document = &record.document;
    connection.prepare_cached(OPEN)?.execute(params![
        document.request_id,
        node.as_str(),
        Timestamp::from(document.created_at).to_string(),
        document.operation,
        document.model,
        document.account,
        document.group,
        document.user,
        document.key,
        document.end_user,
        record.fingerprint.as_ref().map(<[u8; 32]>::as_slice),
        to_sql_integer(record.max_cost.map(Usd::nanos)),
        to_sql_integer(record.max_job_cost.map(Usd::nanos)),
        to_json(record)?,
    ])
}

/// Writes the attempts so far, or an outcome. Returns 0 if there is no running row of the request.
pub(super) fn update(connection: &Connection, record: &JobRecord) -> rusqlite::Result<usize> {
    let columns = record.outcome_columns();
    let [input, output, total] = columns.tokens;
    connection.prepare_cached(UPDATE)?.execute(params![
        record.document.request_id,
        columns.state,
        columns.account,
        columns.error_code,
        columns.error_reason,
        columns.latency_ms,
        columns.images,
        input,
        output,
        total,
        columns.cost_nano_usd,
        to_json(record)?,
    ])
}

/// Writes the values that belong to the account of the record.
pub(super) fn bind(connection: &Connection, record: &JobRecord, today: UtcDay) -> rusqlite::Result<()> {
    for row in record.binding_rows(today) {
        let day = row.used_on.to_string();
        connection.prepare_cached(BIND)?.execute(params![row.digest.as_str(), row.owner, row.account, day])?;
    }
    Ok(())
}

fn to_json(record: &JobRecord) -> rusqlite::Result<String> {
    record.to_json().map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}
