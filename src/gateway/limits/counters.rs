//! The counters of one subject, and the periods that they belong to.
//!
//! Running jobs are kept apart from what was delivered and spent, by the day on which they began, for subjects with and
//! without limits. So a limit that is set, changed or removed while they run counts them from that moment on, and nothing
//! is reserved if nothing runs.

use std::time::Duration;

use chrono::{Datelike as _, Days, Months, NaiveDate, NaiveTime, TimeDelta, Utc};
use tokio::time::Instant;

use super::budget::{self, BudgetUse};
use super::reservation::{JobDemand, JobEnd, LimitError, SubjectLimits};
use super::window::MinuteWindow;
use crate::error::LimitRefusal;
use crate::gateway::config::{BudgetPeriod, RequestLimits};
use crate::gateway::money::Usd;
use crate::gateway::store::{HeldMoney, OpenMoney, SubjectUsage};

/// The wait after which a job may find a free place among the concurrent ones, in seconds (our choice).
const PLACE_WAIT_SECONDS: u64 = 2;

/// The time of a check or count: on the monotonic clock, which windows of a minute have, and as a day, which periods have.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitTime {
    pub(super) now: Instant,
    pub(super) today: NaiveDate,
}

/// The counters of a group, a user or a key.
#[derive(Debug, Default)]
pub(super) struct SubjectCounters {
    pub(super) requests: MinuteWindow,
    pub(super) images: MinuteWindow,
    /// The running jobs, by the day on which they began: today, and rarely the day before.
    open: Vec<OpenDay>,
    /// The images that were delivered on a day, if a limit needs them.
    delivered: Option<(NaiveDate, u64)>,
    /// The money that was spent since the start of each period that a budget has, at most one of each kind.
    spending: Vec<Spending>,
}

/// The running jobs that began on a day.
#[derive(Debug, Default)]
struct OpenDay {
    day: NaiveDate,
    jobs: u32,
    images: u64,
    money: OpenMoney,
}

/// The money that was spent on a day and those after it.
#[derive(Clone, Copy, Debug)]
struct Spending {
    since: NaiveDate,
    spent: Usd,
    /// The cost of the dearest response that has cost more than it had reserved.
    dearest_excess: Usd,
}

/// The usage of a subject that the store has counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StoredUsage {
    pub(super) delivered_today: u64,
    pub(super) spent: Usd,
    pub(super) dearest_excess: Usd,
}

// === impl SubjectCounters ===

impl SubjectCounters {
    /// Counts the last minute, the running jobs and the periods of a subject whose usage the store has.
    pub(super) fn of_usage(usage: &SubjectUsage, limits: &RequestLimits, now: Instant, today: NaiveDate) -> Self {
        let SubjectUsage { jobs, open_images, open, .. } = *usage;
        let open = vec![OpenDay { day: today, jobs, images: open_images, money: open }];
        let mut counters = Self { open, ..Self::default() };
        for recent in &usage.last_minute {
            // A clock that began less than that ago cannot tell it; then the requests count for longer.
            let at = now.checked_sub(recent.age).unwrap_or(now);
            counters.requests.add(recent.requests, at);
            counters.images.add(recent.images, at);
        }
        let SubjectUsage { delivered_today, spent, dearest_excess, .. } = *usage;
        counters.begin_periods(limits, today, StoredUsage { delivered_today, spent, dearest_excess });
        counters
    }

    /// True if the counters of the day and of the budget have begun for the current periods.
    pub(super) fn has_current_periods(&self, limits: &RequestLimits, today: NaiveDate) -> bool {
        let has_day = limits.images_per_day.is_none() || self.delivered.is_some_and(|(day, _)| day == today);
        has_day && limits.budget.is_none_or(|budget| self.spending(period_begin(budget.period, today)).is_some())
    }

    /// Begins the counters of the current periods, unless they have begun.
    pub(super) fn begin_periods(&mut self, limits: &RequestLimits, today: NaiveDate, stored: StoredUsage) {
        if limits.images_per_day.is_some() && self.delivered.is_none_or(|(day, _)| day != today) {
            self.delivered = Some((today, stored.delivered_today));
        }
        let Some(since) = limits.budget.map(|budget| period_begin(budget.period, today)) else { return };
        if self.spending(since).is_none() {
            self.spending.push(Spending { since, spent: stored.spent, dearest_excess: stored.dearest_excess });
        }
    }

    /// Checks that a job keeps all limits, and returns what it would hold in the budget. `is_queued` is true if another
    /// job waits for room in the budget, and came first.
    pub(super) fn check(
        &mut self,
        limits: &RequestLimits,
        demand: &JobDemand,
        is_queued: bool,
        LimitTime { now, today }: LimitTime,
    ) -> Result<HeldMoney, LimitError> {
        check_possible(limits, demand)?;
        let minutes = [
            ("requests_per_minute", limits.requests_per_minute, 1, &mut self.requests),
            ("images_per_minute", limits.images_per_minute, demand.images, &mut self.images),
        ];
        for (name, limit, amount, window) in minutes {
            check_minute(name, limit, amount, window, now)?;
        }
        if let Some(limit) = limits.concurrent_jobs.filter(|limit| self.jobs() >= *limit) {
            return Err(place_refusal(limit).into());
        }
        if let Some(limit) = limits.images_per_day
            && self.images_on(today) + u64::from(demand.images) > u64::from(limit)
        {
            return Err(period_refusal("images_per_day", limit.to_string(), next_day(today)).into());
        }
        let Some(budget) = limits.budget else { return Ok(demand.held()) };
        budget::check(budget, self.budget_use(period_begin(budget.period, today)), demand, is_queued, today)
    }

