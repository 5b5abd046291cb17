//! The use of each limit of a subject, for readers: the admin API, the pages and commands.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveTime, SubsecRound as _, TimeDelta, Utc};
use tokio::time::Instant;

use super::budget::BUDGET;
use super::counters::{SubjectCounters, next_day, period_begin, period_end};
use crate::gateway::config::RequestLimits;
use crate::gateway::money::Usd;
use crate::gateway::work::{WORK_PER_MINUTE, WORK_WINDOW};
use crate::wire::admin::types::LimitUsageState as LimitState;

/// The share of a limit other than a budget from which it counts as nearly reached, in percent (our choice).
const NEAR_PERCENT: u64 = 80;

/// A limit of a subject, and what is used of it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitUsage {
    /// The name of the limit in settings.
    pub(crate) name: &'static str,
    /// The amounts.
    pub(crate) amounts: LimitAmounts,
    /// The state of the limit.
    pub(crate) state: LimitState,
    /// The time at which what is used is free again; `None` if it is not known, or if nothing is used of a limit by the
    /// minute.
    pub(crate) resets_at: Option<DateTime<Utc>>,
}

/// The amounts of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitAmounts {
    /// Requests, images or jobs.
    Count {
        /// The limit.
        limit: u64,
        /// The used part of it.
        used: u64,
    },
    /// Money.
    Money {
        /// The budget.
        limit: Usd,
        /// The cost of finished jobs.
        used: Usd,
        /// The money that running jobs hold: the most that they can cost, or everything that is left.
        reserved: Usd,
        /// The soft mark: the amount at which an alert is raised.
        alert: Usd,
    },
}

// === impl LimitAmounts ===

impl LimitAmounts {
    fn state(&self) -> LimitState {
        match *self {
            Self::Count { limit, used } if used >= limit => LimitState::Reached,
            Self::Count { limit, used } if used.saturating_mul(100) >= limit.saturating_mul(NEAR_PERCENT) => {
                LimitState::Near
            }
            Self::Money { limit, used, reserved, .. } if used.plus(reserved) >= limit => LimitState::Reached,
            Self::Money { used, alert, .. } if used >= alert => LimitState::Near,
            Self::Count { .. } | Self::Money { .. } => LimitState::Free,
        }
    }
}

/// Returns the use of each limit that counts, in the order of the settings. The counters of the current periods must have
/// begun.
pub(super) fn limit_usage(
    limits: &RequestLimits,
    counters: &mut SubjectCounters,
    now: Instant,
    today: NaiveDate,
) -> Vec<LimitUsage> {
    let mut usage = Vec::new();
    let mut add = |name, amounts: LimitAmounts, resets_at| {
        usage.push(LimitUsage { name, amounts, state: amounts.state(), resets_at });
    };
    let windows = [
        ("requests_per_minute", limits.requests_per_minute, &mut counters.requests),
        ("images_per_minute", limits.images_per_minute, &mut counters.images),
    ];
    for (name, limit, window) in windows {
        let Some(limit) = limit else { continue };
        let used = window.sum(now);
        let resets_at = (used > 0).then(|| time_after(window.time_until_empty(now))).flatten();
        add(name, LimitAmounts::Count { limit: limit.into(), used }, resets_at);
    }
    if let Some(limit) = limits.concurrent_jobs {
        let amounts = LimitAmounts::Count { limit: limit.into(), used: counters.jobs().into() };
        add("concurrent_jobs", amounts, None);
    }
    if let Some(limit) = limits.images_per_day {
        let amounts = LimitAmounts::Count { limit: limit.into(), used: counters.images_on(today) };
        add("images_per_day", amounts, Some(begin_of(next_day(today))));
    }
    if let Some(budget) = limits.budget {
        let budget_use = counters.budget_use(period_begin(budget.period, today));
        let (used, reserved) = (budget_use.spent, budget_use.reserved(budget.usd));
        let amounts = LimitAmounts::Money { limit: budget.usd, used, reserved, alert: budget.alert };
        add(BUDGET, amounts, Some(begin_of(period_end(budget.period, today))));
    }
    usage
}

/// Returns the use of a limit on work, of which this much time is used.
pub(super) fn work_usage(limit: u32, filled: Duration) -> LimitUsage {
    let used = filled.as_millis().saturating_mul(limit.into()) / WORK_WINDOW.as_millis();
    let amounts = LimitAmounts::Count { limit: limit.into(), used: u64::try_from(used).unwrap_or(u64::MAX) };
    let resets_at = (!filled.is_zero()).then(|| time_after(filled)).flatten();
    LimitUsage { name: WORK_PER_MINUTE, amounts, state: amounts.state(), resets_at }
}

fn time_after(wait: Duration) -> Option<DateTime<Utc>> {
    TimeDelta::from_std(wait).ok().map(|wait| (Utc::now() + wait).trunc_subsecs(0))
}

fn begin_of(day: NaiveDate) -> DateTime<Utc> {
    day.and_time(NaiveTime::MIN).and_utc()
}
