//! The access token of one account, in memory: its expiry, and the result of its last fetch.
//!
//! This module neither waits nor writes; [`super::token_fetcher`] does. No `Debug` output contains a secret.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::cooldown::doubled;
use super::oauth::{self, TokenGrant};
use super::secret_mask::SecretMask;
use crate::gateway::config::{ConfigSecret, GrantConfig, OauthConfig};

/// A token is fetched again this long before it expires, or a fifth of its lifetime if that is less (our choice).
const PREFETCH_MARGIN: Duration = Duration::from_secs(300);
/// A token that expires within this time is not used, because it may expire on the way. The limit is a tenth of its
/// lifetime if that is less (our choice).
const EXPIRY_MARGIN: Duration = Duration::from_secs(10);
/// If a token that replaced a refused one is refused within this time, it is not renewed again (our choice): the next one
/// would be refused too, and the renewals would never end.
const RENEWAL_GRACE: Duration = Duration::from_secs(60);
/// The shortest and the longest pause after a failed fetch (our choice).
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The reason why there is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenFailure {
    /// No token can be fetched until an operator acts. The code is safe to show.
    Revoked(&'static str),
    /// No token can be fetched at present.
    Temporary,
}

/// Holds the token of one account.
pub(super) struct TokenCache {
    pub(super) account: String,
    pub(super) oauth: OauthConfig,
    /// Identifies the configured credentials without containing them. Stored tokens of other credentials are not used.
    pub(super) credentials_id: String,
    state: Mutex<TokenCacheState>,
}

#[derive(Default)]
struct TokenCacheState {
    token: Option<AccessToken>,
    /// The time at which the token replaced a refused one, if that is why it was fetched.
    renewed_at: Option<Instant>,
    /// The newest refresh token that the endpoint has issued, even if the access token issued with it has expired.
    refresh_token: Option<String>,
    /// The number of fetches that have ended; the next three fields hold the result of the last one.
    completed_fetches: u64,
    last_failure: Option<TokenFailure>,
    failures: u32,
    retry_at: Option<Instant>,
    /// The sealed token that the store has not accepted yet.
    unsaved: Option<Vec<u8>>,
    /// The last access token for which the secrets of a call were needed, and the secrets.
    secret_mask: Option<(HeaderValue, Arc<SecretMask>)>,
}

/// A token with its expiry on the monotonic clock of this process.
#[derive(Clone)]
pub(super) struct AccessToken {
    pub(super) header: HeaderValue,
    expires_at: Instant,
    lifetime: Duration,
}

/// A token as it is sealed and stored.
#[derive(Deserialize, Serialize)]
pub(super) struct StoredToken {
    #[serde(rename = "configured")]
    credentials_id: String,
    access_token: String,
    refresh_token: Option<String>,
    expires_at: DateTime<Utc>,
    life_seconds: u64,
}

// === impl TokenCache ===

impl TokenCache {
    pub(super) fn new(account: &str, oauth: OauthConfig) -> Self {
        let credentials_id = credentials_id(&oauth);
        Self { account: account.to_owned(), oauth, credentials_id, state: Mutex::default() }
    }

    /// Returns the token, if it lasts long enough for a call to arrive.
    pub(super) fn usable_header(&self, now: Instant) -> Option<HeaderValue> {
        self.lock_state().token.as_ref().filter(|token| token.is_usable(now)).map(|token| token.header.clone())
    }

    /// True if a token must be fetched now: there is none or it expires soon, and no pause after a failure is running.
    pub(super) fn needs_refresh(&self, now: Instant) -> bool {
        let state = self.lock_state();
        let is_missing = state.token.as_ref().is_none_or(|token| token.is_near_expiry(now));
        is_missing && state.retry_at.is_none_or(|at| at <= now)
    }

    pub(super) fn completed_fetches(&self) -> u64 {
        self.lock_state().completed_fetches
    }

    /// Returns the failure of the last fetch, if it is so recent that another fetch would fail for the same reason.
    pub(super) fn recent_failure(&self, now: Instant) -> Option<TokenFailure> {
        let state = self.lock_state();
        state.last_failure.filter(|_| state.retry_at.is_some_and(|at| now < at))
    }

    /// Clears the last failure after the account was enabled again.
    pub(super) fn clear_failure(&self) {
        let mut state = self.lock_state();
        (state.last_failure, state.failures, state.retry_at) = (None, 0, None);
    }

    /// Returns the result of the last fetch.
    pub(super) fn last_result(&self) -> Result<HeaderValue, TokenFailure> {
        let state = self.lock_state();
        match (state.last_failure, &state.token) {
            (None, Some(token)) => Ok(token.header.clone()),
            (failed, _) => Err(failed.unwrap_or(TokenFailure::Temporary)),
        }
    }

    /// True if this token has recently replaced a refused one.
    pub(super) fn is_recently_renewed(&self, header: &HeaderValue, now: Instant) -> bool {
        let state = self.lock_state();
        let current = state.token.as_ref().is_some_and(|token| token.header == header);
        current && state.renewed_at.is_some_and(|at| now < at + RENEWAL_GRACE)
    }

    /// Records the result of a fetch. A failure keeps the existing token.
    pub(super) fn record_fetch(&self, result: Result<AccessToken, TokenFailure>, renewed: bool, now: Instant) {
        let mut state = self.lock_state();
        state.completed_fetches += 1;
        state.last_failure = result.as_ref().err().copied();
        match result {
            Ok(token) => {
                state.token = Some(token);
                state.renewed_at = renewed.then_some(now);
                state.failures = 0;
                state.retry_at = None;
            }
            // The account is disabled. An operator who re-enables it expects another fetch.
            Err(TokenFailure::Revoked(_)) => state.retry_at = Some(now + RETRY_MIN),
            Err(TokenFailure::Temporary) => {
                let pause = doubled(RETRY_MIN, state.failures).min(RETRY_MAX);
                state.failures = state.failures.saturating_add(1);
                state.retry_at = Some(now + pause);
            }
        }
    }

    pub(super) fn refresh_token(&self) -> Option<String> {
        self.lock_state().refresh_token.clone()
    }

    /// Adopts a stored token of the same credentials: keeps its refresh token, and returns its access token unless it
    /// is due for a new fetch.
    pub(super) fn adopt_stored(&self, stored: StoredToken, now: Instant, wall: DateTime<Utc>) -> Option<AccessToken> {
        if stored.credentials_id != self.credentials_id {
            return None;
        }
        let header = oauth::bearer_header(&stored.access_token)?;
        self.lock_state().refresh_token = stored.refresh_token;
        let lifetime = Duration::from_secs(stored.life_seconds);
        // If the wall clock was set back, the token must not be used longer than it was granted for.
        let remaining = (stored.expires_at - wall).to_std().unwrap_or_default().min(lifetime);
        Some(AccessToken { header, expires_at: now + remaining, lifetime }).filter(|token| !token.is_near_expiry(now))
    }

    /// Keeps the refresh token of a grant. Returns its access token in the form that is stored and in the form that is
    /// used. Keeps nothing and returns `None` if the access token is not valid in a header.
    pub(super) fn accept_grant(
        &self,
        granted: TokenGrant,
        now: Instant,
        wall: DateTime<Utc>,
    ) -> Option<(StoredToken, AccessToken)> {
        let header = oauth::bearer_header(&granted.access_token)?;
        let mut state = self.lock_state();
        state.refresh_token = granted.refresh_token.or(state.refresh_token.take());
        let stored = StoredToken {
            credentials_id: self.credentials_id.clone(),
            access_token: granted.access_token,
            refresh_token: state.refresh_token.clone(),
            expires_at: wall + granted.lifetime,
            life_seconds: granted.lifetime.as_secs(),
        };
        Some((stored, AccessToken { header, expires_at: now + granted.lifetime, lifetime: granted.lifetime }))
    }

    /// Returns the secrets of a call with this token, and those with which the token was fetched. The headers are those
    /// of all calls of the account, so they are read once for each token.
    pub(super) fn secret_mask(&self, token: &HeaderValue, headers: &HeaderMap) -> Arc<SecretMask> {
        let mut state = self.lock_state();
        if let Some((_, mask)) = state.secret_mask.as_ref().filter(|(known, _)| known == token) {
            return Arc::clone(mask);
        }
        let configured = match &self.oauth.grant {
            GrantConfig::RefreshToken(token) => Some(token.expose()),
            GrantConfig::ClientCredentials => None,
        };
        let client = self.oauth.client_secret.as_ref().map(ConfigSecret::expose);
        let further = configured.into_iter().chain(client).chain(state.refresh_token.as_deref());
        let mask = Arc::new(SecretMask::of_call(headers, Some(token), further));
        state.secret_mask = Some((token.clone(), Arc::clone(&mask)));
        mask
    }

    /// Sets or clears the sealed token that the store has not accepted yet.
    pub(super) fn set_unsaved(&self, sealed: Option<Vec<u8>>) {
        self.lock_state().unsaved = sealed;
    }

    pub(super) fn unsaved(&self) -> Option<Vec<u8>> {
        self.lock_state().unsaved.clone()
    }

    fn lock_state(&self) -> MutexGuard<'_, TokenCacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TokenCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenCache").field("account", &self.account).finish_non_exhaustive()
    }
}

