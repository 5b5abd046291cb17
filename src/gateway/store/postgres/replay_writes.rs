//! The writes of claims and answers that may be replayed. Each can be repeated after a commit whose answer was lost.

use sqlx::PgConnection;

use crate::gateway::store::replay_columns::ReplayColumns;
use crate::gateway::store::sql::replays::FIND;
use crate::gateway::store::{ReplayClaim, ReplayWrite, RowWriteOutcome};

/// An existing claim is replaced only if it has expired; its answer is removed with it.
const INSERT_CLAIM: &str = "WITH expired AS (DELETE FROM shared_answers WHERE scope = $1 \
    AND EXISTS (SELECT 1 FROM replays WHERE scope = $1 AND expires_at <= $5)) \
    INSERT INTO replays \
    (scope, digest, request_id, node, created_at, expires_at, fingerprint, retry_until, repeat_expected) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
    ON CONFLICT (scope) DO UPDATE SET digest = excluded.digest, request_id = excluded.request_id, \
    node = excluded.node, created_at = excluded.created_at, expires_at = excluded.expires_at, \
    fingerprint = excluded.fingerprint, retry_until = excluded.retry_until, \
    repeat_expected = excluded.repeat_expected, \
    status = NULL, content_type = NULL, headers = NULL, file = NULL, size = NULL, sealed_key = NULL \
    WHERE replays.expires_at <= excluded.created_at";

macro_rules! store_answer {
    () => {
        "UPDATE replays SET status = $3, content_type = $4, headers = $5, file = $6, size = $7, sealed_key = $8, \
         expires_at = $10, retry_until = $11 WHERE scope = $1 AND request_id = $2 AND (status IS NULL OR ($9 AND file = $6))"
    };
}
const STORE_ANSWER: &str = store_answer!();

/// Also announces the bytes of the answer.
const STORE_SHARED_ANSWER: &str = concat!(
    "WITH stored AS (",
    store_answer!(),
    " RETURNING scope) INSERT INTO shared_answers (file, scope, bytes) SELECT $6, scope, $12 FROM stored \
      ON CONFLICT (file) DO UPDATE SET bytes = excluded.bytes"
);

const END_RETRY: &str = "UPDATE replays SET retry_until = NULL WHERE scope = $1 AND request_id = $2";

const REMOVE: &str = "DELETE FROM replays WHERE scope = $1 AND request_id = $2";

/// Writes a claim, its answer, or its removal. If `is_second_try` is true, an earlier try may have stored the answer.
pub(super) async fn write(
    connection: &mut PgConnection,
    write: &ReplayWrite,
    is_second_try: bool,
) -> sqlx::Result<RowWriteOutcome> {
    let query = match write {
        ReplayWrite::Claim(claim) => return insert_claim(connection, claim).await,
        ReplayWrite::Finish { scope, request_id, expires_at, retry_until, answer, shared_bytes } => {
            let size = i64::try_from(answer.size).map_err(|error| sqlx::Error::Encode(error.into()))?;
            let query = sqlx::query(if shared_bytes.is_some() { STORE_SHARED_ANSWER } else { STORE_ANSWER })
                .bind(scope.as_slice())
                .bind(request_id.as_str())
                .bind(i64::from(answer.status))
                .bind(&answer.content_type)
                .bind(&answer.headers)
                .bind(&answer.file)
                .bind(size)
                .bind(&answer.sealed_key)
                .bind(is_second_try)
                .bind(expires_at.to_string())
                .bind(retry_until.map(|end| end.to_string()));
            match shared_bytes {
                Some(bytes) => query.bind(bytes.cast_signed()),
                None => query,
            }
        }
        ReplayWrite::EndRetry { scope, request_id } => {
            sqlx::query(END_RETRY).bind(scope.as_slice()).bind(request_id.as_str())
        }
        ReplayWrite::Remove { scope, request_id } => {
            sqlx::query(REMOVE).bind(scope.as_slice()).bind(request_id.as_str())
        }
    };
    let changed = query.execute(connection).await?.rows_affected();
    Ok(if changed == 1 { RowWriteOutcome::Done } else { RowWriteOutcome::NoEffect })
}

async fn insert_claim(connection: &mut PgConnection, claim: &ReplayClaim) -> sqlx::Result<RowWriteOutcome> {
    loop {
        let insert = sqlx::query(INSERT_CLAIM)
            .bind(claim.scope.as_slice())
            .bind(claim.digest.as_slice())
            .bind(claim.request_id.as_str())
            .bind(claim.node.as_str())
            .bind(claim.created_at.to_string())
            .bind(claim.expires_at.to_string())
            .bind(claim.fingerprint.as_ref().map(<[u8; 32]>::as_slice))
            .bind(claim.retry_until.map(|end| end.to_string()))
            .bind(i64::from(claim.repeat_expected));
        if insert.execute(&mut *connection).await?.rows_affected() == 1 {
            return Ok(RowWriteOutcome::Done);
        }
        let existing = sqlx::query_as::<_, ReplayColumns>(FIND).bind(claim.scope.as_slice());
        if let Some(existing) = existing.fetch_optional(&mut *connection).await? {
            let existing = existing.decode().map_err(sqlx::Error::Decode)?;
            return Ok(RowWriteOutcome::AlreadyClaimed(Box::new(existing)));
        }
        // Another node has removed the claim between the two queries, so the scope is free: try again.
    }
}
