//! The lease: the right to make one attempt on one account now.

use std::fmt;
use std::sync::{Arc, OnceLock};

use http::HeaderValue;
use tokio::time::Instant;

use super::account::{AccountEndpoint, UpstreamAccount};
use super::member::PoolMember;
use super::pool::{AccountPool, AccountRequirements};
use crate::gateway::store::UserId;

/// The right to make one attempt on one account. Dropping it for any reason gives the slot back.
#[derive(Debug)]
pub(crate) struct Lease {
    place: AccountSlot,
    authorization: Option<HeaderValue>,
    /// The renewed credentials for the one repeat, after the first were refused.
    fresh: OnceLock<HeaderValue>,
}

/// A slot of an account. It is given back when this is dropped.
pub(super) struct AccountSlot {
    /// `None` if the slot has been given back already.
    pool: Option<Arc<AccountPool>>,
    account: Arc<UpstreamAccount>,
    large: bool,
    probe: bool,
    granted: LeaseGrant,
}

/// The account, model and caller of a lease, and the time of its grant. The result of the attempt is applied to these.
#[derive(Clone, Debug)]
pub(crate) struct LeaseGrant {
    /// The account, by number: an account that was deleted and added again under the same name is a different one.
    pub(super) member: u64,
    pub(super) at: Instant,
    /// The requested model; `None` for a command.
    pub(super) model: Option<Arc<str>>,
    /// The user who sent the request.
    pub(super) caller: UserId,
}

// === impl Lease ===

impl Lease {
    pub(super) const fn new(place: AccountSlot, authorization: Option<HeaderValue>) -> Self {
        Self { place, authorization, fresh: OnceLock::new() }
    }

    /// The leased account.
    pub(crate) fn account(&self) -> &UpstreamAccount {
        &self.place.account
    }

    /// The endpoint of the call.
    pub(crate) fn endpoint(&self) -> &AccountEndpoint {
        self.place.account.endpoint()
    }

    /// The credentials of the call, marked as sensitive so that no `Debug` output shows them. They change after
    /// [`super::RetryTarget::Same`].
    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.fresh.get().or(self.authorization.as_ref())
    }

    /// The grant of this lease, which can be used after the slot was given back.
    pub(crate) fn granted(&self) -> LeaseGrant {
        self.place.granted.clone()
    }

    pub(super) const fn place(&self) -> &AccountSlot {
        &self.place
    }

    /// True if the credentials were renewed already: at most one renewal is made.
    pub(super) fn is_renewed(&self) -> bool {
        self.fresh.get().is_some()
    }

    pub(super) fn renew(&self, authorization: HeaderValue) -> bool {
        self.fresh.set(authorization).is_ok()
    }
}

// === impl AccountSlot ===

impl AccountSlot {
    pub(super) fn new(
        pool: &Arc<AccountPool>,
        member: &PoolMember,
        wanted: &AccountRequirements,
        probe: bool,
        at: Instant,
    ) -> Self {
        let caller = UserId::from(UserId::NOBODY);
        let granted = LeaseGrant { member: member.id, at, model: wanted.model.clone(), caller };
        Self { pool: Some(Arc::clone(pool)), account: Arc::clone(&member.account), large: wanted.large, probe, granted }
    }

    /// Returns the same slot, assigned to this caller.
    pub(super) fn of(mut self, caller: &UserId) -> Self {
        self.granted.caller.clone_from(caller);
        self
    }

    pub(super) const fn account(&self) -> &Arc<UpstreamAccount> {
        &self.account
    }

    pub(super) const fn granted(&self) -> &LeaseGrant {
        &self.granted
    }

    /// Consumes the slot without giving it back.
    pub(super) fn dissolve(mut self) -> (u64, bool, bool) {
        self.pool = None;
        (self.granted.member, self.large, self.probe)
    }
}

impl Drop for AccountSlot {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.give_back(self.granted.member, self.large, self.probe);
        }
    }
}

impl fmt::Debug for AccountSlot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Place").field("account", &self.account.name()).finish_non_exhaustive()
    }
}
