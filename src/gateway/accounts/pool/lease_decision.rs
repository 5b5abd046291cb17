//! The decision on one request for a lease, from the state of all accounts. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::{AccountCandidate, AccountRequirements, LeaseRefusal, PoolMember, pick};

/// The decision on a request for a lease at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseDecision {
    Grant(usize),
    Wait,
    Refuse(LeaseRefusal),
}

/// A seed for questions whose answer is the same for every seed: it decides between equal accounts, and not if one of
/// them has a free slot.
pub(super) const ANY_SEED: u64 = 0;

#[cfg(test)]
thread_local! {
    /// The number of lease decisions on this thread, by which tests measure the cost of granting or returning a slot.
    pub(super) static LEASE_DECISIONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns the account that serves a request now, or the reason why none does.
pub(super) fn lease_decision(
    members: &[PoolMember],
    requirements: &AccountRequirements,
    now: Instant,
    seed: u64,
) -> LeaseDecision {
    #[cfg(test)]
    LEASE_DECISIONS.set(LEASE_DECISIONS.get() + 1);
    let candidates: Vec<AccountCandidate> = members.iter().map(|member| member.candidate(requirements, now)).collect();
    match pick(&candidates, seed) {
        Some(index) if candidates[index].has_free_slot => LeaseDecision::Grant(index),
        Some(_) => LeaseDecision::Wait,
        None => LeaseDecision::Refuse(refusal_reason(members, requirements, now)),
    }
}

/// Returns the reason why no account can serve. The refusal states a wait only if a limit of an upstream is the cause,
/// because only a limit ends at a known time.
fn refusal_reason(members: &[PoolMember], requirements: &AccountRequirements, now: Instant) -> LeaseRefusal {
    let cooldowns = members
        .iter()
        .filter(|member| member.may_serve(requirements))
        .filter_map(|member| member.cooldown_of(requirements.work_kind(), now));
    let limits = cooldowns.filter(|limit| limit.cause.is_limit());
    let (mut exhausted, mut wait) = (true, None::<Duration>);
    for limit in limits {
        exhausted &= limit.cause.is_exhausted();
        let remaining = limit.until.saturating_duration_since(now);
        wait = Some(wait.map_or(remaining, |least| least.min(remaining)));
    }
    wait.map_or(LeaseRefusal::NoneLeft, |wait| LeaseRefusal::InCooldown { exhausted, wait: Some(wait) })
}
