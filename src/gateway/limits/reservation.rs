//! Reserves a place, images and money for a job, and settles them when it ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{NaiveDate, NaiveTime, Utc};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::counters::{BUDGET, StoredUsage, SubjectCounters, period_begin};
use super::limit_usage::{LimitUsage, limit_usage};
use super::shared;
use super::status::LimitStatus;
use crate::error::LimitRefusal;
use crate::gateway::config::RequestLimits;
use crate::gateway::money::Usd;
use crate::gateway::store::{
    JobState, KeyId, RecordFilter, RequestId, ReservationSubjectKind, StoreError, Timestamp, UsageFilter, UsageStore,
    UserId, UtcDay,
};

/// The time between two removals of idle counters (our choice).
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The owner of limits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LimitSubject {
    /// All keys of the group with this name.
    Group(String),
    /// All keys of this user.
    User(UserId),
    /// One key.
    Key(KeyId),
}

/// A subject and its limits.
#[derive(Clone, Debug)]
pub(crate) struct SubjectLimits {
    /// The subject.
    pub(crate) subject: LimitSubject,
    /// Its limits.
    pub(crate) limits: Arc<RequestLimits>,
}

/// A budget of which something was spent, or that has refused a job.
#[derive(Clone, Debug)]
pub(crate) struct ChangedBudget {
    /// The subject, and its limits when that happened.
    pub(crate) of: SubjectLimits,
    /// True if it has refused a job.
    pub(crate) has_refused: bool,
}

/// The images and the money that a job asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JobDemand {
    /// The number of images.
    pub(crate) images: u32,
    /// The most that it can cost; `None` if a price is unknown.
    pub(crate) cost: Option<Usd>,
}

/// The reason why a job may not begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LimitError {
    /// A limit is reached.
    #[error("the limit {} is reached", .0.limit)]
    Reached(LimitRefusal),
    /// The job asks for more images than the limit ever allows.
    #[error("the request is above the limit {name}")]
    ImagesAboveLimit {
        /// The name of the limit in settings.
        name: &'static str,
        /// The limit.
        limit: u32,
    },
    /// There is a budget, but a price of the job is unknown.
    #[error("a price is unknown")]
    PriceUnknown,
    /// The store could not be read.
    #[error("the usage could not be read")]
    Store(#[from] StoreError),
}

/// The counters of all subjects that have limits.
pub(crate) struct RequestLimiter {
    usage: Arc<dyn UsageStore>,
    counters: Mutex<LimitCounters>,
    /// The budgets of which something was spent, or that have refused a job, since alerts were last looked for.
    changed_budgets: Mutex<HashMap<LimitSubject, ChangedBudget>>,
}

/// The counters of all subjects that have had limits since the start of the process.
#[derive(Default)]
struct LimitCounters {
    subjects: HashMap<LimitSubject, SubjectCounters>,
    /// The time of the last removal of idle counters.
    swept_at: Option<Instant>,
}

/// The share of a job in the limits of its subjects. It must be settled with what the job did cost; if it is dropped,
/// the job has not begun, and everything is given back.
#[must_use]
pub(crate) struct LimitReservation {
    limiter: Option<Arc<RequestLimiter>>,
    /// The request, if the reservation is in the database that several nodes share.
    shared_request: Option<RequestId>,
    subjects: Vec<SubjectLimits>,
    demand: JobDemand,
    /// The day on which the job began: it counts for the periods of that day.
    day: NaiveDate,
    status: LimitStatus,
}

// === impl LimitSubject ===

impl LimitSubject {
    pub(super) const fn scope(&self) -> &'static str {
        match self {
            Self::Group(_) => "group",
            Self::User(_) => "user",
            Self::Key(_) => "key",
        }
    }

    /// Returns the kind of the subject, and its id or its name.
    pub(crate) fn kind_and_id(&self) -> (ReservationSubjectKind, &str) {
        match self {
            Self::Group(name) => (ReservationSubjectKind::Group, name),
            Self::User(user) => (ReservationSubjectKind::User, user.as_str()),
            Self::Key(key) => (ReservationSubjectKind::Key, key.as_str()),
        }
    }
}