    /// Checks that a request keeps the limit on requests by the minute.
    pub(super) fn check_request(&mut self, limits: &RequestLimits, now: Instant) -> Result<(), LimitError> {
        check_minute("requests_per_minute", limits.requests_per_minute, 1, &mut self.requests, now)
    }

    /// Counts a job that begins.
    pub(super) fn begin(
        &mut self,
        limits: &RequestLimits,
        demand: &JobDemand,
        held: HeldMoney,
        LimitTime { now, today }: LimitTime,
    ) {
        if limits.requests_per_minute.is_some() {
            self.requests.add(1, now);
        }
        if limits.images_per_minute.is_some() {
            self.images.add(demand.images, now);
        }
        let position = self.open.iter().position(|open| open.day == today).unwrap_or_else(|| {
            self.open.push(OpenDay { day: today, ..OpenDay::default() });
            self.open.len() - 1
        });
        if let Some(open) = self.open.get_mut(position) {
            open.jobs = open.jobs.saturating_add(1);
            open.images += u64::from(demand.images);
            open.money.add(held);
        }
    }

    /// Counts the end of a job that began on this day: what it has held is given back, and in its place counts what it
    /// has delivered and did cost.
    pub(super) fn end(&mut self, demand: &JobDemand, held: HeldMoney, day: NaiveDate, end: JobEnd) {
        if let Some(open) = self.open.iter_mut().find(|open| open.day == day) {
            open.jobs = open.jobs.saturating_sub(1);
            open.images = open.images.saturating_sub(demand.images.into());
            open.money.remove(held);
        }
        self.open.retain(|open| open.jobs > 0);
        if let Some((_, images)) = self.delivered.as_mut().filter(|(delivered_on, _)| *delivered_on == day) {
            *images += end.images;
        }
        for spending in self.spending.iter_mut().filter(|spending| spending.since <= day) {
            spending.spent = spending.spent.plus(end.cost);
            if demand.is_exceeded_by(end.cost) {
                spending.dearest_excess = spending.dearest_excess.max(end.cost);
            }
        }
    }

    /// Removes what is past. Returns true if nothing is left: no job runs, nothing has begun within the last minute, and
    /// the counters of the day and of the budget belong to past periods.
    pub(super) fn prune(&mut self, now: Instant, today: NaiveDate) -> bool {
        let is_idle = [&mut self.requests, &mut self.images].map(|window| window.prune(now)) == [true, true];
        self.delivered.take_if(|(day, _)| *day < today);
        let current = [BudgetPeriod::Day, BudgetPeriod::Week, BudgetPeriod::Month].map(|of| period_begin(of, today));
        self.spending.retain(|spending| spending.since > today || current.contains(&spending.since));
        is_idle && self.open.is_empty() && self.delivered.is_none() && self.spending.is_empty()
    }

    /// Returns the number of running jobs.
    pub(super) fn jobs(&self) -> u32 {
        self.open.iter().map(|open| open.jobs).sum()
    }

    /// Returns the images of a day: those that were delivered, and those that running jobs asked for.
    pub(super) fn images_on(&self, day: NaiveDate) -> u64 {
        let open: u64 = self.open.iter().filter(|open| open.day == day).map(|open| open.images).sum();
        open + self.delivered.filter(|(delivered_on, _)| *delivered_on == day).map_or(0, |(_, images)| images)
    }

    /// Returns the use of a budget whose period began on this day.
    pub(super) fn budget_use(&self, since: NaiveDate) -> BudgetUse {
        let mut open = OpenMoney::default();
        self.open.iter().filter(|of_day| of_day.day >= since).for_each(|of_day| open.merge(of_day.money));
        let (spent, dearest_excess) =
            self.spending(since).map_or_else(Default::default, |spending| (spending.spent, spending.dearest_excess));
        BudgetUse { spent, open, dearest_excess }
    }

    fn spending(&self, since: NaiveDate) -> Option<&Spending> {
        self.spending.iter().find(|spending| spending.since == since)
    }
}

/// Checks that a job keeps the limits of all its subjects, and returns what it would hold in the budget of each. A limit
/// that refuses the job comes before a budget without room: no wait would help.
pub(super) fn check_all(
    subjects: &[SubjectLimits],
    mut check: impl FnMut(usize, &SubjectLimits) -> Result<HeldMoney, LimitError>,
) -> Result<Vec<HeldMoney>, LimitError> {
    let (mut held, mut full) = (Vec::with_capacity(subjects.len()), None);
    for (index, of) in subjects.iter().enumerate() {
        match check(index, of).map_err(|error| error.with_scope(of.subject.scope())) {
            Ok(money) => held.push(money),
            Err(error @ LimitError::FullyReserved(_)) => full = full.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    full.map_or(Ok(held), Err)
}

fn check_minute(
    name: &'static str,
    limit: Option<u32>,
    amount: u32,
    window: &mut MinuteWindow,
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

pub(super) fn period_refusal(limit: &'static str, value: String, end: NaiveDate) -> LimitRefusal {
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

pub(super) fn next_day(day: NaiveDate) -> NaiveDate {
    day.succ_opt().unwrap_or(day)
}
