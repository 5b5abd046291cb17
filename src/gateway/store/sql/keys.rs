//! The statements for keys. Every value is a bound parameter, never part of the text of a statement.

mod change;
pub(in super::super) mod page;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;

use super::SqlStore;
use super::audit_trail::{self, AuditEvent, limits_as_json};
use super::decode::{hash, optional_parsed, optional_timestamp, parsed, text};
use super::driver::{SqlConnection, SqlRow};
use super::error_conversion::during;
use super::paging::push_json_texts;
use super::statement::{StatementBuilder, sql};
use super::transaction::{rollback, transact};
use super::usage;
use crate::gateway::config::DialectSet;
use crate::gateway::store::{
    AuditContext, KeyChange, KeyChangeOutcome, KeyCheck, KeyFilter, KeyHash, KeyId, KeyRow, KeyStore, ListPage,
    RefusalCount, SecretRotation, StoreError, Timestamp, UserId,
};

pub(super) use change::{assign_unowned_keys, lock_keys_in_group};

const AUDIT_TARGET_KIND: &str = "key";
/// Of the keys deleted within this time, one in [`DELETED_SHARE`] counts against the limit of the user (our choice).
const DELETED_WITHIN: Duration = Duration::from_secs(24 * 60 * 60);
const DELETED_SHARE: i64 = 10;

/// The beginning of the name of the note of the first key, a row of `milestones`, before the id of the key. After the key
/// was disabled, the note stays without its id.
const FIRST_KEY_NOTE: &str = "first_key:";

macro_rules! select_keys {
    ($clauses:literal) => {
        concat!(
            "SELECT keys.*, nullif(users.name, '') AS user_name, users.disabled_at AS user_disabled_at, groups.name AS group_name ",
            "FROM keys JOIN users ON users.id = keys.user_id JOIN groups ON groups.id = keys.group_id ",
            $clauses
        )
    };
}
use select_keys;

