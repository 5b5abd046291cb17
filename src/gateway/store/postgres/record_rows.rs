//! The statements that write records, each for any number of rows.
//!
//! The rows are sent as JSON lists to a function of the schema, so a batch of any size is one statement that the server
//! has prepared, and one journey over the network. A trigger of the database counts each record in the statement that
//! closes it.

use std::collections::BTreeMap;

use serde_json::json;

use crate::gateway::store::record_row::RecordRow;
use crate::gateway::store::{JobRecord, NodeId, RowWrite, UtcDay};

/// A kind of write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordWriteKind {
    Intent,
    /// The attempts so far, or an outcome.
    Change,
}

/// The function of the schema that writes records. Its values are the node, the rows of intents and those of changes, of
/// different requests; it returns the ids of the requests that it has written.
pub(super) const WRITE: &str = "SELECT write_records($1, CAST($2 AS JSON), CAST($3 AS JSON))";

/// Adds the values that belong to accounts. The only value is a list of rows, each with another digest or owner, in the
/// order of the digests.
pub(super) const BIND: &str = "INSERT INTO account_bindings (digest, owner, account, used_on) \
    SELECT digest, owner, account, used_on FROM json_populate_recordset(NULL::account_bindings, CAST($1 AS JSON)) \
    ON CONFLICT (digest, owner) DO UPDATE SET account = excluded.account, used_on = excluded.used_on";

// === impl RecordWriteKind ===

impl RecordWriteKind {
    /// Returns the kind of a write and its record; `None` for a write of another table.
    pub(super) const fn of_write<'a>(write: &RowWrite<'a>) -> Option<(Self, &'a JobRecord)> {
        match write {
            RowWrite::Open(record) => Some((Self::Intent, record)),
            RowWrite::RecordAttempts(record) | RowWrite::Close(record) => Some((Self::Change, record)),
            RowWrite::Replay(_) => None,
        }
    }
}

/// Returns the records as the value of a statement: a JSON list of objects, whose keys are the names of columns. Returns
/// `None` if there are none.
pub(super) fn to_json_list<'a>(
    node: &NodeId,
    records: impl Iterator<Item = &'a JobRecord>,
) -> sqlx::Result<Option<String>> {
    let rows = records.map(|record| RecordRow::new(node, record)).collect::<serde_json::Result<Vec<_>>>();
    let rows = rows.map_err(|error| sqlx::Error::Encode(error.into()))?;
    if rows.is_empty() {
        return Ok(None);
    }
    let json = serde_json::to_string(&rows).map_err(|error| sqlx::Error::Encode(error.into()))?;
    Ok(Some(replace_null_characters(json)))
}

/// Returns the values that the closed records bind to their accounts, as the value of [`BIND`]; `None` if there are none.
/// If two records bind the same value of an owner, the later one counts.
pub(super) fn bindings_json(writes: &[RowWrite<'_>], today: UtcDay) -> sqlx::Result<Option<String>> {
    let mut rows = BTreeMap::new();
    for write in writes.iter().filter(|write| write.has_bindings()) {
        let Some((_, record)) = RecordWriteKind::of_write(write) else { continue };
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
        let read: serde_json::Value = serde_json::from_str(&replace_null_characters(json)).unwrap();
        assert_eq!(read, json!(["a\u{fffd}b\u{fffd}", "\\u0000", "\\\u{fffd}", "\n\u{fffd}"]));
        assert_eq!(replace_null_characters("[\"plain\"]".to_owned()), "[\"plain\"]");
    }
}
