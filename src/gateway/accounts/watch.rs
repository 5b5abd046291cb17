//! Once a second: what commands and other nodes have changed, what could not be stored yet, whose rest is over, and
//! whose token will soon run out.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Accounts;
use super::account::Access;
use super::keeper::{Keeper, NoToken};
use crate::gateway::store::{AccountChange, Act};

/// A change of keys and accounts must reach every node within a second.
const EVERY: Duration = Duration::from_millis(500);
/// A look at the store is given up after this (ours), so that the next one can be tried.
const PATIENCE: Duration = Duration::from_secs(5);

// === impl Accounts ===

impl Accounts {
    /// Begins to look after the accounts, until the last one who holds them is gone.
    pub(crate) fn watch(self: &Arc<Self>) {
        Handle::current().spawn(look_after(Arc::downgrade(self)));
    }

    /// Waits until no token is being fetched and everything learnt is stored, as far as the store allows. To be called
    /// at the end of the process: a rotated refresh token that is lost is an account that is lost.
    pub(crate) async fn finish(&self) {
        for keeper in self.keepers() {
            self.tokens.finish(&keeper).await;
        }
        for unsaved in self.pool.all_unsaved() {
            self.save_one(&unsaved).await;
        }
    }

    /// One round. Whether the store is well, so that its trouble is told once and not each second.
    pub(super) async fn round(self: Arc<Self>, was_well: bool) -> bool {
        self.pool.wake();
        self.try_doubted();
        let well = match timeout(PATIENCE, self.look()).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) if was_well => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the accounts cannot be looked up; they stay as they are"
                );
                false
            }
            Err(_) if was_well => {
                tracing::warn!("the store is too slow to look up the accounts; they stay as they are");
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

    /// Writes to the store which accounts this process has set aside, for commands and pages. It is written when it
    /// changes, and never while a request waits for it.
    async fn tell_health(&self) {
        for (member, account, until, failing) in self.pool.untold_health() {
            let act = Act::system();
            let write = self.store.change_account(&act, &account, AccountChange::Fail(failing));
            match timeout(PATIENCE, write).await {
                Ok(Ok(_)) => self.pool.told_health(member, until),
                Ok(Err(_)) | Err(_) => tracing::warn!(account, "the health of an account could not be stored yet"),
            }
        }
    }

    fn fetch_ahead(self: &Arc<Self>) {
        for keeper in self.keepers() {
            let accounts = Arc::clone(self);
            Handle::current().spawn(async move { accounts.fetch_one_ahead(&keeper).await });
        }
    }

    async fn fetch_one_ahead(&self, keeper: &Arc<Keeper>) {
        // Trouble is no reason to rest: the token that there is may still be good.
        let Err(NoToken::Revoked(code)) = self.tokens.ahead(keeper).await else { return };
        self.put_out(&keeper.account, code).await;
    }

    /// There will be no token for the account.
    pub(super) async fn put_out(&self, account: &str, code: &'static str) {
        self.pool.revoked(account, code);
        if let Some(unsaved) = self.pool.unsaved(account) {
            self.save_one(&unsaved).await;
        }
    }

    /// The keepers of tokens that may be used.
    pub(super) fn keepers(&self) -> Vec<Arc<Keeper>> {
        let inner = self.pool.lock();
        let enabled = inner.members.iter().filter(|member| member.disabled.is_none());
        let keepers = enabled.filter_map(|member| match member.account.access() {
            Access::Token(keeper) => Some(Arc::clone(keeper)),
            Access::Open | Access::Key(_) => None,
        });
        keepers.collect()
    }
}

/// Rounds without end, each in a task of its own: what panics in one is seen, and the next one comes.
async fn look_after(accounts: Weak<Accounts>) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut well = true;
    loop {
        ticks.tick().await;
        let Some(accounts) = accounts.upgrade() else { return };
        match Handle::current().spawn(accounts.round(well)).await {
            Ok(now) => well = now,
            Err(error) => tracing::error!(%error, "a look after the accounts ended in the middle"),
        }
    }
}
