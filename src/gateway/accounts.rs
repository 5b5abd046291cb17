//! `Job` → `Lease`: which account makes the next attempt, and the right to make it.
//!
//! Choosing is pure ([`pick`]); what changes is only how many leases each account has out. This room knows nothing of
//! HTTP calls and records.
//! It carries the operating rules on per-account concurrency and on preferring paid accounts for images.

mod account;
mod lease;
mod pick;

pub(crate) use account::{Account, Address, Endpoint};
pub(crate) use lease::Lease;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::AcquireError;
use tokio::time::{Instant, timeout_at};

use super::config;
use super::keys::Caller;
use super::rules::Job;
use pick::{Candidate, pick};

/// A request waits so long for a place at most (ours): longer, and the caller does better to come back.
const WAIT: Duration = Duration::from_secs(30);
/// So many requests may wait for one account (ours).
const QUEUE_MAX: usize = 1024;

/// Every account, as configured.
#[derive(Debug)]
pub(crate) struct Accounts {
    all: Vec<Arc<Account>>,
}

/// Why there is no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoLease {
    /// No account serves this caller, or every one was tried.
    NoneLeft,
    /// Every place is taken and the wait was too long.
    Busy,
    /// The process is coming to its end: nothing new is begun.
    Stopping,
}

// === impl Accounts ===

impl Accounts {
    /// The accounts of the configuration.
    pub(crate) fn new(accounts: &[config::Account]) -> Self {
        Self { all: accounts.iter().map(|account| Arc::new(Account::new(account))).collect() }
    }

    /// Whether any call goes out encrypted.
    pub(crate) fn need_tls(&self) -> bool {
        self.all.iter().any(|account| account.endpoint().is_https())
    }

    /// No lease from now on, and none for those who wait: what has begun is still paid for, what has not is not.
    pub(crate) fn stop(&self) {
        self.all.iter().for_each(|account| account.close());
    }

    /// The right to make one attempt, on an account that was not `tried` yet. Waits in fair order for a place.
    pub(crate) async fn lease(&self, job: &Job, caller: &Caller, tried: &[String]) -> Result<Lease, NoLease> {
        let account = self.choose(job, caller, tried).ok_or(NoLease::NoneLeft)?;
        if account.waiting() >= QUEUE_MAX {
            return Err(NoLease::Busy);
        }
        let lease = timeout_at(Instant::now() + WAIT, Lease::take(account, job.is_large())).await;
        lease.map_err(|_| NoLease::Busy)?.map_err(|AcquireError { .. }| NoLease::Stopping)
    }

    /// Whose turn it would be right now, so that a record has a name even if the process dies before the first attempt.
    pub(crate) fn likely(&self, job: &Job, caller: &Caller) -> Option<String> {
        self.choose(job, caller, &[]).map(|account| account.name().to_owned())
    }

    fn choose(&self, job: &Job, caller: &Caller, tried: &[String]) -> Option<Arc<Account>> {
        let group = caller.group_name();
        let candidates: Vec<Candidate> = self
            .all
            .iter()
            .map(|account| Candidate {
                eligible: account.serves(group) && !tried.iter().any(|name| name == account.name()),
                free: account.has_room(job.is_large()),
                paid: account.paid(),
                priority: account.priority(),
                load: account.load(job.is_large()),
            })
            .collect();
        pick(&candidates).map(|index| Arc::clone(&self.all[index]))
    }
}