impl From<LimitRefusal> for LimitError {
    fn from(refusal: LimitRefusal) -> Self {
        Self::Reached(refusal)
    }
}

// === impl RequestLimiter ===

impl RequestLimiter {
    /// Creates the limits of an installation whose usage this store has.
    pub(crate) fn new(usage: Arc<dyn UsageStore>) -> Self {
        Self { usage, counters: Mutex::default(), changed_budgets: Mutex::default() }
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
        let day = Utc::now().date_naive();
        if let Some(reservations) = self.usage.shared_reservations() {
            let reserved = shared::reserve(reservations, request_id, &subjects, &demand, false).await;
            let status = reserved.inspect_err(|error| self.note_refusal(&subjects, error))?;
            let (limiter, shared_request) = (Some(Arc::clone(self)), Some(request_id.clone()));
            return Ok(LimitReservation { limiter, shared_request, subjects, demand, day, status });
        }
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
        if let Some(reservations) = self.usage.shared_reservations() {
            return shared::usage(reservations, subjects).await;
        }
        let day = Utc::now().date_naive();
        self.begin_all_periods(subjects, day).await?;
        let (now, mut counters) = (Instant::now(), self.lock());
        Ok(subjects.iter().map(|of| limit_usage(&of.limits, counters.of(&of.subject), now, day)).collect())
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
            stored.reserved = stored.reserved.plus(record.max_cost_usd.unwrap_or_default());
        }
        if limits.images_per_day.is_some() {
            stored.images_today += self.usage.total_usage(&usage_filter(subject, today)).await?.images;
        }
        if limits.budget.is_some() {
            let spent = self.usage.total_usage(&usage_filter(subject, begin)).await?.cost_usd;
            stored.spent = spent;
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
    fn release(self: Arc<Self>, request_id: RequestId) {
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let Some(reservations) = self.usage.shared_reservations() else { return };
            if let Err(error) = reservations.release_reservation(&request_id).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, %request_id, "a reservation is kept until the next start of this node");
            }
        });
    }

    /// Replaces what a job has reserved by what it did cost.
    fn settle(&self, reservation: &LimitReservation, cost: Usd, images: u64) {
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

// === impl LimitReservation ===

impl LimitReservation {
    /// The share of a job without limits.
    pub(crate) fn unlimited() -> Self {
        let (limiter, subjects, demand) = (None, Vec::new(), JobDemand::default());
        Self { limiter, shared_request: None, subjects, demand, day: NaiveDate::MIN, status: LimitStatus::default() }
    }

    /// Returns the rest of the limits after the job has begun.
    pub(crate) const fn status(&self) -> &LimitStatus {
        &self.status
    }

    /// Settles the reservation with the cost of the job, which counts as the most that was reserved if it is not known,
    /// and with the number of images that it delivered. A reservation in the database ends with the record of the job.
    pub(crate) fn settle(mut self, cost: Option<Usd>, images: u64) {
        let Some(limiter) = self.limiter.take() else { return };
        if self.shared_request.is_some() {
            limiter.note_spending(&self.subjects);
        } else {
            limiter.settle(&self, cost.or(self.demand.cost).unwrap_or_default(), images);
        }
    }
}

impl Drop for LimitReservation {
    fn drop(&mut self) {
        match (self.limiter.take(), self.shared_request.take()) {
            (Some(limiter), Some(request_id)) => limiter.release(request_id),
            (Some(limiter), None) => limiter.settle(self, Usd::ZERO, 0),
            (None, _) => {}
        }
    }
}

impl std::fmt::Debug for LimitReservation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LimitReservation").field("demand", &self.demand).finish_non_exhaustive()
    }
}

// === impl LimitError ===

impl LimitError {
    pub(super) fn with_scope(self, scope: &'static str) -> Self {
        match self {
            Self::Reached(refusal) => Self::Reached(LimitRefusal { scope, ..refusal }),
            other => other,
        }
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
