//! Authenticates the users of the console as an [`Actor`], and manages users, groups, links and tokens.
//!
//! This module decides who can sign in, how many attempts are allowed, how long a session lasts, what a one-time link
//! permits, and who may manage which user. It does not know HTTP, the pages, or the further actions of an actor.
//!
//! Rules: passwords are hashed with a slow hash on blocking threads, and also for unknown names. Attempts are limited,
//! but no client can lock out another user. Every secret is stored as a hash. A link works once. Every change is in the
//! audit trail. The last admin who can sign in cannot be removed.

mod actor;
mod attempts;
mod clock;
mod config_admin_token;
mod error;
mod groups;
mod links;
mod passwords;
mod pending_sign_in;
mod provider_sign_in;
mod rate_limit;
mod second_factor;
mod secret_text;
mod sessions;
mod sign_in;
mod tokens;
mod totp;
mod users;

#[cfg(test)]
mod tests;

pub(crate) use actor::{ActingToken, Actor, LastingOperation};
pub(crate) use config_admin_token::{AdminTokenError, ConfigAdminToken};
pub(crate) use error::IdentityError;
pub(crate) use groups::KeyGroup;
pub(crate) use links::{IssuedLink, LinkDetails};
pub(crate) use pending_sign_in::PENDING_LIFETIME;
pub(crate) use provider_sign_in::ProviderIdentity;
pub(crate) use second_factor::SecondFactorEnrolment;
pub(crate) use secret_text::SecretText;
pub(crate) use sessions::{IssuedSession, UserSession};
pub(crate) use sign_in::{SignInOrigin, SignInStep};
pub(crate) use tokens::NewToken;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::keys::Pepper;
use super::store::{AuditFilter, AuditRow, ListPage, PeopleStore, Timestamp, TokenId, Vault};
use clock::Clock;
use passwords::PasswordHashService;
use rate_limit::PasswordRateLimiter;

/// The users, groups, sessions, links and admin tokens of an installation.
pub(crate) struct IdentityService {
    store: Arc<dyn PeopleStore>,
    pepper: Pepper,
    vault: Vault,
    passwords: PasswordHashService,
    limits: PasswordRateLimiter,
    clock: Clock,
    /// The groups of the settings file, which only the file can change.
    file_groups: RwLock<Vec<String>>,
    /// The time at which this process last stored the use of each token. The map has one entry for each used token.
    token_uses: Mutex<HashMap<TokenId, Timestamp>>,
}

// === impl IdentityService ===

impl IdentityService {
    /// Creates the service for this store. Links, sessions and tokens are hashed under this pepper, and the secrets of
    /// second factors are sealed in this vault; `file_groups` are the names of the groups of the settings file.
    pub(crate) fn new(store: Arc<dyn PeopleStore>, pepper: Pepper, vault: Vault, file_groups: Vec<String>) -> Self {
        Self {
            store,
            pepper,
            vault,
            passwords: PasswordHashService::new(),
            limits: PasswordRateLimiter::default(),
            clock: Clock::new(),
            file_groups: RwLock::new(file_groups),
            token_uses: Mutex::default(),
        }
    }

    /// Sets the names of the groups of the settings file after it was read again.
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
