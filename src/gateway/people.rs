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
mod links;
mod passwords;
mod rate_limit;
mod secret_text;
mod sessions;
mod sign_in;
mod tokens;
mod users;

#[cfg(test)]
mod tests;

pub(crate) use actor::Actor;
pub(crate) use error::IdentityError;
pub(crate) use groups::KeyGroup;
pub(crate) use links::{IssuedLink, LinkDetails};
pub(crate) use secret_text::SecretText;
pub(crate) use sessions::{IssuedSession, UserSession};
pub(crate) use sign_in::SignInOrigin;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::keys::Pepper;
use super::store::{AuditFilter, AuditRow, ListPage, Store, Timestamp, TokenId};
use clock::Clock;
use passwords::PasswordHashService;
use rate_limit::PasswordRateLimiter;

/// The users, groups, sessions, links and admin tokens of an installation.
pub(crate) struct IdentityService {
    store: Arc<dyn Store>,
    pepper: Pepper,
    passwords: PasswordHashService,
    limits: PasswordRateLimiter,
    clock: Clock,
    /// The groups of the settings file, which only the file can change.
    file_groups: RwLock<Vec<String>>,
    /// The time at which this process last noted the use of each token. It has one entry for each token that was used.
    token_uses: Mutex<HashMap<TokenId, Timestamp>>,
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
            file_groups: RwLock::new(of_file),
            token_uses: Mutex::default(),
        }
    }

    /// Sets the groups of settings that were read again.
    pub(crate) fn set_file_groups(&self, groups: Vec<String>) {
        *self.file_groups.write().unwrap_or_else(PoisonError::into_inner) = groups;
    }

    /// Returns a page of the audit trail, newest first.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn audit_page(&self, filter: &AuditFilter) -> Result<ListPage<AuditRow>, IdentityError> {
        Ok(self.store.list_audit_page(filter).await?)
    }
}
