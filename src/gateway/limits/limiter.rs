//! The counters of all subjects, and the reservations of jobs in them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{NaiveDate, NaiveTime, Utc};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::counters::{BUDGET, StoredUsage, SubjectCounters, period_begin};
use super::limit_usage::{LimitUsage, limit_usage, work_usage};
use super::reservation::{ChangedBudget, JobDemand, LimitError, LimitReservation, LimitSubject, SubjectLimits};
use super::shared;
use super::status::LimitStatus;
use crate::gateway::config::RequestLimits;
use crate::gateway::money::Usd;
use crate::gateway::store::{
    JobState, KeyId, RecordFilter, RequestId, StoreError, Timestamp, UsageFilter, UsageStore, UtcDay,
};
use crate::gateway::work::WorkMeter;

/// The time between two removals of idle counters (our choice).
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The counters of all subjects that have limits.
pub(crate) struct RequestLimiter {
    usage: Arc<dyn UsageStore>,
    /// The work of all subjects, whether or not it becomes jobs.
    work: WorkMeter,
    counters: Mutex<LimitCounters>,
    /// The budgets of which something was spent, or that have refused a job, since alerts were last looked for.
    changed_budgets: Mutex<HashMap<LimitSubject, ChangedBudget>>,
    /// The requests whose reservations in the shared database this process holds or is making.
    held_requests: Mutex<HashSet<RequestId>>,
    /// The runtime that releases reservations. They can be dropped on a thread outside of it, such as that of the ledger.
    runtime: Handle,
}

/// The counters of all subjects that have had limits since the start of the process.
#[derive(Default)]
struct LimitCounters {
    subjects: HashMap<LimitSubject, SubjectCounters>,
    /// The time of the last removal of idle counters.
    swept_at: Option<Instant>,
}

// === impl RequestLimiter ===

impl RequestLimiter {
    /// Creates the limits of an installation whose usage this store has. Must be called within a tokio runtime.
    pub(crate) fn new(usage: Arc<dyn UsageStore>) -> Self {
        let (counters, changed_budgets, held_requests) = (Mutex::default(), Mutex::default(), Mutex::default());
        let work = WorkMeter::new(Instant::now());
        Self { usage, work, counters, changed_budgets, held_requests, runtime: Handle::current() }
    }

    /// Reserves what a job asks for in the limits of all its subjects, or in none.
    ///
    /// # Errors
    ///
    /// Returns the first limit that the job does not keep, in the order of the subjects.
    pub(crate) async fn reserve(
        self: &Arc<Self>,
        request_id: &RequestId,
        subjects: Vec<SubjectLimits>,
        demand: JobDemand,
    ) -> Result<LimitReservation, LimitError> {
        if subjects.is_empty() {
            return Ok(LimitReservation::unlimited());
        }
        if self.usage.shared_reservations().is_none() {
            return self.reserve_in_memory(subjects, demand).await;
        }
        // A task of its own: if the caller leaves while the server commits, the reservation that the task returns is
        // dropped, which releases it.
        let task = Arc::clone(self).reserve_in_database(request_id.clone(), subjects, demand).in_current_span();
        self.runtime.spawn(task).await.unwrap_or_else(|error| {
            let doing = "reserving what a job can use";
            Err(StoreError::Unavailable { doing, source: error.into() }.into())
        })
    }

    async fn reserve_in_database(
        self: Arc<Self>,
        request_id: RequestId,
        subjects: Vec<SubjectLimits>,
        demand: JobDemand,
    ) -> Result<LimitReservation, LimitError> {
        let Some(reservations) = self.usage.shared_reservations() else { return Ok(LimitReservation::unlimited()) };
        let day = Utc::now().date_naive();
        self.lock_held().insert(request_id.clone());
        match shared::reserve(reservations, &request_id, &subjects, &demand, false).await {
            Ok(status) => {
                let (limiter, shared_request) = (Some(Arc::clone(&self)), Some(request_id));
                Ok(LimitReservation { limiter, shared_request, subjects, demand, day, status })
            }
            Err(error) => {
                // If the connection was lost while the server committed, a later heartbeat removes the reservation.
                self.lock_held().remove(&request_id);
                self.note_refusal(&subjects, &error);
                Err(error)
            }
        }
    }

