//! Tests of users: sign-in, sessions, links, tokens, and the audit trail.

mod links;
mod provider_sign_in;
mod second_factor;
mod sign_in;
mod trail;
mod users;

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::gateway::store::InstallationStore as _;
use crate::gateway::store::testing::{execute, new_store};
use crate::gateway::store::{AuditContext, NewUser, SqlStore, UserChange, UserFilter, UserRole, UserRow};

const PASSWORD: &str = "correct horse battery";

struct Fixture {
    people: IdentityService,
    store: Arc<SqlStore>,
    dir: TempDir,
}

/// Creates an identity service for a store. A second one for the same store stands for another process.
fn people_of(store: &Arc<SqlStore>) -> IdentityService {
    IdentityService::new(
        Arc::clone(store) as Arc<dyn PeopleStore>,
        Pepper::new(store.pepper_key()),
        store.vault().clone(),
        vec!["default".to_owned()],
    )
}

impl IdentityService {
    async fn change_user(
        &self,
        audit: &AuditContext,
        handle: &str,
        change: UserChange,
    ) -> Result<UserRow, IdentityError> {
        self.apply_user_changes(audit, handle, &[change]).await
    }

    async fn apply_user_changes(
        &self,
        audit: &AuditContext,
        handle: &str,
        changes: &[UserChange],
    ) -> Result<UserRow, IdentityError> {
        Ok(self.apply_user_changes_and_list_stopped_keys(audit, handle, changes).await?.0)
    }
}

const fn new_token(name: &str, expires_at: Option<Timestamp>) -> NewToken<'_> {
    NewToken { name, expires_at, maker: None, max_tokens: 50 }
}

fn new_user(name: &str, role: UserRole, groups: &[&str]) -> NewUser {
    let groups = groups.iter().map(|&group| group.to_owned()).collect();
    NewUser { name: name.to_owned(), role, groups, limits: None }
}

fn origin_at(address: &str) -> SignInOrigin {
    SignInOrigin { address: address.parse().unwrap(), agent: "a browser".to_owned(), browser: "form".to_owned() }
}

/// The session of a sign-in that needs no code.
#[track_caller]
fn completed(step: SignInStep) -> IssuedSession {
    match step {
        SignInStep::Complete(session) => *session,
        SignInStep::NeedsCode(_) => panic!("the sign-in waits for a code"),
    }
}

/// The address from which the users of the fixture sign in.
fn home_origin() -> SignInOrigin {
    origin_at("192.0.2.1")
}

impl Fixture {
    async fn new() -> Self {
        let (dir, store) = new_store().await;
        Self { people: people_of(&store), store, dir }
    }

    /// Creates a fixture with an admin called ada.
    async fn set_up() -> (Self, IssuedSession) {
        let fixture = Self::new().await;
        let link = fixture.people.create_setup_link().await.unwrap().unwrap();
        let step =
            fixture.people.create_first_admin(link.token.expose(), "ada", PASSWORD, &home_origin()).await.unwrap();
        let session = completed(step);
        (fixture, session)
    }

    /// Invites a user and accepts the invitation.
    async fn join(&self, name: &str, role: UserRole) -> IssuedSession {
        let (_, link) = self.people.invite(&AuditContext::command(), new_user(name, role, &[])).await.unwrap();
        completed(self.people.accept_link(link.token.expose(), PASSWORD, &home_origin()).await.unwrap())
    }

    async fn is_open(&self, session: &IssuedSession) -> bool {
        self.people.find_session(session.cookie.expose()).await.unwrap().is_some()
    }

    async fn sign_in(&self, name: &str, password: &str, address: &str) -> Result<IssuedSession, IdentityError> {
        self.people.sign_in(name, password, &origin_at(address)).await.map(completed)
    }

    /// Returns the rows of the audit trail, oldest first.
    async fn trail(&self) -> Vec<AuditRow> {
        let filter = AuditFilter { limit: 1000, ..AuditFilter::default() };
        let mut rows = self.people.audit_page(&filter).await.unwrap().items;
        rows.reverse();
        rows
    }

    /// Returns the number of password hashes that were computed.
    fn hash_count(&self) -> usize {
        self.people.passwords.computed.load(Ordering::Relaxed)
    }
}
