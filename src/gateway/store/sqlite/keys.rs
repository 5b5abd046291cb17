//! Keys. Every value is bound, never put into the text of a statement.

mod page;

use async_trait::async_trait;
use serde_json::json;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, SqlitePool};

use super::SqliteStore;
use super::decode::{hash, moment, parsed, text};
use super::together::transact;
use super::trail::{self, Entry};
use super::trouble::during;
use crate::gateway::store::{
    Act, KeyChange, KeyCheck, KeyFilter, KeyHash, KeyId, KeyRow, KeyStore, Page, Rotation, StoreError, Timestamp,
    UserId,
};

const KIND: &str = "key";

macro_rules! select_keys {
    ($rest:literal) => {
        concat!(
            "SELECT keys.*, users.name AS user_name, users.disabled_at AS user_disabled_at, groups.name AS group_name ",
            "FROM keys JOIN users ON users.id = keys.user_id JOIN groups ON groups.id = keys.group_id ",
            $rest
        )
    };
}
use select_keys;

#[async_trait]
impl KeyStore for SqliteStore {
    async fn insert_key(&self, act: &Act, key: &KeyRow) -> Result<(), StoreError> {
        insert(&self.writer, act, key).await.map_err(during("storing a key"))
    }

    async fn find_key(&self, handle: &str, owner: Option<&UserId>) -> Result<Option<KeyRow>, StoreError> {
        let found = async { find(&mut *self.readers.acquire().await?, handle, owner).await };
        found.await.map_err(during("looking up a key"))
    }

    async fn list_keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        list(&self.readers).await.map_err(during("listing keys"))
    }

    async fn page_keys(&self, filter: &KeyFilter, now: Timestamp) -> Result<Page<KeyRow>, StoreError> {
        page::page(&self.readers, filter, now).await.map_err(during("listing keys"))
    }

    async fn change_key(
        &self,
        act: &Act,
        handle: &str,
        owner: Option<&UserId>,
        changes: &[KeyChange],
    ) -> Result<Option<KeyRow>, StoreError> {
        change(&self.writer, act, handle, owner, changes).await.map_err(during("changing a key"))
    }

    async fn rotate_key(
        &self,
        act: &Act,
        key: &KeyId,
        owner: Option<&UserId>,
        next: Rotation,
    ) -> Result<Option<KeyRow>, StoreError> {
        rotate(&self.writer, act, key, owner, next).await.map_err(during("rotating a key"))
    }

    async fn keys_after(&self, revision: i64) -> Result<Vec<KeyCheck>, StoreError> {
        after(&self.readers, revision).await.map_err(during("looking for changed keys"))
    }

    async fn touch_key(&self, key: &KeyId, at: Timestamp) -> Result<(), StoreError> {
        touch(&self.writer, key, at).await.map_err(during("noting the use of a key"))
    }
}

async fn insert(pool: &SqlitePool, act: &Act, key: &KeyRow) -> sqlx::Result<()> {
    let details = json!({"public_id": key.public_id, "user": key.user_name, "group": key.group_name,
        "expires_at": key.expires_at});
    let entry = Entry::new("key.create", KIND, key.id.as_str(), &key.name).with(details);
    transact!(pool, |transaction| {
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
        .execute(&mut *transaction)
        .await?;
        trail::write(&mut transaction, act, entry).await?;
    })
}

async fn find(connection: &mut SqliteConnection, handle: &str, owner: Option<&UserId>) -> sqlx::Result<Option<KeyRow>> {
    let query = sqlx::query(select_keys!(
        "WHERE (keys.id = $1 OR keys.public_id = $1) AND keys.deleted_at IS NULL AND coalesce($2, keys.user_id) = keys.user_id"
    ));
    let query = query.bind(handle).bind(owner.map(|owner| owner.as_str()));
    query.fetch_optional(connection).await?.map(|row| key(&row)).transpose()
}

/// The key, also if it is deleted.
async fn again(connection: &mut SqliteConnection, id: &KeyId) -> sqlx::Result<KeyRow> {
    key(&sqlx::query(select_keys!("WHERE keys.id = $1")).bind(id.as_str()).fetch_one(connection).await?)
}

async fn list(pool: &SqlitePool) -> sqlx::Result<Vec<KeyRow>> {
    let query = sqlx::query(select_keys!("WHERE keys.deleted_at IS NULL ORDER BY keys.created_at, keys.rowid"));
    query.fetch_all(pool).await?.iter().map(key).collect()
}

async fn change(
    pool: &SqlitePool,
    act: &Act,
    handle: &str,
    owner: Option<&UserId>,
    changes: &[KeyChange],
) -> sqlx::Result<Option<KeyRow>> {
    transact!(pool, |transaction| {
        let Some(mut key) = find(&mut transaction, handle, owner).await? else { return Ok(None) };
        for change in changes {
            change_one(&mut transaction, act, &key, change).await?;
            key = again(&mut transaction, &key.id).await?;
        }
        Some(key)
    })
}

