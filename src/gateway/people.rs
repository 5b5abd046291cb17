//! Makes somebody who knocks at the console an [`Actor`].
//!
//! Decides who signs in, how often they may try, how long a session lasts, what a one-time link is good for, and who
//! may look after whom. Refuses to know HTTP, pages, and what an actor then does.
//!
//! Carries: passwords are hashed slowly, off the async threads, and for unknown names too; nobody can guess without end,
//! and nobody can lock somebody else out; what opens something is stored as a hash; a link works once; every change is in
//! the audit trail; somebody who can sign in and do everything is always left.

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
pub(crate) use error::PeopleError;
pub(crate) use groups::Group;
pub(crate) use hidden::Hidden;
pub(crate) use links::{LinkFor, OneTime};
pub(crate) use sessions::{Opened, Session};
pub(crate) use sign_in::Origin;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::keys::Pepper;
use super::store::{AuditFilter, AuditRow, Page, Store, Timestamp, TokenId};
use clock::Clock;
use limits::Limits;
use passwords::Passwords;

/// The people of an installation.
pub(crate) struct People {
    store: Arc<dyn Store>,
    pepper: Pepper,
    passwords: Passwords,
    limits: Limits,
    clock: Clock,
    /// The groups of the settings, which alone can change them.
    of_file: RwLock<Vec<String>>,
    /// When the use of a token was last noted here. As many entries as tokens were used.
    touched: Mutex<HashMap<TokenId, Timestamp>>,
}

// === impl People ===

impl People {
    /// The people in this store. Links, sessions and tokens are hashed under this pepper; the groups are those of the
    /// settings.
    pub(crate) fn new(store: Arc<dyn Store>, pepper: Pepper, of_file: Vec<String>) -> Self {
        Self {
            store,
            pepper,
            passwords: Passwords::new(),
            limits: Limits::default(),
            clock: Clock::new(),
            of_file: RwLock::new(of_file),
            touched: Mutex::default(),
        }
    }

    /// The groups of settings that were read again.
    pub(crate) fn set_groups_of_file(&self, groups: Vec<String>) {
        *self.of_file.write().unwrap_or_else(PoisonError::into_inner) = groups;
    }

    /// A part of the audit trail, newest first.
    ///
    /// # Errors
    ///
    /// Where the store has trouble.
    pub(crate) async fn audit(&self, filter: &AuditFilter) -> Result<Page<AuditRow>, PeopleError> {
        Ok(self.store.page_audit(filter).await?)
    }
}
