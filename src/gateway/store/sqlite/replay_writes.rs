//! The writes of claims and answers that may be replayed. Each change is one statement, so that no other process can
//! interfere.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::gateway::store::replay_columns::ReplayColumns;
use crate::gateway::store::sql::replays::FIND;
use crate::gateway::store::{ReplayClaim, ReplayWrite, RowWriteOutcome};

/// An existing claim is replaced only if it has expired; its answer is removed with it.
const INSERT_CLAIM: &str = "INSERT INTO replays \
    (scope, digest, request_id, node, created_at, expires_at, fingerprint, retry_until, repeat_expected) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
    ON CONFLICT (scope) DO UPDATE SET digest = excluded.digest, request_id = excluded.request_id, \
    node = excluded.node, created_at = excluded.created_at, expires_at = excluded.expires_at, \
    fingerprint = excluded.fingerprint, retry_until = excluded.retry_until, \
    repeat_expected = excluded.repeat_expected, \
    status = NULL, content_type = NULL, headers = NULL, file = NULL, size = NULL, sealed_key = NULL \
    WHERE replays.expires_at <= excluded.created_at";

const STORE_ANSWER: &str = "UPDATE replays SET status = ?3, content_type = ?4, headers = ?5, file = ?6, size = ?7, \
    sealed_key = ?8, expires_at = ?9, retry_until = ?10 WHERE scope = ?1 AND request_id = ?2 AND status IS NULL";

const END_RETRY: &str = "UPDATE replays SET retry_until = NULL WHERE scope = ?1 AND request_id = ?2";

const REMOVE: &str = "DELETE FROM replays WHERE scope = ?1 AND request_id = ?2";

/// Writes a claim, its answer, or its removal.
pub(super) fn write(connection: &Connection, write: &ReplayWrite) -> rusqlite::Result<RowWriteOutcome> {
    let changed = match write {
        ReplayWrite::Claim(row) => return claim(connection, row),
        ReplayWrite::Finish { scope, request_id, expires_at, retry_until, answer, .. } => {
            connection.prepare_cached(STORE_ANSWER)?.execute(params![
                scope,
                request_id.as_str(),
                answer.status,
                answer.content_type,
                answer.headers,
                answer.file,
                i64::try_from(answer.size).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?,
                answer.sealed_key,
                expires_at.to_string(),
                retry_until.map(|end| end.to_string()),
            ])?
        }
        ReplayWrite::EndRetry { scope, request_id } => {
            connection.prepare_cached(END_RETRY)?.execute(params![scope, request_id.as_str()])?
        }
        ReplayWrite::Remove { scope, request_id } => {
            connection.prepare_cached(REMOVE)?.execute(params![scope, request_id.as_str()])?
        }
    };
    Ok(RowWriteOutcome::of_changed_rows(changed))
}

fn claim(connection: &Connection, claim: &ReplayClaim) -> rusqlite::Result<RowWriteOutcome> {
    loop {
        let changed = connection.prepare_cached(INSERT_CLAIM)?.execute(params![
            claim.scope,
            claim.digest,
            claim.request_id.as_str(),
            claim.node.as_str(),
            claim.created_at.to_string(),
            claim.expires_at.to_string(),
            claim.fingerprint,
            claim.retry_until.map(|end| end.to_string()),
            claim.repeat_expected,
        ])?;
        if changed == 1 {
            return Ok(RowWriteOutcome::Done);
        }
        let mut query = connection.prepare_cached(FIND)?;
        let existing = query.query_row([claim.scope], |row| ReplayColumns::try_from(row)).optional()?;
        if let Some(existing) = existing {
            let existing = existing.decode().map_err(rusqlite::Error::ToSqlConversionFailure)?;
            return Ok(RowWriteOutcome::AlreadyClaimed(Box::new(existing)));
        }
        // Another process has removed the claim between the two queries, so the scope is free: try again.
    }
}
