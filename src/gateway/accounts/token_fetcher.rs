//! Fetches access tokens: one exchange at a time for each account, among all processes that share the store.
//!
//! A token endpoint may invalidate the old refresh token as soon as it gets the request. Therefore an exchange is never
//! aborted, and its result is stored before it is used (U17 of the failure catalogue).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::Utc;
use http::HeaderValue;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep, timeout};

use super::oauth::{self, CredentialService, GrantRefusal};
use super::token_cache::{AccessToken, StoredToken, TokenCache, TokenFailure, have_same_refresh_token};
use crate::gateway::config::OauthConfig;
use crate::gateway::store::{NodeId, StoreError, TokenChange, TokenRow, TokenStore, Vault};

/// The longest wait for an endpoint (our choice).
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(20);
/// The time that a node has for a fetch before another node may try (our choice). It is longer than the wait for the
/// endpoint.
const CLAIM_PERIOD: Duration = Duration::from_secs(60);
/// The interval of the checks for the end of another node's fetch (our choice).
const CLAIM_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The longest wait for another node's fetch (our choice).
const CLAIM_WAIT_MAX: Duration = Duration::from_secs(25);
/// The number of tries to store a token (our choice).
const STORE_ATTEMPTS: u32 = 5;
/// The pause between two tries (our choice).
const STORE_RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Fetches the tokens of all accounts.
pub(super) struct TokenFetcher {
    store: Arc<dyn TokenStore>,
    vault: Vault,
    endpoint: Arc<dyn CredentialService>,
    node: NodeId,
    /// One lock for each account, held during a fetch. The key is the name, so that new settings of an account do not
    /// start a second fetch beside one in progress.
    fetch_locks: Mutex<HashMap<String, Arc<AsyncMutex<()>>>>,
}

// === impl TokenFetcher ===

impl TokenFetcher {
    pub(super) fn new(
        store: Arc<dyn TokenStore>,
        vault: Vault,
        endpoint: Arc<dyn CredentialService>,
        node: NodeId,
    ) -> Self {
        Self { store, vault, endpoint, node, fetch_locks: Mutex::default() }
    }

    /// Returns a token that is valid now.
    pub(super) async fn valid_token(self: &Arc<Self>, cache: &Arc<TokenCache>) -> Result<HeaderValue, TokenFailure> {
        match cache.usable_header(Instant::now()) {
            Some(header) => Ok(header),
            None => self.fetch(cache, None).await,
        }
    }

    /// Returns a token that differs from the refused one.
    pub(super) async fn renew(
        self: &Arc<Self>,
        cache: &Arc<TokenCache>,
        refused: &HeaderValue,
    ) -> Result<HeaderValue, TokenFailure> {
        match cache.usable_header(Instant::now()) {
            Some(header) if header != refused => Ok(header),
            _ => self.fetch(cache, Some(refused.clone())).await,
        }
    }

    /// Fetches the next token before the current one expires, and stores a token that the store did not accept. Does
    /// nothing if a fetch is in progress.
    pub(super) async fn prefetch(self: &Arc<Self>, cache: &Arc<TokenCache>) -> Result<(), TokenFailure> {
        match self.fetch_lock(&cache.account).try_lock() {
            Ok(_guard) => self.save_pending_token(cache).await,
            Err(_) => return Ok(()),
        }
        if cache.needs_refresh(Instant::now()) {
            self.fetch(cache, None).await?;
        }
        Ok(())
    }

    /// Waits until no fetch for this account is in progress and the result is stored, as far as the store allows.
    pub(super) async fn finish(&self, cache: &TokenCache) {
        let fetch_lock = self.fetch_lock(&cache.account);
        let _guard = fetch_lock.lock().await;
        self.save_pending_token(cache).await;
    }

    fn fetch_lock(&self, account: &str) -> Arc<AsyncMutex<()>> {
        let mut locks = self.fetch_locks.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(locks.entry(account.to_owned()).or_default())
    }

    /// Tries again to store a token that the store did not accept. If that fails, the next call tries it. Only the
    /// holder of the lock may call this: an older token must not be written last.
    async fn save_pending_token(&self, cache: &TokenCache) {
        let Some(sealed) = cache.unsaved() else { return };
        if self.store_once(cache, &sealed).await.is_ok() {
            cache.set_unsaved(None);
        }
    }

