//! Users and groups.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqlitePool};

use super::SqliteStore;
use super::decode::{parsed, text};
use crate::gateway::store::{GroupId, GroupRow, Timestamp, UserId, UserRow};

pub(super) async fn ensure_user(store: &SqliteStore, fresh: UserId, name: &str) -> sqlx::Result<UserRow> {
    // Nearly always it is there, and a read waits for nobody.
    if let Some(user) = find_user(&store.readers, name).await? {
        return Ok(user);
    }
    sqlx::query("INSERT INTO users (id, name, role, created_at) VALUES ($1, $2, 'member', $3) ON CONFLICT DO NOTHING")
        .bind(fresh.as_str())
        .bind(name)
        .bind(Timestamp::now().to_string())
        .execute(&store.writer)
        .await?;
    find_user(&store.writer, name).await?.ok_or(sqlx::Error::RowNotFound)
}

pub(super) async fn ensure_group(store: &SqliteStore, fresh: GroupId, name: &str) -> sqlx::Result<GroupRow> {
    if let Some(group) = find_group(&store.readers, name).await? {
        return Ok(group);
    }
    sqlx::query("INSERT INTO groups (id, name, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING")
        .bind(fresh.as_str())
        .bind(name)
        .bind(Timestamp::now().to_string())
        .execute(&store.writer)
        .await?;
    find_group(&store.writer, name).await?.ok_or(sqlx::Error::RowNotFound)
}

async fn find_user(pool: &SqlitePool, name: &str) -> sqlx::Result<Option<UserRow>> {
    let row = sqlx::query("SELECT * FROM users WHERE name = $1").bind(name).fetch_optional(pool).await?;
    row.map(|row| user(&row)).transpose()
}

async fn find_group(pool: &SqlitePool, name: &str) -> sqlx::Result<Option<GroupRow>> {
    let row = sqlx::query("SELECT * FROM groups WHERE name = $1").bind(name).fetch_optional(pool).await?;
    row.map(|row| group(&row)).transpose()
}

fn user(row: &SqliteRow) -> sqlx::Result<UserRow> {
    Ok(UserRow {
        id: text(row, "id")?,
        name: text(row, "name")?,
        role: text(row, "role")?,
        created_at: parsed(row, "created_at")?,
    })
}

fn group(row: &SqliteRow) -> sqlx::Result<GroupRow> {
    Ok(GroupRow {
        id: text(row, "id")?,
        name: text(row, "name")?,
        delivery: row.try_get("delivery")?,
        created_at: parsed(row, "created_at")?,
    })
}
