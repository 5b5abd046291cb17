//! The statements for answers that may be replayed. Each change is one statement, so that no other process can
//! interfere.

use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row, Sqlite, SqliteConnection, SqliteExecutor, SqlitePool};

use super::decode::{hash, optional_count, parsed, text};
use super::transaction::SqlStatement;
use crate::gateway::store::{
    ReplayClaim, ReplayState, ReplayWrite, RequestId, RowWriteOutcome, StoredAnswerRow, StoredReplay, Timestamp,
};

/// An existing claim is replaced only if it has expired; its answer is removed with it.
const INSERT_CLAIM: &str = "INSERT INTO replays (scope, digest, request_id, node, created_at, expires_at) \
    VALUES ($1, $2, $3, $4, $5, $6) \
    ON CONFLICT (scope) DO UPDATE SET digest = excluded.digest, request_id = excluded.request_id, \
    node = excluded.node, created_at = excluded.created_at, expires_at = excluded.expires_at, \
    status = NULL, content_type = NULL, headers = NULL, file = NULL, size = NULL, sealed_key = NULL \
    WHERE replays.expires_at <= excluded.created_at";

pub(super) async fn write(connection: &mut SqliteConnection, write: &ReplayWrite) -> sqlx::Result<RowWriteOutcome> {
    let query = match write {
        ReplayWrite::Claim(row) => return claim(connection, row).await,
        ReplayWrite::Finish { scope, request_id, answer: done } => store_answer(scope, request_id, done)?,
        ReplayWrite::Remove { scope, request_id } => remove(scope, request_id),
    };
    let changed = query.execute(connection).await?.rows_affected();
    Ok(if changed == 1 { RowWriteOutcome::Done } else { RowWriteOutcome::NoEffect })
}

async fn claim(connection: &mut SqliteConnection, claim: &ReplayClaim) -> sqlx::Result<RowWriteOutcome> {
    loop {
        let query = sqlx::query(INSERT_CLAIM)
            .bind(claim.scope.as_slice())
            .bind(claim.digest.as_slice())
            .bind(claim.request_id.as_str())
            .bind(claim.node.as_str())
            .bind(claim.created_at.to_string())
            .bind(claim.expires_at.to_string());
        if query.execute(&mut *connection).await?.rows_affected() == 1 {
            return Ok(RowWriteOutcome::Done);
        }
        if let Some(existing) = find(&mut *connection, &claim.scope).await? {
            return Ok(RowWriteOutcome::AlreadyClaimed(Box::new(existing)));
        }
        // Another process has removed the claim between the two queries, so the scope is free: try again.
    }
}

pub(super) async fn find(executor: impl SqliteExecutor<'_>, scope: &[u8; 32]) -> sqlx::Result<Option<StoredReplay>> {
    let query = sqlx::query("SELECT * FROM replays WHERE scope = $1").bind(scope.as_slice());
    query.fetch_optional(executor).await?.map(|row| replay_from_row(&row)).transpose()
}

fn store_answer<'q>(
    scope: &'q [u8; 32],
    request_id: &'q RequestId,
    answer: &'q StoredAnswerRow,
) -> sqlx::Result<SqlStatement<'q>> {
    let query = sqlx::query(
        "UPDATE replays SET status = $3, content_type = $4, headers = $5, file = $6, size = $7, sealed_key = $8 \
         WHERE scope = $1 AND request_id = $2 AND status IS NULL",
    )
    .bind(scope.as_slice())
    .bind(request_id.as_str())
    .bind(answer.status)
    .bind(&answer.content_type)
    .bind(&answer.headers)
    .bind(&answer.file)
    .bind(i64::try_from(answer.size).map_err(|error| sqlx::Error::Encode(error.into()))?)
    .bind(&answer.sealed_key);
    Ok(query)
}

fn remove<'q>(scope: &'q [u8; 32], request_id: &'q RequestId) -> SqlStatement<'q> {
    let query = sqlx::query("DELETE FROM replays WHERE scope = $1 AND request_id = $2");
    query.bind(scope.as_slice()).bind(request_id.as_str())
}

pub(super) async fn list(pool: &SqlitePool) -> sqlx::Result<Vec<StoredReplay>> {
    let rows = sqlx::query("SELECT * FROM replays ORDER BY created_at, request_id").fetch_all(pool).await?;
    rows.iter().map(replay_from_row).collect()
}

pub(super) async fn remove_expired(
    pool: &SqlitePool,
    now: Timestamp,
    except: &[[u8; 32]],
    limit: u32,
) -> sqlx::Result<u32> {
    let mut query: QueryBuilder<Sqlite> =
        QueryBuilder::new("DELETE FROM replays WHERE rowid IN (SELECT rowid FROM replays WHERE expires_at <= ");
    query.push_bind(now.to_string());
    if !except.is_empty() {
        let mut scopes = query.push(" AND scope NOT IN (").separated(", ");
        for scope in except {
            scopes.push_bind(scope.as_slice());
        }
        query.push(")");
    }
    query.push(" LIMIT ").push_bind(limit).push(")");
    let removed = query.build().execute(pool).await?.rows_affected();
    Ok(u32::try_from(removed).unwrap_or(limit))
}

fn replay_from_row(row: &SqliteRow) -> sqlx::Result<StoredReplay> {
    let state = match optional_count::<u16>(row, "status")? {
        None => ReplayState::Running,
        Some(status) => ReplayState::Stored(StoredAnswerRow {
            status,
            content_type: text(row, "content_type")?,
            headers: text(row, "headers")?,
            file: text(row, "file")?,
            size: optional_count(row, "size")?.ok_or_else(|| sqlx::Error::Decode("a size is missing".into()))?,
            sealed_key: row.try_get("sealed_key")?,
        }),
    };
    let claim = ReplayClaim {
        scope: hash(row, "scope")?,
        digest: hash(row, "digest")?,
        request_id: text(row, "request_id")?,
        node: text(row, "node")?,
        created_at: parsed(row, "created_at")?,
        expires_at: parsed(row, "expires_at")?,
    };
    Ok(StoredReplay { claim, state })
}