    /// Fetches a token. All requests that arrive during a fetch get its result.
    async fn fetch(
        self: &Arc<Self>,
        cache: &Arc<TokenCache>,
        refused: Option<HeaderValue>,
    ) -> Result<HeaderValue, TokenFailure> {
        let before = cache.completed_fetches();
        let fetch_lock = self.fetch_lock(&cache.account).lock_owned().await;
        if cache.completed_fetches() != before {
            return cache.last_result();
        }
        // A request that arrives just after a failure must not cause another fetch.
        if let Some(failed) = cache.recent_failure(Instant::now()) {
            return Err(failed);
        }
        let (fetcher, cache) = (Arc::clone(self), Arc::clone(cache));
        // The fetch runs in its own task: the request may be dropped, but the rotated refresh token must not be lost.
        let fetching = tokio::runtime::Handle::current().spawn(async move {
            let result = fetcher.fetch_or_adopt(&cache, refused.as_ref()).await;
            cache.record_fetch(result, refused.is_some(), Instant::now());
            drop(fetch_lock);
            cache.last_result()
        });
        fetching.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the task that fetches a token has failed");
            Err(TokenFailure::Temporary)
        })
    }

    async fn fetch_or_adopt(
        &self,
        cache: &TokenCache,
        refused: Option<&HeaderValue>,
    ) -> Result<AccessToken, TokenFailure> {
        let store_failure = |error: StoreError| {
            tracing::error!(
                account = cache.account,
                error = &error as &dyn std::error::Error,
                "no token was fetched because the store failed"
            );
            TokenFailure::Temporary
        };
        let end = Instant::now() + CLAIM_WAIT_MAX;
        loop {
            if let Some(token) = self.load_stored_token(cache, refused).await.map_err(store_failure)? {
                return Ok(token);
            }
            if self.claim(cache).await.map_err(store_failure)? {
                break;
            }
            if Instant::now() >= end {
                tracing::warn!(account = cache.account, "another process has been fetching a token for too long");
                return Err(TokenFailure::Temporary);
            }
            sleep(CLAIM_POLL_INTERVAL).await;
        }
        // Another node may have finished between the read and the claim.
        let token = match self.load_stored_token(cache, refused).await {
            Ok(Some(token)) => Ok(token),
            Ok(None) => return self.exchange(cache, refused).await,
            Err(error) => Err(store_failure(error)),
        };
        self.release(cache).await;
        token
    }

    async fn claim(&self, cache: &TokenCache) -> Result<bool, StoreError> {
        let now = Utc::now();
        self.store.claim_refresh(&cache.account, self.node.as_str(), now.into(), (now + CLAIM_PERIOD).into()).await
    }

    async fn release(&self, cache: &TokenCache) {
        if let Err(error) = self.store.release_refresh(&cache.account, self.node.as_str()).await {
            tracing::warn!(account = cache.account, %error, "the claim to fetch a token could not be released; it will expire");
        }
    }

    /// Returns the stored token, if it is valid and not the refused one.
    async fn load_stored_token(
        &self,
        cache: &TokenCache,
        refused: Option<&HeaderValue>,
    ) -> Result<Option<AccessToken>, StoreError> {
        self.save_pending_token(cache).await;
        if cache.unsaved().is_some() {
            // The stored token is older than the one in memory.
            return Ok(None);
        }
        let Some(row) = self.store.load_token(&cache.account).await? else { return Ok(None) };
        let Some(stored) = open_token(&cache.account, &row, &self.vault) else {
            tracing::error!(account = cache.account, "the stored token cannot be read; the configured one is used");
            return Ok(None);
        };
        let adopted = cache.adopt_stored(stored, Instant::now(), Utc::now());
        Ok(adopted.filter(|token| Some(&token.header) != refused))
    }

    /// Makes the exchange. The claim is held until then, and is released with the write of the token or, without a token,
    /// by a call of its own.
    async fn exchange(&self, cache: &TokenCache, refused: Option<&HeaderValue>) -> Result<AccessToken, TokenFailure> {
        let refresh = cache.refresh_token();
        let request = oauth::token_request(&cache.oauth, refresh.as_deref());
        let answer = timeout(EXCHANGE_TIMEOUT, self.endpoint.exchange(request)).await;
        let granted = match answer {
            Ok(Ok(answer)) => oauth::parse_response(&answer),
            Ok(Err(_)) | Err(_) => Err(GrantRefusal::Transient),
        };
        match granted {
            Ok(granted) => {
                // A token that is not valid in a header is no grant, so `parse_response` has refused it.
                let accepted = cache.accept_grant(granted, Instant::now(), Utc::now());
                let (stored, token) = accepted.ok_or(TokenFailure::Temporary)?;
                self.save_token(cache, &stored).await;
                tracing::info!(account = cache.account, "a token was fetched");
                Ok(token)
            }
            Err(refusal) => self.handle_refusal(cache, refused, refresh.as_deref(), refusal).await,
        }
    }

    async fn handle_refusal(
        &self,
        cache: &TokenCache,
        refused: Option<&HeaderValue>,
        used_refresh_token: Option<&str>,
        refusal: GrantRefusal,
    ) -> Result<AccessToken, TokenFailure> {
        self.release(cache).await;
        let GrantRefusal::Permanent(code) = refusal else {
            tracing::warn!(account = cache.account, "the token endpoint issued no token; it will be asked again");
            return Err(TokenFailure::Temporary);
        };
        // A node that exceeded its claim may have rotated the refresh token in the meantime.
        match self.load_stored_token(cache, refused).await {
            Ok(Some(token)) => Ok(token),
            Ok(None) if cache.refresh_token().as_deref() == used_refresh_token => Err(TokenFailure::Revoked(code)),
            Ok(None) | Err(_) => Err(TokenFailure::Temporary),
        }
    }

    /// Stores a token before it is used. If the store does not accept it, it is used nevertheless: the old refresh
    /// token is invalid, and the refresh task retries the store.
    async fn save_token(&self, cache: &TokenCache, stored: &StoredToken) {
        let sealed = match seal(&cache.account, stored, &self.vault) {
            Ok(sealed) => sealed,
            Err(error) => {
                tracing::error!(account = cache.account, %error, "a token could not be encrypted and is not stored");
                return;
            }
        };
        for attempt in 1..=STORE_ATTEMPTS {
            match self.store_once(cache, &sealed).await {
                Ok(()) => return cache.set_unsaved(None),
                Err(error) => tracing::warn!(account = cache.account, attempt, %error, "a token could not be stored"),
            }
            sleep(STORE_RETRY_PAUSE).await;
        }
        cache.set_unsaved(Some(sealed));
    }

    async fn store_once(&self, cache: &TokenCache, sealed: &[u8]) -> Result<(), StoreError> {
        if !self.store.store_token(&cache.account, self.node.as_str(), sealed).await? {
            // Another process holds the claim now, or the credentials were changed; this token is then obsolete.
            tracing::warn!(account = cache.account, "a token was not stored because the claim to fetch it had ended");
        }
        Ok(())
    }
}

