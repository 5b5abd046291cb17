//! Keys. Every value is bound, never put into the text of a statement.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqlitePool};

use super::decode::{moment, parsed, text};
use crate::gateway::store::{KeyChange, KeyHash, KeyId, KeyRow, PublicId, Timestamp};

macro_rules! select_keys {
    ($rest:literal) => {
        concat!(
            "SELECT keys.*, users.name AS user_name, groups.name AS group_name FROM keys ",
            "JOIN users ON users.id = keys.user_id JOIN groups ON groups.id = keys.group_id ",
            $rest
        )
    };
}

pub(super) async fn insert(pool: &SqlitePool, key: &KeyRow) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO keys (id, public_id, name, user_id, group_id, hash, created_at, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(key.id.as_str())
    .bind(key.public_id.as_str())
    .bind(&key.name)
    .bind(key.user.as_str())
    .bind(key.group.as_str())
    .bind(key.hash.0.as_slice())
    .bind(key.created_at.to_string())
    .bind(key.expires_at.map(|moment| moment.to_string()))
    .execute(pool)
    .await?;
    Ok(())
}

pub(super) async fn find(pool: &SqlitePool, public_id: &PublicId) -> sqlx::Result<Option<KeyRow>> {
    let query = sqlx::query(select_keys!("WHERE keys.public_id = $1")).bind(public_id.as_str());
    query.fetch_optional(pool).await?.map(|row| key(&row)).transpose()
}

pub(super) async fn list(pool: &SqlitePool) -> sqlx::Result<Vec<KeyRow>> {
    let query = sqlx::query(select_keys!("WHERE keys.deleted_at IS NULL ORDER BY keys.created_at, keys.rowid"));
    query.fetch_all(pool).await?.iter().map(key).collect()
}

pub(super) async fn change(
    pool: &SqlitePool,
    handle: &str,
    change: KeyChange,
    at: Timestamp,
) -> sqlx::Result<Option<KeyRow>> {
    // Disabling twice keeps the first moment.
    let statement = match change {
        KeyChange::Disable => {
            "UPDATE keys SET disabled_at = coalesce(disabled_at, $2) \
             WHERE (id = $1 OR public_id = $1) AND deleted_at IS NULL RETURNING public_id"
        }
        KeyChange::Enable => {
            "UPDATE keys SET disabled_at = NULL \
             WHERE (id = $1 OR public_id = $1) AND deleted_at IS NULL AND $2 IS NOT NULL RETURNING public_id"
        }
        KeyChange::Delete => {
            "UPDATE keys SET deleted_at = $2 \
             WHERE (id = $1 OR public_id = $1) AND deleted_at IS NULL RETURNING public_id"
        }
    };
    let changed: Option<String> =
        sqlx::query_scalar(statement).bind(handle).bind(at.to_string()).fetch_optional(pool).await?;
    match changed {
        Some(public_id) => find(pool, &PublicId::from(public_id)).await,
        None => Ok(None),
    }
}

pub(super) async fn touch(pool: &SqlitePool, key: &KeyId, at: Timestamp) -> sqlx::Result<()> {
    sqlx::query("UPDATE keys SET last_used_at = $2 WHERE id = $1")
        .bind(key.as_str())
        .bind(at.to_string())
        .execute(pool)
        .await?;
    Ok(())
}

fn key(row: &SqliteRow) -> sqlx::Result<KeyRow> {
    let hash: &[u8] = row.try_get("hash")?;
    let hash = hash.try_into().map_err(|error: std::array::TryFromSliceError| sqlx::Error::Decode(error.into()))?;
    Ok(KeyRow {
        id: text(row, "id")?,
        public_id: text(row, "public_id")?,
        name: text(row, "name")?,
        user: text(row, "user_id")?,
        user_name: text(row, "user_name")?,
        group: text(row, "group_id")?,
        group_name: text(row, "group_name")?,
        hash: KeyHash(hash),
        created_at: parsed(row, "created_at")?,
        expires_at: moment(row, "expires_at")?,
        last_used_at: moment(row, "last_used_at")?,
        disabled_at: moment(row, "disabled_at")?,
        deleted_at: moment(row, "deleted_at")?,
    })
}
