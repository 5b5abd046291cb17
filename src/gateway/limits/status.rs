//! The rest of the limits, for the headers of an answer.

use std::time::Duration;

use super::counters::{LimitTime, SubjectCounters, period_begin};
use crate::gateway::config::RequestLimits;
use crate::gateway::money::Usd;

/// The header that states what is left of a budget.
const BUDGET_HEADER: &str = "x-imagate-budget-remaining-usd";

/// The rest of the tightest limits after a job has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitStatus {
    /// The requests of the current minute.
    pub(crate) requests: Option<WindowStatus>,
    /// The images of the current minute.
    pub(crate) images: Option<WindowStatus>,
    /// The money of the period, without the amounts that running jobs have reserved.
    pub(crate) budget_left: Option<Usd>,
}

/// The rest of a limit by the minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowStatus {
    /// The limit.
    pub(crate) limit: u32,
    /// The amount that may begin now.
    pub(crate) remaining: u32,
    /// The time until the whole limit is free again.
    pub(crate) reset: Duration,
}

// === impl LimitStatus ===

impl LimitStatus {
    /// Adds the limits of a subject. The one with the least left counts.
    pub(super) fn add(
        &mut self,
        limits: &RequestLimits,
        counters: &mut SubjectCounters,
        LimitTime { now, today }: LimitTime,
    ) {
        let windows = [
            (&mut self.requests, limits.requests_per_minute, &mut counters.requests),
            (&mut self.images, limits.images_per_minute, &mut counters.images),
        ];
        for (status, limit, window) in windows {
            let Some(limit) = limit else { continue };
            let used = u32::try_from(window.sum(now)).unwrap_or(u32::MAX);
            let remaining = limit.saturating_sub(used);
            if status.is_none_or(|tightest| remaining < tightest.remaining) {
                *status = Some(WindowStatus { limit, remaining, reset: window.time_until_empty(now) });
            }
        }
        if let Some(budget) = limits.budget {
            let left = counters.budget_use(period_begin(budget.period, today)).left(budget.usd);
            self.budget_left = Some(self.budget_left.map_or(left, |least| least.min(left)));
        }
    }

    /// True for the name of one of [`Self::headers`].
    pub(crate) fn is_header(name: &str) -> bool {
        name.starts_with("x-ratelimit-") || name == BUDGET_HEADER
    }

    /// Returns the headers that state it.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&'static str, String)> {
        let window = |status: Option<WindowStatus>, names: [&'static str; 3]| {
            status.into_iter().flat_map(move |WindowStatus { limit, remaining, reset }| {
                let seconds = reset.as_secs() + u64::from(reset.subsec_nanos() > 0);
                names.into_iter().zip([limit.to_string(), remaining.to_string(), format!("{seconds}s")])
            })
        };
        let requests = ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"];
        let images = ["x-ratelimit-limit-images", "x-ratelimit-remaining-images", "x-ratelimit-reset-images"];
        let budget = self.budget_left.map(|left| (BUDGET_HEADER, left.to_string()));
        window(self.requests, requests).chain(window(self.images, images)).chain(budget)
    }
}
