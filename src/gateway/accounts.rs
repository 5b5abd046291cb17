//! Selects the account for the next attempt of a job, and grants the right to make it (a [`Lease`]).
//!
//! The module decides which account serves a request, how long a request waits, and how the result of an attempt
//! changes the state of its account. Selection ([`selection`]), cooldowns ([`cooldown`]) and health ([`health`]) do no
//! I/O. The state that several nodes share is in the store, which this module reads every half second; the slots that
//! each of them may use are exchanged more often ([`slot_exchange`]). The module must not know HTTP, records or the content of a job: tokens are fetched through the trait [`CredentialService`].
//!
//! It implements the demands of the specification on the concurrency of each account and on the preference for paid
//! accounts with OAuth, and U14 to U18, U32 and C10 of the failure catalogue.

mod account;
mod config_reload;
mod cooldown;
mod explanation;
mod feedback;
mod health;
mod lease;
mod live_accounts;
mod oauth;
mod pool;
mod pool_member;
mod probe;
mod queue;
mod recent_calls;
mod refresh_task;
mod rows;
mod secret_mask;
mod selection;
mod slot_exchange;
mod slot_share;
mod stored_context;
mod text_model_accounts;
mod token_cache;
mod token_fetcher;
mod unfit_models;
mod waiter_kinds;

#[cfg(test)]
mod tests;

pub(crate) use account::{AccountEndpoint, ResponsesEndpoint, UpstreamAccount, UpstreamAddress, need_tls};
pub(crate) use feedback::{AccountFeedback, RetryTarget};
pub(crate) use lease::{Lease, LeaseGrant};
pub(crate) use live_accounts::{LiveAccount, LiveAccountState};
pub(crate) use oauth::{
    CredentialService, CredentialServiceError, TokenRequest, TokenResponse, basic_header, key_header,
};
pub(crate) use recent_calls::CallFailure;
pub(crate) use rows::{account_from_row as account_of_row, credentials_context, secrets_from_row as secrets_of_row};
pub(crate) use secret_mask::{DATA_MIN, SecretMask};
pub(crate) use stored_context::{ContextPart, ContextRefusal};
pub(crate) use text_model_accounts::TextModelAccount;
pub(crate) use token_fetcher::token_change;

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chrono::{DateTime, Utc};
use http::HeaderValue;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::config;
use super::keys::Caller;
use super::rules::TaskRef;
use super::store::{AccountStore, NodeId, StoreError, TokenStore, Vault};
use super::telemetry::AccountSnapshot;
use crate::wire::admin::types::{AccountExplanation, RecordReason};
use account::AccountAuth;
use cooldown::WorkKind;
use lease::AccountSlot;
use pool::{AccountPool, AccountRequirements};
use queue::RequesterId;
use rows::{AccountRows, PoolSnapshot};
use slot_exchange::SlotExchangeTask;
use token_cache::TokenFailure;
use token_fetcher::TokenFetcher;

/// The maximum time that a request waits for a slot (our choice). After that the caller should retry later.
const SLOT_WAIT_MAX: Duration = Duration::from_secs(30);

/// The maximum time that the first attempt of a job waits for a slot of the account of its conversation while another
/// account may have one (our choice). Without the account's cache, the whole conversation is charged at its full price.
const HOME_WAIT_MAX: Duration = Duration::from_secs(5);

/// The name under which a command waits in the queue for slots.
const COMMAND_REQUESTER: &str = "command";

/// All accounts: those of the configuration file and those of the store.
pub(crate) struct Accounts {
    pool: Arc<AccountPool>,
    store: Arc<dyn AccountStore>,
    vault: Vault,
    token_fetcher: Arc<TokenFetcher>,
    /// Sends the calls that check the credentials of an account apart from any request.
    token_endpoint: Arc<dyn CredentialService>,
    /// True if the last read of the store succeeded.
    is_store_readable: AtomicBool,
    /// Held while the accounts are read and applied, so that an older read is never applied after a newer one.
    reload_lock: AsyncMutex<()>,
    opened_at: DateTime<Utc>,
    /// Set if other nodes use the accounts, too.
    slot_exchange: OnceLock<SlotExchangeTask>,
}

