//! `Job` → `Lease`: which account makes the next attempt, and the right to make it.
//!
//! Decides who serves whom, who waits for how long, and what an attempt has taught about its account. Choosing
//! ([`pick`]), rest ([`cooling`]) and health ([`health`]) are pure; what several nodes share lies in the store, and a
//! look at it each second brings this room up to date. Refuses to know HTTP, records and what a job is worth: tokens
//! are fetched through the seam [`TokenEndpoint`].
//!
//! It carries the operating rules on per-account concurrency and on preferring paid accounts and logins for images,
//! and U14 to U18, U32 and C10 of the failure catalogue.

mod account;
mod configured;
mod cooling;
mod explain;
mod health;
mod keeper;
mod kinds;
mod learn;
mod lease;
mod member;
mod oauth;
mod pick;
mod pool;
mod probe;
mod queue;
mod rows;
mod tokens;
mod unfit;
mod visit;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use account::{Account, Address, Endpoint, Host, need_tls};
pub(crate) use explain::{Availability, Explained};
pub(crate) use learn::{Again, Lesson};
pub(crate) use lease::{Lease, LeaseGrant};
pub(crate) use oauth::{TokenAnswer, TokenEndpoint, TokenRequest, Unreachable};
pub(crate) use rows::{build as account_of_row, sealed_for, secrets as secrets_of_row};
pub(crate) use visit::Speaker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderValue;
use tokio::time::Instant;

use super::config::{self, Protocol};
use super::keys::Caller;
use super::rules::Task;
use super::store::{NodeId, Store, StoreError, Vault};
use super::telemetry::AccountNow;
use account::Access;
use keeper::NoToken;
use lease::Place;
use member::Member;
use pool::{Pool, Wanted};
use queue::Requester;
use rows::{Before, Rows};
use tokens::Tokens;

/// A request waits so long for a place at most (ours): longer, and the caller does better to come back.
const WAIT: Duration = Duration::from_secs(30);

/// Who waits where a command waits.
const COMMAND: &str = "command";

/// Every account: those of the file and those of the store.
pub(crate) struct Accounts {
    pool: Arc<Pool>,
    store: Arc<dyn Store>,
    vault: Vault,
    tokens: Arc<Tokens>,
    /// The endpoint at which credentials are checked by themselves.
    endpoint: Arc<dyn TokenEndpoint>,
    /// Whether the store has answered when it was asked last.
    well: AtomicBool,
}

/// The account that made a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResponseAccount {
    /// The account serves the group, or will when its rest is over.
    Serves(String),
    /// The account is disabled or deleted, or does not serve the group any more.
    Gone,
    /// No record shows such a response for this user.
    Unknown,
}

/// Why there is no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoLease {
    /// No account serves this caller, or every one was tried, or none of them can do this.
    NoneLeft,
    /// Every place is taken and the wait was too long.
    Busy,
    /// The process is coming to its end: nothing new is begun.
    Stopping,
    /// Every account that is left rests because of a limit.
    Resting {
        /// The usage windows of all of them are used up; otherwise at least one was only asked too fast.
        exhausted: bool,
        /// Until the first of them is back.
        wait: Option<Duration>,
    },
}

// === impl Accounts ===

impl Accounts {
    /// The accounts of the configuration, whose rows must be in the store, and those that the store has besides.
    ///
    /// # Errors
    ///
    /// Where the store has trouble.
    pub(crate) async fn open(
        configured: &[config::Account],
        store: Arc<dyn Store>,
        vault: Vault,
        endpoint: Arc<dyn TokenEndpoint>,
        node: NodeId,
    ) -> Result<Arc<Self>, StoreError> {
        let pool = Pool::new();
        {
            let mut inner = pool.lock();
            for account in configured {
                let id = inner.next_id();
                inner.members.push(Member::new(id, Arc::new(Account::new(account)), None));
            }
        }
        let tokens = Arc::new(Tokens::new(Arc::clone(&store), vault.clone(), Arc::clone(&endpoint), node));
        let accounts = Self { pool, store, vault, tokens, endpoint, well: AtomicBool::new(true) };
        accounts.look().await?;
        Ok(Arc::new(accounts))
    }

    /// No lease from now on, and none for those who wait: what has begun is still paid for, what has not is not.
    pub(crate) fn stop(&self) {
        self.pool.stop();
    }

