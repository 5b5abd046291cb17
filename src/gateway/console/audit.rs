//! The operation that returns the audit trail to admins.

use serde_json::{Map, Value};

use super::told::limit;
use super::trouble::{ErrorSubject, of_people};
use super::{Console, admins_only, list};
use crate::error::Error;
use crate::gateway::people::Actor;
use crate::gateway::store::{ActorKind, AuditFilter, AuditRow};
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
        admins_only(actor)?;
        let filter = AuditFilter {
            actor: query.actor.clone(),
            action: query.action.clone(),
            target: query.target.clone(),
            before: query.before.map(types::AuditSeq::get),
            limit: limit(query.limit),
        };
        let page = self.people.audit(&filter).await.map_err(of_people(ErrorSubject::User, ""))?;
        let data: Result<Vec<_>, Error> = page.items.into_iter().map(shown).collect();
        Ok(types::AuditList {
            object: list(),
            data: data?,
            has_more: page.has_more,
            total: page.total,
            extra: Map::new(),
        })
    }
}

fn shown(row: AuditRow) -> Result<types::AuditEntry, Error> {
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
        actor_kind: shown_kind(row.actor_kind),
        actor_id: row.actor_id,
        actor_name: row.actor_name,
        address: row.address,
        action: row.action,
        target_kind: row.target_kind,
        target_id: row.target_id,
        target_name: row.target_name,
        details: types::AuditDetails(details),
        extra: Map::new(),
    })
}

const fn shown_kind(kind: ActorKind) -> types::ActorKind {
    match kind {
        ActorKind::User => types::ActorKind::User,
        ActorKind::Token => types::ActorKind::Token,
        ActorKind::Settings => types::ActorKind::Settings,
        ActorKind::Command => types::ActorKind::Command,
        ActorKind::System => types::ActorKind::System,
    }
}