/// Returns the change of the stored token of an account whose credentials are replaced. A refresh token that the endpoint
/// has rotated is stored nowhere else, so it stays if the new credentials have the refresh token from which it comes. The
/// access token is fetched again.
pub(crate) fn token_change(
    account: &str,
    before: &OauthConfig,
    after: &OauthConfig,
    stored: Option<&TokenRow>,
    vault: &Vault,
) -> Result<TokenChange, StoreError> {
    if !have_same_refresh_token(before, after) {
        return Ok(TokenChange::Delete);
    }
    let Some(row) = stored else { return Ok(TokenChange::Keep) };
    // A token that cannot be read is not used either.
    let Some(mut token) = open_token(account, row, vault) else { return Ok(TokenChange::Keep) };
    token.expire();
    Ok(TokenChange::Replace { before: row.sealed_token.clone(), after: seal(account, &token, vault)? })
}

/// Returns a stored token; `None` if it was not sealed by this installation, or does not have the form of this version.
fn open_token(account: &str, row: &TokenRow, vault: &Vault) -> Option<StoredToken> {
    let plain = vault.open(&token_context(account), &row.sealed_token).ok()?;
    serde_json::from_slice(&plain).ok()
}

fn seal(account: &str, token: &StoredToken, vault: &Vault) -> Result<Vec<u8>, StoreError> {
    let plain = serde_json::to_vec(token).map_err(|error| StoreError::Refused(error.into()))?;
    vault.seal(&token_context(account), &plain)
}

/// Returns the context that a token is sealed with. The token of another account cannot be opened with it.
fn token_context(account: &str) -> String {
    format!("token of account {account}")
}
