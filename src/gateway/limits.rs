//! Limits on the requests of groups, users and keys: what may begin now, and what is left.
//!
//! This module decides whether a job may begin. It must not know requests or upstreams: it is told the images that a
//! job asks for, the most that it can cost and how far that is bounded ([`JobDemand`]), and later what it did cost.
//!
//! Images and money are **reserved** before anything is sent, and **settled** when the record of the job is closed,
//! which happens exactly once in every case. The reservation ([`LimitReservation`]) belongs to the record from its open
//! to its close, and to all subjects of the job, also to those without limits: so a limit that is set, changed or
//! removed counts the jobs that run, and if nothing runs, nothing is reserved and the sum of the records is spent. A
//! reservation is made under one lock for all subjects of a job, or not at all, so any number of simultaneous requests
//! stays within each limit. A response whose cost is not bounded may exceed a budget, but runs alone then (`budget`);
//! jobs wait for room in the order in which they came (`queue`).
//!
//! If several nodes share a database, the reservations are in it, and a record that is closed ends its reservation in
//! the same transaction. Jobs of subjects without limits have no reservation there; their running records count
//! instead. A reservation that gets no record is removed when its job is dropped, by a later heartbeat if that fails,
//! and by another node if the process dies.
//!
//! Otherwise the counters are in memory. The delivered images and the money begin with the counts of the store since
//! the start of the period, at a moment at which no record is being closed, so a restart forgets nothing. The counters
//! of a minute begin empty.

mod budget;
mod counters;
mod limit_usage;
mod limiter;
mod memory;
mod queue;
mod reservation;
mod shared;
mod status;
mod window;

#[cfg(test)]
mod tests;

pub(crate) use budget::BUDGET;
pub(crate) use counters::first_day_of_budgets;
pub(crate) use limit_usage::{LimitAmounts, LimitUsage};
pub(crate) use limiter::RequestLimiter;
pub(crate) use reservation::{
    BoundKind, ChangedBudget, JobDemand, LimitError, LimitReservation, LimitSubject, SettlingGuard, SubjectLimits,
};
pub(crate) use status::LimitStatus;
