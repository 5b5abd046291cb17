//! Updates the accounts each half second: adopts changes of commands and other nodes, stores what could not be stored
//! before, serves requests whose wait is over, and fetches tokens that expire soon.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Accounts;
use super::account::AccountAuth;
use super::keeper::{TokenCache, TokenFailure};
use crate::gateway::store::{AccountChange, AuditContext};

/// The pause between two rounds: a change of keys and accounts must reach every node within a second.
const EVERY: Duration = Duration::from_millis(500);
/// The longest read of the store (ours). After that the read is abandoned, so that the next one can be tried.
const PATIENCE: Duration = Duration::from_secs(5);

// === impl Accounts ===

impl Accounts {
    /// Starts the watch task, which ends when the last owner of the accounts drops them.
    pub(crate) fn watch(self: &Arc<Self>) {
        Handle::current().spawn(look_after(Arc::downgrade(self)));
    }

    /// Waits until no token is being fetched and all state is stored, as far as the store allows. Must be called at the
    /// end of the process: without its rotated refresh token an account cannot be used.
    pub(crate) async fn finish(&self) {
        for keeper in self.keepers() {
            self.tokens.finish(&keeper).await;
        }
        for unsaved in self.pool.all_unsaved() {
            self.save_one(&unsaved).await;
        }
    }

    /// Runs one round. Returns true if the store works, so that a failure is logged once and not in each round.
    pub(super) async fn round(self: Arc<Self>, was_well: bool) -> bool {
        self.pool.wake();
        self.try_doubted();
        let well = match timeout(PATIENCE, self.look()).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) if was_well => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the accounts could not be read from the store; the known ones stay in use"
                );
                false
            }
            Err(_) if was_well => {
                tracing::warn!("the accounts could not be read in time from the store; the known ones stay in use");
                false
            }
            Ok(Err(_)) | Err(_) => false,
        };
        self.well.store(well, Ordering::Relaxed);
        if well {
            for unsaved in self.pool.all_unsaved() {
                self.save_one(&unsaved).await;
            }
            self.tell_health().await;
            self.fetch_ahead();
        }
        well
    }

    /// Writes to the store which accounts this process has ejected, for commands and pages. They are written when they
    /// change, and never while a request waits for it.
    async fn tell_health(&self) {
        for (member, account, until, failing) in self.pool.untold_health() {
            let act = AuditContext::system();
            let write = self.store.change_account(&act, &account, AccountChange::Fail(failing));
            match timeout(PATIENCE, write).await {
                Ok(Ok(_)) => self.pool.told_health(member, until),
                Ok(Err(_)) | Err(_) => {
                    tracing::warn!(account, "the health of an account could not be stored; it will be retried");
                }
            }
        }
    }

    fn fetch_ahead(self: &Arc<Self>) {
        for keeper in self.keepers() {
            let accounts = Arc::clone(self);
            Handle::current().spawn(async move { accounts.fetch_one_ahead(&keeper).await });
        }
    }

    async fn fetch_one_ahead(&self, keeper: &Arc<TokenCache>) {
        // A temporary failure changes nothing: the existing token may still be valid.
        let Err(TokenFailure::Revoked(code)) = self.tokens.ahead(keeper).await else { return };
        self.put_out(&keeper.account, code).await;
    }

    /// Disables the account, because no token can be fetched for it.
    pub(super) async fn put_out(&self, account: &str, code: &'static str) {
        self.pool.revoked(account, code);
        if let Some(unsaved) = self.pool.unsaved(account) {
            self.save_one(&unsaved).await;
        }
    }

    /// Returns the token caches of the accounts that may be used.
    pub(super) fn keepers(&self) -> Vec<Arc<TokenCache>> {
        let inner = self.pool.lock();
        let enabled = inner.members.iter().filter(|member| member.disabled.is_none());
        let keepers = enabled.filter_map(|member| match member.account.access() {
            AccountAuth::Token(keeper) => Some(Arc::clone(keeper)),
            AccountAuth::Open | AccountAuth::Key(_) => None,
        });
        keepers.collect()
    }
}

/// Runs rounds without end, each in its own task: a panic in one is noticed, and the next one runs.
async fn look_after(accounts: Weak<Accounts>) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut well = true;
    loop {
        ticks.tick().await;
        let Some(accounts) = accounts.upgrade() else { return };
        match Handle::current().spawn(accounts.round(well)).await {
            Ok(now) => well = now,
            Err(error) => tracing::error!(%error, "the periodic check of the accounts has failed"),
        }
    }
}
