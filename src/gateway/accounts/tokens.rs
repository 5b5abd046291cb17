//! Fetches tokens: one exchange at a time, in this process and among all processes that share the store.
//!
//! An endpoint that was asked may have invalidated the old refresh token. Therefore an exchange is never aborted, and
//! its result is stored before it is used. The module carries U17 of the failure catalogue.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::Utc;
use http::HeaderValue;
use tokio::sync::Mutex as Flight;
use tokio::time::{Instant, sleep, timeout};

use super::keeper::{AccessToken, StoredToken, TokenCache, TokenFailure};
use super::oauth::{self, GrantRefusal, TokenEndpoint};
use crate::gateway::store::{NodeId, Store, StoreError, Vault};

/// The longest wait for an endpoint (ours).
const EXCHANGE: Duration = Duration::from_secs(20);
/// The time that a node has for a fetch before another node may try (ours). It is longer than the wait for the
/// endpoint.
const CLAIM: Duration = Duration::from_secs(60);
/// The interval of the checks for the end of another node's fetch, and the longest wait for it (ours).
const LOOK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(25);
/// The number of tries to store a token, and the pause between them (ours). A token is worth more than a record.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// The dependencies of every fetch.
pub(super) struct TokenFetcher {
    store: Arc<dyn Store>,
    vault: Vault,
    endpoint: Arc<dyn TokenEndpoint>,
    node: NodeId,
    /// One lock for each account, held during a fetch. The key is the name, so that new settings of an account do not
    /// start a second fetch beside one in progress.
    flights: Mutex<HashMap<String, Arc<Flight<()>>>>,
}

// === impl TokenFetcher ===

impl TokenFetcher {
    pub(super) fn new(store: Arc<dyn Store>, vault: Vault, endpoint: Arc<dyn TokenEndpoint>, node: NodeId) -> Self {
        Self { store, vault, endpoint, node, flights: Mutex::default() }
    }

    /// Returns a token that is valid now.
    pub(super) async fn access(self: &Arc<Self>, keeper: &Arc<TokenCache>) -> Result<HeaderValue, TokenFailure> {
        match keeper.usable(Instant::now()) {
            Some(header) => Ok(header),
            None => self.fetch(keeper, None).await,
        }
    }

    /// Returns a token that differs from the refused one.
    pub(super) async fn renew(
        self: &Arc<Self>,
        keeper: &Arc<TokenCache>,
        refused: &HeaderValue,
    ) -> Result<HeaderValue, TokenFailure> {
        match keeper.usable(Instant::now()) {
            Some(header) if header != refused => Ok(header),
            _ => self.fetch(keeper, Some(refused.clone())).await,
        }
    }

    /// Fetches the next token ahead of need, and retries a failed store. Does nothing if a fetch is in progress.
    pub(super) async fn ahead(self: &Arc<Self>, keeper: &Arc<TokenCache>) -> Result<(), TokenFailure> {
        match self.flight(&keeper.account).try_lock() {
            Ok(_alone) => self.save(keeper).await,
            Err(_) => return Ok(()),
        }
        if keeper.is_due(Instant::now()) {
            self.fetch(keeper, None).await?;
        }
        Ok(())
    }

    /// Waits until no fetch for this account is in progress and the result is stored, as far as the store allows.
    pub(super) async fn finish(&self, keeper: &TokenCache) {
        let flight = self.flight(&keeper.account);
        let _alone = flight.lock().await;
        self.save(keeper).await;
    }

    fn flight(&self, account: &str) -> Arc<Flight<()>> {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(flights.entry(account.to_owned()).or_default())
    }

    /// Retries a failed store. Only the holder of the lock may do so: an older token must not be written last.
    async fn save(&self, keeper: &TokenCache) {
        let Some(sealed) = keeper.unsaved() else { return };
        if self.store_once(keeper, &sealed).await.is_ok() {
            keeper.set_unsaved(None);
        }
    }