/// The reason why a lease was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseRefusal {
    /// No account can serve the request now, and no limit of an upstream is the cause: for example, none serves the
    /// group, all were tried, or the rest have refused the model or are disabled.
    NoneLeft,
    /// All slots are taken, and the request has waited too long or has no room in the full queue.
    Busy,
    /// The process is stopping and starts no new work.
    Stopping,
    /// No account can serve now, and at least one is in a cooldown because of a limit of its upstream.
    InCooldown {
        /// True if the usage windows of all limited accounts are used up; false if at least one account is only
        /// throttled.
        exhausted: bool,
        /// The time until the first limited account is available again.
        wait: Option<Duration>,
    },
}

// === impl Accounts ===

impl Accounts {
    /// Opens the accounts of the configuration, whose rows must be in the store, and the accounts that only the store
    /// has.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails.
    pub(crate) async fn open(
        configured: &[config::AccountConfig],
        store: Arc<dyn TokenStore>,
        vault: Vault,
        endpoint: Arc<dyn CredentialService>,
        node: NodeId,
    ) -> Result<Arc<Self>, StoreError> {
        let pool = AccountPool::new();
        {
            let mut state = pool.lock();
            for account in configured {
                state.add_member(Arc::new(UpstreamAccount::new(account)), None);
            }
        }
        let tokens = Arc::clone(&store) as Arc<dyn TokenStore>;
        let token_fetcher = Arc::new(TokenFetcher::new(tokens, vault.clone(), Arc::clone(&endpoint), node));
        let accounts = Self {
            pool,
            store,
            vault,
            token_fetcher,
            token_endpoint: endpoint,
            is_store_readable: AtomicBool::new(true),
            reload_lock: AsyncMutex::new(()),
            opened_at: Utc::now(),
            slot_exchange: OnceLock::new(),
        };
        accounts.reload().await?;
        Ok(Arc::new(accounts))
    }

    /// Refuses all waiting requests, and every later request that would have to wait. Requests that were accepted before
    /// the stop may finish, so they still get a free slot; attempts that have begun continue, because they may be charged.
    pub(crate) fn stop(&self) {
        self.pool.stop();
    }

