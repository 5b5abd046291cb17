//! The actor of a change, and the rows of the audit trail. Plain data; it must contain no secret.

use super::{ActorKind, Timestamp, UserId};

/// The actor of a change. Every change names one, so that its row of the audit trail is written with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuditContext {
    /// The kind of the actor.
    pub(crate) kind: ActorKind,
    /// The user, if the actor is one.
    pub(crate) user: Option<UserId>,
    /// The name of the actor in the audit trail.
    pub(crate) name: String,
    /// The network address of the actor, if the change came over the network.
    pub(crate) address: Option<String>,
    /// The time of the change.
    pub(crate) at: Timestamp,
}

/// One row of the audit trail.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AuditRow {
    /// The number of the row. Later rows have higher numbers.
    pub(crate) seq: i64,
    /// The time of the change.
    pub(crate) at: Timestamp,
    /// The kind of the actor.
    pub(crate) actor_kind: ActorKind,
    /// The id of the user, if the actor was one.
    pub(crate) actor_id: Option<String>,
    /// The name of the actor at that time.
    pub(crate) actor_name: String,
    /// The network address of the actor.
    pub(crate) address: Option<String>,
    /// The change, such as `key.create`.
    pub(crate) action: String,
    /// The kind of the changed object: `key`, `user`, `group`, `account`, `token`, `session` or `setup`.
    pub(crate) target_kind: String,
    /// The id of the changed object.
    pub(crate) target_id: Option<String>,
    /// The name of the changed object at that time.
    pub(crate) target_name: Option<String>,
    /// Further details of the change.
    pub(crate) details: serde_json::Value,
}

/// A filter for rows of the audit trail, newest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct AuditFilter {
    /// The id or name of the actor.
    pub(crate) actor: Option<String>,
    /// An action such as `key.create`, or the first part of several: `key` matches every action `key.…`.
    pub(crate) action: Option<String>,
    /// The id or name of the changed object.
    pub(crate) target: Option<String>,
    /// Only rows with a lower number than this.
    pub(crate) before: Option<i64>,
    /// The most rows to return.
    pub(crate) limit: u32,
}

/// One page of a list that can be long.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ListPage<T> {
    /// The items of this page.
    pub(crate) items: Vec<T>,
    /// The number of items that pass the filter, on all pages.
    pub(crate) total: u64,
    /// True if more items follow this page.
    pub(crate) has_more: bool,
}

// === impl AuditContext ===

impl AuditContext {
    /// Returns the context of a command on the machine itself, at the present time.
    pub(crate) fn command() -> Self {
        Self::without_user(ActorKind::Command, "command")
    }

    /// Returns the context of the gateway itself, at the present time.
    pub(crate) fn system() -> Self {
        Self::without_user(ActorKind::System, "gateway")
    }

    /// Returns the context of a program with the admin token of the settings, at the present time.
    pub(crate) fn settings(address: Option<String>) -> Self {
        Self { address, ..Self::without_user(ActorKind::Settings, "admin token of the settings") }
    }

    fn without_user(kind: ActorKind, name: &str) -> Self {
        Self { kind, user: None, name: name.to_owned(), address: None, at: Timestamp::now() }
    }
}
