//! Changes of existing keys, each with its row of the audit trail.
//!
//! A change with an owner is made by that owner, who cannot undo the decisions of an admin: a locked key can be neither
//! enabled nor rotated, and its expiry cannot be later than the latest that an admin has allowed. The owner may rename,
//! disable and delete the key, because that gives no access, and its records stay.

use serde_json::json;

use super::super::audit_trail::{self, AuditEvent, limits_as_json};
use super::super::driver::{SqlConnection, SqlPool};
use super::super::statement::sql;
use super::super::transaction::{rollback, transact};
use super::{AUDIT_TARGET_KIND, find, get_even_if_deleted, key_from_row, select_keys};
use crate::gateway::store::{
    AuditContext, KeyChange, KeyChangeOutcome, KeyId, KeyLock, KeyRow, SecretRotation, Timestamp, UserId, UserRow,
};

pub(super) async fn change(
    pool: &SqlPool,
    audit: &AuditContext,
    handle: &str,
    owner: Option<&UserId>,
    changes: &[KeyChange],
) -> sqlx::Result<KeyChangeOutcome> {
    transact!(pool.begin_change(), |transaction| {
        let Some(mut key) = find(transaction, handle, owner).await? else {
            return Ok(rollback(KeyChangeOutcome::Unknown));
        };
        for change in changes {
            if let Some(refused) = owner.and_then(|_| refusal(&key, change)) {
                return Ok(rollback(refused));
            }
            let step = KeyChangeStep { key: &key, change, is_by_owner: owner.is_some() };
            step.apply(transaction, audit).await?;
            key = get_even_if_deleted(transaction, &key.id).await?;
        }
        KeyChangeOutcome::Done(Box::new(key))
    })
}

/// Returns the reason why the owner may not make this change.
fn refusal(key: &KeyRow, change: &KeyChange) -> Option<KeyChangeOutcome> {
    match change {
        KeyChange::Enable => key.locked.map(KeyChangeOutcome::Locked),
        KeyChange::Expire(end) => {
            let latest = key.latest_end?;
            let is_later = end.is_none_or(|end| end > latest);
            is_later.then_some(KeyChangeOutcome::PastLatestEnd(latest))
        }
        KeyChange::Disable
        | KeyChange::Delete
        | KeyChange::Rename(_)
        | KeyChange::Limit(_)
        | KeyChange::SetDialects(_) => None,
    }
}

/// One change of one key.
struct KeyChangeStep<'a> {
    key: &'a KeyRow,
    change: &'a KeyChange,
    is_by_owner: bool,
}

// === impl KeyChangeStep ===

impl KeyChangeStep<'_> {
    async fn apply(&self, connection: &mut SqlConnection, audit: &AuditContext) -> sqlx::Result<()> {
        // A change without effect is skipped: the earlier time is kept, and the audit trail gets no row.
        if self.is_already_done() {
            return Ok(());
        }
        let (statement, value) = self.statement(audit);
        sql(statement).bind(self.key.id.as_str()).bind(value).execute(&mut *connection).await?;
        audit_trail::write(connection, audit, self.audit_event()).await
    }

    fn statement(&self, audit: &AuditContext) -> (&'static str, Option<String>) {
        let at = audit.at.to_string();
        match self.change {
            KeyChange::Disable if self.is_by_owner => ("UPDATE keys SET disabled_at = $2 WHERE id = $1", Some(at)),
            KeyChange::Disable => {
                ("UPDATE keys SET disabled_at = coalesce(disabled_at, $2), locked = 'admin' WHERE id = $1", Some(at))
            }
            KeyChange::Enable => ("UPDATE keys SET disabled_at = $2, locked = NULL WHERE id = $1", None),
            KeyChange::Delete => ("UPDATE keys SET deleted_at = $2 WHERE id = $1", Some(at)),
            KeyChange::Rename(name) => ("UPDATE keys SET name = $2 WHERE id = $1", Some(name.clone())),
            KeyChange::Limit(limits) => ("UPDATE keys SET limits = $2 WHERE id = $1", limits.clone()),
            KeyChange::SetDialects(dialects) => ("UPDATE keys SET dialects = $2 WHERE id = $1", dialects.to_stored()),
            KeyChange::Expire(end) if self.is_by_owner => {
                ("UPDATE keys SET expires_at = $2 WHERE id = $1", optional_text(*end))
            }
            KeyChange::Expire(end) => {
                ("UPDATE keys SET expires_at = $2, latest_end = $2 WHERE id = $1", optional_text(*end))
            }
        }
    }

    fn audit_event(&self) -> AuditEvent<'_> {
        let event = |action| AuditEvent::new(action, AUDIT_TARGET_KIND, self.key.id.as_str(), &self.key.name);
        match self.change {
            KeyChange::Disable => event("key.disable"),
            KeyChange::Enable => event("key.enable"),
            KeyChange::Delete => event("key.delete"),
            KeyChange::Rename(name) => event("key.rename").with_change(self.key.name.clone(), name.clone()),
            KeyChange::Limit(limits) => {
                let [before, after] = [&self.key.limits, limits].map(|limits| limits_as_json(limits.as_deref()));
                event("key.limit").with_change(before, after)
            }
            KeyChange::SetDialects(dialects) => {
                event("key.set_dialects").with_change(self.key.dialects.to_stored(), dialects.to_stored())
            }
            KeyChange::Expire(end) => {
                event("key.expire").with_change(optional_text(self.key.expires_at), optional_text(*end))
            }
        }
    }

    fn is_already_done(&self) -> bool {
        let key = self.key;
        match self.change {
            // An admin can lock a key that its owner has disabled.
            KeyChange::Disable => key.disabled_at.is_some() && (self.is_by_owner || key.locked.is_some()),
            KeyChange::Enable => key.disabled_at.is_none(),
            KeyChange::Delete => key.deleted_at.is_some(),
            KeyChange::Rename(name) => key.name == *name,
            KeyChange::Limit(limits) => key.limits == *limits,
            KeyChange::SetDialects(dialects) => key.dialects == *dialects,
            KeyChange::Expire(end) => key.expires_at == *end && (self.is_by_owner || key.latest_end == *end),
        }
    }
}

