//! Refreshes the accounts every half second: applies the changes that commands and other nodes have stored, stores
//! changes that could not be stored before, serves waiting requests after cooldowns have ended, and fetches new tokens
//! for those that expire soon.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Accounts;
use super::account::AccountAuth;
use super::token_cache::{TokenCache, TokenFailure};
use crate::gateway::store::{AccountChange, AuditContext, StoreError};

/// The interval between two refreshes: a change of keys and accounts must reach every node within a second.
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);
/// The time limit for one read or write of the store (our choice). After it the operation is abandoned, and tried again
/// in the next refresh.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

// === impl Accounts ===

impl Accounts {
    /// Starts the refresh task, which ends when the last owner of the accounts drops them, and shares the slots of the
    /// accounts with other nodes.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails.
    pub(crate) async fn start_tasks(self: &Arc<Self>) -> Result<(), StoreError> {
        Handle::current().spawn(run_refresh_loop(Arc::downgrade(self)));
        self.share_slots().await
    }

    /// Waits until no token is being fetched and all state is stored, as far as the store allows. Must be called at the
    /// end of the process: without its rotated refresh token an account cannot be used.
    pub(crate) async fn finish(&self) {
        for cache in self.token_caches() {
            self.token_fetcher.finish(&cache).await;
        }
        for unsaved in self.pool.unsaved_changes() {
            self.save_change(&unsaved).await;
        }
        self.return_slots().await;
    }

    /// Refreshes the accounts once. Returns true if the store was read. The next refresh takes this value as
    /// `was_readable`, so that a continuing failure is logged once.
    pub(super) async fn refresh_once(self: Arc<Self>, was_readable: bool) -> bool {
        self.pool.serve_waiting();
        self.check_suspected_credentials();
        let is_readable = match timeout(STORE_TIMEOUT, self.reload()).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) if was_readable => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the accounts could not be read from the store; the known ones stay in use"
                );
                false
            }
            Err(_) if was_readable => {
                tracing::warn!("the accounts could not be read in time from the store; the known ones stay in use");
                false
            }
            Ok(Err(_)) | Err(_) => false,
        };
        self.is_store_readable.store(is_readable, Ordering::Relaxed);
        if is_readable {
            for unsaved in self.pool.unsaved_changes() {
                self.save_change(&unsaved).await;
            }
            self.save_health().await;
            self.prefetch_tokens();
        }
        is_readable
    }

    /// Stores which accounts this process has ejected, for commands and pages. Only changes are written, and no request
    /// waits for them.
    async fn save_health(&self) {
        for unsaved in self.pool.unsaved_health() {
            let audit = AuditContext::system();
            let change = AccountChange::SetEjection(unsaved.ejection.clone());
            let write = self.store.change_account(&audit, &unsaved.account, change);
            match timeout(STORE_TIMEOUT, write).await {
                Ok(Ok(_)) => self.pool.mark_health_saved(&unsaved),
                Ok(Err(_)) | Err(_) => {
                    tracing::warn!(
                        account = unsaved.account,
                        "the health of an account could not be stored; it will be retried"
                    );
                }
            }
        }
    }

    fn prefetch_tokens(self: &Arc<Self>) {
        for cache in self.token_caches() {
            let accounts = Arc::clone(self);
            Handle::current().spawn(async move { accounts.prefetch_token(&cache).await });
        }
    }

    async fn prefetch_token(&self, cache: &Arc<TokenCache>) {
        // A temporary failure changes nothing: the existing token may still be valid.
        let Err(TokenFailure::Revoked(code)) = self.token_fetcher.prefetch(cache).await else { return };
        self.disable_revoked_account(&cache.account, code).await;
    }

    /// Disables the account, because no token can be fetched for it.
    pub(super) async fn disable_revoked_account(&self, account: &str, code: &'static str) {
        self.pool.disable_revoked(account, code);
        if let Some(unsaved) = self.pool.unsaved_change(account) {
            self.save_change(&unsaved).await;
        }
    }

    /// Returns the token caches of the accounts that may be used.
    pub(super) fn token_caches(&self) -> Vec<Arc<TokenCache>> {
        let state = self.pool.lock();
        let enabled = state.members.iter().filter(|member| member.disabled_reason.is_none());
        let caches = enabled.filter_map(|member| match member.account.auth() {
            AccountAuth::Token(cache) => Some(Arc::clone(cache)),
            AccountAuth::Unauthenticated | AccountAuth::Key(_) => None,
        });
        caches.collect()
    }
}

/// Refreshes the accounts until they are dropped. Each refresh runs in its own task, so that a panic is logged and the
/// next refresh still runs.
async fn run_refresh_loop(accounts: Weak<Accounts>) {
    let mut ticks = interval(REFRESH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_readable = true;
    loop {
        ticks.tick().await;
        let Some(accounts) = accounts.upgrade() else { return };
        match Handle::current().spawn(accounts.refresh_once(is_readable)).await {
            Ok(was_read) => is_readable = was_read,
            Err(error) => tracing::error!(%error, "the periodic check of the accounts has failed"),
        }
    }
}
