//! Explains which account would be chosen: all accounts in their order, as the admin API shows them.

use std::time::Duration;

use chrono::Utc;
use tokio::time::Instant;

use super::cooldown::WorkKind;
use super::health::HealthStatus;
use super::pool::{AccountPool, AccountRequirements};
use super::pool_member::PoolMember;
use super::selection::AccountCandidate;
use crate::gateway::telemetry::AccountSnapshot;
use crate::wire::admin::types::{AccountAvailability, AccountExplanation, AccountTier};

/// Lists all accounts in the order in which a request would choose them. Among equal accounts, each request chooses at
/// random, unless a conversation prefers one of them.
pub(super) fn explain(
    pool: &AccountPool,
    group: &str,
    is_large: bool,
    session: Option<&str>,
) -> Vec<AccountExplanation> {
    let now = Instant::now();
    let work = Some(if session.is_some() { WorkKind::Text } else { WorkKind::Images });
    let session = session.map(|session| session.as_bytes().into());
    let requirements =
        AccountRequirements { group: group.to_owned(), work, is_large, session, ..AccountRequirements::default() };
    let state = pool.lock();
    let mut ranked: Vec<(usize, &PoolMember, AccountCandidate)> = state
        .members
        .iter()
        .enumerate()
        .map(|(index, member)| (index, member, member.candidate(&requirements, now)))
        .collect();
    ranked.sort_by_key(|(index, _, candidate)| candidate.rank(*index, 0));
    let first = ranked.first().filter(|(.., candidate)| candidate.is_eligible).map(|(index, ..)| *index);
    let explanations = ranked.into_iter().map(|(index, member, candidate)| {
        let explanation = AccountExplanation {
            name: member.account.name().to_owned(),
            chosen: first == Some(index),
            state: AccountAvailability::Free,
            disabled_reason: None,
            cooling_until: None,
            cooling_cause: None,
            tier: if candidate.is_paid { AccountTier::Paid } else { AccountTier::Free },
            kind: candidate.auth_kind,
            priority: candidate.priority,
            slots_in_use: member.taken_slots as u64,
            slots: member.account.slot_limits().all as u64,
        };
        with_state(explanation, member, candidate.has_free_slot, &requirements, now)
    });
    explanations.collect()
}

/// Adds the state of the account for this request, and the fields that belong to it.
fn with_state(
    explanation: AccountExplanation,
    member: &PoolMember,
    has_free_slot: bool,
    requirements: &AccountRequirements,
    now: Instant,
) -> AccountExplanation {
    let in_state = |state| AccountExplanation { state, ..explanation };
    let until = |left: Duration| Some(Utc::now() + left);
    if let Some(reason) = &member.disabled_reason {
        let disabled_reason = Some(reason.clone());
        return AccountExplanation { disabled_reason, ..in_state(AccountAvailability::Disabled) };
    }
    if !member.account.supports(requirements.work) {
        return in_state(AccountAvailability::OtherProtocol);
    }
    if !member.may_serve(requirements) {
        return in_state(AccountAvailability::OtherGroup);
    }
    if let Some(cooldown) = member.cooldown_of(requirements.work_kind(), now) {
        return AccountExplanation {
            cooling_until: until(cooldown.until.saturating_duration_since(now)),
            cooling_cause: Some(cooldown.cause.as_str().to_owned()),
            ..in_state(AccountAvailability::CoolingDown)
        };
    }
    match member.health.status(now) {
        HealthStatus::Ejected { remaining } => {
            AccountExplanation { cooling_until: until(remaining), ..in_state(AccountAvailability::Failing) }
        }
        HealthStatus::Good | HealthStatus::HalfOpen if has_free_slot => in_state(AccountAvailability::Free),
        HealthStatus::Good | HealthStatus::HalfOpen => in_state(AccountAvailability::Full),
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
