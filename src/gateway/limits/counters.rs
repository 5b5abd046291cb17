//! The counters of one subject, and the periods that they belong to.

use std::time::Duration;

use chrono::{Datelike as _, Days, Months, NaiveDate, NaiveTime, TimeDelta, Utc};
use tokio::time::Instant;

use super::reservation::{JobDemand, LimitError};
use super::window::MinuteWindow;
use crate::error::LimitRefusal;
use crate::gateway::config::{Budget, BudgetPeriod, RequestLimits};
use crate::gateway::money::Usd;
use crate::gateway::store::SubjectUsage;

/// The wait after which a job may find a free place among the concurrent ones, in seconds (our choice).
const PLACE_WAIT_SECONDS: u64 = 2;

/// The name of the budget in settings.
pub(super) const BUDGET: &str = "budget_usd";

/// The counters of a group, a user or a key.
#[derive(Debug, Default)]
pub(super) struct SubjectCounters {
    pub(super) requests: MinuteWindow,
    pub(super) images: MinuteWindow,
    pub(super) jobs: u32,
    pub(super) day: Option<DayCounter>,
    pub(super) budget: Option<BudgetCounter>,
}

/// The images of a day: those that were delivered, and those that running jobs asked for.
#[derive(Debug)]
pub(super) struct DayCounter {
    pub(super) day: NaiveDate,
    pub(super) images: u64,
}

/// The money of a period: spent by finished jobs, and reserved by running ones.
#[derive(Debug)]
pub(super) struct BudgetCounter {
    pub(super) begin: NaiveDate,
    pub(super) spent: Usd,
    pub(super) reserved: Usd,
}

/// The usage of a subject that the store has counted before the subject had these limits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StoredUsage {
    pub(super) images_today: u64,
    pub(super) spent: Usd,
    /// The most that the jobs can cost that still run.
    pub(super) reserved: Usd,
}

// === impl SubjectCounters ===

impl SubjectCounters {
    /// Counts the last minute and the running jobs of a subject whose usage the store has.
    pub(super) fn of_usage(usage: &SubjectUsage, now: Instant) -> Self {
        let mut counters = Self { jobs: usage.jobs, ..Self::default() };
        for recent in &usage.last_minute {
            // A clock that began less than that ago cannot tell it; then the requests count for longer.
            let at = now.checked_sub(recent.age).unwrap_or(now);
            counters.requests.add(recent.requests, at);
            counters.images.add(recent.images, at);
        }
        counters
    }

    /// True if the counters of the day and of the budget belong to the current periods.
    pub(super) fn has_current_periods(&self, limits: &RequestLimits, today: NaiveDate) -> bool {
        let has_day = limits.images_per_day.is_none() || self.day.as_ref().is_some_and(|counter| counter.day == today);
        let has_budget = limits.budget.is_none_or(|budget| {
            let begin = period_begin(budget.period, today);
            self.budget.as_ref().is_some_and(|counter| counter.begin == begin)
        });
        has_day && has_budget
    }

    /// Begins the counters of the current periods, unless they have begun.
    pub(super) fn begin_periods(&mut self, limits: &RequestLimits, today: NaiveDate, stored: StoredUsage) {
        if limits.images_per_day.is_some() && self.day.as_ref().is_none_or(|counter| counter.day != today) {
            self.day = Some(DayCounter { day: today, images: stored.images_today });
        }
        if let Some(budget) = limits.budget {
            let begin = period_begin(budget.period, today);
            if self.budget.as_ref().is_none_or(|counter| counter.begin != begin) {
                let StoredUsage { spent, reserved, .. } = stored;
                self.budget = Some(BudgetCounter { begin, spent, reserved });
            }
        }
    }