#[async_trait]
impl KeyStore for SqlStore {
    async fn insert_key(&self, audit: &AuditContext, key: &KeyRow, max_keys: Option<u32>) -> Result<bool, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            if let Some(max_keys) = max_keys
                && count_against_limit(transaction, &key.user, key.created_at).await? >= i64::from(max_keys)
            {
                return Ok(rollback(false));
            }
            insert_row(transaction, audit, key).await?;
            true
        })
        .map_err(during("storing a key"))
    }

    async fn insert_first_key(&self, audit: &AuditContext, key: &KeyRow) -> Result<bool, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let is_needless: bool = sql("SELECT EXISTS (SELECT 1 FROM milestones WHERE name LIKE 'first_key:%') \
                 OR EXISTS (SELECT 1 FROM keys WHERE deleted_at IS NULL) \
                 OR EXISTS (SELECT 1 FROM accounts WHERE kind <> 'simulator')")
            .fetch_value(&mut *transaction)
            .await?;
            if is_needless {
                return Ok(rollback(false));
            }
            insert_row(transaction, audit, key).await?;
            sql("INSERT INTO milestones (name, reached_at) VALUES ($1, $2)")
                .bind(format!("{FIRST_KEY_NOTE}{}", key.id))
                .bind(audit.at.to_string())
                .execute(&mut *transaction)
                .await?;
            true
        })
        .map_err(during("storing the first key"))
    }

    async fn first_key(&self) -> Result<Option<KeyId>, StoreError> {
        let query = sql("SELECT name FROM milestones WHERE name LIKE 'first_key:%'");
        let from_row = |row: &SqlRow| text::<String>(row, "name");
        let name = self.fetch_optional("looking up the key that the first start printed", query, from_row).await?;
        let id = name.as_deref().and_then(|name| name.strip_prefix(FIRST_KEY_NOTE)).filter(|id| !id.is_empty());
        Ok(id.map(KeyId::from))
    }

    async fn forget_first_key(&self) -> Result<(), StoreError> {
        let update = sql("UPDATE milestones SET name = $1 WHERE name LIKE 'first_key:%'").bind(FIRST_KEY_NOTE);
        self.execute_change("storing that the first key is disabled", update).await.map(drop)
    }

    async fn find_key(&self, handle: &str, owner: Option<&UserId>) -> Result<Option<KeyRow>, StoreError> {
        let lookup = async { find(&mut *self.readers.acquire().await?, handle, owner).await };
        lookup.await.map_err(during("looking up a key"))
    }

    async fn list_keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        let query = sql(select_keys!("WHERE keys.deleted_at IS NULL ORDER BY keys.created_at, keys.rowid"));
        self.fetch_all("listing keys", query, key_from_row).await
    }

    async fn list_keys_page(&self, filter: &KeyFilter, now: Timestamp) -> Result<ListPage<KeyRow>, StoreError> {
        page::page(self.display_readers().await, filter, now).await.map_err(during("listing keys"))
    }

    async fn change_key(
        &self,
        audit: &AuditContext,
        handle: &str,
        owner: Option<&UserId>,
        changes: &[KeyChange],
    ) -> Result<KeyChangeOutcome, StoreError> {
        change::change(&self.writer, audit, handle, owner, changes).await.map_err(during("changing a key"))
    }

    async fn rotate_key(
        &self,
        audit: &AuditContext,
        key: &KeyId,
        owner: Option<&UserId>,
        rotation: SecretRotation,
    ) -> Result<KeyChangeOutcome, StoreError> {
        change::rotate(&self.writer, audit, key, owner, rotation).await.map_err(during("rotating a key"))
    }

    async fn keys_changed_since(&self, revision: i64) -> Result<Vec<KeyCheck>, StoreError> {
        // SQLite reads the tables in the order of cross joins.
        let query = sql(
            "SELECT keys.id, keys.public_id, keys.user_id, groups.name AS group_name, keys.hash, keys.previous_hash, \
             keys.deleted_at IS NOT NULL AS deleted, keys.previous_until, keys.expires_at, keys.limits, \
             users.limits AS user_limits, keys.dialects, keys.revision, (keys.disabled_at IS NOT NULL \
             OR keys.deleted_at IS NOT NULL OR users.disabled_at IS NOT NULL) AS refused \
             FROM keys CROSS JOIN users CROSS JOIN groups WHERE users.id = keys.user_id AND groups.id = keys.group_id \
             AND keys.revision > $1 AND ($1 > 0 OR keys.deleted_at IS NULL) ORDER BY keys.revision",
        );
        self.fetch_all("looking for changed keys", query.bind(revision), key_check_from_row).await
    }

    async fn record_key_use(&self, keys: &[KeyId], at: Timestamp) -> Result<(), StoreError> {
        let mut update = StatementBuilder::new("UPDATE keys SET last_used_at = ");
        update.push_bind(at.to_string()).push(" WHERE id IN ");
        push_json_texts(&mut update, json!(keys).to_string());
        self.execute_change("storing the use of keys", update.build()).await.map(drop)
    }

    async fn add_refusals(&self, refusals: &[RefusalCount]) -> Result<(), StoreError> {
        usage::add_refusals(&self.writer, refusals).await.map_err(during("counting refused requests"))
    }
}

async fn insert_row(connection: &mut SqlConnection, audit: &AuditContext, key: &KeyRow) -> sqlx::Result<()> {
    sql("INSERT INTO keys (id, public_id, name, user_id, group_id, hash, created_at, expires_at, latest_end, limits, \
         dialects) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)")
    .bind(key.id.as_str())
    .bind(key.public_id.as_str())
    .bind(&key.name)
    .bind(key.user.as_str())
    .bind(key.group.as_str())
    .bind(key.hash.0.as_slice())
    .bind(key.created_at.to_string())
    .bind(key.expires_at.map(|time| time.to_string()))
    .bind(key.latest_end.map(|time| time.to_string()))
    .bind(&key.limits)
    .bind(key.dialects.to_stored())
    .execute(&mut *connection)
    .await?;
    let details = json!({"public_id": key.public_id, "user": key.user_name, "group": key.group_name,
        "expires_at": key.expires_at, "limits": limits_as_json(key.limits.as_deref()),
        "dialects": key.dialects.to_stored()});
    let event = AuditEvent::new("key.create", AUDIT_TARGET_KIND, key.id.as_str(), &key.name).with_details(details);
    audit_trail::write(connection, audit, event).await
}

