//! The decision on one request for a lease, from the state of all accounts. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::{AccountCandidate, AccountRequirements, LeaseRefusal, PoolMember, pick};
use crate::gateway::accounts::cooldown::CooldownCause;

/// The decision on a request at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseDecision {
    Grant(usize),
    Wait,
    Refuse(LeaseRefusal),
}

#[cfg(test)]
thread_local! {
    /// The number of verdicts on this thread, which measures the cost of granting or returning a slot.
    pub(super) static VERDICTS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns the account that serves a request now, or the reason why none does.
pub(super) fn lease_decision(
    members: &[PoolMember],
    wanted: &AccountRequirements,
    now: Instant,
    seed: u64,
) -> LeaseDecision {
    #[cfg(test)]
    VERDICTS.set(VERDICTS.get() + 1);
    let candidates: Vec<AccountCandidate> = members.iter().map(|member| member.candidate(wanted, now)).collect();
    match pick(&candidates, seed) {
        Some(index) if candidates[index].has_free_slot => LeaseDecision::Grant(index),
        Some(_) => LeaseDecision::Wait,
        None => LeaseDecision::Refuse(refusal_reason(members, wanted, now)),
    }
}

/// Returns the reason why no account can serve. Only a limit ends by itself, so only a limit has a wait.
fn refusal_reason(members: &[PoolMember], requirements: &AccountRequirements, now: Instant) -> LeaseRefusal {
    let cooldowns = members
        .iter()
        .filter(|member| member.may_serve(requirements))
        .filter_map(|member| member.current_cooldown(now));
    let limits = cooldowns.filter(|rest| matches!(rest.cause, CooldownCause::Exhausted | CooldownCause::Throttled));
    let (mut exhausted, mut wait) = (true, None::<Duration>);
    for rest in limits {
        exhausted &= rest.cause == CooldownCause::Exhausted;
        let left = rest.until.saturating_duration_since(now);
        wait = Some(wait.map_or(left, |least| least.min(left)));
    }
    wait.map_or(LeaseRefusal::NoneLeft, |wait| LeaseRefusal::InCooldown { exhausted, wait: Some(wait) })
}
