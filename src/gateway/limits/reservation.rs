//! The share of a job in the limits of its subjects: reserved before the job begins, and settled when it ends.

use std::sync::Arc;

use chrono::NaiveDate;

use super::limiter::RequestLimiter;
use super::status::LimitStatus;
use crate::error::LimitRefusal;
use crate::gateway::config::RequestLimits;
use crate::gateway::money::Usd;
use crate::gateway::store::{KeyId, RequestId, ReservationSubjectKind, StoreError, UserId};

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

/// The share of a job in the limits of its subjects. It must be settled with what the job did cost; if it is dropped,
/// the job has not begun, and everything is given back.
#[must_use]
pub(crate) struct LimitReservation {
    pub(super) limiter: Option<Arc<RequestLimiter>>,
    /// The request, if the reservation is in the database that several nodes share.
    pub(super) shared_request: Option<RequestId>,
    pub(super) subjects: Vec<SubjectLimits>,
    pub(super) demand: JobDemand,
    /// The day on which the job began: it counts for the periods of that day.
    pub(super) day: NaiveDate,
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
        match self.shared_request.take() {
            Some(request_id) => limiter.settle_in_database(&request_id, &self.subjects),
            None => limiter.settle(&self, cost.or(self.demand.cost).unwrap_or_default(), images),
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