    /// The right to make one attempt, on an account that was not `tried` yet. Waits in fair order for a place.
    pub(crate) async fn lease<'a>(
        &self,
        task: impl Into<Task<'a>>,
        caller: &Caller,
        tried: &[String],
    ) -> Result<Lease, NoLease> {
        self.take(&Requester::of(caller), wanted(task.into(), caller, tried)).await
    }

    /// The right to ask one certain account that serves this group, for a command that tries it.
    pub(crate) async fn lease_of(&self, account: &str, group: &str) -> Result<Lease, NoLease> {
        let others = self.pool.lock().members.iter().map(|member| member.account.name().to_owned()).collect::<Vec<_>>();
        let tried = others.into_iter().filter(|name| name != account).collect();
        let wanted = Wanted { group: group.to_owned(), tried, ..Wanted::default() };
        self.take(&Requester::alone(COMMAND), wanted).await
    }

    /// Whose turn it would be right now, so that a record has a name even if the process dies before the first attempt.
    pub(crate) fn likely<'a>(&self, task: impl Into<Task<'a>>, caller: &Caller) -> Option<String> {
        self.pool.likely(&wanted(task.into(), caller, &[]))
    }

    /// The account that made the response with this id for the caller's user, or for its key if it has no user.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn maker_of(&self, response_id: &str, caller: &Caller) -> Result<ResponseAccount, StoreError> {
        let Some(name) = self.store.maker_of_response(response_id, caller.user(), caller.key()).await? else {
            return Ok(ResponseAccount::Unknown);
        };
        let serves = self.speakers(caller.group_name()).iter().any(|account| account.name() == name);
        Ok(if serves { ResponseAccount::Serves(name) } else { ResponseAccount::Gone })
    }

    /// Every account in the order in which it would be taken for such a request, and why; with a session for a response
    /// of that conversation.
    pub(crate) fn explain(&self, group: &str, large: bool, session: Option<&str>) -> Vec<Explained> {
        explain::explain(&self.pool, group, large, session)
    }

    /// How each account in use stands, and how many requests wait for one.
    pub(crate) fn now(&self) -> (Vec<AccountNow>, usize) {
        self.pool.now()
    }

    /// True if the last read of the store succeeded.
    pub(crate) fn can_read(&self) -> bool {
        self.well.load(Ordering::Relaxed)
    }

    /// True if no more leases are given.
    pub(crate) fn is_stopped(&self) -> bool {
        self.pool.is_stopped()
    }

    async fn take(&self, requester: &Requester, mut wanted: Wanted) -> Result<Lease, NoLease> {
        let deadline = Instant::now() + WAIT;
        loop {
            let place = self.pool.place(requester, wanted.clone(), deadline).await?;
            match self.let_in(&place).await {
                Ok(authorization) => return Ok(Lease::new(place, authorization)),
                // It rests now or is out; even if an operator brings it back this moment, others come first.
                Err(NoToken::Revoked(_) | NoToken::Trouble) => wanted.tried.push(place.account().name().to_owned()),
            }
        }
    }

    /// What lets a call in.
    async fn let_in(&self, place: &Place) -> Result<Option<HeaderValue>, NoToken> {
        match place.account().access() {
            Access::Open => Ok(None),
            Access::Key(header) => Ok(Some(header.clone())),
            Access::Token(keeper) => match self.tokens.access(keeper).await {
                Ok(header) => Ok(Some(header)),
                Err(no_token) => {
                    self.without_token(place, no_token).await;
                    Err(no_token)
                }
            },
        }
    }

    /// Looks at the store, and brings the pool up to date.
    async fn look(&self) -> Result<(), StoreError> {
        let before = Before::of(&self.pool);
        let rows = Rows::read(self.store.list_accounts().await?, &before, &self.vault);
        rows.apply(&self.pool, &before);
        Ok(())
    }
}

fn wanted(task: Task<'_>, caller: &Caller, tried: &[String]) -> Wanted {
    let (protocol, model, session, only) = match task {
        Task::Images(job) => (Protocol::Images, job.model(), None, None),
        Task::Response(job) => (Protocol::Responses, job.model(), job.session(), job.account()),
    };
    Wanted {
        group: caller.group_name().to_owned(),
        protocol: Some(protocol),
        large: task.is_large(),
        model: Some(model.into()),
        session: session.map(Arc::from),
        only: only.map(str::to_owned),
        tried: tried.to_vec(),
    }
}
