//! The share of a job in the limits of its subjects: reserved before the job begins, and settled when its record is closed.

use std::sync::{Arc, LazyLock};

use chrono::{DateTime, NaiveDate, Utc};
use tokio::sync::OwnedRwLockWriteGuard;

use super::limiter::RequestLimiter;
use super::status::LimitStatus;
use crate::error::LimitRefusal;
use crate::gateway::config::RequestLimits;
use crate::gateway::money::Usd;
use crate::gateway::store::{HeldMoney, KeyId, RequestId, ReservationSubjectKind, StoreError, Timestamp, UserId};

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
    /// The most that it can cost; `None` if that is unknown.
    pub(crate) cost: Option<Usd>,
    /// The kind of the bound on the cost.
    pub(crate) bound: BoundKind,
}

/// The kind of the bound on the cost of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BoundKind {
    /// A job for images cannot cost more.
    #[default]
    Images,
    /// A response that is sent with limits that bound its cost.
    Response,
    /// A response can cost more only if its text model exceeds its own limits, or makes more images than expected.
    Ceiling,
}

/// The images that a job has delivered, and its cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JobEnd {
    pub(super) images: u64,
    pub(super) cost: Usd,
}

/// The reason why a job may not begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LimitError {
    /// A limit is reached.
    #[error("the limit {} is reached", .0.limit)]
    Reached(LimitRefusal),
    /// The budget is not spent, but running jobs hold what is left of it, or others wait for it. Only the limiter sees it.
    #[error("the limit {} has no room", .0.limit)]
    FullyReserved(LimitRefusal),
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

/// The share of a job in the limits of its subjects, also in those that have none yet. It belongs to the record of the job
/// from its open to its close. It must be settled when the record is closed; if it is dropped, the job has not begun, and
/// everything is given back.
#[must_use]
pub(crate) struct LimitReservation {
    pub(super) limiter: Option<Arc<RequestLimiter>>,
    pub(super) request_id: RequestId,
    /// The subjects, and what the job holds in the budget of each.
    pub(super) shares: Vec<(SubjectLimits, HeldMoney)>,
    pub(super) demand: JobDemand,
    /// The time at which the job began: it counts for the periods of this day.
    pub(super) begun_at: Timestamp,
    pub(super) status: LimitStatus,
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

// === impl SubjectLimits ===

impl SubjectLimits {
    /// Creates a subject, which may have no limits.
    pub(crate) fn new(subject: LimitSubject, limits: Option<&Arc<RequestLimits>>) -> Self {
        static NO_LIMITS: LazyLock<Arc<RequestLimits>> = LazyLock::new(Arc::default);
        Self { subject, limits: Arc::clone(limits.unwrap_or(&NO_LIMITS)) }
    }

    /// True if a limit of the subject counts jobs: others look at each request alone.
    pub(super) fn counts(&self) -> bool {
        let RequestLimits { requests_per_minute, images_per_minute, concurrent_jobs, images_per_day, budget, .. } =
            &*self.limits;
        let counts = [requests_per_minute, images_per_minute, concurrent_jobs, images_per_day];
        budget.is_some() || counts.iter().any(|limit| limit.is_some())
    }
}

// === impl JobDemand ===

impl JobDemand {
    /// Returns what the job holds in a budget that has room for it.
    pub(super) fn held(&self) -> HeldMoney {
        HeldMoney { amount: self.cost, is_ceiling: self.bound == BoundKind::Ceiling }
    }

    /// True if a response has cost more than it had reserved.
    pub(super) fn is_exceeded_by(&self, cost: Usd) -> bool {
        self.bound != BoundKind::Images && self.cost.is_some_and(|most| cost > most)
    }
}

// === impl LimitReservation ===

impl LimitReservation {
    /// The share of a job that no limiter counts.
    #[cfg(test)]
    pub(crate) fn uncounted() -> Self {
        let (shares, demand, status) = (Vec::new(), JobDemand::default(), LimitStatus::default());
        Self { limiter: None, request_id: "".into(), shares, demand, begun_at: Timestamp::now(), status }
    }

    /// Returns the rest of the limits after the job has begun.
    pub(crate) const fn status(&self) -> &LimitStatus {
        &self.status
    }

    /// Returns the time at which the job began, which its record must have: both count for the same periods.
    pub(crate) const fn begun_at(&self) -> Timestamp {
        self.begun_at
    }

    pub(super) fn day(&self) -> NaiveDate {
        DateTime::<Utc>::from(self.begun_at).date_naive()
    }

    /// Keeps limits that begin to count from reading the store until the guard is dropped. A record must be closed and its
    /// reservation settled under one guard: so its cost is counted exactly once.
    pub(crate) fn settling(&self) -> Option<impl Future<Output = SettlingGuard> + use<>> {
        let settling = Arc::clone(&self.limiter.as_ref()?.settling);
        Some(async move { SettlingGuard(settling.write_owned().await) })
    }

    /// Settles the reservation, because the record is closed: with the cost of the job, and with the number of images that
    /// it delivered. A cost that is unknown counts as the most that was reserved. A reservation in a shared database
    /// has ended with the record.
    pub(crate) fn settle(mut self, cost: Option<Usd>, images: u64) {
        if let Some(limiter) = self.limiter.take() {
            let cost = cost.or(self.demand.cost).unwrap_or_default();
            limiter.settle(&self, JobEnd { images, cost });
        }
    }
}

impl Drop for LimitReservation {
    fn drop(&mut self) {
        if let Some(limiter) = self.limiter.take() {
            limiter.release(self);
        }
    }
}

/// The time in which a record is closed and its reservation settled.
#[must_use]
pub(crate) struct SettlingGuard(#[expect(dead_code, reason = "held until it is dropped")] OwnedRwLockWriteGuard<()>);

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
            Self::FullyReserved(refusal) => Self::FullyReserved(LimitRefusal { scope, ..refusal }),
            other => other,
        }
    }
}