    /// Checks that a job keeps all limits.
    pub(super) fn check(
        &mut self,
        limits: &RequestLimits,
        demand: &JobDemand,
        now: Instant,
        today: NaiveDate,
    ) -> Result<(), LimitError> {
        check_possible(limits, demand)?;
        let minutes = [
            ("requests_per_minute", limits.requests_per_minute, 1, &mut self.requests),
            ("images_per_minute", limits.images_per_minute, demand.images, &mut self.images),
        ];
        for (name, limit, amount, window) in minutes {
            check_minute(name, limit, (amount, window), now)?;
        }
        if let Some(limit) = limits.concurrent_jobs.filter(|limit| self.jobs >= *limit) {
            return Err(place_refusal(limit).into());
        }
        self.check_day(limits.images_per_day, demand, today)?;
        limits.budget.map_or(Ok(()), |budget| self.check_budget(budget, demand, today))
    }

    /// Checks that a request keeps the limit on requests by the minute.
    pub(super) fn check_request(&mut self, limits: &RequestLimits, now: Instant) -> Result<(), LimitError> {
        check_minute("requests_per_minute", limits.requests_per_minute, (1, &mut self.requests), now)
    }

    /// Removes what is past. Returns true if nothing is left: no job runs, nothing has begun within the last minute, and
    /// the counters of the day and of the budget belong to past periods.
    pub(super) fn prune(&mut self, now: Instant, today: NaiveDate) -> bool {
        let is_idle = [&mut self.requests, &mut self.images].map(|window| window.prune(now)) == [true, true];
        self.day.take_if(|counter| counter.day < today);
        self.budget.take_if(|counter| counter.begin < period_begin(BudgetPeriod::Month, today).min(week_ago(today)));
        is_idle && self.jobs == 0 && self.day.is_none() && self.budget.is_none()
    }

    fn check_day(&self, limit: Option<u32>, demand: &JobDemand, today: NaiveDate) -> Result<(), LimitError> {
        let Some(limit) = limit else { return Ok(()) };
        let used = self.day.as_ref().map_or(0, |counter| counter.images);
        if used + u64::from(demand.images) > u64::from(limit) {
            return Err(period_refusal("images_per_day", limit.to_string(), next_day(today)).into());
        }
        Ok(())
    }

    fn check_budget(&self, budget: Budget, demand: &JobDemand, today: NaiveDate) -> Result<(), LimitError> {
        let cost = demand.cost.ok_or(LimitError::PriceUnknown)?;
        let used = self.budget.as_ref().map_or(Usd::ZERO, |counter| counter.spent.plus(counter.reserved));
        if used.plus(cost) > budget.usd {
            let end = period_end(budget.period, today);
            return Err(period_refusal(BUDGET, budget.usd.to_string(), end).into());
        }
        Ok(())
    }

    /// Counts a job that begins.
    pub(super) fn reserve(&mut self, limits: &RequestLimits, demand: &JobDemand, now: Instant) {
        if limits.requests_per_minute.is_some() {
            self.requests.add(1, now);
        }
        if limits.images_per_minute.is_some() {
            self.images.add(demand.images, now);
        }
        self.jobs = self.jobs.saturating_add(1);
        // A counter that misses a job is removed.
        self.day.take_if(|_| limits.images_per_day.is_none());
        self.budget.take_if(|_| limits.budget.is_none());
        if let Some(counter) = &mut self.day {
            counter.images += u64::from(demand.images);
        }
        if let Some(counter) = &mut self.budget {
            counter.reserved = counter.reserved.plus(demand.cost.unwrap_or_default());
        }
    }

    /// Removes the counters of the day and of the budget, because they miss a job that begins without limits.
    pub(super) fn forget_periods(&mut self) {
        (self.day, self.budget) = (None, None);
    }
}

// === impl SubjectCounters: the end of a job ===

impl SubjectCounters {
    /// Gives back the place of a job that began on this day, and the images that it has reserved and did not deliver.
    pub(super) fn settle_images(&mut self, limits: &RequestLimits, demand: &JobDemand, images: u64, day: NaiveDate) {
        self.jobs = self.jobs.saturating_sub(1);
        let has_reserved = |counter: &&mut DayCounter| limits.images_per_day.is_some() && counter.day == day;
        if let Some(counter) = self.day.as_mut().filter(has_reserved) {
            counter.images = (counter.images + images).saturating_sub(demand.images.into());
        }
    }

