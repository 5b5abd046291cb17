//! The statements that write records, each for any number of rows.
//!
//! The rows are sent as one JSON list, so a batch of any size is one statement of a kind that the server has prepared,
//! and one journey over the network. A trigger of the database counts each record in the statement that closes it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::gateway::money::Usd;
use crate::gateway::store::record::to_sql_integer;
use crate::gateway::store::{JobRecord, NodeId, RowWrite, Timestamp, UtcDay};

/// The kinds of writes.
pub(super) const ALL_KINDS: [RecordStatement; 2] = [RecordStatement::Open, RecordStatement::Update];

/// A kind of write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordStatement {
    Open,
    Update,
}

const OPEN: &str = "INSERT INTO records (request_id, node, created_at, operation, state, model, account, group_name, \
    user_id, key_id, end_user, fingerprint, max_cost_nano_usd, max_job_cost_nano_usd, document) \
    SELECT request_id, node, created_at, operation, 'running', model, account, group_name, user_id, key_id, end_user, \
    fingerprint, max_cost_nano_usd, max_job_cost_nano_usd, document \
    FROM json_populate_recordset(NULL::records, CAST($1 AS JSON)) ON CONFLICT DO NOTHING RETURNING request_id";

/// Another node may have closed the record of a job that still ran, because this node seemed to be dead. Such an outcome is
/// provisional: it has no duration. Only the node that opened the record replaces it, once, and only with an outcome.
const UPDATE: &str = "UPDATE records SET state = new.state, account = new.account, error_code = new.error_code, \
    error_reason = new.error_reason, latency_ms = new.latency_ms, images = new.images, \
    input_tokens = new.input_tokens, output_tokens = new.output_tokens, total_tokens = new.total_tokens, \
    cost_nano_usd = new.cost_nano_usd, document = new.document \
    FROM json_populate_recordset(NULL::records, CAST($1 AS JSON)) AS new \
    WHERE records.request_id = new.request_id AND (records.state = 'running' OR (records.state = 'interrupted' \
    AND records.latency_ms IS NULL AND records.node = new.node AND new.state <> 'running')) \
    RETURNING records.request_id";

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
            Self::Update => UPDATE,
        }
    }

    /// Returns the kind of a write and its record; `None` for a write of another table.
    pub(super) const fn of_write<'a>(write: &RowWrite<'a>) -> Option<(Self, &'a JobRecord)> {
        match write {
            RowWrite::Open(record) => Some((Self::Open, record)),
            RowWrite::RecordAttempts(record) | RowWrite::Close(record) => Some((Self::Update, record)),
            RowWrite::Replay(_) => None,
        }
    }
}

/// Returns the records as the value of a statement: a JSON list of objects, whose keys are the names of columns.
pub(super) fn to_json_list<'a>(node: &NodeId, records: impl Iterator<Item = &'a JobRecord>) -> sqlx::Result<String> {
    let rows = records.map(|record| to_row(node, record)).collect::<serde_json::Result<Vec<_>>>();
    let json = rows.and_then(|rows| serde_json::to_string(&rows)).map_err(|error| sqlx::Error::Encode(error.into()))?;
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

/// Returns the columns of a record.
fn to_row(node: &NodeId, record: &JobRecord) -> serde_json::Result<Value> {
    let (document, columns) = (&record.document, record.outcome_columns());
    let [input, output, total] = columns.tokens;
    let fingerprint = record.fingerprint.as_ref().map(|bytes| {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        // The text form of bytes in PostgreSQL.
        format!("\\x{digits}")
    });
    Ok(json!({
        "request_id": document.request_id,
        "node": node.as_str(),
        "created_at": Timestamp::from(document.created_at).to_string(),
        "operation": document.operation,
        "state": columns.state,
        "model": document.model,
        "account": columns.account,
        "group_name": document.group,
        "user_id": document.user,
        "key_id": document.key,
        "end_user": document.end_user,
        "error_code": columns.error_code,
        "error_reason": columns.error_reason,
        "fingerprint": fingerprint,
        "latency_ms": columns.latency_ms,
        "images": columns.images,
        "input_tokens": input,
        "output_tokens": output,
        "total_tokens": total,
        "cost_nano_usd": columns.cost_nano_usd,
        "max_cost_nano_usd": to_sql_integer(record.max_cost.map(Usd::nanos)),
        "max_job_cost_nano_usd": to_sql_integer(record.max_job_cost.map(Usd::nanos)),
        // Operators of JSON refuse the character also within a text that is JSON itself.
        "document": replace_null_characters(record.to_json()?),
    }))
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
