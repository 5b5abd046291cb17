//! The accounts of the configuration, updated while the gateway runs.

use std::sync::Arc;

use tokio::time::Instant;

use super::Accounts;
use super::account::Account;
use super::member::Member;
use crate::gateway::config;
use crate::gateway::store::StoreError;

/// The reason for which an account that is new to the pool is not used until its state was read from the store.
const UNKNOWN: &str = "its state is not known yet";

// === impl Accounts ===

impl Accounts {
    /// Takes over the accounts of a configuration that was read again; their rows must be in the store. An account that
    /// stays keeps its rest, its health and its calls; the calls of one that is gone are finished.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read. New accounts then come into use as soon as it can.
    pub(crate) async fn configure(
        &self,
        before: &[config::Account],
        now: &[config::Account],
    ) -> Result<(), StoreError> {
        self.put(before, now);
        self.look().await
    }

    fn put(&self, before: &[config::Account], now: &[config::Account]) {
        let mut inner = self.pool.lock();
        let is_configured = |name: &str| now.iter().any(|account| account.name == name);
        inner.members.retain(|member| member.origin.is_some() || is_configured(member.account.name()));
        for account in now.iter().filter(|account| !before.contains(account)) {
            let built = Arc::new(Account::new(account));
            match inner.members.iter().position(|member| member.account.name() == account.name) {
                Some(at) => inner.members[at].replace(built),
                None => {
                    let mut member = Member::new(inner.next_id(), built, None);
                    member.disabled = Some(UNKNOWN.to_owned());
                    inner.members.push(member);
                }
            }
        }
        inner.settle(&self.pool, Instant::now());
    }
}
