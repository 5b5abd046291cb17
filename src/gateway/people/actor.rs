//! An authenticated user of the console, with their permissions.

use std::net::IpAddr;

use crate::gateway::store::{ActorKind, AuditContext, Timestamp, TokenId, UserId, UserRole, UserRow};
use crate::gateway::work::{RequestWork, Work};

/// An authenticated user of the console. An actor is created only for a session, an admin token of a user, the admin
/// token of the settings, or a command that has opened the store itself, so it proves that the credentials were checked.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    kind: ActorKind,
    user: Option<UserRow>,
    address: Option<IpAddr>,
    work: RequestWork,
    token: Option<ActingToken>,
}

/// The admin token with which an actor has authenticated.
#[derive(Debug, Clone)]
pub(crate) struct ActingToken {
    /// The id of the token.
    pub(crate) id: TokenId,
    /// The time at which the token ends.
    pub(crate) expires_at: Option<Timestamp>,
}

/// The operations whose result outlasts the session or the admin token that asks for them. In a session, each needs a
/// fresh proof of the user's identity; an admin token can give none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastingOperation {
    /// A further admin: a new one, a member who becomes one, or one who is enabled again.
    NewAdmin,
    /// A link with which a user sets another password.
    PasswordLink,
    /// The removal of a second factor.
    FactorReset,
}

// === impl Actor ===

impl Actor {
    pub(super) fn from_session(user: UserRow) -> Self {
        Self { kind: ActorKind::User, user: Some(user), address: None, work: RequestWork::default(), token: None }
    }

    pub(super) fn from_token(user: UserRow, token: ActingToken) -> Self {
        let (kind, work) = (ActorKind::Token, RequestWork::default());
        Self { kind, user: Some(user), address: None, work, token: Some(token) }
    }

    /// Returns the actor for the admin token of the settings. Must be called only after that token was checked.
    pub(crate) fn from_settings() -> Self {
        Self { kind: ActorKind::Settings, user: None, address: None, work: RequestWork::default(), token: None }
    }

    /// Returns the actor for a command on the machine of the gateway. Must be called only by a process that has opened the
    /// store for a command, and serves nobody else.
    pub(crate) fn from_command() -> Self {
        Self { kind: ActorKind::Command, ..Self::from_settings() }
    }

    /// Sets the IP address from which the request comes.
    pub(crate) fn with_address(self, address: IpAddr) -> Self {
        Self { address: Some(address), ..self }
    }

    /// Names the work of the request that the actor makes.
    pub(crate) fn with_work(self, work: RequestWork) -> Self {
        Self { work, ..self }
    }

    /// Charges work of the request to the user.
    pub(crate) fn charge(&self, work: Work) {
        self.work.charge(work);
    }

    /// Returns the work of the request.
    pub(crate) const fn work(&self) -> &RequestWork {
        &self.work
    }

    /// True if a command on the machine of the gateway acts.
    pub(crate) fn is_command(&self) -> bool {
        self.kind == ActorKind::Command
    }

    /// Returns the user; `None` for the admin token of the settings and for a command.
    pub(crate) fn user(&self) -> Option<&UserRow> {
        self.user.as_ref()
    }

    /// Returns the admin token of a user with which the actor has authenticated.
    pub(crate) const fn token(&self) -> Option<&ActingToken> {
        self.token.as_ref()
    }

    /// True if the actor may do a [`LastingOperation`] to a user, of whom `None` stands for one who does not exist yet. The
    /// pages have asked for the proof of a session. A token of a user may do it if the token does not end by itself, so
    /// that nothing of it lasts longer than the token, and never to its own user, whom the proof protects.
    pub(crate) fn may_do_lasting(&self, user: Option<&UserId>) -> bool {
        let Some(token) = &self.token else { return true };
        token.expires_at.is_none() && user.is_none_or(|user| self.user.as_ref().is_none_or(|own| own.id != *user))
    }

    /// Returns the IP address from which the request comes, if it is known.
    pub(crate) const fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Returns the role; the admin token of the settings and a command have the role of an admin.
    pub(crate) fn role(&self) -> UserRole {
        self.user.as_ref().map_or(UserRole::Admin, |user| user.role)
    }

    /// Returns true if the actor is an admin.
    pub(crate) fn is_admin(&self) -> bool {
        self.role() == UserRole::Admin
    }

    /// Returns the owner to which the actor is restricted: `None` for an admin, and the actor's own user for a member.
    /// Must be passed to every query and every change, so that a member cannot reach the objects of other users.
    pub(crate) fn restricted_to(&self) -> Option<&UserId> {
        self.user.as_ref().filter(|_| !self.is_admin()).map(|user| &user.id)
    }

    /// Returns the audit context for a change that the actor makes now.
    pub(crate) fn audit_context(&self) -> AuditContext {
        let address = self.address.map(|address| address.to_string());
        match &self.user {
            None if self.is_command() => AuditContext::command(),
            None => AuditContext::settings(address),
            Some(user) => AuditContext {
                kind: self.kind,
                user: Some(user.id.clone()),
                name: user.name.clone(),
                address,
                at: Timestamp::now(),
            },
        }
    }
}
