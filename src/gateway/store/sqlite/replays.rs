//! The statements for answers that may be replayed. Each change is one statement, so that no other process can
//! interfere.

use rusqlite::{Connection, OptionalExtension as _, params};
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, QueryBuilder, Row as _, Sqlite, SqlitePool};

use crate::gateway::store::{
    ReplayClaim, ReplayState, ReplayWrite, RowWriteOutcome, StoredAnswerRow, StoredReplay, Timestamp,
};

/// An existing claim is replaced only if it has expired; its answer is removed with it.
const INSERT_CLAIM: &str = "INSERT INTO replays (scope, digest, request_id, node, created_at, expires_at) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
    ON CONFLICT (scope) DO UPDATE SET digest = excluded.digest, request_id = excluded.request_id, \
    node = excluded.node, created_at = excluded.created_at, expires_at = excluded.expires_at, \
    status = NULL, content_type = NULL, headers = NULL, file = NULL, size = NULL, sealed_key = NULL \
    WHERE replays.expires_at <= excluded.created_at";

const STORE_ANSWER: &str = "UPDATE replays SET status = ?3, content_type = ?4, headers = ?5, file = ?6, size = ?7, \
    sealed_key = ?8 WHERE scope = ?1 AND request_id = ?2 AND status IS NULL";

const REMOVE: &str = "DELETE FROM replays WHERE scope = ?1 AND request_id = ?2";

const FIND: &str = "SELECT * FROM replays WHERE scope = ?1";

/// Writes a claim, its answer, or its removal.
pub(super) fn write(connection: &Connection, write: &ReplayWrite) -> rusqlite::Result<RowWriteOutcome> {
    let changed = match write {
        ReplayWrite::Claim(row) => return claim(connection, row),
        ReplayWrite::Finish { scope, request_id, answer } => {
            connection.prepare_cached(STORE_ANSWER)?.execute(params![
                scope,
                request_id.as_str(),
                answer.status,
                answer.content_type,
                answer.headers,
                answer.file,
                i64::try_from(answer.size).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?,
                answer.sealed_key,
            ])?
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

pub(super) async fn find(pool: &SqlitePool, scope: &[u8; 32]) -> sqlx::Result<Option<StoredReplay>> {
    let query = sqlx::query_as::<_, ReplayColumns>(FIND).bind(scope.as_slice());
    query.fetch_optional(pool).await?.map(ReplayColumns::decode_for_pool).transpose()
}

pub(super) async fn list(pool: &SqlitePool) -> sqlx::Result<Vec<StoredReplay>> {
    let query = sqlx::query_as::<_, ReplayColumns>("SELECT * FROM replays ORDER BY created_at, request_id");
    query.fetch_all(pool).await?.into_iter().map(ReplayColumns::decode_for_pool).collect()
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

/// A row, as both drivers read it.
struct ReplayColumns {
    scope: Vec<u8>,
    digest: Vec<u8>,
    request_id: String,
    node: String,
    created_at: String,
    expires_at: String,
    status: Option<i64>,
    content_type: Option<String>,
    headers: Option<String>,
    file: Option<String>,
    size: Option<i64>,
    sealed_key: Option<Vec<u8>>,
}

/// Reads the columns with this method of a row.
macro_rules! read_columns {
    ($row:ident.$get:ident) => {
        Ok(Self {
            scope: $row.$get("scope")?,
            digest: $row.$get("digest")?,
            request_id: $row.$get("request_id")?,
            node: $row.$get("node")?,
            created_at: $row.$get("created_at")?,
            expires_at: $row.$get("expires_at")?,
            status: $row.$get("status")?,
            content_type: $row.$get("content_type")?,
            headers: $row.$get("headers")?,
            file: $row.$get("file")?,
            size: $row.$get("size")?,
            sealed_key: $row.$get("sealed_key")?,
        })
    };
}

impl TryFrom<&rusqlite::Row<'_>> for ReplayColumns {
    type Error = rusqlite::Error;

    fn try_from(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        read_columns!(row.get)
    }
}

impl FromRow<'_, SqliteRow> for ReplayColumns {
    fn from_row(row: &SqliteRow) -> sqlx::Result<Self> {
        read_columns!(row.try_get)
    }
}

impl ReplayColumns {
    /// Decodes the row. A cell that does not parse is an error and never becomes a default value.
    fn decode(self) -> Result<StoredReplay, Box<dyn std::error::Error + Send + Sync>> {
        let state = match self.status {
            None => ReplayState::Running,
            Some(status) => ReplayState::Stored(StoredAnswerRow {
                status: status.try_into()?,
                content_type: self.content_type.ok_or("a content type is missing")?,
                headers: self.headers.ok_or("headers are missing")?,
                file: self.file.ok_or("a file is missing")?,
                size: self.size.ok_or("a size is missing")?.try_into()?,
                sealed_key: self.sealed_key.ok_or("a key is missing")?,
            }),
        };
        let claim = ReplayClaim {
            scope: self.scope.as_slice().try_into()?,
            digest: self.digest.as_slice().try_into()?,
            request_id: self.request_id.into(),
            node: self.node.into(),
            created_at: self.created_at.parse()?,
            expires_at: self.expires_at.parse()?,
        };
        Ok(StoredReplay { claim, state })
    }

    fn decode_for_pool(self) -> sqlx::Result<StoredReplay> {
        self.decode().map_err(sqlx::Error::Decode)
    }
}
