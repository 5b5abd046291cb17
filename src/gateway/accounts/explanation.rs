//! Explains which account would be chosen: all accounts in their order, as data for users and for `--json`.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::cooldown::CooldownCause;
use super::health::HealthStatus;
use super::pool::{AccountPool, AccountRequirements};
use super::pool_member::PoolMember;
use super::selection::AccountCandidate;
use crate::gateway::config::AccountProtocol;
use crate::gateway::telemetry::AccountSnapshot;
use crate::wire::admin::types::AccountKind;

/// One account in an explanation, which lists the accounts in the order in which they would be tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct AccountExplanation {
    /// The name of the account.
    pub(crate) account: String,
    /// True if the account would be chosen.
    pub(crate) chosen: bool,
    /// The availability of the account at this moment.
    pub(crate) state: AccountAvailability,
    /// True if the account is paid for.
    pub(crate) paid: bool,
    /// The kind of its credentials.
    pub(crate) kind: AccountKind,
    /// The priority that the operator has set.
    pub(crate) priority: i32,
    /// The number of calls in flight.
    pub(crate) taken: usize,
    /// The number of slots.
    pub(crate) places: usize,
}

/// The availability of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub(crate) enum AccountAvailability {
    /// The account can serve at once.
    Free,
    /// The account can serve after a call has ended.
    Full,
    /// The account is used only if no other can serve: it has failed too often lately.
    Ejected {
        /// The time that is left.
        seconds: u64,
    },
    /// The account is not used until its cooldown ends.
    Resting {
        /// The cause of the cooldown.
        cause: CooldownCause,
        /// The time that is left.
        seconds: u64,
    },
    /// The account is not used until it is enabled.
    Disabled {
        /// The reason, for operators.
        reason: String,
    },
    /// The account does not serve this group.
    OtherGroup,
    /// The account does not serve the requested endpoint.
    OtherProtocol,
}

/// Lists all accounts in the order in which a request would choose them. Among equal accounts, each request chooses at
/// random, unless a conversation prefers one of them.
pub(super) fn explain(
    pool: &AccountPool,
    group: &str,
    is_large: bool,
    session: Option<&str>,
) -> Vec<AccountExplanation> {
    let now = Instant::now();
    let protocol = Some(if session.is_some() { AccountProtocol::Responses } else { AccountProtocol::Images });
    let session = session.map(|session| session.as_bytes().into());
    let requirements =
        AccountRequirements { group: group.to_owned(), protocol, is_large, session, ..AccountRequirements::default() };
    let state = pool.lock();
    let mut ranked: Vec<(usize, &PoolMember, AccountCandidate)> = state
        .members
        .iter()
        .enumerate()
        .map(|(index, member)| (index, member, member.candidate(&requirements, now)))
        .collect();
    ranked.sort_by_key(|(index, _, candidate)| candidate.rank(*index, 0));
    let first = ranked.first().filter(|(.., candidate)| candidate.is_eligible).map(|(index, ..)| *index);
    let explanations = ranked.into_iter().map(|(index, member, candidate)| AccountExplanation {
        account: member.account.name().to_owned(),
        chosen: first == Some(index),
        state: availability(member, &candidate, &requirements, now),
        paid: candidate.is_paid,
        kind: candidate.auth_kind,
        priority: candidate.priority,
        taken: member.taken_slots,
        places: member.account.slot_limits().all,
    });
    explanations.collect()
}

fn availability(
    member: &PoolMember,
    candidate: &AccountCandidate,
    requirements: &AccountRequirements,
    now: Instant,
) -> AccountAvailability {
    if let Some(reason) = &member.disabled_reason {
        return AccountAvailability::Disabled { reason: reason.clone() };
    }
    if !member.account.supports_protocol(requirements.protocol) {
        return AccountAvailability::OtherProtocol;
    }
    if !member.may_serve(requirements) {
        return AccountAvailability::OtherGroup;
    }
    if let Some(cooldown) = member.cooldown_of(requirements.work(), now) {
        return AccountAvailability::Resting {
            cause: cooldown.cause,
            seconds: whole_seconds(cooldown.until.saturating_duration_since(now)),
        };
    }
    match member.health.status(now) {
        HealthStatus::Ejected { remaining: left } => AccountAvailability::Ejected { seconds: whole_seconds(left) },
        HealthStatus::Good | HealthStatus::HalfOpen if candidate.has_free_slot => AccountAvailability::Free,
        HealthStatus::Good | HealthStatus::HalfOpen => AccountAvailability::Full,
    }
}

// === impl AccountPool ===

impl AccountPool {
    /// Returns the state of each account, and the number of waiting requests.
    pub(super) fn snapshot(&self) -> (Vec<AccountSnapshot>, usize) {
        let now = Instant::now();
        let state = self.lock();
        let account = |member: &PoolMember| AccountSnapshot {
            name: member.account.name().to_owned(),
            used_slots: member.taken_slots,
            slots: member.account.slot_limits().all,
            is_cooling_down: member.last_cooldown(now).is_some(),
            is_disabled: member.disabled_reason.is_some(),
        };
        (state.members.iter().map(account).collect(), state.waiting())
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.lock().is_stopped()
    }
}

/// Returns the duration in whole seconds, rounded up.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
