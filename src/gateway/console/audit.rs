//! The operation that returns the audit trail to admins.

use serde_json::{Map, Value};

use super::error_conversion::{ErrorSubject, from_identity_error};
use super::request_fields::page_size;
use super::{Console, list_object, require_admin};
use crate::error::Error;
use crate::gateway::people::Actor;
use crate::gateway::store::{AuditFilter, AuditRow};
use crate::wire::admin::server::ListAuditQuery;
use crate::wire::admin::types;

// === impl Console ===

impl Console {
    /// Returns a page of the audit trail, newest first. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members.
    pub(crate) async fn list_audit(&self, actor: &Actor, query: &ListAuditQuery) -> Result<types::AuditList, Error> {
        require_admin(actor)?;
        let filter = AuditFilter {
            actor: query.actor.clone(),
            action: query.action.clone(),
            target: query.target.clone(),
            before: query.before.map(types::AuditSeq::get),
            limit: page_size(query.limit),
        };
        let page = self.people.audit_page(&filter).await.map_err(from_identity_error(ErrorSubject::User, ""))?;
        let data: Result<Vec<_>, Error> = page.items.into_iter().map(to_wire_entry).collect();
        Ok(types::AuditList { object: list_object(), data: data?, has_more: page.has_more, total: page.total })
    }
}

fn to_wire_entry(row: AuditRow) -> Result<types::AuditEntry, Error> {
    let details = match row.details {
        Value::Object(details) => details,
        other => Map::from_iter([("value".to_owned(), other)]),
    };
    Ok(types::AuditEntry {
        seq: types::AuditSeq::new(row.seq).map_err(|error| {
            tracing::error!(%error, "an entry of the audit trail has an impossible number");
            Error::Internal
        })?,
        at: row.at.into(),
        actor_kind: row.actor_kind,
        actor_id: row.actor_id,
        actor_name: row.actor_name,
        address: row.address,
        action: row.action,
        target_kind: row.target_kind,
        target_id: row.target_id,
        target_name: row.target_name,
        details: types::AuditDetails(details),
    })
}
