//! The parts of running jobs in limits, and the limits that several nodes share.

use std::time::Duration;

use async_trait::async_trait;

use super::{RequestId, StoreError, UtcDay};
use crate::gateway::money::Usd;
use crate::words::word_enum;

/// The reservations of all nodes that share a database.
///
/// A reservation belongs to a request. It ends in the transaction that closes the record of the request, which also
/// counts the cost of the request: so at each moment, money is either reserved or counted as spent. A running record of a
/// subject for which its job has no reservation counts with what the record states: the subject had no limits when the job
/// began.
#[async_trait]
pub(crate) trait SharedReservations: Send + Sync {
    /// Passes the usage of the subjects to `decide`, in their order, and does what it returns. No other node changes the
    /// reservations of these subjects meanwhile.
    async fn reserve(
        &self,
        reservation: &NewReservation<'_>,
        decide: &mut (dyn FnMut(Vec<SubjectUsage>) -> ReservationDecision + Send),
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
    /// True if the request waits for room: its place in the queues of the subjects ends with the reservation.
    pub(crate) is_waiting: bool,
    /// False for a request without a job, which counts only among the requests of the last minute.
    pub(crate) is_open: bool,
}

/// The decision about a reservation that is to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReservationDecision {
    /// It is made, and holds this in the budgets of the subjects, in their order.
    Reserve(Vec<HeldMoney>),
    /// It is not made, and the request takes or keeps its place in the queue of the subject with this index.
    Wait(usize),
    /// It is not made.
    #[default]
    Refuse,
}

/// The part of a job in a budget, from its reservation until its record is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldMoney {
    /// The amount; `None` if the job holds everything that is left.
    pub(crate) amount: Option<Usd>,
    /// True if the amount is the ceiling of a response, whose cost its text model decides.
    pub(crate) is_ceiling: bool,
}

/// The money that the running jobs of a subject hold in its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenMoney {
    /// The most that jobs can cost whose cost is bounded.
    pub(crate) bounds: Usd,
    /// The ceilings of responses.
    pub(crate) ceilings: Usd,
    /// The number of jobs that hold everything that is left.
    pub(crate) unbounded: u32,
}

/// A subject of limits, and the start of the period of its budget.
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

word_enum! {
    /// The kinds of subjects.
    pub(crate) enum ReservationSubjectKind {
        /// One key.
        Key = "key",
        /// All keys of a user.
        User = "user",
        /// All keys of a group.
        Group = "group",
    }
}

/// The usage of a subject on all nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubjectUsage {
    /// The requests that began within the last minute, oldest first; empty if they are not needed.
    pub(crate) last_minute: Vec<RecentRequests>,
    /// The number of running jobs.
    pub(crate) jobs: u32,
    /// The images that were delivered today.
    pub(crate) delivered_today: u64,
    /// The images that running jobs of today asked for.
    pub(crate) open_images: u64,
    /// The money that was spent since the start of the period.
    pub(crate) spent: Usd,
    /// The money that running jobs of the period hold.
    pub(crate) open: OpenMoney,
    /// The cost of the dearest response of the period that has cost more than it had reserved.
    pub(crate) dearest_excess: Usd,
    /// True if another request waits for room in the budget, and came first.
    pub(crate) is_queued: bool,
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

// === impl OpenMoney ===

impl OpenMoney {
    /// Returns the sum of the amounts.
    pub(crate) const fn sum(&self) -> Usd {
        self.bounds.plus(self.ceilings)
    }

    /// True if no job holds anything.
    pub(crate) const fn is_nothing(&self) -> bool {
        self.unbounded == 0 && self.sum().nanos() == 0
    }

    /// Adds the part of a job that begins.
    pub(crate) const fn add(&mut self, held: HeldMoney) {
        match held.amount {
            Some(amount) if held.is_ceiling => self.ceilings = self.ceilings.plus(amount),
            Some(amount) => self.bounds = self.bounds.plus(amount),
            None => self.unbounded += 1,
        }
    }

    /// Removes the part of a job that has ended.
    pub(crate) const fn remove(&mut self, held: HeldMoney) {
        match held.amount {
            Some(amount) if held.is_ceiling => self.ceilings = self.ceilings.minus(amount),
            Some(amount) => self.bounds = self.bounds.minus(amount),
            None => self.unbounded = self.unbounded.saturating_sub(1),
        }
    }

    /// Adds what other jobs hold.
    pub(crate) const fn merge(&mut self, other: Self) {
        self.bounds = self.bounds.plus(other.bounds);
        self.ceilings = self.ceilings.plus(other.ceilings);
        self.unbounded += other.unbounded;
    }
}
