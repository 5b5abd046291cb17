//! Fetches tokens: one exchange at a time, in this process and among all that share the store.
//!
//! Once asked, an endpoint may have spent the old refresh token, so an exchange is never given up half way, and what
//! it gave is stored before anybody uses it. It carries U17 of the failure catalogue.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::Utc;
use http::HeaderValue;
use tokio::sync::Mutex as Flight;
use tokio::time::{Instant, sleep, timeout};

use super::keeper::{Keeper, NoToken, Stored, Token};
use super::oauth::{self, Refusal, TokenEndpoint};
use crate::gateway::store::{NodeId, Store, StoreError, Vault};

/// The longest that an endpoint is waited for (ours).
const EXCHANGE: Duration = Duration::from_secs(20);
/// How long a node may take over a fetch before another tries (ours): longer than it waits for the endpoint.
const CLAIM: Duration = Duration::from_secs(60);
/// How often, and for how long, the node that lost looks whether the other has finished (ours).
const LOOK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(25);
/// Tries to store a token, with this pause in between (ours): it is worth more than a record.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// What every fetch needs.
pub(super) struct Tokens {
    store: Arc<dyn Store>,
    vault: Vault,
    endpoint: Arc<dyn TokenEndpoint>,
    node: NodeId,
    /// One for each account, held by the one who fetches. By name: new settings of an account do not begin a second
    /// fetch beside one that is under way.
    flights: Mutex<HashMap<String, Arc<Flight<()>>>>,
}

// === impl Tokens ===

impl Tokens {
    pub(super) fn new(store: Arc<dyn Store>, vault: Vault, endpoint: Arc<dyn TokenEndpoint>, node: NodeId) -> Self {
        Self { store, vault, endpoint, node, flights: Mutex::default() }
    }

    /// A token that is good now.
    pub(super) async fn access(self: &Arc<Self>, keeper: &Arc<Keeper>) -> Result<HeaderValue, NoToken> {
        match keeper.usable(Instant::now()) {
            Some(header) => Ok(header),
            None => self.fetch(keeper, None).await,
        }
    }

    /// Another token than the one that was refused.
    pub(super) async fn renew(
        self: &Arc<Self>,
        keeper: &Arc<Keeper>,
        refused: &HeaderValue,
    ) -> Result<HeaderValue, NoToken> {
        match keeper.usable(Instant::now()) {
            Some(header) if header != refused => Ok(header),
            _ => self.fetch(keeper, Some(refused.clone())).await,
        }
    }

    /// The next token, ahead of need, and once more the try to store what could not be. Nothing where somebody fetches.
    pub(super) async fn ahead(self: &Arc<Self>, keeper: &Arc<Keeper>) -> Result<(), NoToken> {
        match self.flight(&keeper.account).try_lock() {
            Ok(_alone) => self.save(keeper).await,
            Err(_) => return Ok(()),
        }
        if keeper.is_due(Instant::now()) {
            self.fetch(keeper, None).await?;
        }
        Ok(())
    }

    /// Waits until nobody fetches for this account and what was fetched is stored, as far as the store allows.
    pub(super) async fn finish(&self, keeper: &Keeper) {
        let flight = self.flight(&keeper.account);
        let _alone = flight.lock().await;
        self.save(keeper).await;
    }

    fn flight(&self, account: &str) -> Arc<Flight<()>> {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(flights.entry(account.to_owned()).or_default())
    }

    /// Tries once more to store what could not be. Only the one who fetches may: an older token must not come last.
    async fn save(&self, keeper: &Keeper) {
        let Some(sealed) = keeper.unsaved() else { return };
        if self.store_once(keeper, &sealed).await.is_ok() {
            keeper.set_unsaved(None);
        }
    }

    /// All who ask while somebody fetches get what that one gets.
    async fn fetch(
        self: &Arc<Self>,
        keeper: &Arc<Keeper>,
        refused: Option<HeaderValue>,
    ) -> Result<HeaderValue, NoToken> {
        let before = keeper.ended();
        let flight = self.flight(&keeper.account).lock_owned().await;
        if keeper.ended() != before {
            return keeper.outcome();
        }
        // Who comes a moment after a failure has not heard of it yet.
        if let Some(failed) = keeper.failed(Instant::now()) {
            return Err(failed);
        }
        let (tokens, keeper) = (Arc::clone(self), Arc::clone(keeper));
        // A task of its own: whoever asked may leave, the rotated refresh token must not be lost.
        let fetching = tokio::runtime::Handle::current().spawn(async move {
            let result = tokens.next(&keeper, refused.as_ref()).await;
            keeper.end(result, refused.is_some(), Instant::now());
            drop(flight);
            keeper.outcome()
        });
        fetching.await.unwrap_or_else(|error| {
            tracing::error!(%error, "fetching a token ended in the middle");
            Err(NoToken::Trouble)
        })
    }