    /// Fetches a token. All requests that arrive during a fetch get its result.
    async fn fetch(
        self: &Arc<Self>,
        keeper: &Arc<TokenCache>,
        refused: Option<HeaderValue>,
    ) -> Result<HeaderValue, TokenFailure> {
        let before = keeper.ended();
        let flight = self.flight(&keeper.account).lock_owned().await;
        if keeper.ended() != before {
            return keeper.outcome();
        }
        // A request that comes a moment after a failure does not know of it yet.
        if let Some(failed) = keeper.failed(Instant::now()) {
            return Err(failed);
        }
        let (tokens, keeper) = (Arc::clone(self), Arc::clone(keeper));
        // The fetch runs in its own task: the request may be dropped, but the rotated refresh token must not be lost.
        let fetching = tokio::runtime::Handle::current().spawn(async move {
            let result = tokens.next(&keeper, refused.as_ref()).await;
            keeper.end(result, refused.is_some(), Instant::now());
            drop(flight);
            keeper.outcome()
        });
        fetching.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the task that fetches a token has failed");
            Err(TokenFailure::Trouble)
        })
    }

    async fn next(&self, keeper: &TokenCache, refused: Option<&HeaderValue>) -> Result<AccessToken, TokenFailure> {
        let trouble = |error: StoreError| {
            tracing::error!(
                account = keeper.account,
                error = &error as &dyn std::error::Error,
                "no token was fetched because the store failed"
            );
            TokenFailure::Trouble
        };
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(token) = self.stored(keeper, refused).await.map_err(trouble)? {
                return Ok(token);
            }
            if self.claim(keeper).await.map_err(trouble)? {
                break;
            }
            if Instant::now() >= end {
                tracing::warn!(account = keeper.account, "another process has been fetching a token for too long");
                return Err(TokenFailure::Trouble);
            }
            sleep(LOOK).await;
        }
        // Another node may have finished between the read and the claim.
        let token = match self.stored(keeper, refused).await {
            Ok(Some(token)) => Ok(token),
            Ok(None) => return self.exchange(keeper, refused).await,
            Err(error) => Err(trouble(error)),
        };
        self.release(keeper).await;
        token
    }

    async fn claim(&self, keeper: &TokenCache) -> Result<bool, StoreError> {
        let now = Utc::now();
        self.store.claim_refresh(&keeper.account, self.node.as_str(), now.into(), (now + CLAIM).into()).await
    }

    async fn release(&self, keeper: &TokenCache) {
        if let Err(error) = self.store.release_refresh(&keeper.account, self.node.as_str()).await {
            tracing::warn!(account = keeper.account, %error, "the claim to fetch a token could not be released; it will expire");
        }
    }

    /// Returns the stored token, if it is valid and not the refused one.
    async fn stored(
        &self,
        keeper: &TokenCache,
        refused: Option<&HeaderValue>,
    ) -> Result<Option<AccessToken>, StoreError> {
        self.save(keeper).await;
        if keeper.unsaved().is_some() {
            // The stored token is older than the one in memory.
            return Ok(None);
        }
        let Some(row) = self.store.load_token(&keeper.account).await? else { return Ok(None) };
        let opened = self.vault.open(&context(&keeper.account), &row.sealed);
        let read = opened.ok().and_then(|plain| serde_json::from_slice::<StoredToken>(&plain).ok());
        if read.is_none() {
            tracing::error!(account = keeper.account, "the stored token cannot be read; the configured one is used");
        }
        let adopted = read.and_then(|stored| keeper.adopt(stored, Instant::now(), Utc::now()));
        Ok(adopted.filter(|token| Some(&token.header) != refused))
    }

    /// Makes the exchange. The claim is held, and released at the end.
    async fn exchange(&self, keeper: &TokenCache, refused: Option<&HeaderValue>) -> Result<AccessToken, TokenFailure> {
        let refresh = keeper.refresh();
        let request = oauth::request(&keeper.oauth, refresh.as_deref());
        let answer = timeout(EXCHANGE, self.endpoint.exchange(request)).await;
        let granted = match answer {
            Ok(Ok(answer)) => oauth::read(&answer),
            Ok(Err(_)) | Err(_) => Err(GrantRefusal::Transient),
        };
        match granted {
            Ok(granted) => {
                let taken = keeper.take(granted, Instant::now(), Utc::now()).ok_or(TokenFailure::Trouble);
                let (stored, token) = taken?;
                self.keep(keeper, &stored).await;
                tracing::info!(account = keeper.account, "a token was fetched");
                Ok(token)
            }
            Err(refusal) => self.refused(keeper, refused, refresh.as_deref(), refusal).await,
        }
    }

    async fn refused(
        &self,
        keeper: &TokenCache,
        refused: Option<&HeaderValue>,
        used: Option<&str>,
        refusal: GrantRefusal,
    ) -> Result<AccessToken, TokenFailure> {
        self.release(keeper).await;
        let GrantRefusal::Permanent(code) = refusal else {
            tracing::warn!(account = keeper.account, "the token endpoint issued no token; it will be asked again");
            return Err(TokenFailure::Trouble);
        };
        // A node that exceeded its claim may have rotated the refresh token in the meantime.
        match self.stored(keeper, refused).await {
            Ok(Some(token)) => Ok(token),
            Ok(None) if keeper.refresh().as_deref() == used => Err(TokenFailure::Revoked(code)),
            Ok(None) | Err(_) => Err(TokenFailure::Trouble),
        }
    }

    /// Stores a token before it is used. If the store does not accept it, it is used nevertheless: the old refresh
    /// token is invalid, and the watch task retries the store.
    async fn keep(&self, keeper: &TokenCache, stored: &StoredToken) {
        let sealed = serde_json::to_vec(stored).map_err(|error| StoreError::Refused(error.into()));
        let sealed = match sealed.and_then(|plain| self.vault.seal(&context(&keeper.account), &plain)) {
            Ok(sealed) => sealed,
            Err(error) => {
                tracing::error!(account = keeper.account, %error, "a token could not be encrypted and is not stored");
                return;
            }
        };
        for attempt in 1..=TRIES {
            match self.store_once(keeper, &sealed).await {
                Ok(()) => return keeper.set_unsaved(None),
                Err(error) => tracing::warn!(account = keeper.account, attempt, %error, "a token could not be stored"),
            }
            sleep(PAUSE).await;
        }
        keeper.set_unsaved(Some(sealed));
    }

    async fn store_once(&self, keeper: &TokenCache, sealed: &[u8]) -> Result<(), StoreError> {
        if !self.store.store_token(&keeper.account, self.node.as_str(), sealed).await? {
            // The current holder of the claim, or of newer credentials, takes precedence.
            tracing::warn!(account = keeper.account, "a token was not stored because the claim to fetch it had ended");
        }
        Ok(())
    }
}

/// Returns the context to which a token is sealed. Those of another account cannot be opened with it.
fn context(account: &str) -> String {
    format!("token of account {account}")
}