fn optional_text(end: Option<Timestamp>) -> Option<String> {
    end.map(|end| end.to_string())
}

pub(super) async fn rotate(
    pool: &SqlPool,
    audit: &AuditContext,
    id: &KeyId,
    owner: Option<&UserId>,
    rotation: SecretRotation,
) -> sqlx::Result<KeyChangeOutcome> {
    let until = optional_text(rotation.previous_until);
    transact!(pool.begin_change(), |transaction| {
        let Some(key) = find(transaction, id.as_str(), owner).await? else {
            return Ok(rollback(KeyChangeOutcome::Unknown));
        };
        if let (Some(_), Some(lock)) = (owner, key.locked) {
            return Ok(rollback(KeyChangeOutcome::Locked(lock)));
        }
        sql("UPDATE keys SET previous_hash = CASE WHEN $3 IS NULL THEN NULL ELSE hash END, previous_until = $3, \
             hash = $2 WHERE id = $1")
        .bind(key.id.as_str())
        .bind(rotation.hash.0.as_slice())
        .bind(&until)
        .execute(&mut *transaction)
        .await?;
        let event = AuditEvent::new("key.rotate", AUDIT_TARGET_KIND, key.id.as_str(), &key.name);
        audit_trail::write(transaction, audit, event.with_details(json!({"previous_until": until}))).await?;
        KeyChangeOutcome::Done(Box::new(get_even_if_deleted(transaction, &key.id).await?))
    })
}

/// Gives the keys that belong to no person to the first admin.
pub(in super::super) async fn assign_unowned_keys(
    connection: &mut SqlConnection,
    audit: &AuditContext,
    admin: &UserRow,
) -> sqlx::Result<()> {
    let rows = sql(select_keys!("WHERE keys.user_id = $1 AND keys.deleted_at IS NULL ORDER BY keys.rowid"));
    let rows = rows.bind(UserId::NOBODY).fetch_all(&mut *connection).await?;
    let update = sql("UPDATE keys SET user_id = $2 WHERE user_id = $1");
    update.bind(UserId::NOBODY).bind(admin.id.as_str()).execute(&mut *connection).await?;
    for row in rows {
        let key = key_from_row(&row)?;
        let event = AuditEvent::new("key.hand_over", AUDIT_TARGET_KIND, key.id.as_str(), &key.name);
        audit_trail::write(&mut *connection, audit, event.with_details(json!({"to": admin.name}))).await?;
    }
    Ok(())
}

/// Locks the keys of a user in a group that the user no longer belongs to, and returns them.
pub(in super::super) async fn lock_keys_in_group(
    connection: &mut SqlConnection,
    audit: &AuditContext,
    user: &UserId,
    group: &str,
) -> sqlx::Result<Vec<KeyRow>> {
    let rows = sql(select_keys!(
        "WHERE keys.user_id = $1 AND groups.name = $2 AND keys.deleted_at IS NULL AND keys.locked IS NULL \
         ORDER BY keys.rowid"
    ));
    let rows = rows.bind(user.as_str()).bind(group).fetch_all(&mut *connection).await?;
    let mut locked = Vec::with_capacity(rows.len());
    for row in rows {
        let before = key_from_row(&row)?;
        let update = sql("UPDATE keys SET disabled_at = coalesce(disabled_at, $2), locked = $3 WHERE id = $1");
        let update = update.bind(before.id.as_str()).bind(audit.at.to_string()).bind(KeyLock::LeftGroup.as_str());
        update.execute(&mut *connection).await?;
        let event = AuditEvent::new("key.disable", AUDIT_TARGET_KIND, before.id.as_str(), &before.name);
        audit_trail::write(&mut *connection, audit, event.with_details(json!({"left_group": group}))).await?;
        locked.push(get_even_if_deleted(&mut *connection, &before.id).await?);
    }
    Ok(locked)
}
