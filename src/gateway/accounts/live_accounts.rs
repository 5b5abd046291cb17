//! The accounts as this process uses them: the state, the load and the recent calls of each, for the console.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use http::HeaderValue;
use tokio::time::{Instant, timeout};

use super::account::UpstreamAccount;
use super::cooldown::CooldownCause;
use super::health::HealthStatus;
use super::lease::{Lease, LeaseGrant};
use super::pool::AccountPool;
use super::pool_member::PoolMember;
use super::recent_calls::{CallFailure, CallStatistics};
use super::{Accounts, CredentialServiceError};
use crate::wire::admin::types::RecordReason;

/// The longest wait of the console for the accounts to be read from the store (our choice).
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// One account as this process uses it.
#[derive(Clone, Debug)]
pub(crate) struct LiveAccount {
    /// The name of the account.
    pub(crate) name: String,
    /// The state of the account.
    pub(crate) state: LiveAccountState,
    /// The number of calls in flight.
    pub(crate) used_slots: usize,
    /// The number of calls in flight for large images.
    pub(crate) used_large_slots: usize,
    /// The calls of the last hour.
    pub(crate) calls: CallStatistics,
}

/// The state of an account in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LiveAccountState {
    /// The account gets requests.
    Serving,
    /// The account gets no requests until it is enabled.
    Disabled,
    /// The account gets no requests until its cooldown ends.
    Cooling {
        /// The end of the cooldown.
        until: DateTime<Utc>,
        /// The cause of the cooldown.
        cause: CooldownCause,
    },
    /// The account gets requests only if no other account can take them.
    Ejected {
        /// The end of the ejection.
        until: DateTime<Utc>,
    },
    /// The account was ejected, and the next request tests it.
    Testing,
}

/// An account for a call that checks its credentials.
pub(crate) struct AccountForCheck {
    /// The account.
    pub(crate) account: Arc<UpstreamAccount>,
    /// The header with the credentials of the call; `None` if the account needs none.
    pub(crate) authorization: Result<Option<HeaderValue>, CredentialServiceError>,
}

// === impl Accounts ===

impl Accounts {
    /// Returns each account that this process uses, including the disabled ones.
    pub(crate) fn live_accounts(&self) -> Vec<LiveAccount> {
        self.pool.live_accounts()
    }

    /// The time since which the calls are counted.
    pub(crate) const fn counted_since(&self) -> DateTime<Utc> {
        self.opened_at
    }

    /// True if other nodes use the accounts, too.
    pub(crate) fn is_shared(&self) -> bool {
        self.store.shared_slots().is_some()
    }

    /// Counts a call that its account has failed.
    pub(crate) fn note_failed_call(&self, lease: &Lease, reason: RecordReason, status: Option<u16>) {
        self.pool.note_failed_call(lease.slot().grant(), reason, status);
    }

    /// Reads the accounts from the store at once, so that a change of the console is in force when it is answered. If
    /// the store fails or is slow, the periodic refresh reads them later.
    pub(crate) async fn apply_stored_changes(&self) {
        match timeout(READ_TIMEOUT, self.reload()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "changed accounts could not be read at once");
            }
            Err(_) => tracing::warn!("changed accounts could not be read in time"),
        }
    }

    /// Returns the account with this name and its credentials, for a call that checks them; `None` if this process does
    /// not use the account. Such a call takes no slot, so an account can also be checked if it is disabled or busy.
    pub(crate) async fn account_for_check(&self, name: &str) -> Option<AccountForCheck> {
        let account = self.pool.account_named(name)?;
        let authorization = self.authorization_header(&account).await;
        Some(AccountForCheck { account, authorization })
    }
}

// === impl AccountPool ===

impl AccountPool {
    fn live_accounts(&self) -> Vec<LiveAccount> {
        let (now, utc_now) = (Instant::now(), Utc::now());
        let state = self.lock();
        let live_account = |member: &PoolMember| LiveAccount {
            name: member.account.name().to_owned(),
            state: live_state(member, now, utc_now),
            used_slots: member.taken_slots,
            used_large_slots: member.taken_large_slots,
            calls: member.recent_calls.statistics(now),
        };
        state.members.iter().map(live_account).collect()
    }

    pub(super) fn note_failed_call(&self, grant: &LeaseGrant, reason: RecordReason, status: Option<u16>) {
        let mut state = self.lock();
        let now = Instant::now();
        if let Some(member) = state.members.iter_mut().find(|member| member.id == grant.member_id) {
            member.recent_calls.note_failure(CallFailure { at: Utc::now(), reason, status }, now);
        }
    }

    fn account_named(&self, name: &str) -> Option<Arc<UpstreamAccount>> {
        let state = self.lock();
        let member = state.members.iter().find(|member| member.account.name() == name)?;
        Some(Arc::clone(&member.account))
    }
}

fn live_state(member: &PoolMember, now: Instant, utc_now: DateTime<Utc>) -> LiveAccountState {
    if member.disabled_reason.is_some() {
        return LiveAccountState::Disabled;
    }
    if let Some(cooldown) = member.last_cooldown(now) {
        let until = utc_now + cooldown.until.saturating_duration_since(now);
        return LiveAccountState::Cooling { until, cause: cooldown.cause };
    }
    match member.health.status(now) {
        HealthStatus::Good => LiveAccountState::Serving,
        HealthStatus::Ejected { remaining } => LiveAccountState::Ejected { until: utc_now + remaining },
        HealthStatus::HalfOpen => LiveAccountState::Testing,
    }
}