    /// Grants the right to make one attempt on an account that is not in `tried`. Waits in fair order for a slot. The
    /// account of the conversation goes first, as long as it is healthy. Between equal accounts, the id of the request
    /// decides, as in [`Self::likely_account`].
    pub(crate) async fn lease<'a>(
        &self,
        task: impl Into<TaskRef<'a>>,
        caller: &Caller,
        tried: &[String],
        request_id: &str,
    ) -> Result<Lease, LeaseRefusal> {
        let (task, requester) = (task.into(), RequesterId::from_caller(caller));
        let requirements =
            AccountRequirements { tie_seed: Some(tie_seed(request_id)), ..requirements(task, caller, tried) };
        if let Some(at_home) = self.healthy_home(task, &requirements) {
            // After a failed attempt, no other account is known to be better.
            let wait = if tried.is_empty() { HOME_WAIT_MAX } else { SLOT_WAIT_MAX };
            match self.acquire_lease(&requester, at_home, wait).await {
                Err(LeaseRefusal::NoneLeft | LeaseRefusal::InCooldown { .. }) => {}
                Err(LeaseRefusal::Busy) if tried.is_empty() => {}
                answer => return answer,
            }
        }
        self.acquire_lease(&requester, requirements, SLOT_WAIT_MAX).await
    }

    /// Returns the requirements that only the account of the conversation meets; `None` if there is no such account, or
    /// another one should serve.
    fn healthy_home(&self, task: TaskRef<'_>, requirements: &AccountRequirements) -> Option<AccountRequirements> {
        let TaskRef::Response(job) = task else { return None };
        let home = job.serving_accounts().home.clone().filter(|_| requirements.only_account.is_none())?;
        let at_home = AccountRequirements { only_account: Some(home), ..requirements.clone() };
        self.pool.has_healthy_account(&at_home).then_some(at_home)
    }

    /// Grants the right to call one specific account that serves this group, for a command that tests it.
    pub(crate) async fn lease_account(&self, account: &str, group: &str) -> Result<Lease, LeaseRefusal> {
        let names = self.pool.lock().members.iter().map(|member| member.account.name().to_owned()).collect::<Vec<_>>();
        let tried = names.into_iter().filter(|name| name != account).collect();
        let requirements =
            AccountRequirements { group: group.to_owned(), tried_accounts: tried, ..AccountRequirements::default() };
        self.acquire_lease(&RequesterId::from_name(COMMAND_REQUESTER), requirements, SLOT_WAIT_MAX).await
    }

    /// Returns the account that would be chosen now, so that a record has an account name even if the process dies
    /// before the first attempt. If the first attempt is on another account, the record is written once more.
    pub(crate) fn likely_account<'a>(
        &self,
        task: impl Into<TaskRef<'a>>,
        caller: &Caller,
        request_id: &str,
    ) -> Option<String> {
        let task = task.into();
        let requirements = requirements(task, caller, &[]);
        let requirements = self.healthy_home(task, &requirements).unwrap_or(requirements);
        self.pool.likely_account(&requirements, tie_seed(request_id))
    }

    /// Returns the text models that may run the image tool for this job for images, each once: those of the accounts that
    /// serve it with the Responses API.
    pub(crate) fn tool_host_models<'a>(&self, task: impl Into<TaskRef<'a>>, caller: &Caller) -> Vec<String> {
        self.pool.tool_host_models(&requirements(task.into(), caller, &[]))
    }

    /// Lists all accounts in the order in which a request for images would try them, each with its state. With a
    /// session, the order is that for the first response of this conversation; later ones stay with its account.
    pub(crate) fn explain(&self, group: &str, large: bool, session: Option<&str>) -> Vec<AccountExplanation> {
        explanation::explain(&self.pool, group, large, session)
    }

    /// Returns the state of each account, including the disabled ones, and the number of waiting requests.
    pub(crate) fn snapshot(&self) -> (Vec<AccountSnapshot>, usize) {
        self.pool.snapshot()
    }

    /// True if the last read of the store succeeded.
    pub(crate) fn is_store_readable(&self) -> bool {
        self.is_store_readable.load(Ordering::Relaxed)
    }

    /// True if no more leases are granted.
    pub(crate) fn is_stopped(&self) -> bool {
        self.pool.is_stopped()
    }

    async fn acquire_lease(
        &self,
        requester: &RequesterId,
        mut requirements: AccountRequirements,
        wait: Duration,
    ) -> Result<Lease, LeaseRefusal> {
        let deadline = Instant::now() + wait;
        loop {
            let slot = self.pool.acquire_slot(requester, requirements.clone(), deadline).await?;
            match self.authorize_slot(&slot).await {
                Ok(authorization) => return Ok(Lease::new(slot, authorization)),
                // The account is now in a cooldown or disabled. This request does not ask it again, even if somebody
                // enables it at this moment.
                Err(TokenFailure::Revoked(_) | TokenFailure::Temporary) => {
                    requirements.tried_accounts.push(slot.account().name().to_owned());
                }
            }
        }
    }

    /// Returns the credentials for a call; `None` if the account needs none.
    async fn authorize_slot(&self, slot: &AccountSlot) -> Result<Option<HeaderValue>, TokenFailure> {
        match slot.account().auth() {
            AccountAuth::Unauthenticated => Ok(None),
            AccountAuth::Key(header) => Ok(Some(header.clone())),
            AccountAuth::Token(cache) => match self.token_fetcher.valid_token(cache).await {
                Ok(header) => Ok(Some(header)),
                Err(failure) => {
                    self.pool.note_failed_call(slot.grant(), RecordReason::Credentials, None);
                    self.handle_missing_token(slot, failure).await;
                    Err(failure)
                }
            },
        }
    }

    /// Reads the accounts from the store, and updates the pool.
    async fn reload(&self) -> Result<(), StoreError> {
        let _guard = self.reload_lock.lock().await;
        let before = PoolSnapshot::from_pool(&self.pool);
        let rows = AccountRows::build(self.store.list_accounts().await?, &before, &self.vault);
        rows.apply(&self.pool, &before);
        Ok(())
    }
}

fn requirements(task: TaskRef<'_>, caller: &Caller, tried: &[String]) -> AccountRequirements {
    let (work, model, session, only_account) = match task {
        TaskRef::Images(job) => (WorkKind::Images, job.model(), None, None),
        TaskRef::Response(job) => (WorkKind::Text, job.model(), job.session(), job.serving_accounts().only.as_deref()),
    };
    AccountRequirements {
        group: caller.group_name().to_owned(),
        work: Some(work),
        needs_native: matches!(task, TaskRef::Images(job) if job.needs_image_endpoints()),
        is_large: task.is_large(),
        model: Some(model.into()),
        session: session.map(Arc::from),
        only_account: only_account.map(str::to_owned),
        tried_accounts: tried.to_vec(),
        tie_seed: None,
    }
}

fn tie_seed(request_id: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(request_id)
}