    async fn next(&self, keeper: &Keeper, refused: Option<&HeaderValue>) -> Result<Token, NoToken> {
        let trouble = |error: StoreError| {
            tracing::error!(
                account = keeper.account,
                error = &error as &dyn std::error::Error,
                "no token was fetched: the store has trouble"
            );
            NoToken::Trouble
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
                tracing::warn!(account = keeper.account, "another node has been fetching a token for too long");
                return Err(NoToken::Trouble);
            }
            sleep(LOOK).await;
        }
        // Another may have finished between the look and the claim.
        let token = match self.stored(keeper, refused).await {
            Ok(Some(token)) => Ok(token),
            Ok(None) => return self.exchange(keeper, refused).await,
            Err(error) => Err(trouble(error)),
        };
        self.release(keeper).await;
        token
    }

    async fn claim(&self, keeper: &Keeper) -> Result<bool, StoreError> {
        let now = Utc::now();
        self.store.claim_refresh(&keeper.account, self.node.as_str(), now.into(), (now + CLAIM).into()).await
    }

    async fn release(&self, keeper: &Keeper) {
        if let Err(error) = self.store.release_refresh(&keeper.account, self.node.as_str()).await {
            tracing::warn!(account = keeper.account, %error, "the claim to fetch a token runs out by itself");
        }
    }

    /// What the store has, if it is good and not the one that was refused.
    async fn stored(&self, keeper: &Keeper, refused: Option<&HeaderValue>) -> Result<Option<Token>, StoreError> {
        self.save(keeper).await;
        if keeper.unsaved().is_some() {
            // What is stored is older than what is known here.
            return Ok(None);
        }
        let Some(row) = self.store.load_token(&keeper.account).await? else { return Ok(None) };
        let opened = self.vault.open(&context(&keeper.account), &row.sealed);
        let read = opened.ok().and_then(|plain| serde_json::from_slice::<Stored>(&plain).ok());
        if read.is_none() {
            tracing::error!(account = keeper.account, "the stored token cannot be read; the configured one is used");
        }
        let adopted = read.and_then(|stored| keeper.adopt(stored, Instant::now(), Utc::now()));
        Ok(adopted.filter(|token| Some(&token.header) != refused))
    }

    /// The exchange itself. The claim is held, and let go at the end.
    async fn exchange(&self, keeper: &Keeper, refused: Option<&HeaderValue>) -> Result<Token, NoToken> {
        let refresh = keeper.refresh();
        let request = oauth::request(&keeper.oauth, refresh.as_deref());
        let answer = timeout(EXCHANGE, self.endpoint.exchange(request)).await;
        let granted = match answer {
            Ok(Ok(answer)) => oauth::read(&answer),
            Ok(Err(_)) | Err(_) => Err(Refusal::Transient),
        };
        match granted {
            Ok(granted) => {
                let taken = keeper.take(granted, Instant::now(), Utc::now()).ok_or(NoToken::Trouble);
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
        keeper: &Keeper,
        refused: Option<&HeaderValue>,
        used: Option<&str>,
        refusal: Refusal,
    ) -> Result<Token, NoToken> {
        self.release(keeper).await;
        let Refusal::Permanent(code) = refusal else {
            tracing::warn!(account = keeper.account, "the token endpoint gave no token; later it may");
            return Err(NoToken::Trouble);
        };
        // A node that was slower than its claim may have rotated the refresh token under our hands.
        match self.stored(keeper, refused).await {
            Ok(Some(token)) => Ok(token),
            Ok(None) if keeper.refresh().as_deref() == used => Err(NoToken::Revoked(code)),
            Ok(None) | Err(_) => Err(NoToken::Trouble),
        }
    }

    /// Stores a token, before anybody uses it. Where the store does not take it, using it all the same is better than
    /// losing it: the old one is spent, and the watch goes on trying.
    async fn keep(&self, keeper: &Keeper, stored: &Stored) {
        let sealed = serde_json::to_vec(stored).map_err(|error| StoreError::Refused(error.into()));
        let sealed = match sealed.and_then(|plain| self.vault.seal(&context(&keeper.account), &plain)) {
            Ok(sealed) => sealed,
            Err(error) => {
                tracing::error!(account = keeper.account, %error, "a token cannot be sealed, and is not stored");
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

    async fn store_once(&self, keeper: &Keeper, sealed: &[u8]) -> Result<(), StoreError> {
        if !self.store.store_token(&keeper.account, self.node.as_str(), sealed).await? {
            // Whoever holds the claim now, or has entered other credentials, knows better.
            tracing::warn!(account = keeper.account, "a token came too late to be stored");
        }
        Ok(())
    }
}

/// Where a token is sealed for: another account's does not open here.
fn context(account: &str) -> String {
    format!("token of account {account}")
}
