//! Reservations of jobs in the limits of their subjects, and the waits for room in budgets.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{NaiveDate, Utc};
use tokio::runtime::Handle;
use tokio::sync::RwLock;
use tokio::time::{Instant, timeout};
use tracing::Instrument as _;

use super::budget::{BUDGET, fully_reserved};
use super::counters::{LimitTime, StoredUsage, period_begin};
use super::limit_usage::{LimitUsage, limit_usage, work_usage};
use super::memory::LimitCounters;
use super::queue::{BudgetQueues, QueuePlace};
use super::reservation::{ChangedBudget, JobDemand, JobEnd, LimitError, LimitReservation, LimitSubject, SubjectLimits};
use super::shared;
use super::status::LimitStatus;
use crate::error::LimitRefusal;
use crate::gateway::config::RequestLimits;
use crate::gateway::store::{KeyId, RecordFilter, RequestId, StoreError, Timestamp, UsageFilter, UsageStore, UtcDay};
use crate::gateway::work::WorkMeter;
use crate::wire::admin::server::ListRecordsQuery;

/// The longest wait for room in a budget (our choice).
const ROOM_WAIT: Duration = Duration::from_secs(30);
/// The interval in which the first job of a queue looks for room that another node has given back (our choice). It is
/// shorter than the time after which the database forgets a place in a queue.
const SHARED_POLL: Duration = Duration::from_millis(500);
/// The longest wait for a commit before limits begin to count (our choice): as long as a job waits for its intent.
const SETTLING_TIMEOUT: Duration = Duration::from_secs(6);
/// The longest time for which limits that begin to count read the store (our choice). No record is closed meanwhile.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// The limits of an installation.
pub(crate) struct RequestLimiter {
    usage: Arc<dyn UsageStore>,
    /// The work of all subjects, whether or not it becomes jobs.
    work: WorkMeter,
    counters: Mutex<LimitCounters>,
    queues: BudgetQueues,
    /// Held for writing while a record is closed and its reservation settled, and for reading while limits begin to count
    /// with what the store has: so the cost of a job is counted exactly once.
    pub(super) settling: Arc<RwLock<()>>,
    /// The budgets of which something was spent, or that have refused a job, since alerts were last looked for.
    changed_budgets: Mutex<HashMap<LimitSubject, ChangedBudget>>,
    /// The requests whose reservations in the shared database this process holds or is making.
    held_requests: Mutex<HashSet<RequestId>>,
    /// The runtime that releases reservations. They can be dropped on a thread outside of it, such as that of the ledger.
    runtime: Handle,
}

// === impl RequestLimiter ===

impl RequestLimiter {
    /// Creates the limits of an installation whose usage this store has. Must be called within a tokio runtime.
    pub(crate) fn new(usage: Arc<dyn UsageStore>) -> Self {
        let (counters, changed_budgets, held_requests) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (work, queues, settling) = (WorkMeter::new(Instant::now()), BudgetQueues::default(), Arc::default());
        Self { usage, work, counters, queues, settling, changed_budgets, held_requests, runtime: Handle::current() }
    }

