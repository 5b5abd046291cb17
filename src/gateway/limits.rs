//! Limits on the requests of groups, users and keys: what may begin now, and what is left.
//!
//! This module decides whether a job may begin. It must not know requests or upstreams: it is told the images that a job
//! asks for and the most that it can cost ([`JobDemand`]), and later what it did cost.
//!
//! Images and money are **reserved** before anything is sent, and **settled** when the record of the job is closed, which
//! happens exactly once on every way ([`LimitReservation`]). A reservation is made under one lock for all subjects of a
//! job, or not at all, so any number of simultaneous requests stays within each limit. A budget is passed only if a job
//! costs more than the most that was computed for it.
//!
//! If several nodes share a database, the reservations are in it, and a record that is closed ends its reservation in the
//! same transaction. A reservation that gets no record is removed when its job is dropped, by a later heartbeat if that
//! fails, and by another node if the process dies.
//!
//! Otherwise the counters are in memory. Those of a day and of a budget begin with what the store has counted since the
//! start of the period, so a restart forgets nothing. The counters of a minute begin empty.

mod counters;
mod limit_usage;
mod limiter;
mod reservation;
mod shared;
mod status;
mod window;

#[cfg(test)]
mod tests;

pub(crate) use counters::first_day_of_budgets;
pub(crate) use limit_usage::{LimitAmounts, LimitState, LimitUsage};
pub(crate) use limiter::RequestLimiter;
pub(crate) use reservation::{ChangedBudget, JobDemand, LimitError, LimitReservation, LimitSubject, SubjectLimits};
pub(crate) use status::LimitStatus;
