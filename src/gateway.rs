//! The server: owns the rooms, their start and their end.

mod accounts;
pub(crate) mod config;
mod endpoints;
mod flow;
pub(crate) mod front;
pub(crate) mod keys;
pub(crate) mod ledger;
mod relay;
mod rules;
mod serve;
pub(crate) mod spool;
pub(crate) mod store;
pub(crate) mod telemetry;
mod upstream;

pub(crate) use serve::{ServeError, serve};

use std::collections::HashMap;
use std::sync::Arc;

use accounts::Accounts;
use config::{Config, Deadlines, Delivery, Group};
use keys::{Keys, Pepper};
use ledger::{Ledger, NodeId};
use spool::Spool;
use store::{AccountSpec, SqliteStore, Store, StoreError};
use upstream::Upstream;

/// Everything that a request can reach.
pub(crate) struct Gateway {
    keys: Keys,
    accounts: Accounts,
    upstream: Upstream,
    ledger: Ledger,
    spool: Spool,
    models: Vec<String>,
    deadlines: Deadlines,
    groups: HashMap<String, Group>,
}

/// The store of a configuration, for the server and for commands beside it.
///
/// # Errors
///
/// Where the data directory cannot be used.
pub(crate) async fn open_store(config: &Config) -> Result<Arc<SqliteStore>, StoreError> {
    SqliteStore::open(&config.data_dir).await.map(Arc::new)
}

/// The keys in a store.
pub(crate) fn open_keys(store: &Arc<SqliteStore>) -> Keys {
    Keys::new(Arc::clone(store) as Arc<dyn Store>, Pepper::derive(store.master_key()))
}

// === impl Gateway ===

impl Gateway {
    /// Builds the rooms. The store must be locked for serving.
    async fn build(config: &Config, store: &Arc<SqliteStore>) -> Result<Self, ServeError> {
        for group in &config.groups {
            store.ensure_group(&group.name).await?;
        }
        for account in &config.accounts {
            store.sync_account(spec(account)).await?;
        }
        let accounts = Accounts::new(&config.accounts);
        Ok(Self {
            keys: open_keys(store),
            upstream: Upstream::new(config.deadlines.connect, accounts.need_tls())?,
            accounts,
            ledger: Ledger::start(Arc::clone(store) as Arc<dyn Store>, NodeId::only()).await?,
            spool: Spool::new(&config.data_dir).map_err(ServeError::Spool)?,
            models: config.models.clone(),
            deadlines: config.deadlines,
            groups: config.groups.iter().map(|group| (group.name.clone(), group.clone())).collect(),
        })
    }

    pub(crate) const fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) const fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    pub(crate) const fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    pub(crate) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) const fn spool(&self) -> &Spool {
        &self.spool
    }

    pub(crate) fn models(&self) -> &[String] {
        &self.models
    }

    /// What a group does with another size or format than was asked for. A group that the configuration does not name
    /// has the default.
    pub(crate) fn delivery(&self, group: &str) -> Delivery {
        self.groups.get(group).map_or(Delivery::Report, |group| group.delivery)
    }

    /// How long one call for a group may take.
    pub(crate) fn deadlines(&self, group: &str) -> Deadlines {
        self.groups.get(group).map_or(self.deadlines, |group| group.deadlines)
    }
}

/// What the store keeps of an account: never its credentials.
fn spec(account: &config::Account) -> AccountSpec<'_> {
    let kind = match account.upstream {
        config::Upstream::Simulator => "simulator",
        config::Upstream::Images(_) => "api_key",
    };
    let tier = match account.tier {
        config::Tier::Paid => "paid",
        config::Tier::Free => "free",
    };
    AccountSpec { name: &account.name, kind, protocol: "images", tier }
}
