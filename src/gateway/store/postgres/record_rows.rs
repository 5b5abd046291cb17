//! The statements that write records, each for any number of rows.
//!
//! The rows are sent as one JSON list, so a batch of any size is one statement of a kind that the server has prepared,
//! and one journey over the network. A trigger of the database counts each record in the statement that closes it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::gateway::money::Usd;
use crate::gateway::store::{CostBasis, CostReason, NodeId, Record, RowWrite, TokenDetails, UtcDay};

/// The kinds of writes.
pub(super) const ALL_KINDS: [RecordStatement; 3] =
    [RecordStatement::Open, RecordStatement::RecordAttempts, RecordStatement::Close];

/// A kind of write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordStatement {
    Open,
    RecordAttempts,
    Close,
}

const OPEN: &str = "INSERT INTO records (request_id, node, created_at, operation, model, stream, state, size, quality, \
    output_format, n, account, group_name, user_id, key_id, end_user, injected_tool, fingerprint, max_cost_nano_usd, \
    max_job_cost_nano_usd, adapted) \
    SELECT request_id, node, created_at, operation, model, stream, 'running', size, quality, output_format, n, account, \
    group_name, user_id, key_id, end_user, injected_tool, fingerprint, max_cost_nano_usd, \
    max_job_cost_nano_usd, adapted \
    FROM json_populate_recordset(NULL::records, CAST($1 AS JSON)) ON CONFLICT DO NOTHING RETURNING request_id";

const RECORD_ATTEMPTS: &str = "UPDATE records SET attempts = new.attempts, account = new.account, \
    maybe_paid_twice = new.maybe_paid_twice FROM json_populate_recordset(NULL::records, CAST($1 AS JSON)) AS new \
    WHERE records.request_id = new.request_id AND records.state = 'running' RETURNING records.request_id";

/// Another node may have closed the record of a job that still ran, because this node seemed to be dead. Such an outcome is
/// provisional: it has no duration. Only the node that opened the record replaces it, once.
const CLOSE: &str = "UPDATE records SET state = new.state, error_code = new.error_code, delivered = new.delivered, \
    input_tokens = new.input_tokens, input_image_tokens = new.input_image_tokens, \
    input_text_tokens = new.input_text_tokens, output_tokens = new.output_tokens, \
    output_image_tokens = new.output_image_tokens, output_text_tokens = new.output_text_tokens, \
    total_tokens = new.total_tokens, cost_nano_usd = new.cost_nano_usd, latency_ms = new.latency_ms, \
    first_byte_ms = new.first_byte_ms, attempts = new.attempts, account = new.account, fallback = new.fallback, \
    error_reason = new.error_reason, error_detail = new.error_detail, \
    image_model = new.image_model, host_model = new.host_model, host_input_tokens = new.host_input_tokens, \
    host_output_tokens = new.host_output_tokens, host_total_tokens = new.host_total_tokens, \
    maybe_paid_twice = new.maybe_paid_twice, input_cached_image_tokens = new.input_cached_image_tokens, \
    input_cached_text_tokens = new.input_cached_text_tokens, host_input_cached_tokens = new.host_input_cached_tokens, \
    cost_basis = new.cost_basis, cost_reason = new.cost_reason, price_version = new.price_version, \
    size = new.size, quality = new.quality, output_format = new.output_format, injected_tool = new.injected_tool \
    FROM json_populate_recordset(NULL::records, CAST($1 AS JSON)) AS new \
    WHERE records.request_id = new.request_id AND (records.state = 'running' OR (records.state = 'interrupted' \
    AND records.latency_ms IS NULL AND records.node = new.node)) RETURNING records.request_id";

/// Adds the values that belong to accounts. The only value is a list of rows, each with another digest or owner, in the
/// order of the digests.
pub(super) const BIND: &str = "INSERT INTO account_bindings (digest, owner, account, used_on) \
    SELECT digest, owner, account, used_on FROM json_populate_recordset(NULL::account_bindings, CAST($1 AS JSON)) \
    ON CONFLICT (digest, owner) DO UPDATE SET account = excluded.account, used_on = excluded.used_on";

// === impl RecordStatement ===