    async fn reserve_in_memory(
        self: &Arc<Self>,
        subjects: Vec<SubjectLimits>,
        demand: JobDemand,
    ) -> Result<LimitReservation, LimitError> {
        let day = Utc::now().date_naive();
        self.begin_all_periods(&subjects, day).await?;
        let now = Instant::now();
        let mut counters = self.lock();
        if let Err(error) = counters.check(&subjects, &demand, now, day) {
            drop(counters);
            self.note_refusal(&subjects, &error);
            return Err(error);
        }
        let mut status = LimitStatus::default();
        for SubjectLimits { subject, limits } in &subjects {
            let counters = counters.of(subject);
            counters.reserve(limits, &demand, now);
            status.add(limits, counters, now);
        }
        drop(counters);
        let limiter = Some(Arc::clone(self));
        Ok(LimitReservation { limiter, shared_request: None, subjects, demand, day, status })
    }

    /// Checks that a job would keep the limits of all its subjects now. Nothing is reserved.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::reserve`].
    pub(crate) async fn check(&self, subjects: &[SubjectLimits], demand: &JobDemand) -> Result<(), LimitError> {
        if let Some(reservations) = self.usage.shared_reservations() {
            let nothing = RequestId::from("");
            return shared::reserve(reservations, &nothing, subjects, demand, true).await.map(drop);
        }
        let day = Utc::now().date_naive();
        self.begin_all_periods(subjects, day).await?;
        self.lock().check(subjects, demand, Instant::now(), day)
    }

    /// Counts a request that gets a stored answer in the limits on requests by the minute. It begins no job, so no other
    /// limit counts it.
    ///
    /// # Errors
    ///
    /// Returns the first limit that is reached, in the order of the subjects.
    pub(crate) async fn count_repeat(
        &self,
        request_id: &RequestId,
        subjects: Vec<SubjectLimits>,
    ) -> Result<(), LimitError> {
        let limited: Vec<_> = subjects.into_iter().filter(|of| of.limits.requests_per_minute.is_some()).collect();
        match self.usage.shared_reservations() {
            _ if limited.is_empty() => Ok(()),
            Some(reservations) => shared::count_repeat(reservations, request_id, &limited).await,
            None => {
                let (now, mut counters) = (Instant::now(), self.lock());
                for SubjectLimits { subject, limits } in &limited {
                    let checked = counters.of(subject).check_request(limits, now);
                    checked.map_err(|error| error.with_scope(subject.scope()))?;
                }
                limited.iter().for_each(|of| counters.of(&of.subject).requests.add(1, now));
                Ok(())
            }
        }
    }

