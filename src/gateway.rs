//! The server: owns the rooms, their start and their end.

mod accounts;
mod catalog;
pub(crate) mod config;
mod console;
mod endpoints;
mod filter;
mod flow;
pub(crate) mod front;
pub(crate) mod keys;
pub(crate) mod ledger;
pub(crate) mod manage;
mod pages;
pub(crate) mod people;
mod registry;
mod relay;
mod replay;
mod rules;
mod serve;
pub(crate) mod spool;
pub(crate) mod store;
pub(crate) mod telemetry;
mod upstream;
pub(crate) mod usage;

pub(crate) use serve::{ServeError, serve};

use std::collections::HashMap;
use std::sync::Arc;

use accounts::{Accounts, TokenEndpoint};
use catalog::Catalog;
use config::{Config, Deadlines, Delivery, Fallback, Group, Proxies};
use console::Console;
use filter::Filters;
use keys::{Keys, Pepper};
use ledger::{Ledger, NodeId};
use pages::Pages;
use people::People;
use registry::{Published, Registry};
use replay::Replay;
use rules::ImageModels;
use spool::Spool;
use store::{AccountSpec, Act, MasterKey, PeopleStore as _, SqliteStore, Store, StoreError, Timestamp};
use telemetry::{Metrics, Now};
use upstream::Upstream;

/// Everything that a request can reach.
pub(crate) struct Gateway {
    console: Console,
    keys: Arc<Keys>,
    people: Arc<People>,
    pages: Pages,
    trusted_proxies: Proxies,
    accounts: Arc<Accounts>,
    filters: Filters,
    upstream: Arc<Upstream>,
    replay: Replay,
    ledger: Ledger,
    metrics: Arc<Metrics>,
    registry: Option<Arc<Registry>>,
    spool: Spool,
    image_models: ImageModels,
    catalog: Catalog,
    deadlines: Deadlines,
    groups: HashMap<String, Group>,
}

/// The store of a configuration, for the server and for commands beside it.
///
/// # Errors
///
/// Where the data directory cannot be used.
pub(crate) async fn open_store(config: &Config) -> Result<Arc<SqliteStore>, StoreError> {
    let master_key = config.master_key.as_ref().map(|secret| MasterKey::from_text(secret.expose())).transpose()?;
    SqliteStore::open(&config.data_dir, master_key).await.map(Arc::new)
}

/// The keys in a store.
pub(crate) fn open_keys(store: &Arc<SqliteStore>) -> Arc<Keys> {
    Arc::new(Keys::new(Arc::clone(store) as Arc<dyn Store>, Pepper::new(store.pepper_key())))
}

/// The people in a store.
pub(crate) fn open_people(config: &Config, store: &Arc<SqliteStore>) -> Arc<People> {
    let of_file = config.groups.iter().map(|group| group.name.clone()).collect();
    Arc::new(People::new(Arc::clone(store) as Arc<dyn Store>, Pepper::new(store.pepper_key()), of_file))
}

// === impl Gateway ===

impl Gateway {
    /// Builds the rooms. The store must be locked for serving.
    async fn build(config: &Config, store: &Arc<SqliteStore>) -> Result<Self, ServeError> {
        let (keys, people) = (open_keys(store), open_people(config, store));
        let console = Console::new(config, store, &keys, &people)?;
        for group in &config.groups {
            store.ensure_group(&Act::system(), &group.name).await?;
        }
        for account in &config.accounts {
            store.sync_account(spec(account)).await?;
        }
        let in_file: Vec<&str> = config.accounts.iter().map(|account| account.name.as_str()).collect();
        store.mark_absent(&in_file, Timestamp::now()).await?;
        let rows = Arc::clone(store) as Arc<dyn Store>;
        let (node, vault) = (NodeId::only(), store.vault());
        let filters = Filters::new(&config.groups)?;
        // What encryption takes is looked for now: a start fails better than every call.
        let tls = accounts::need_tls(&config.accounts) || filters.need_tls();
        let upstream = Arc::new(Upstream::new(config.deadlines.connect, tls)?);
        let tokens = Arc::clone(&upstream) as Arc<dyn TokenEndpoint>;
        let accounts = Accounts::open(&config.accounts, Arc::clone(&rows), vault.clone(), tokens, node.clone()).await?;
        accounts.watch();
        let catalog = Catalog::new(config.text_models.as_deref(), &accounts, &upstream);
        let replay =
            Replay::open(&config.replay, &config.data_dir, Arc::clone(&rows), vault.clone(), node.clone()).await?;
        let metrics = Arc::new(Metrics::new());
        keys.watch();
        let pages = Pages::new(config.public_url.as_ref()).map_err(no_randomness)?;
        Ok(Self {
            console,
            keys,
            people,
            pages,
            trusted_proxies: config.trusted_proxies.clone(),
            filters,
            upstream,
            accounts,
            replay,
            ledger: Ledger::start(rows, node, Arc::clone(&metrics)).await?,
            metrics,
            registry: config.skills_dir.as_deref().map(|folder| Arc::new(Registry::new(folder))),
            spool: Spool::new(&config.data_dir).map_err(ServeError::Spool)?,
            image_models: ImageModels::new(&config.image_models),
            catalog,
            deadlines: config.deadlines,
            groups: config.groups.iter().map(|group| (group.name.clone(), group.clone())).collect(),
        })
    }