    /// Replaces the money that a job has reserved by what it did cost.
    pub(super) fn settle_money(&mut self, budget: Budget, demand: &JobDemand, cost: Usd, day: NaiveDate) {
        let begin = period_begin(budget.period, day);
        let Some(counter) = self.budget.as_mut().filter(|counter| counter.begin == begin) else { return };
        counter.reserved = counter.reserved.minus(demand.cost.unwrap_or_default());
        counter.spent = counter.spent.plus(cost);
    }
}

fn check_minute(
    name: &'static str,
    limit: Option<u32>,
    (amount, window): (u32, &mut MinuteWindow),
    now: Instant,
) -> Result<(), LimitError> {
    let Some(limit) = limit else { return Ok(()) };
    let wait = window.wait_for(amount, limit, now);
    if wait.is_zero() { Ok(()) } else { Err(minute_refusal(name, limit, wait).into()) }
}

/// Refuses a job that asks for more images than a limit ever allows: no wait would help.
fn check_possible(limits: &RequestLimits, demand: &JobDemand) -> Result<(), LimitError> {
    let limits = [("images_per_minute", limits.images_per_minute), ("images_per_day", limits.images_per_day)];
    let exceeded =
        limits.into_iter().find_map(|(name, limit)| Some((name, limit.filter(|limit| demand.images > *limit)?)));
    exceeded.map_or(Ok(()), |(name, limit)| Err(LimitError::ImagesAboveLimit { name, limit }))
}

// The scope of a refusal is set by the caller, which knows the subject.

fn minute_refusal(limit: &'static str, value: u32, wait: Duration) -> LimitRefusal {
    let wait_seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let resets_at = TimeDelta::from_std(wait).ok().map(|wait| (Utc::now() + wait).timestamp());
    LimitRefusal { scope: "", limit, value: value.to_string(), resets_at, wait_seconds, is_quota: false }
}

fn place_refusal(value: u32) -> LimitRefusal {
    let (limit, value) = ("concurrent_jobs", value.to_string());
    LimitRefusal { scope: "", limit, value, resets_at: None, wait_seconds: PLACE_WAIT_SECONDS, is_quota: false }
}

fn period_refusal(limit: &'static str, value: String, end: NaiveDate) -> LimitRefusal {
    let end = end.and_time(NaiveTime::MIN).and_utc();
    let wait_seconds = u64::try_from((end - Utc::now()).num_seconds()).unwrap_or(0).max(1);
    LimitRefusal { scope: "", limit, value, resets_at: Some(end.timestamp()), wait_seconds, is_quota: true }
}

/// Returns the first day of the period that contains this day.
pub(super) fn period_begin(period: BudgetPeriod, day: NaiveDate) -> NaiveDate {
    let first = match period {
        BudgetPeriod::Day => Some(day),
        BudgetPeriod::Week => day.checked_sub_days(Days::new(day.weekday().num_days_from_monday().into())),
        BudgetPeriod::Month => day.with_day(1),
    };
    first.unwrap_or(day)
}

/// Returns the earliest first day of all budget periods that contain this day: budgets are computed from the counts
/// since then.
pub(crate) fn first_day_of_budgets(day: NaiveDate) -> NaiveDate {
    let begins = [BudgetPeriod::Day, BudgetPeriod::Week, BudgetPeriod::Month].map(|period| period_begin(period, day));
    begins.into_iter().min().unwrap_or(day)
}

/// Returns the first day after the period that contains this day.
pub(super) fn period_end(period: BudgetPeriod, day: NaiveDate) -> NaiveDate {
    let begin = period_begin(period, day);
    let end = match period {
        BudgetPeriod::Day => begin.succ_opt(),
        BudgetPeriod::Week => begin.checked_add_days(Days::new(7)),
        BudgetPeriod::Month => begin.checked_add_months(Months::new(1)),
    };
    end.unwrap_or(day)
}

fn week_ago(day: NaiveDate) -> NaiveDate {
    day.checked_sub_days(Days::new(7)).unwrap_or(day)
}

pub(super) fn next_day(day: NaiveDate) -> NaiveDate {
    day.succ_opt().unwrap_or(day)
}