impl RecordStatement {
    /// Returns the statement. Its only value is the list of rows; it returns the ids of the requests that it has written.
    pub(super) const fn sql(self) -> &'static str {
        match self {
            Self::Open => OPEN,
            Self::RecordAttempts => RECORD_ATTEMPTS,
            Self::Close => CLOSE,
        }
    }

    /// Returns the kind of a write and its record; `None` for a write of another table.
    pub(super) const fn of_write<'a>(write: &RowWrite<'a>) -> Option<(Self, &'a Record)> {
        match write {
            RowWrite::Open(record) => Some((Self::Open, record)),
            RowWrite::RecordAttempts(record) => Some((Self::RecordAttempts, record)),
            RowWrite::Close(record) => Some((Self::Close, record)),
            RowWrite::Replay(_) => None,
        }
    }
}

/// Returns the records as the value of a statement: a JSON list of objects, whose keys are the names of columns.
pub(super) fn to_json_list<'a>(
    statement: RecordStatement,
    node: &NodeId,
    records: impl Iterator<Item = &'a Record>,
) -> sqlx::Result<String> {
    let rows: Vec<_> = records
        .map(|record| match statement {
            RecordStatement::Open => Ok(intent_row(node, record)),
            RecordStatement::RecordAttempts => attempts_row(record),
            RecordStatement::Close => outcome_row(node, record),
        })
        .collect::<sqlx::Result<_>>()?;
    let json = serde_json::to_string(&rows).map_err(|error| sqlx::Error::Encode(error.into()))?;
    Ok(replace_null_characters(json))
}

