//! The statements for groups. A row is never removed, because keys and records name it.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::super::SqlStore;
use super::super::audit_trail::{self, AuditEvent};
use super::super::decode::{optional_count, parsed, text};
use super::super::driver::{SqlConnection, SqlRow};
use super::super::error_conversion::during;
use super::super::statement::sql;
use super::super::transaction::{rollback, transact};
use crate::gateway::store::{AuditContext, GroupDeletionOutcome, GroupId, GroupRow, GroupStore, StoreError};

const AUDIT_TARGET_KIND: &str = "group";

macro_rules! select_groups {
    ($clauses:literal) => {
        concat!(
            "SELECT groups.*, (SELECT count(*) FROM keys WHERE keys.group_id = groups.id AND keys.deleted_at IS NULL) ",
            "AS key_count FROM groups WHERE groups.deleted_at IS NULL ",
            $clauses
        )
    };
}

#[async_trait]
impl GroupStore for SqlStore {
    async fn ensure_group(&self, audit: &AuditContext, name: &str) -> Result<GroupRow, StoreError> {
        const DOING: &str = "storing a group";
        let find = || sql(select_groups!("AND groups.name = $1")).bind(name);
        // In nearly all cases the group exists, and a read does not wait for a writer.
        if let Some(group) = self.fetch_optional(DOING, find(), group_from_row).await? {
            return Ok(group);
        }
        if let Some(group) = self.create_group(audit, name, None).await? {
            return Ok(group);
        }
        // Another process has created the group at the same time.
        let group = self.fetch_optional(DOING, find(), group_from_row).await?;
        group.ok_or_else(|| during(DOING)(sqlx::Error::RowNotFound))
    }

    async fn create_group(
        &self,
        audit: &AuditContext,
        name: &str,
        policy: Option<&str>,
    ) -> Result<Option<GroupRow>, StoreError> {
        let new_id = GroupId::random()?;
        transact!(self.writer.begin_change(), |transaction| {
            let insert =
                sql("INSERT INTO groups (id, name, created_at, policy) VALUES ($1, $2, $3, $4) ON CONFLICT (name) \
                 DO UPDATE SET deleted_at = NULL, policy = excluded.policy WHERE groups.deleted_at IS NOT NULL");
            let insert = insert.bind(new_id.as_str()).bind(name).bind(audit.at.to_string()).bind(policy);
            if insert.execute(&mut *transaction).await? == 0 {
                return Ok(rollback(None));
            }
            let group = find_by_name(transaction, name).await?.ok_or(sqlx::Error::RowNotFound)?;
            let details = policy.map_or_else(|| json!({}), |policy| json!({ "policy": policy_as_json(Some(policy)) }));
            audit_trail::write(transaction, audit, audit_event("group.create", &group).with_details(details)).await?;
            Some(group)
        })
        .map_err(during("storing a group"))
    }

    async fn change_group(
        &self,
        audit: &AuditContext,
        handle: &str,
        policy: &str,
    ) -> Result<Option<GroupRow>, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let query = sql(select_groups!("AND (groups.id = $1 OR groups.name = $1)")).bind(handle);
            let Some(row) = query.fetch_optional(&mut *transaction).await? else { return Ok(rollback(None)) };
            let group = group_from_row(&row)?;
            let update = sql("UPDATE groups SET policy = $2 WHERE id = $1").bind(group.id.as_str()).bind(policy);
            update.execute(&mut *transaction).await?;
            let event = audit_event("group.change", &group)
                .with_change(policy_as_json(group.policy.as_deref()), policy_as_json(Some(policy)));
            audit_trail::write(transaction, audit, event).await?;
            Some(GroupRow { policy: Some(policy.to_owned()), ..group })
        })
        .map_err(during("changing a group"))
    }

    async fn group_policies(&self) -> Result<Vec<(String, String)>, StoreError> {
        let query = sql("SELECT name, coalesce(policy, '{}') FROM groups WHERE deleted_at IS NULL ORDER BY name");
        let from_row = |row: &SqlRow| Ok((row.try_get(0)?, row.try_get(1)?));
        self.fetch_all("reading the settings of groups", query, from_row).await
    }

    async fn list_groups(&self) -> Result<Vec<GroupRow>, StoreError> {
        let query = sql(select_groups!("ORDER BY groups.name"));
        self.fetch_all("listing groups", query, group_from_row).await
    }

    async fn delete_group(&self, audit: &AuditContext, handle: &str) -> Result<GroupDeletionOutcome, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let query = sql(select_groups!("AND (groups.id = $1 OR groups.name = $1)")).bind(handle);
            let Some(row) = query.fetch_optional(&mut *transaction).await? else {
                return Ok(rollback(GroupDeletionOutcome::Unknown));
            };
            let group = group_from_row(&row)?;
            if group.key_count > 0 {
                return Ok(rollback(GroupDeletionOutcome::InUse(group)));
            }
            // The second statement tests `$2` only because both statements are bound to two values.
            for statement in [
                "UPDATE groups SET deleted_at = $2, policy = NULL WHERE id = $1",
                "DELETE FROM user_groups WHERE group_id = $1 AND $2 IS NOT NULL",
            ] {
                let statement = sql(statement).bind(group.id.as_str()).bind(audit.at.to_string());
                statement.execute(&mut *transaction).await?;
            }
            audit_trail::write(transaction, audit, audit_event("group.delete", &group)).await?;
            GroupDeletionOutcome::Done(group)
        })
        .map_err(during("deleting a group"))
    }
}

/// Returns the id of the group of that name.
pub(super) async fn find_id(connection: &mut SqlConnection, name: &str) -> sqlx::Result<Option<String>> {
    let query = sql("SELECT id FROM groups WHERE name = $1 AND deleted_at IS NULL");
    query.bind(name).fetch_optional_value(connection).await
}

async fn find_by_name(connection: &mut SqlConnection, name: &str) -> sqlx::Result<Option<GroupRow>> {
    let row = sql(select_groups!("AND groups.name = $1")).bind(name).fetch_optional(connection).await?;
    row.map(|row| group_from_row(&row)).transpose()
}

/// Returns the settings as the audit trail shows them.
fn policy_as_json(policy: Option<&str>) -> Value {
    policy.map_or(Value::Null, |policy| serde_json::from_str(policy).unwrap_or_else(|_| policy.into()))
}

fn audit_event<'a>(action: &'static str, group: &'a GroupRow) -> AuditEvent<'a> {
    AuditEvent::new(action, AUDIT_TARGET_KIND, group.id.as_str(), &group.name)
}

fn group_from_row(row: &SqlRow) -> sqlx::Result<GroupRow> {
    Ok(GroupRow {
        id: text(row, "id")?,
        name: text(row, "name")?,
        policy: row.try_get("policy")?,
        created_at: parsed(row, "created_at")?,
        key_count: optional_count(row, "key_count")?.unwrap_or(0),
    })
}