    /// Reserves what a job asks for in the limits of all its subjects, or in none. A subject without limits counts the
    /// job for limits that it may get while the job runs. Waits for room in a budget for a while; a caller that leaves
    /// drops this future.
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
        let deadline = Instant::now() + ROOM_WAIT;
        let poll = self.usage.shared_reservations().map_or(ROOM_WAIT, |_| SHARED_POLL);
        let mut place: Option<QueuePlace<'_>> = None;
        loop {
            let reserved = match self.queued_refusal(&subjects, place.as_ref()) {
                Some(refusal) => Err(LimitError::FullyReserved(refusal)),
                None => self.try_reserve(request_id, &subjects, demand, place.is_some()).await,
            };
            let Err(LimitError::FullyReserved(refusal)) = reserved else { return reserved };
            let now = Instant::now();
            let full = subjects.iter().find(|of| of.subject.scope() == refusal.scope).filter(|_| now < deadline);
            let Some(full) = full else { return Err(LimitError::Reached(refusal)) };
            let place = place.get_or_insert_with(|| self.queues.new_place());
            place.wait_for_room(&full.subject, deadline.min(now + poll)).await;
        }
    }

    /// Returns the refusal of a job before which another one of this process waits for room.
    fn queued_refusal(&self, subjects: &[SubjectLimits], place: Option<&QueuePlace<'_>>) -> Option<LimitRefusal> {
        let of = self.queues.queued_at(subjects, place)?;
        Some(LimitRefusal { scope: of.subject.scope(), ..fully_reserved(of.limits.budget?.usd) })
    }

    async fn try_reserve(
        self: &Arc<Self>,
        request_id: &RequestId,
        subjects: &[SubjectLimits],
        demand: JobDemand,
        is_waiting: bool,
    ) -> Result<LimitReservation, LimitError> {
        if self.usage.shared_reservations().is_none() {
            return self.reserve_in_memory(request_id, subjects, demand).await;
        }
        let counting: Vec<_> = subjects.iter().filter(|of| of.counts()).cloned().collect();
        if counting.is_empty() {
            // The record alone counts for limits that begin while the job runs.
            let (limiter, request_id, begun_at) = (Some(Arc::clone(self)), request_id.clone(), Utc::now().into());
            let (shares, status) = (Vec::new(), LimitStatus::default());
            return Ok(LimitReservation { limiter, request_id, shares, demand, begun_at, status });
        }
        // A task of its own: if the caller leaves while the server commits, the reservation that the task returns is
        // dropped, which releases it.
        let task = Arc::clone(self).reserve_in_database(request_id.clone(), counting, demand, is_waiting);
        self.runtime.spawn(task.in_current_span()).await.unwrap_or_else(|error| {
            let doing = "reserving what a job can use";
            Err(StoreError::Unavailable { doing, source: error.into() }.into())
        })
    }

    async fn reserve_in_database(
        self: Arc<Self>,
        request_id: RequestId,
        subjects: Vec<SubjectLimits>,
        demand: JobDemand,
        is_waiting: bool,
    ) -> Result<LimitReservation, LimitError> {
        let begun_at = Timestamp::now();
        self.lock_held().insert(request_id.clone());
        let Some(reservations) = self.usage.shared_reservations() else { return Err(StoreError::Busy.into()) };
        let job = shared::ReservedJob { request_id: &request_id, demand: &demand, begun_at, is_waiting };
        match shared::reserve(reservations, &subjects, job, false).await {
            Ok((held, status)) => {
                let shares = subjects.into_iter().zip(held).collect();
                let limiter = Some(Arc::clone(&self));
                Ok(LimitReservation { limiter, request_id, shares, demand, begun_at, status })
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
        request_id: &RequestId,
        subjects: &[SubjectLimits],
        demand: JobDemand,
    ) -> Result<LimitReservation, LimitError> {
        let begun_at = Timestamp::now();
        let today = UtcDay::from(begun_at).into();
        self.begin_all_periods(subjects, today).await?;
        let at = LimitTime { now: Instant::now(), today };
        let mut counters = self.lock();
        let held = match counters.check(subjects, &demand, at) {
            Ok(held) => held,
            Err(error) => {
                drop(counters);
                self.note_refusal(subjects, &error);
                return Err(error);
            }
        };
        let mut status = LimitStatus::default();
        for (SubjectLimits { subject, limits }, held) in subjects.iter().zip(&held) {
            let counters = counters.of(subject);
            counters.begin(limits, &demand, *held, at);
            status.add(limits, counters, at);
        }
        drop(counters);
        let shares = subjects.iter().cloned().zip(held).collect();
        let (limiter, request_id) = (Some(Arc::clone(self)), request_id.clone());
        Ok(LimitReservation { limiter, request_id, shares, demand, begun_at, status })
    }

    /// Checks that a job would keep the limits of all its subjects now. Nothing is reserved.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::reserve`], also if it would first wait.
    pub(crate) async fn check(&self, subjects: &[SubjectLimits], demand: &JobDemand) -> Result<(), LimitError> {
        let begun_at = Timestamp::now();
        let checked = if let Some(reservations) = self.usage.shared_reservations() {
            let counting: Vec<_> = subjects.iter().filter(|of| of.counts()).cloned().collect();
            let nothing = RequestId::from("");
            let job = shared::ReservedJob { request_id: &nothing, demand, begun_at, is_waiting: false };
            shared::reserve(reservations, &counting, job, true).await.map(drop)
        } else {
            let today = UtcDay::from(begun_at).into();
            self.begin_all_periods(subjects, today).await?;
            self.lock().check(subjects, demand, LimitTime { now: Instant::now(), today }).map(drop)
        };
        checked.map_err(|error| match error {
            LimitError::FullyReserved(refusal) => LimitError::Reached(refusal),
            error => error,
        })
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
        if limited.is_empty() {
            return Ok(());
        }
        match self.usage.shared_reservations() {
            Some(reservations) => shared::count_repeat(reservations, request_id, &limited).await,
            None => {
                let (now, mut counters) = (Instant::now(), self.lock());
                for SubjectLimits { subject, limits } in &limited {
                    let checked = counters.of(subject).check_request(limits, now);
                    checked.map_err(|error| error.with_scope(subject.scope()))?;
                }
                for of in &limited {
                    counters.of(&of.subject).requests.add(1, now);
                }
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
        let query =
            ListRecordsQuery { key: Some(key.to_string()), since: Some(since.into()), ..ListRecordsQuery::default() };
        let filter = RecordFilter { query, limit: Some(1), owner: None };
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

    /// Counts the jobs that another process runs, as the store knows them: for a command beside a server.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn count_running_jobs(&self) -> Result<(), StoreError> {
        if self.usage.shared_reservations().is_some() {
            return Ok(());
        }
        for job in &self.usage.running_jobs().await? {
            self.lock().begin_running(job, Instant::now());
        }
        Ok(())
    }

    /// Begins the counters of the current periods with what the store has counted.
    async fn begin_all_periods(&self, subjects: &[SubjectLimits], today: NaiveDate) -> Result<(), StoreError> {
        let missing: Vec<_> = {
            let mut counters = self.lock();
            let mut has_begun = |of: &SubjectLimits| counters.of(&of.subject).has_current_periods(&of.limits, today);
            subjects.iter().filter(|subject| !has_begun(subject)).collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        let _no_close = timeout(SETTLING_TIMEOUT, self.settling.read()).await.map_err(|_| StoreError::Busy)?;
        let reading = async {
            for SubjectLimits { subject, limits } in missing {
                let stored = self.stored_usage(subject, limits, today).await?;
                self.lock().of(subject).begin_periods(limits, today, stored);
            }
            Ok(())
        };
        timeout(READ_TIMEOUT, reading).await.unwrap_or(Err(StoreError::Busy))
    }

    /// Reads what the store has counted for a subject.
    async fn stored_usage(
        &self,
        subject: &LimitSubject,
        limits: &RequestLimits,
        today: NaiveDate,
    ) -> Result<StoredUsage, StoreError> {
        let mut stored = StoredUsage::default();
        if limits.images_per_day.is_some() {
            stored.delivered_today = self.usage.total_usage(&usage_filter(subject, today)).await?.images;
        }
        if let Some(budget) = limits.budget {
            let ((kind, id), since) = (subject.kind_and_id(), UtcDay::from(period_begin(budget.period, today)));
            stored.spent = self.usage.budget_spending(kind, id, since).await?;
            stored.dearest_excess = self.usage.dearest_excess(kind, id, since).await?;
        }
        Ok(stored)
    }

    /// Returns the number of subjects that have counters.
    #[cfg(test)]
    pub(super) fn subject_count(&self) -> usize {
        self.lock().subject_count()
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

    /// Notes that a budget has refused a job because it is spent.
    fn note_refusal(&self, subjects: &[SubjectLimits], error: &LimitError) {
        let LimitError::Reached(refusal) = error else { return };
        let refuses = |of: &&SubjectLimits| of.limits.budget.is_some() && of.subject.scope() == refusal.scope;
        if let Some(subject) = subjects.iter().find(refuses).filter(|_| refusal.limit == BUDGET) {
            self.note_budget(subject, true);
        }
    }

    /// Gives back what a job has reserved that did not begin.
    pub(super) fn release(self: Arc<Self>, reservation: &LimitReservation) {
        if self.usage.shared_reservations().is_none() {
            return self.end_job(reservation, JobEnd::default());
        }
        let request_id = reservation.request_id.clone();
        self.lock_held().remove(&request_id);
        if reservation.shares.is_empty() {
            return;
        }
        let subjects: Vec<_> = reservation.shares.iter().map(|(of, _)| of.subject.clone()).collect();
        let limiter = Arc::clone(&self);
        self.runtime.spawn(async move {
            let Some(reservations) = limiter.usage.shared_reservations() else { return };
            if let Err(error) = reservations.release_reservation(&request_id).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, %request_id, "a reservation could not be released; a later heartbeat removes it");
            }
            limiter.queues.wake(subjects.iter());
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

    fn lock_held(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.held_requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces what a job has reserved by what it did cost. In a shared database, its record has done so.
    pub(super) fn settle(&self, reservation: &LimitReservation, end: JobEnd) {
        if self.usage.shared_reservations().is_some() {
            self.lock_held().remove(&reservation.request_id);
            self.queues.wake(reservation.shares.iter().map(|(of, _)| &of.subject));
        } else {
            self.end_job(reservation, end);
        }
        let with_budget = reservation.shares.iter().filter(|(of, _)| of.limits.budget.is_some());
        with_budget.for_each(|(of, _)| self.note_budget(of, false));
    }

    fn end_job(&self, reservation: &LimitReservation, end: JobEnd) {
        self.lock().end(reservation, end);
        self.queues.wake(reservation.shares.iter().map(|(of, _)| &of.subject));
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