/// Returns the values that the closed records bind to their accounts, as the value of [`BIND`]; `None` if there are none.
/// If two records bind the same value of an owner, the later one counts.
pub(super) fn bindings_json(writes: &[RowWrite<'_>], today: UtcDay) -> sqlx::Result<Option<String>> {
    let mut rows = BTreeMap::new();
    for write in writes.iter().filter(|write| write.has_bindings()) {
        let Some((_, record)) = RecordStatement::of_write(write) else { continue };
        rows.extend(record.binding_rows(today).into_iter().map(|row| ((row.digest.clone(), row.owner.clone()), row)));
    }
    if rows.is_empty() {
        return Ok(None);
    }
    let rows: Vec<_> = rows
        .into_values()
        .map(|row| {
            json!({"digest": row.digest.as_str(), "owner": row.owner, "account": row.account, "used_on": row.used_on})
        })
        .collect();
    serde_json::to_string(&rows).map(Some).map_err(|error| sqlx::Error::Encode(error.into()))
}

fn intent_row(node: &NodeId, record: &Record) -> Value {
    let fingerprint = record.fingerprint.as_ref().map(|bytes| {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        // The text form of bytes in PostgreSQL.
        format!("\\x{digits}")
    });
    json!({
        "request_id": record.request_id.as_str(),
        "node": node.as_str(),
        "created_at": record.created_at.to_string(),
        "operation": record.operation,
        "model": record.model,
        "stream": record.stream,
        "size": record.size,
        "quality": record.quality,
        "output_format": record.output_format,
        "n": record.n,
        "account": record.account,
        "group_name": record.group,
        "user_id": record.user.as_str(),
        "key_id": record.key.as_str(),
        "end_user": record.end_user,
        "injected_tool": record.injected_tool,
        "fingerprint": fingerprint,
        "max_cost_nano_usd": to_sql_integer(record.max_cost_usd.map(Usd::nanos)),
        "max_job_cost_nano_usd": to_sql_integer(record.max_job_cost_usd.map(Usd::nanos)),
        "adapted": record.adapted,
    })
}

fn attempts_row(record: &Record) -> sqlx::Result<Value> {
    Ok(json!({
        "request_id": record.request_id.as_str(),
        "attempts": to_json(&record.attempts)?,
        "account": record.account,
        "maybe_paid_twice": record.maybe_paid_twice,
    }))
}

fn outcome_row(node: &NodeId, record: &Record) -> sqlx::Result<Value> {
    let host = record.host_usage.clone().unwrap_or_default();
    let mut row = json!({
        "request_id": record.request_id.as_str(),
        "node": node.as_str(),
        "state": record.state.as_str(),
        "error_code": record.error_code,
        "error_reason": record.error_reason,
        "error_detail": record.error_detail,
        "delivered": to_json(&record.delivered)?,
        "cost_nano_usd": to_sql_integer(record.cost_usd.map(Usd::nanos)),
        "cost_basis": record.cost_basis.map(CostBasis::as_str),
        "cost_reason": record.cost_reason.map(CostReason::as_str),
        "price_version": record.price_version,
        "size": record.size,
        "quality": record.quality,
        "output_format": record.output_format,
        "injected_tool": record.injected_tool,
        "latency_ms": to_sql_integer(record.latency_ms),
        "first_byte_ms": to_sql_integer(record.first_byte_ms),
        "attempts": to_json(&record.attempts)?,
        "account": record.account,
        "fallback": record.fallback,
        "image_model": record.image_model,
        "host_model": record.host_model,
        "host_input_tokens": to_sql_integer(host.input_tokens),
        "host_output_tokens": to_sql_integer(host.output_tokens),
        "host_total_tokens": to_sql_integer(host.total_tokens),
        "host_input_cached_tokens": to_sql_integer(host.cached_tokens_details.and_then(|details| details.text_tokens)),
        "maybe_paid_twice": record.maybe_paid_twice,
    });
    if let Some(columns) = row.as_object_mut() {
        columns.append(&mut usage_columns(record));
    }
    Ok(row)
}

/// Returns the columns with the tokens of the image model.
fn usage_columns(record: &Record) -> Map<String, Value> {
    let usage = record.usage.clone().unwrap_or_default();
    let mut columns = Map::new();
    let mut add = |name: &str, count: Option<u64>| columns.insert(name.to_owned(), json!(to_sql_integer(count)));
    add("input_tokens", usage.input_tokens);
    add("output_tokens", usage.output_tokens);
    add("total_tokens", usage.total_tokens);
    let mut add_details = |prefix: &str, details: Option<TokenDetails>| {
        let details = details.unwrap_or_default();
        add(&format!("{prefix}_image_tokens"), details.image_tokens);
        add(&format!("{prefix}_text_tokens"), details.text_tokens);
    };
    add_details("input", usage.input_tokens_details);
    add_details("output", usage.output_tokens_details);
    add_details("input_cached", usage.cached_tokens_details);
    columns
}

/// Limits a count to the largest integer of the database, 2^63 - 1.
fn to_sql_integer(value: Option<u64>) -> Option<i64> {
    value.map(|value| i64::try_from(value).unwrap_or(i64::MAX))
}

fn to_json<T: serde::Serialize>(list: &[T]) -> sqlx::Result<String> {
    serde_json::to_string(list).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// Replaces the characters U+0000 in a JSON text with U+FFFD: a text of PostgreSQL cannot contain them, and a record
/// must not be refused because of a character that a caller has sent.
pub(super) fn replace_null_characters(json: String) -> String {
    const NULL: &str = "u0000";
    if !json.contains("\\u0000") {
        return json;
    }
    let mut replaced = String::with_capacity(json.len());
    let mut rest = json.as_str();
    while let Some(position) = rest.find('\\') {
        let (before, escape) = rest.split_at(position + 1);
        replaced.push_str(before);
        rest = match escape.strip_prefix(NULL) {
            Some(after) => {
                replaced.push_str("ufffd");
                after
            }
            None => {
                // The character after a backslash never begins an escape of its own.
                let mut characters = escape.chars();
                replaced.extend(characters.next());
                characters.as_str()
            }
        };
    }
    replaced.push_str(rest);
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_escapes_of_the_null_character_are_replaced() {
        let json = json!(["a\0b\0", "\\u0000", "\\\0", "\n\0"]).to_string();
        let read: Value = serde_json::from_str(&replace_null_characters(json)).unwrap();
        assert_eq!(read, json!(["a\u{fffd}b\u{fffd}", "\\u0000", "\\\u{fffd}", "\n\u{fffd}"]));
        assert_eq!(replace_null_characters("[\"plain\"]".to_owned()), "[\"plain\"]");
    }
}