    /// True if a job of a key has begun since this time, so that its answer may be asked for again.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn has_jobs_since(&self, key: &KeyId, since: Timestamp) -> Result<bool, StoreError> {
        let filter =
            RecordFilter { key: Some(key.to_string()), since: Some(since), limit: Some(1), ..RecordFilter::default() };
        Ok(!self.usage.list_records(&filter).await?.is_empty())
    }

    /// Returns the use of each limit of the subjects, in their order. Limits that do not count, such as a size, have none.
    /// It costs no query if the counters of the subjects have begun, and one if several nodes share them.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn usage(&self, subjects: &[SubjectLimits]) -> Result<Vec<Vec<LimitUsage>>, StoreError> {
        if subjects.is_empty() {
            return Ok(Vec::new());
        }
        let usages = match self.usage.shared_reservations() {
            Some(reservations) => shared::usage(reservations, subjects).await?,
            None => {
                let day = Utc::now().date_naive();
                self.begin_all_periods(subjects, day).await?;
                let (now, mut counters) = (Instant::now(), self.lock());
                subjects.iter().map(|of| limit_usage(&of.limits, counters.of(&of.subject), now, day)).collect()
            }
        };
        let with_work = |(usage, of): (Vec<LimitUsage>, &SubjectLimits)| {
            let work = of.limits.work_per_minute.map(|limit| work_usage(limit, self.work_of(&of.subject)));
            usage.into_iter().chain(work).collect()
        };
        Ok(usages.into_iter().zip(subjects).map(with_work).collect())
    }

    /// Returns the work of all subjects.
    pub(crate) const fn work(&self) -> &WorkMeter {
        &self.work
    }

    /// Returns the time after which no work of a subject is left.
    fn work_of(&self, subject: &LimitSubject) -> Duration {
        let (kind, id) = subject.kind_and_id();
        self.work.filled(kind, id, Instant::now())
    }

    /// Notes that a job of these subjects begins without limits, so that limits that are set later begin with what the
    /// store has counted.
    pub(crate) fn note_unlimited(&self, subjects: impl FnOnce() -> Vec<LimitSubject>) {
        let mut counters = self.lock();
        if counters.subjects.is_empty() {
            return;
        }
        for subject in subjects() {
            counters.subjects.get_mut(&subject).into_iter().for_each(SubjectCounters::forget_periods);
        }
    }

    /// Begins the counters of the current periods with what the store has counted.
    async fn begin_all_periods(&self, subjects: &[SubjectLimits], today: NaiveDate) -> Result<(), StoreError> {
        let missing: Vec<_> = {
            let mut counters = self.lock();
            let mut has_begun = |of: &SubjectLimits| counters.of(&of.subject).has_current_periods(&of.limits, today);
            subjects.iter().filter(|subject| !has_begun(subject)).collect()
        };
        for SubjectLimits { subject, limits } in missing {
            let stored = self.stored_usage(subject, limits, today).await?;
            self.lock().of(subject).begin_periods(limits, today, stored);
        }
        Ok(())
    }

    /// Reads what the store has counted for a subject. The jobs of the subject that still run count as the most that
    /// they can use: they began before the subject had this limit. They are read first, so that a job that ends meanwhile
    /// is counted twice rather than not at all.
    async fn stored_usage(
        &self,
        subject: &LimitSubject,
        limits: &RequestLimits,
        today: NaiveDate,
    ) -> Result<StoredUsage, StoreError> {
        let mut stored = StoredUsage::default();
        let begin = limits.budget.map_or(today, |budget| period_begin(budget.period, today));
        let since = Some(Timestamp::from(begin.and_time(NaiveTime::MIN).and_utc()));
        let mut filter = RecordFilter { state: Some(JobState::Running), since, ..RecordFilter::default() };
        match subject {
            LimitSubject::Group(name) => filter.group = Some(name.clone()),
            LimitSubject::User(user) => filter.owner = Some(user.clone()),
            LimitSubject::Key(key) => filter.key = Some(key.to_string()),
        }
        for record in self.usage.list_records(&filter).await? {
            if UtcDay::from(record.created_at) == UtcDay::from(today) {
                stored.images_today += u64::from(record.n.unwrap_or(1));
            }
            let most = record.max_job_cost_usd.or(record.max_cost_usd);
            stored.reserved = stored.reserved.plus(most.unwrap_or_default());
        }
        if limits.images_per_day.is_some() {
            stored.images_today += self.usage.total_usage(&usage_filter(subject, today)).await?.images;
        }
        if limits.budget.is_some() {
            let (kind, id) = subject.kind_and_id();
            stored.spent = self.usage.budget_spending(kind, id, UtcDay::from(begin)).await?;
        }
        Ok(stored)
    }

    /// Returns the number of subjects that have counters.
    #[cfg(test)]
    pub(super) fn subject_count(&self) -> usize {
        self.lock().subjects.len()
    }

    fn lock(&self) -> MutexGuard<'_, LimitCounters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the budgets of which something was spent, or that have refused a job, since the last call.
    pub(crate) fn take_changed_budgets(&self) -> Vec<ChangedBudget> {
        let mut changed = self.changed_budgets.lock().unwrap_or_else(PoisonError::into_inner);
        changed.drain().map(|(_, budget)| budget).collect()
    }

    /// Notes that a budget has changed, or could not be looked at.
    pub(crate) fn note_budget(&self, subject: &SubjectLimits, has_refused: bool) {
        let mut changed = self.changed_budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(budget) = changed.get_mut(&subject.subject) else {
            changed.insert(subject.subject.clone(), ChangedBudget { of: subject.clone(), has_refused });
            return;
        };
        budget.of.limits = Arc::clone(&subject.limits);
        budget.has_refused |= has_refused;
    }

    /// Notes that a budget has refused a job.
    fn note_refusal(&self, subjects: &[SubjectLimits], error: &LimitError) {
        let LimitError::Reached(refusal) = error else { return };
        let refuses = |of: &&SubjectLimits| of.limits.budget.is_some() && of.subject.scope() == refusal.scope;
        if let Some(subject) = subjects.iter().find(refuses).filter(|_| refusal.limit == BUDGET) {
            self.note_budget(subject, true);
        }
    }

    /// Notes the budgets of a job that has ended.
    fn note_spending(&self, subjects: &[SubjectLimits]) {
        let spent = subjects.iter().filter(|subject| subject.limits.budget.is_some());
        spent.for_each(|subject| self.note_budget(subject, false));
    }

    /// Removes the reservation of a job that did not begin.
    pub(super) fn release(self: Arc<Self>, request_id: RequestId) {
        self.lock_held().remove(&request_id);
        let limiter = Arc::clone(&self);
        self.runtime.spawn(async move {
            let Some(reservations) = limiter.usage.shared_reservations() else { return };
            if let Err(error) = reservations.release_reservation(&request_id).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, %request_id, "a reservation could not be released; a later heartbeat removes it");
            }
        });
    }

    /// Removes the reservations of this node whose release has failed, or whose caller was not told of them because the
    /// connection was lost. Returns their number.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails.
    pub(crate) async fn remove_abandoned_reservations(&self) -> Result<u64, StoreError> {
        let Some(reservations) = self.usage.shared_reservations() else { return Ok(0) };
        let held: Vec<_> = self.lock_held().iter().cloned().collect();
        reservations.remove_abandoned(&held).await
    }

    /// Notes the end of a job whose reservation in the shared database ends with its record.
    pub(super) fn settle_in_database(&self, request_id: &RequestId, subjects: &[SubjectLimits]) {
        self.lock_held().remove(request_id);
        self.note_spending(subjects);
    }

    fn lock_held(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.held_requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces what a job has reserved by what it did cost.
    pub(super) fn settle(&self, reservation: &LimitReservation, cost: Usd, images: u64) {
        let LimitReservation { subjects, demand, day, .. } = reservation;
        let mut counters = self.lock();
        for SubjectLimits { subject, limits } in subjects {
            let Some(counters) = counters.subjects.get_mut(subject) else { continue };
            counters.settle_images(limits, demand, images, *day);
            if let Some(budget) = limits.budget {
                counters.settle_money(budget, demand, cost, *day);
            }
        }
        drop(counters);
        self.note_spending(subjects);
    }
}

