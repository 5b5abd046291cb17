//! Groups. A row is never removed, because keys and records name it.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use crate::gateway::store::sqlite::SqliteStore;
use crate::gateway::store::sqlite::decode::{count, parsed, text};
use crate::gateway::store::sqlite::together::transact;
use crate::gateway::store::sqlite::trail::{self, Entry};
use crate::gateway::store::{Act, GroupDeleted, GroupId, GroupRow};

const KIND: &str = "group";

macro_rules! select_groups {
    ($rest:literal) => {
        concat!(
            "SELECT groups.*, (SELECT count(*) FROM keys WHERE keys.group_id = groups.id AND keys.deleted_at IS NULL) ",
            "AS key_count FROM groups WHERE groups.deleted_at IS NULL ",
            $rest
        )
    };
}

pub(super) async fn ensure(store: &SqliteStore, act: &Act, fresh: GroupId, name: &str) -> sqlx::Result<GroupRow> {
    // Nearly always it is there, and a read waits for nobody.
    if let Some(group) = find_by_name(&mut *store.readers.acquire().await?, name).await? {
        return Ok(group);
    }
    transact!(store.writer, |transaction| {
        let insert = sqlx::query(
            "INSERT INTO groups (id, name, created_at) VALUES ($1, $2, $3) \
             ON CONFLICT (name) DO UPDATE SET deleted_at = NULL WHERE groups.deleted_at IS NOT NULL",
        );
        let insert = insert.bind(fresh.as_str()).bind(name).bind(act.at.to_string());
        let made = insert.execute(&mut *transaction).await?.rows_affected() == 1;
        let group = find_by_name(&mut transaction, name).await?.ok_or(sqlx::Error::RowNotFound)?;
        if made {
            trail::write(&mut transaction, act, entry("group.create", &group)).await?;
        }
        group
    })
}

/// The id of the group of that name.
pub(super) async fn id_of(connection: &mut SqliteConnection, name: &str) -> sqlx::Result<Option<String>> {
    let query = sqlx::query_scalar("SELECT id FROM groups WHERE name = $1 AND deleted_at IS NULL");
    query.bind(name).fetch_optional(connection).await
}

pub(super) async fn list(pool: &sqlx::SqlitePool) -> sqlx::Result<Vec<GroupRow>> {
    sqlx::query(select_groups!("ORDER BY groups.name")).fetch_all(pool).await?.iter().map(group).collect()
}

pub(super) async fn delete(pool: &sqlx::SqlitePool, act: &Act, handle: &str) -> sqlx::Result<GroupDeleted> {
    transact!(pool, |transaction| {
        let query = sqlx::query(select_groups!("AND (groups.id = $1 OR groups.name = $1)")).bind(handle);
        let Some(row) = query.fetch_optional(&mut *transaction).await? else { return Ok(GroupDeleted::Unknown) };
        let group = group(&row)?;
        if group.keys > 0 {
            return Ok(GroupDeleted::InUse(group));
        }
        for statement in [
            "UPDATE groups SET deleted_at = $2 WHERE id = $1",
            "DELETE FROM user_groups WHERE group_id = $1 AND $2 IS NOT NULL",
        ] {
            let statement = sqlx::query(statement).bind(group.id.as_str()).bind(act.at.to_string());
            statement.execute(&mut *transaction).await?;
        }
        trail::write(&mut transaction, act, entry("group.delete", &group)).await?;
        GroupDeleted::Done(group)
    })
}

async fn find_by_name(connection: &mut SqliteConnection, name: &str) -> sqlx::Result<Option<GroupRow>> {
    let row = sqlx::query(select_groups!("AND groups.name = $1")).bind(name).fetch_optional(connection).await?;
    row.map(|row| group(&row)).transpose()
}

fn entry<'a>(action: &'static str, group: &'a GroupRow) -> Entry<'a> {
    Entry::new(action, KIND, group.id.as_str(), &group.name)
}

fn group(row: &SqliteRow) -> sqlx::Result<GroupRow> {
    Ok(GroupRow {
        id: text(row, "id")?,
        name: text(row, "name")?,
        delivery: row.try_get("delivery")?,
        created_at: parsed(row, "created_at")?,
        keys: count(row, "key_count")?.unwrap_or(0),
    })
}
