//! The token of one account, as this process holds it: what is good for how long, and who may fetch the next.
//!
//! Never awaits and never writes; [`super::tokens`] does. No secret is in any `Debug`.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use chrono::{DateTime, Utc};
use http::HeaderValue;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::oauth::{self, Granted};
use crate::gateway::config::{Grant, Oauth};

/// A token is fetched anew this long before its end, or a fifth of its life where that is less (ours).
const AHEAD: Duration = Duration::from_secs(300);
/// A token this close to its end may run out on the way, or a tenth of its life where that is less (ours).
const MARGIN: Duration = Duration::from_secs(10);
/// A token that came in place of a refused one and is refused within this time is no better (ours): the next would not be
/// either, and asking for it again and again would never end.
const FRESH: Duration = Duration::from_secs(60);
/// The shortest and the longest pause between two tries to fetch (ours).
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Why there is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoToken {
    /// There will be none: a human has to look. The code is safe to show.
    Revoked(&'static str),
    /// Not right now.
    Trouble,
}

/// Keeps the token of one account.
pub(super) struct Keeper {
    pub(super) account: String,
    pub(super) oauth: Oauth,
    /// Names the configured credentials without holding them: others that are stored are not for them.
    pub(super) configured: String,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    token: Option<Token>,
    /// When it came in place of a refused one, if that is why it was fetched.
    renewed_at: Option<Instant>,
    /// The newest refresh token that an endpoint has handed out, even if its access token is of no use.
    refresh: Option<String>,
    /// How many fetches have ended, and how the last one did.
    ended: u64,
    failed: Option<NoToken>,
    failures: u32,
    retry_at: Option<Instant>,
    unsaved: Option<Vec<u8>>,
}

/// A token with its end, on the clock of this process.
#[derive(Clone)]
pub(super) struct Token {
    pub(super) header: HeaderValue,
    until: Instant,
    life: Duration,
}

/// A token as it is sealed and stored.
#[derive(Deserialize, Serialize)]
pub(super) struct Stored {
    configured: String,
    access_token: String,
    refresh_token: Option<String>,
    expires_at: DateTime<Utc>,
    life_seconds: u64,
}

// === impl Keeper ===

impl Keeper {
    pub(super) fn new(account: &str, oauth: Oauth) -> Self {
        let configured = configured(&oauth);
        Self { account: account.to_owned(), oauth, configured, held: Mutex::default() }
    }

    /// The token, if it lasts long enough for a call to arrive.
    pub(super) fn usable(&self, now: Instant) -> Option<HeaderValue> {
        self.held().token.as_ref().filter(|token| token.usable(now)).map(|token| token.header.clone())
    }

    /// Whether it is time to fetch the next one ahead of need.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let held = self.held();
        let wanted = held.token.as_ref().is_none_or(|token| token.is_old(now));
        wanted && held.retry_at.is_none_or(|at| at <= now)
    }

    pub(super) fn ended(&self) -> u64 {
        self.held().ended
    }

    /// How the last fetch ended, where it failed so recently that another one would only say the same.
    pub(super) fn failed(&self, now: Instant) -> Option<NoToken> {
        let held = self.held();
        held.failed.filter(|_| held.retry_at.is_some_and(|at| now < at))
    }

    /// An operator says that it is good again.
    pub(super) fn forgive(&self) {
        let mut held = self.held();
        (held.failed, held.failures, held.retry_at) = (None, 0, None);
    }

    /// How the last fetch ended.
    pub(super) fn outcome(&self) -> Result<HeaderValue, NoToken> {
        let held = self.held();
        match (held.failed, &held.token) {
            (None, Some(token)) => Ok(token.header.clone()),
            (failed, _) => Err(failed.unwrap_or(NoToken::Trouble)),
        }
    }

    /// Whether this token has only just come in place of a refused one.
    pub(super) fn is_fresh(&self, header: &HeaderValue, now: Instant) -> bool {
        let held = self.held();
        let current = held.token.as_ref().is_some_and(|token| token.header == header);
        current && held.renewed_at.is_some_and(|at| now < at + FRESH)
    }

    /// Writes down how a fetch ended. A failure leaves the token that there is.
    pub(super) fn end(&self, result: Result<Token, NoToken>, renewed: bool, now: Instant) {
        let mut held = self.held();
        held.ended += 1;
        held.failed = result.as_ref().err().copied();
        match result {
            Ok(token) => {
                held.token = Some(token);
                held.renewed_at = renewed.then_some(now);
                held.failures = 0;
                held.retry_at = None;
            }
            // The account is out: whoever brings it back wants another try.
            Err(NoToken::Revoked(_)) => held.retry_at = Some(now + RETRY_MIN),
            Err(NoToken::Trouble) => {
                let pause = RETRY_MIN.saturating_mul(1 << held.failures.min(16)).min(RETRY_MAX);
                held.failures = held.failures.saturating_add(1);
                held.retry_at = Some(now + pause);
            }
        }
    }

    pub(super) fn refresh(&self) -> Option<String> {
        self.held().refresh.clone()
    }

    /// Takes over what is stored: the refresh token always, the access token if it is fit for use.
    pub(super) fn adopt(&self, stored: Stored, now: Instant, wall: DateTime<Utc>) -> Option<Token> {
        if stored.configured != self.configured {
            return None;
        }
        let header = oauth::bearer(&stored.access_token)?;
        self.held().refresh = stored.refresh_token;
        let life = Duration::from_secs(stored.life_seconds);
        // A clock that was set back must not make it live longer than it was granted for.
        let left = (stored.expires_at - wall).to_std().unwrap_or_default().min(life);
        Some(Token { header, until: now + left, life }).filter(|token| !token.is_old(now))
    }

    /// What is to be stored of a grant, and the token itself.
    pub(super) fn take(&self, granted: Granted, now: Instant, wall: DateTime<Utc>) -> Option<(Stored, Token)> {
        let header = oauth::bearer(&granted.access)?;
        let mut held = self.held();
        held.refresh = granted.refresh.or(held.refresh.take());
        let stored = Stored {
            configured: self.configured.clone(),
            access_token: granted.access,
            refresh_token: held.refresh.clone(),
            expires_at: wall + granted.life,
            life_seconds: granted.life.as_secs(),
        };
        Some((stored, Token { header, until: now + granted.life, life: granted.life }))
    }

    /// A token that the store did not take.
    pub(super) fn set_unsaved(&self, sealed: Option<Vec<u8>>) {
        self.held().unsaved = sealed;
    }

    pub(super) fn unsaved(&self) -> Option<Vec<u8>> {
        self.held().unsaved.clone()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Keeper").field("account", &self.account).finish_non_exhaustive()
    }
}

/// Whose credentials they are. The endpoint's address and the scope may change without another refresh token.
fn configured(oauth: &Oauth) -> String {
    let id = oauth.client_id.as_deref().unwrap_or_default();
    let secret = match &oauth.grant {
        Grant::RefreshToken(token) => token.expose(),
        Grant::ClientCredentials => "",
    };
    let named = format!("{}\0{id}\0{secret}", id.len());
    digest(&SHA256, named.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

// === impl Token ===

impl Token {
    fn usable(&self, now: Instant) -> bool {
        now + MARGIN.min(self.life / 10) < self.until
    }

    fn is_old(&self, now: Instant) -> bool {
        now + AHEAD.min(self.life / 5) >= self.until
    }
}