// === impl LimitCounters ===

impl LimitCounters {
    fn of(&mut self, subject: &LimitSubject) -> &mut SubjectCounters {
        self.subjects.entry(subject.clone()).or_default()
    }

    /// Checks that a job keeps the limits of all its subjects.
    fn check(
        &mut self,
        subjects: &[SubjectLimits],
        demand: &JobDemand,
        now: Instant,
        today: NaiveDate,
    ) -> Result<(), LimitError> {
        self.sweep(now, today);
        for SubjectLimits { subject, limits } in subjects {
            let checked = self.of(subject).check(limits, demand, now, today);
            checked.map_err(|error| error.with_scope(subject.scope()))?;
        }
        Ok(())
    }

    /// Removes what is past from the counters of all subjects, once in a minute, so that a subject without requests
    /// takes no memory.
    fn sweep(&mut self, now: Instant, today: NaiveDate) {
        if self.swept_at.is_some_and(|swept_at| now.duration_since(swept_at) < SWEEP_INTERVAL) {
            return;
        }
        self.swept_at = Some(now);
        self.subjects.retain(|_, counters| !counters.prune(now, today));
    }
}

fn usage_filter(subject: &LimitSubject, since: NaiveDate) -> UsageFilter {
    let mut filter = UsageFilter { since: Some(UtcDay::from(since)), ..UsageFilter::default() };
    match subject {
        LimitSubject::Group(name) => filter.group = Some(name.clone()),
        LimitSubject::User(user) => filter.owner = Some(user.clone()),
        LimitSubject::Key(key) => filter.key = Some(key.to_string()),
    }
    filter
}
