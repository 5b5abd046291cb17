//! The lease: the right to make one attempt on one account now.

use std::fmt;
use std::sync::{Arc, OnceLock};

use http::HeaderValue;
use tokio::time::Instant;

use super::account::{AccountEndpoint, UpstreamAccount};
use super::cooldown::WorkKind;
use super::pool::{AccountPool, AccountRequirements};
use super::pool_member::PoolMember;
use super::secret_mask::SecretMask;
use crate::gateway::store::UserId;

/// The right to make one attempt on one account. Dropping it for any reason gives the slot back.
#[derive(Debug)]
pub(crate) struct Lease {
    slot: AccountSlot,
    authorization: Option<HeaderValue>,
    /// The renewed credentials for the only repeat, after the first credentials were refused.
    renewed: OnceLock<HeaderValue>,
}

/// A slot of an account. Dropping the value gives the slot back.
pub(super) struct AccountSlot {
    /// `None` if the slot has been given back already.
    pool: Option<Arc<AccountPool>>,
    account: Arc<UpstreamAccount>,
    is_large: bool,
    is_probe: bool,
    refuses_added_tool: bool,
    grant: LeaseGrant,
}

/// The account, model and caller of a lease, and the time of its grant: everything that is needed to apply the result
/// of the attempt.
#[derive(Clone, Debug)]
pub(crate) struct LeaseGrant {
    /// The account, by number: an account that was deleted and added again under the same name is a different one.
    pub(super) member_id: u64,
    pub(super) granted_at: Instant,
    /// The requested model; `None` for a command.
    pub(super) model: Option<Arc<str>>,
    /// The kind of work of the request.
    pub(super) work: WorkKind,
    /// The user who sent the request, or its API key if the key has no user.
    pub(super) caller: UserId,
}

// === impl Lease ===

impl Lease {
    pub(super) const fn new(slot: AccountSlot, authorization: Option<HeaderValue>) -> Self {
        Self { slot, authorization, renewed: OnceLock::new() }
    }

    /// The leased account.
    pub(crate) fn account(&self) -> &UpstreamAccount {
        &self.slot.account
    }

    /// The endpoint of the call.
    pub(crate) fn endpoint(&self) -> &AccountEndpoint {
        self.slot.account.endpoint()
    }

    /// The credentials of the call, marked as sensitive so that no `Debug` output shows them. They change after
    /// [`super::RetryTarget::SameAccount`].
    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.renewed.get().or(self.authorization.as_ref())
    }

    /// The secrets of the account, which nothing that its upstream says may repeat.
    pub(crate) fn secret_mask(&self) -> Arc<SecretMask> {
        self.slot.account.secret_mask(self.authorization())
    }

    /// True if the account has refused the image tool that the gateway adds to responses.
    pub(crate) const fn refuses_added_tool(&self) -> bool {
        self.slot.refuses_added_tool
    }

    /// The grant of this lease, which can be used after the slot was given back.
    pub(crate) fn grant(&self) -> LeaseGrant {
        self.slot.grant.clone()
    }

    pub(super) const fn slot(&self) -> &AccountSlot {
        &self.slot
    }

    /// True if the credentials were renewed already: at most one renewal is made.
    pub(super) fn is_renewed(&self) -> bool {
        self.renewed.get().is_some()
    }

    /// Sets the renewed credentials. Returns false if they were renewed before.
    pub(super) fn set_renewed(&self, authorization: HeaderValue) -> bool {
        self.renewed.set(authorization).is_ok()
    }
}

/// A slot that its account gets back.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReturnedSlot {
    pub(super) member_id: u64,
    /// True if the slot was for a large image.
    pub(super) is_large: bool,
    /// True if the slot was for a probe.
    pub(super) is_probe: bool,
}

// === impl AccountSlot ===

impl AccountSlot {
    pub(super) fn new(
        pool: &Arc<AccountPool>,
        member: &PoolMember,
        requirements: &AccountRequirements,
        is_probe: bool,
        granted_at: Instant,
    ) -> Self {
        let caller = UserId::from(UserId::NOBODY);
        let (model, work) = (requirements.model.clone(), requirements.work_kind());
        let grant = LeaseGrant { member_id: member.id, granted_at, model, work, caller };
        Self {
            pool: Some(Arc::clone(pool)),
            account: Arc::clone(&member.account),
            is_large: requirements.is_large,
            is_probe,
            refuses_added_tool: member.refuses_added_tool(granted_at),
            grant,
        }
    }

    /// Returns the same slot, assigned to this caller.
    pub(super) fn assigned_to(mut self, caller: &UserId) -> Self {
        self.grant.caller.clone_from(caller);
        self
    }

    pub(super) const fn account(&self) -> &Arc<UpstreamAccount> {
        &self.account
    }

    pub(super) const fn grant(&self) -> &LeaseGrant {
        &self.grant
    }

    /// Consumes the slot without giving it back.
    pub(super) fn into_returned(mut self) -> ReturnedSlot {
        self.pool = None;
        self.returned()
    }

    const fn returned(&self) -> ReturnedSlot {
        ReturnedSlot { member_id: self.grant.member_id, is_large: self.is_large, is_probe: self.is_probe }
    }
}

impl Drop for AccountSlot {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.release_slot(self.returned());
        }
    }
}

impl fmt::Debug for AccountSlot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AccountSlot").field("account", &self.account.name()).finish_non_exhaustive()
    }
}
