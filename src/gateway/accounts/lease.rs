//! The ticket: the right to make one attempt on one account now.

use std::fmt;
use std::sync::{Arc, OnceLock};

use http::HeaderValue;
use tokio::time::Instant;

use super::account::{Account, Endpoint};
use super::member::Member;
use super::pool::{Pool, Wanted};
use crate::gateway::store::UserId;

/// The right to make one attempt on one account. Dropping it, however that comes about, gives the place back.
#[derive(Debug)]
pub(crate) struct Lease {
    place: Place,
    authorization: Option<HeaderValue>,
    /// What lets the one repeat in, after the first was refused.
    fresh: OnceLock<HeaderValue>,
}

/// A place on an account. Comes back when it is dropped.
pub(super) struct Place {
    /// Nothing any more where it has come back already.
    pool: Option<Arc<Pool>>,
    account: Arc<Account>,
    large: bool,
    probe: bool,
    granted: LeaseGrant,
}

/// The account, time, model and caller of a lease. The lesson of its attempt is held against these.
#[derive(Clone, Debug)]
pub(crate) struct LeaseGrant {
    /// The account, by number: one that was deleted and added again under the same name is another.
    pub(super) member: u64,
    pub(super) at: Instant,
    /// The model that was asked for; `None` for a command.
    pub(super) model: Option<Arc<str>>,
    /// The user whose request it is.
    pub(super) caller: UserId,
}

// === impl Lease ===

impl Lease {
    pub(super) const fn new(place: Place, authorization: Option<HeaderValue>) -> Self {
        Self { place, authorization, fresh: OnceLock::new() }
    }

    /// Whose turn it is.
    pub(crate) fn account(&self) -> &Account {
        &self.place.account
    }

    /// Where the call goes.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        self.place.account.endpoint()
    }

    /// What lets the call in; marked as sensitive, so that no `Debug` shows it. After [`super::Again::Same`] it is
    /// another than before.
    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.fresh.get().or(self.authorization.as_ref())
    }

    /// The grant of this lease, which can be used after the place was given back.
    pub(crate) fn granted(&self) -> LeaseGrant {
        self.place.granted.clone()
    }

    pub(super) const fn place(&self) -> &Place {
        &self.place
    }

    /// Whether it was renewed already: once is enough.
    pub(super) fn is_renewed(&self) -> bool {
        self.fresh.get().is_some()
    }

    pub(super) fn renew(&self, authorization: HeaderValue) -> bool {
        self.fresh.set(authorization).is_ok()
    }
}

// === impl Place ===

impl Place {
    pub(super) fn new(pool: &Arc<Pool>, member: &Member, wanted: &Wanted, probe: bool, at: Instant) -> Self {
        let caller = UserId::from(UserId::NOBODY);
        let granted = LeaseGrant { member: member.id, at, model: wanted.model.clone(), caller };
        Self { pool: Some(Arc::clone(pool)), account: Arc::clone(&member.account), large: wanted.large, probe, granted }
    }

    /// The same place, for this caller.
    pub(super) fn of(mut self, caller: &UserId) -> Self {
        self.granted.caller.clone_from(caller);
        self
    }

    pub(super) const fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub(super) const fn granted(&self) -> &LeaseGrant {
        &self.granted
    }

    /// Does not come back by itself any more.
    pub(super) fn dissolve(mut self) -> (u64, bool, bool) {
        self.pool = None;
        (self.granted.member, self.large, self.probe)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.give_back(self.granted.member, self.large, self.probe);
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Place").field("account", &self.account.name()).finish_non_exhaustive()
    }
}
