//! The audit trail. Each row is written in the transaction of the change that it records.

use serde_json::{Value, json};

use super::decode::{parsed, text};
use super::driver::{SqlConnection, SqlPool, SqlRow};
use super::paging::{fetch_count, split_page};
use super::statement::{StatementBuilder, sql};
use crate::gateway::store::{AuditContext, AuditFilter, AuditRow, ListPage, UserRow};

/// The content of a row, apart from the actor and the time.
pub(super) struct AuditEvent<'a> {
    action: &'static str,
    kind: &'static str,
    id: Option<&'a str>,
    name: Option<&'a str>,
    details: Value,
}

impl<'a> AuditEvent<'a> {
    /// Describes a change of an object with an id and a name.
    pub(super) fn new(action: &'static str, kind: &'static str, id: &'a str, name: &'a str) -> Self {
        Self { action, kind, id: Some(id), name: Some(name), details: json!({}) }
    }

    /// Describes a change without a particular object.
    pub(super) fn without_target(action: &'static str, kind: &'static str) -> Self {
        Self { action, kind, id: None, name: None, details: json!({}) }
    }

    /// Describes a change of a user.
    pub(super) fn for_user(action: &'static str, user: &'a UserRow) -> Self {
        Self::new(action, "user", user.id.as_str(), &user.name)
    }

    pub(super) fn with_details(self, details: Value) -> Self {
        Self { details, ..self }
    }

    /// Adds the old and the new value as details.
    pub(super) fn with_change(self, from: impl Into<Value>, to: impl Into<Value>) -> Self {
        self.with_details(json!({"from": from.into(), "to": to.into()}))
    }
}

/// Returns stored limits as the details of an event.
pub(super) fn limits_as_json(limits: Option<&str>) -> Value {
    limits.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

pub(super) async fn write(
    connection: &mut SqlConnection,
    audit: &AuditContext,
    event: AuditEvent<'_>,
) -> sqlx::Result<()> {
    sql("INSERT INTO audit (at, actor_kind, actor_id, actor_name, address, action, target_kind, target_id, \
         target_name, details) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)")
    .bind(audit.at.to_string())
    .bind(audit.kind.as_str())
    .bind(audit.user.as_ref().map(|user| user.as_str()))
    .bind(&audit.name)
    .bind(&audit.address)
    .bind(event.action)
    .bind(event.kind)
    .bind(event.id)
    .bind(event.name)
    .bind(event.details.to_string())
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn page(pool: &SqlPool, filter: &AuditFilter) -> sqlx::Result<ListPage<AuditRow>> {
    let mut count = StatementBuilder::new("SELECT count(*) FROM audit WHERE TRUE");
    push_conditions(&mut count, filter);
    let mut rows = StatementBuilder::new("SELECT * FROM audit WHERE TRUE");
    push_conditions(&mut rows, filter);
    if let Some(before) = filter.before {
        rows.push(" AND seq < ").push_bind(before);
    }
    rows.push(" ORDER BY seq DESC LIMIT ").push_bind(i64::from(filter.limit) + 1);
    let fetched = rows.build().fetch_all(pool).await?;
    let (items, has_more) = split_page(fetched, filter.limit, audit_row)?;
    Ok(ListPage { items, total: fetch_count(count, pool).await?, has_more })
}

fn push_conditions(query: &mut StatementBuilder, filter: &AuditFilter) {
    if let Some(actor) = &filter.actor {
        query
            .push(" AND (actor_id = ")
            .push_bind(actor.clone())
            .push(" OR actor_name = ")
            .push_bind(actor.clone())
            .push(")");
    }
    if let Some(action) = &filter.action {
        // A range, so that the index can be used: `/` is the character that follows `.`.
        query.push(" AND (action = ").push_bind(action.clone());
        query.push(" OR (action > ").push_bind(format!("{action}."));
        query.push(" AND action < ").push_bind(format!("{action}/")).push("))");
    }
    if let Some(target) = &filter.target {
        query.push(" AND (target_id = ").push_bind(target.clone());
        query.push(" OR target_name = ").push_bind(target.clone()).push(")");
    }
}

fn audit_row(row: &SqlRow) -> sqlx::Result<AuditRow> {
    let details: &str = row.try_get("details")?;
    Ok(AuditRow {
        seq: row.try_get("seq")?,
        at: parsed(row, "at")?,
        actor_kind: parsed(row, "actor_kind")?,
        actor_id: row.try_get("actor_id")?,
        actor_name: text(row, "actor_name")?,
        address: row.try_get("address")?,
        action: text(row, "action")?,
        target_kind: text(row, "target_kind")?,
        target_id: row.try_get("target_id")?,
        target_name: row.try_get("target_name")?,
        details: serde_json::from_str(details).map_err(|error| sqlx::Error::Decode(error.into()))?,
    })
}