    pub(crate) const fn console(&self) -> &Console {
        &self.console
    }

    pub(crate) const fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    pub(crate) const fn people(&self) -> &Arc<People> {
        &self.people
    }

    pub(crate) const fn trusted_proxies(&self) -> &Proxies {
        &self.trusted_proxies
    }

    pub(crate) const fn pages(&self) -> &Pages {
        &self.pages
    }

    pub(crate) const fn filters(&self) -> &Filters {
        &self.filters
    }

    pub(crate) const fn replay(&self) -> &Replay {
        &self.replay
    }

    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    pub(crate) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    pub(crate) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The skills that are published, if any are.
    pub(crate) async fn skills(&self) -> Option<Arc<Published>> {
        match &self.registry {
            Some(registry) => registry.published().await,
            None => None,
        }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// What was counted, and how things stand at this moment.
    ///
    /// # Errors
    ///
    /// Where it cannot be written, which is a fault of ours.
    pub(crate) fn measured(&self) -> Result<String, std::fmt::Error> {
        let (accounts, waiting) = self.accounts.now();
        self.metrics.render(&Now { accounts, waiting, unsettled: self.ledger.unsettled() })
    }

    /// Whether a new job can be begun: the store answers, and the end has not come.
    pub(crate) fn is_ready(&self) -> bool {
        self.accounts.is_ready()
    }

    pub(crate) const fn spool(&self) -> &Spool {
        &self.spool
    }

    /// What each image model can be asked for.
    pub(crate) const fn image_models(&self) -> &ImageModels {
        &self.image_models
    }

    /// The text models.
    pub(crate) const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// What a group does with another size or format than was asked for. A group that the configuration does not name
    /// has the default.
    pub(crate) fn delivery(&self, group: &str) -> Delivery {
        self.groups.get(group).map_or(Delivery::Report, |group| group.delivery)
    }

    /// What a group does where no account can make what was asked for.
    pub(crate) fn fallback(&self, group: &str) -> Fallback {
        self.groups.get(group).map_or(Fallback::Off, |group| group.fallback)
    }

    /// Whether the coding agents of a group get an image tool where they bring none.
    pub(crate) fn injects_tool(&self, group: &str) -> bool {
        self.groups.get(group).is_some_and(|group| group.inject_image_tool)
    }

    /// How long one call for a group may take.
    pub(crate) fn deadlines(&self, group: &str) -> Deadlines {
        self.groups.get(group).map_or(self.deadlines, |group| group.deadlines)
    }
}

fn no_randomness(error: getrandom::Error) -> ServeError {
    ServeError::Io { doing: "asking the machine for random bytes", source: std::io::Error::other(error) }
}

/// What the store keeps of an account: never its credentials.
fn spec(account: &config::Account) -> AccountSpec<'_> {
    let (kind, protocol) = (account.upstream.kind(), account.upstream.protocol());
    AccountSpec {
        name: &account.name,
        kind,
        protocol: protocol.unwrap_or(config::Protocol::Images).as_str(),
        tier: account.tier.as_str(),
    }
}
