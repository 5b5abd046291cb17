//! The accounts of the configuration, updated while the gateway runs.

use std::sync::Arc;

use tokio::time::Instant;

use super::Accounts;
use super::account::UpstreamAccount;
use crate::gateway::config;

/// The reason why a new account is not used until its state has been read from the store.
const UNKNOWN: &str = "its state is not known yet";

// === impl Accounts ===

impl Accounts {
    /// Applies a configuration that was reloaded; the rows of its accounts must be in the store. An account that
    /// stays keeps its cooldown, its health and its calls. The calls of a removed account are completed.
    ///
    /// If the store cannot be read, new accounts are not used until a later refresh has read it.
    pub(crate) async fn configure(&self, previous: &[config::AccountConfig], current: &[config::AccountConfig]) {
        self.replace_configured(previous, current);
        if let Err(error) = self.reload().await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "the state of new accounts could not be read; it will be read again");
        }
    }

    fn replace_configured(&self, previous: &[config::AccountConfig], current: &[config::AccountConfig]) {
        let mut state = self.pool.lock();
        let is_configured = |name: &str| current.iter().any(|account| account.name == name);
        state.members.retain(|member| member.stored_row.is_some() || is_configured(member.account.name()));
        for account in current.iter().filter(|account| !previous.contains(account)) {
            let new_account = Arc::new(UpstreamAccount::new(account));
            match state.members.iter().position(|member| member.account.name() == account.name) {
                Some(index) => state.members[index].replace_account(new_account),
                None => {
                    state.add_member(new_account, None).disabled_reason = Some(UNKNOWN.to_owned());
                }
            }
        }
        state.update_queue(&self.pool, Instant::now());
    }
}