/// Returns the number of keys of a user that count against the limit: the existing keys, or a tenth of those deleted
/// within a day if that is more. Rows of deleted keys stay, because records name them, so without this rule a member
/// could grow the table without limit by creating and deleting keys.
async fn count_against_limit(connection: &mut SqlConnection, user: &UserId, now: Timestamp) -> sqlx::Result<i64> {
    let counts =
        sql("SELECT count(*) FILTER (WHERE deleted_at IS NULL), count(*) FILTER (WHERE deleted_at > $2) / $3 \
         FROM keys WHERE user_id = $1");
    let counts = counts.bind(user.as_str()).bind((now - DELETED_WITHIN).to_string()).bind(DELETED_SHARE);
    let row = counts.fetch_one(connection).await?;
    Ok(row.try_get::<i64, _>(0)?.max(row.try_get(1)?))
}

async fn find(connection: &mut SqlConnection, handle: &str, owner: Option<&UserId>) -> sqlx::Result<Option<KeyRow>> {
    let query = sql(select_keys!(
        "WHERE (keys.id = $1 OR keys.public_id = $1) AND keys.deleted_at IS NULL AND coalesce($2, keys.user_id) = keys.user_id"
    ));
    let query = query.bind(handle).bind(owner.map(|owner| owner.as_str()));
    query.fetch_optional(connection).await?.map(|row| key_from_row(&row)).transpose()
}

/// Returns the key, even if it is deleted.
async fn get_even_if_deleted(connection: &mut SqlConnection, id: &KeyId) -> sqlx::Result<KeyRow> {
    key_from_row(&sql(select_keys!("WHERE keys.id = $1")).bind(id.as_str()).fetch_one(connection).await?)
}

fn key_from_row(row: &SqlRow) -> sqlx::Result<KeyRow> {
    Ok(KeyRow {
        id: text(row, "id")?,
        public_id: text(row, "public_id")?,
        name: text(row, "name")?,
        user: text(row, "user_id")?,
        user_name: row.try_get("user_name")?,
        user_disabled_at: optional_timestamp(row, "user_disabled_at")?,
        group: text(row, "group_id")?,
        group_name: text(row, "group_name")?,
        hash: KeyHash(hash(row, "hash")?),
        previous_until: optional_timestamp(row, "previous_until")?,
        created_at: parsed(row, "created_at")?,
        expires_at: optional_timestamp(row, "expires_at")?,
        last_used_at: optional_timestamp(row, "last_used_at")?,
        disabled_at: optional_timestamp(row, "disabled_at")?,
        locked: optional_parsed(row, "locked")?,
        latest_end: optional_timestamp(row, "latest_end")?,
        deleted_at: optional_timestamp(row, "deleted_at")?,
        limits: row.try_get("limits")?,
        dialects: dialects(row)?,
    })
}

fn dialects(row: &SqlRow) -> sqlx::Result<DialectSet> {
    let text: Option<String> = row.try_get("dialects")?;
    Ok(text.as_deref().map(DialectSet::from_stored).unwrap_or_default())
}

fn key_check_from_row(row: &SqlRow) -> sqlx::Result<KeyCheck> {
    let previous = optional_timestamp(row, "previous_until")?;
    let previous = previous.map(|until| Ok::<_, sqlx::Error>((KeyHash(hash(row, "previous_hash")?), until)));
    Ok(KeyCheck {
        id: text(row, "id")?,
        public_id: text(row, "public_id")?,
        user: text(row, "user_id")?,
        group_name: text(row, "group_name")?,
        hash: KeyHash(hash(row, "hash")?),
        previous: previous.transpose()?,
        expires_at: optional_timestamp(row, "expires_at")?,
        is_refused: row.try_get("refused")?,
        limits: row.try_get("limits")?,
        user_limits: row.try_get("user_limits")?,
        dialects: dialects(row)?,
        is_deleted: row.try_get("deleted")?,
        revision: row.try_get("revision")?,
    })
}