/// Identifies the credentials. The address of the token endpoint and the scope are left out: they may change without a
/// new refresh token.
fn credentials_id(oauth: &OauthConfig) -> String {
    let id = oauth.client_id.as_deref().unwrap_or_default();
    let secret = match &oauth.grant {
        GrantConfig::RefreshToken(token) => token.expose(),
        GrantConfig::ClientCredentials => "",
    };
    let named = format!("{}\0{id}\0{secret}", id.len());
    hex::encode(digest(&SHA256, named.as_bytes()))
}

/// True if a token that was fetched with the credentials of `before` may be used with those of `after`: both have the same
/// refresh token of the same client. Only the client secret can differ.
pub(super) fn have_same_refresh_token(before: &OauthConfig, after: &OauthConfig) -> bool {
    match after.grant {
        GrantConfig::RefreshToken(_) => credentials_id(before) == credentials_id(after),
        GrantConfig::ClientCredentials => false,
    }
}

// === impl StoredToken ===

impl StoredToken {
    /// Lets the access token expire, so that only the refresh token is used.
    pub(super) const fn expire(&mut self) {
        self.expires_at = DateTime::UNIX_EPOCH;
    }
}

// === impl AccessToken ===

impl AccessToken {
    fn is_usable(&self, now: Instant) -> bool {
        now + EXPIRY_MARGIN.min(self.lifetime / 10) < self.expires_at
    }

    fn is_near_expiry(&self, now: Instant) -> bool {
        now + PREFETCH_MARGIN.min(self.lifetime / 5) >= self.expires_at
    }
}
