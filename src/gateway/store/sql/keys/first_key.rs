//! The key that the first start prints, and the note of it, a row of `milestones`: after it was disabled, the note stays
//! without its id.

use super::super::dialect::DbPool;
use super::super::transaction::transact;
use crate::gateway::store::{AuditContext, KeyId, KeyRow};

/// The beginning of the name of the note, before the id of the key.
const NOTE: &str = "first_key:";

/// Adds the first key with its note, unless there is a key, a note, or an account whose calls can cost something.
pub(super) async fn insert(pool: &DbPool, audit: &AuditContext, key: &KeyRow) -> sqlx::Result<bool> {
    transact!(pool, |transaction| {
        let is_needless: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM milestones WHERE name LIKE 'first_key:%') \
             OR EXISTS (SELECT 1 FROM keys WHERE deleted_at IS NULL) \
             OR EXISTS (SELECT 1 FROM accounts WHERE kind <> 'simulator')",
        )
        .fetch_one(&mut *transaction)
        .await?;
        if is_needless {
            return Ok(false);
        }
        super::insert_row(&mut transaction, audit, key).await?;
        sqlx::query("INSERT INTO milestones (name, reached_at) VALUES ($1, $2)")
            .bind(format!("{NOTE}{}", key.id))
            .bind(audit.at.to_string())
            .execute(&mut *transaction)
            .await?;
        true
    })
}

/// Returns the id of the first key; `None` if there is none, or it was disabled.
pub(super) async fn find(pool: &DbPool) -> sqlx::Result<Option<KeyId>> {
    let query = sqlx::query_scalar("SELECT name FROM milestones WHERE name LIKE 'first_key:%'");
    let name: Option<String> = query.fetch_optional(pool).await?;
    let id = name.as_deref().and_then(|name| name.strip_prefix(NOTE)).filter(|id| !id.is_empty());
    Ok(id.map(KeyId::from))
}

/// Removes the id from the note.
pub(super) async fn forget(pool: &DbPool) -> sqlx::Result<()> {
    let query = sqlx::query("UPDATE milestones SET name = $1 WHERE name LIKE 'first_key:%'");
    query.bind(NOTE).execute(pool).await?;
    Ok(())
}
