//! Somebody who was recognised, with what they may do.

use std::net::IpAddr;

use crate::gateway::store::{Act, ActorKind, Role, Timestamp, UserId, UserRow};

/// Somebody who was recognised. Only a session, an admin token or the admin token of the settings makes one, so holding
/// it proves that they were checked.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    kind: ActorKind,
    user: Option<UserRow>,
    address: Option<IpAddr>,
}

// === impl Actor ===

impl Actor {
    pub(super) fn of_user(kind: ActorKind, user: UserRow) -> Self {
        Self { kind, user: Some(user), address: None }
    }

    /// Whoever has presented the admin token of the settings. To be made by nobody but who has checked it.
    pub(crate) const fn of_settings() -> Self {
        Self { kind: ActorKind::Settings, user: None, address: None }
    }

    /// The same, from there.
    pub(crate) fn at(self, address: IpAddr) -> Self {
        Self { address: Some(address), ..self }
    }

    /// The user, where it is one.
    pub(crate) fn user(&self) -> Option<&UserRow> {
        self.user.as_ref()
    }

    /// From where they come, where that is known.
    pub(crate) const fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// What they may do.
    pub(crate) fn role(&self) -> Role {
        self.user.as_ref().map_or(Role::Admin, |user| user.role)
    }

    /// Whether they may do everything.
    pub(crate) fn is_admin(&self) -> bool {
        self.role() == Role::Admin
    }

    /// Whose things they see and change: everybody's where it is `None`, and else only their own. To be passed with every
    /// query and every change, so that what is not theirs does not exist for them.
    pub(crate) fn owner(&self) -> Option<&UserId> {
        self.user.as_ref().filter(|_| !self.is_admin()).map(|user| &user.id)
    }

    /// What the audit trail says of them if they change something now.
    pub(crate) fn act(&self) -> Act {
        let address = self.address.map(|address| address.to_string());
        match &self.user {
            None => Act::settings(address),
            Some(user) => Act {
                kind: self.kind,
                user: Some(user.id.clone()),
                name: user.name.clone(),
                address,
                at: Timestamp::now(),
            },
        }
    }
}