async fn change_one(
    connection: &mut SqliteConnection,
    act: &Act,
    key: &KeyRow,
    change: &KeyChange,
) -> sqlx::Result<()> {
    let at = act.at.to_string();
    let entry = |action| Entry::new(action, KIND, key.id.as_str(), &key.name);
    let (statement, value, entry) = match change {
        KeyChange::Disable => ("UPDATE keys SET disabled_at = $2 WHERE id = $1", Some(at), entry("key.disable")),
        KeyChange::Enable => ("UPDATE keys SET disabled_at = $2 WHERE id = $1", None, entry("key.enable")),
        KeyChange::Delete => ("UPDATE keys SET deleted_at = $2 WHERE id = $1", Some(at), entry("key.delete")),
        KeyChange::Rename(name) => {
            let entry = entry("key.rename").changed(key.name.clone(), name.clone());
            ("UPDATE keys SET name = $2 WHERE id = $1", Some(name.clone()), entry)
        }
        KeyChange::Expire(end) => {
            let text = |end: Option<Timestamp>| end.map(|end| end.to_string());
            let entry = entry("key.expire").changed(text(key.expires_at), text(*end));
            ("UPDATE keys SET expires_at = $2 WHERE id = $1", text(*end), entry)
        }
    };
    // What is so already is no change: the first moment stays, and the trail is not filled with nothing.
    if is_so(key, change) {
        return Ok(());
    }
    sqlx::query(statement).bind(key.id.as_str()).bind(value).execute(&mut *connection).await?;
    trail::write(connection, act, entry).await
}

fn is_so(key: &KeyRow, change: &KeyChange) -> bool {
    match change {
        KeyChange::Disable => key.disabled_at.is_some(),
        KeyChange::Enable => key.disabled_at.is_none(),
        KeyChange::Delete => key.deleted_at.is_some(),
        KeyChange::Rename(name) => key.name == *name,
        KeyChange::Expire(end) => key.expires_at == *end,
    }
}

async fn rotate(
    pool: &SqlitePool,
    act: &Act,
    id: &KeyId,
    owner: Option<&UserId>,
    next: Rotation,
) -> sqlx::Result<Option<KeyRow>> {
    let until = next.previous_until.map(|moment| moment.to_string());
    transact!(pool, |transaction| {
        let Some(key) = find(&mut transaction, id.as_str(), owner).await? else { return Ok(None) };
        sqlx::query(
            "UPDATE keys SET previous_hash = CASE WHEN $3 IS NULL THEN NULL ELSE hash END, previous_until = $3, \
             hash = $2 WHERE id = $1",
        )
        .bind(key.id.as_str())
        .bind(next.hash.0.as_slice())
        .bind(&until)
        .execute(&mut *transaction)
        .await?;
        let entry = Entry::new("key.rotate", KIND, key.id.as_str(), &key.name);
        trail::write(&mut transaction, act, entry.with(json!({"previous_until": until}))).await?;
        Some(again(&mut transaction, &key.id).await?)
    })
}

async fn after(pool: &SqlitePool, revision: i64) -> sqlx::Result<Vec<KeyCheck>> {
    // CROSS JOIN keeps the order of the tables: the index on revisions first, whatever the planner thinks of it.
    let query = sqlx::query(
        "SELECT keys.id, keys.public_id, keys.user_id, groups.name AS group_name, keys.hash, keys.previous_hash, \
         keys.previous_until, keys.expires_at, keys.revision, (keys.disabled_at IS NOT NULL \
         OR keys.deleted_at IS NOT NULL OR users.disabled_at IS NOT NULL) AS refused \
         FROM keys CROSS JOIN users ON users.id = keys.user_id CROSS JOIN groups ON groups.id = keys.group_id \
         WHERE keys.revision > $1 ORDER BY keys.revision",
    );
    query.bind(revision).fetch_all(pool).await?.iter().map(check).collect()
}

async fn touch(pool: &SqlitePool, key: &KeyId, at: Timestamp) -> sqlx::Result<()> {
    sqlx::query("UPDATE keys SET last_used_at = $2 WHERE id = $1")
        .bind(key.as_str())
        .bind(at.to_string())
        .execute(pool)
        .await?;
    Ok(())
}

fn key(row: &SqliteRow) -> sqlx::Result<KeyRow> {
    Ok(KeyRow {
        id: text(row, "id")?,
        public_id: text(row, "public_id")?,
        name: text(row, "name")?,
        user: text(row, "user_id")?,
        user_name: text(row, "user_name")?,
        user_disabled_at: moment(row, "user_disabled_at")?,
        group: text(row, "group_id")?,
        group_name: text(row, "group_name")?,
        hash: KeyHash(hash(row, "hash")?),
        previous_until: moment(row, "previous_until")?,
        created_at: parsed(row, "created_at")?,
        expires_at: moment(row, "expires_at")?,
        last_used_at: moment(row, "last_used_at")?,
        disabled_at: moment(row, "disabled_at")?,
        deleted_at: moment(row, "deleted_at")?,
    })
}

fn check(row: &SqliteRow) -> sqlx::Result<KeyCheck> {
    let previous = moment(row, "previous_until")?;
    let previous = previous.map(|until| Ok::<_, sqlx::Error>((KeyHash(hash(row, "previous_hash")?), until)));
    Ok(KeyCheck {
        id: text(row, "id")?,
        public_id: text(row, "public_id")?,
        user: text(row, "user_id")?,
        group_name: text(row, "group_name")?,
        hash: KeyHash(hash(row, "hash")?),
        previous: previous.transpose()?,
        expires_at: moment(row, "expires_at")?,
        refused: row.try_get("refused")?,
        revision: row.try_get("revision")?,
    })
}
