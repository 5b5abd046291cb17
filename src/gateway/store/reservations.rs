//! The reservations in limits, if several nodes share the limits.

use std::time::Duration;

use async_trait::async_trait;

use super::{RequestId, StoreError, UtcDay};
use crate::gateway::money::Usd;

/// The reservations of all nodes that share a database.
///
/// A reservation belongs to a request. It ends in the transaction that closes the record of the request, which also
/// counts the cost of the request: so at each moment, money is either reserved or counted as spent.
#[async_trait]
pub(crate) trait SharedReservations: Send + Sync {
    /// Passes the usage of the subjects to `decide`, in their order, and writes the reservation if it returns true. No
    /// other node changes the reservations of these subjects meanwhile.
    async fn reserve(
        &self,
        reservation: &NewReservation<'_>,
        decide: &mut (dyn FnMut(Vec<SubjectUsage>) -> bool + Send),
    ) -> Result<(), StoreError>;

    /// Reads the usage of the subjects, in their order, without waiting for reservations. The requests of the last minute
    /// are one sum, with the age of the newest.
    async fn read_usage(&self, subjects: &[ReservationSubject], today: UtcDay)
    -> Result<Vec<SubjectUsage>, StoreError>;

    /// Removes the reservation of a request that has no record.
    async fn release_reservation(&self, request_id: &RequestId) -> Result<(), StoreError>;

    /// Removes the open reservations of this node that are older than a minute, have no running record, and belong to none
    /// of these requests, which the process still holds. Returns their number.
    async fn remove_abandoned(&self, held: &[RequestId]) -> Result<u64, StoreError>;
}

/// A reservation that is to be made.
#[derive(Clone, Debug)]
pub(crate) struct NewReservation<'a> {
    /// The request.
    pub(crate) request_id: &'a RequestId,
    /// The subjects of the limits.
    pub(crate) subjects: Vec<ReservationSubject>,
    /// The day to whose images the request belongs.
    pub(crate) today: UtcDay,
    /// The number of images.
    pub(crate) images: u32,
    /// The most that the request can cost.
    pub(crate) cost: Usd,
    /// False for a request without a job, which counts only among the requests of the last minute.
    pub(crate) is_open: bool,
}

/// A subject of limits, and the begin of the period of its budget.
#[derive(Clone, Debug)]
pub(crate) struct ReservationSubject {
    /// The kind of the subject.
    pub(crate) kind: ReservationSubjectKind,
    /// The id of the key or the user, or the name of the group.
    pub(crate) id: String,
    /// The first day of the period of the budget.
    pub(crate) budget_since: UtcDay,
    /// True if the subject has a limit for each minute, so that the requests of the last one are needed.
    pub(crate) needs_last_minute: bool,
}

/// The kinds of subjects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservationSubjectKind {
    /// One key.
    Key,
    /// All keys of a user.
    User,
    /// All keys of a group.
    Group,
}

/// The usage of a subject on all nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubjectUsage {
    /// The requests that began within the last minute, oldest first; empty if they are not needed.
    pub(crate) last_minute: Vec<RecentRequests>,
    /// The number of running jobs.
    pub(crate) jobs: u32,
    /// The images of today: those that were delivered, and those that running jobs asked for.
    pub(crate) images_today: u64,
    /// The money that was spent since the begin of the period.
    pub(crate) spent: Usd,
    /// The money that running jobs of the period have reserved.
    pub(crate) reserved: Usd,
}

/// Requests that began at about the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentRequests {
    /// The age of the newest one, rounded down.
    pub(crate) age: Duration,
    /// Their number.
    pub(crate) requests: u32,
    /// The images that they asked for.
    pub(crate) images: u32,
}

impl ReservationSubjectKind {
    /// The word for the kind in the rows of reservations.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::User => "user",
            Self::Group => "group",
        }
    }
}
