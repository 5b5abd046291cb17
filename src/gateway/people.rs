//! Authenticates the users of the console, each as an [`Actor`].
//!
//! This module decides who signs in, how often a client may try, how long a session lasts, what a one-time link allows,
//! and who may manage whom. It does not know HTTP, pages, or what an actor then does.
//!
//! It carries: passwords are hashed slowly, off the async threads, and for unknown names too; guessing is limited, and
//! no client can lock another user out; every secret is stored as a hash; a link works once; every change is in the
//! audit trail; the last admin who can sign in cannot be removed.

mod actor;
mod clock;
mod error;
mod groups;
mod hidden;
mod limits;
mod links;
mod passwords;
mod sessions;
mod sign_in;
mod tokens;
mod users;

#[cfg(test)]
mod tests;

pub(crate) use actor::Actor;
pub(crate) use error::IdentityError;
pub(crate) use groups::KeyGroup;
pub(crate) use hidden::SecretText;
pub(crate) use links::{IssuedLink, LinkDetails};
pub(crate) use sessions::{IssuedSession, UserSession};
pub(crate) use sign_in::SignInOrigin;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::keys::Pepper;
use super::store::{AuditFilter, AuditRow, ListPage, Store, Timestamp, TokenId};
use clock::Clock;
use limits::PasswordRateLimiter;
use passwords::PasswordHashService;

/// The users, groups, sessions, links and admin tokens of an installation.
pub(crate) struct IdentityService {
    store: Arc<dyn Store>,
    pepper: Pepper,
    passwords: PasswordHashService,
    limits: PasswordRateLimiter,
    clock: Clock,
    /// The groups of the settings file, which only the file can change.
    of_file: RwLock<Vec<String>>,
    /// The time at which this process last noted the use of each token. It has one entry for each token that was used.
    touched: Mutex<HashMap<TokenId, Timestamp>>,
}

// === impl IdentityService ===

impl IdentityService {
    /// Creates the service for this store. Links, sessions and tokens are hashed under this pepper; `of_file` has the
    /// groups of the settings file.
    pub(crate) fn new(store: Arc<dyn Store>, pepper: Pepper, of_file: Vec<String>) -> Self {
        Self {
            store,
            pepper,
            passwords: PasswordHashService::new(),
            limits: PasswordRateLimiter::default(),
            clock: Clock::new(),
            of_file: RwLock::new(of_file),
            touched: Mutex::default(),
        }
    }

    /// Sets the groups of settings that were read again.
    pub(crate) fn set_groups_of_file(&self, groups: Vec<String>) {
        *self.of_file.write().unwrap_or_else(PoisonError::into_inner) = groups;
    }

    /// Returns a page of the audit trail, newest first.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn audit(&self, filter: &AuditFilter) -> Result<ListPage<AuditRow>, IdentityError> {
        Ok(self.store.page_audit(filter).await?)
    }
}
