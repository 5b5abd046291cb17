//! The server: owns the modules of the gateway, and starts and stops them.

mod accounts;
mod active_settings;
mod admission;
pub(crate) mod alerts;
pub(crate) mod backup;
mod catalog;
pub(crate) mod config;
mod console;
mod content_coding;
mod current_gateway;
mod dialects;
pub(crate) mod doctor;
pub(crate) mod endpoints;
mod filter;
mod flow;
pub(crate) mod front;
mod group_policies;
mod group_refresh;
mod heartbeat;
#[cfg(test)]
#[path = "../tests/bench/hot_paths.rs"]
mod hot_paths;
mod image_links;
pub(crate) mod keys;
pub(crate) mod ledger;
mod lifecycle;
pub(crate) mod limits;
pub(crate) mod manage;
mod mcp;
pub(crate) mod money;
pub(crate) mod names;
pub(crate) mod oidc;
mod pages;
pub(crate) mod people;
pub(crate) mod prices;
mod registry;
mod relay;
mod replay;
mod retention;
mod rules;
pub(crate) mod serve;
pub(crate) mod spool;
pub(crate) mod store;
pub(crate) mod telemetry;
mod upstream;
pub(crate) mod usage;
mod usage_fold;
pub(crate) mod work;

pub(crate) use current_gateway::CurrentGateway;
pub(crate) use serve::{ServeError, SignalListeners, serve};
pub(crate) use store::open_store;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use accounts::{Accounts, CredentialService};
use active_settings::{ActiveSettings, SettingsError};
use admission::RequestBudgets;
use catalog::TextModelCatalog;
use config::{AddressPolicy, Config};
use console::{Console, ConsoleServices, ServerParts};
use flow::ImageServices;
use group_refresh::GroupRefreshHandle;
use heartbeat::HeartbeatTask;
use keys::{ApiKeys, Pepper};
use ledger::Ledger;
use lifecycle::GatewayLifecycle;
use limits::RequestLimiter;
use pages::Pages;
use people::IdentityService;
use prices::CurrentPrices;
use registry::{PublishedRegistry, RegistryPublisher};
use replay::AnswerStore;
use spool::Spool;
use store::{PeopleStore, Store};
use telemetry::{Metrics, MetricsSnapshot};
use upstream::UpstreamClient;
use usage_fold::UsageFoldTask;

/// The gateway as its entrances see it: a view for each kind of work, with the settings in force. Clones share the services.
#[derive(Clone)]
pub(crate) struct Gateway {
    /// The services that make images and responses.
    pub(crate) images: Arc<ImageServices>,
    /// The operations of the admin API.
    pub(crate) console: Arc<Console>,
    /// The users, for the pages on which they sign in.
    pub(crate) people: Arc<IdentityService>,
    /// The state that all pages share.
    pub(crate) pages: Arc<Pages>,
    /// The parts that are started, reloaded and stopped.
    pub(crate) lifecycle: Arc<GatewayLifecycle>,
    registry: Option<Arc<RegistryPublisher>>,
}

/// Returns the API keys of a store.
pub(crate) fn open_keys(store: &Arc<dyn Store>) -> Arc<ApiKeys> {
    Arc::new(ApiKeys::new(store, Pepper::new(store.pepper_key())))
}

/// Returns the users of a store.
pub(crate) fn open_people(config: &Config, store: &Arc<dyn Store>) -> Arc<IdentityService> {
    let people = Arc::clone(store) as Arc<dyn PeopleStore>;
    let (pepper, vault) = (Pepper::new(store.pepper_key()), store.vault().clone());
    Arc::new(IdentityService::new(people, pepper, vault, config.file_groups()))
}

// === impl Gateway ===

impl Gateway {
    /// Builds all modules. The store must be locked for serving.
    async fn build(
        config: &Config,
        store: &Arc<dyn Store>,
        group_refresh: GroupRefreshHandle,
    ) -> Result<Self, ServeError> {
        let (keys, people, replays) = (open_keys(store), open_people(config, store), Arc::clone(store) as _);
        let (node, vault) = (store.node_id().clone(), store.vault());
        let request_budgets = RequestBudgets::new(&config.uploads);
        let upstream = open_upstream(config, &request_budgets)?;
        let settings = ActiveSettings::prepare(config, store.group_policies().await?, &upstream, None).await?;
        let config = &settings.config;
        let prices = CurrentPrices::start(&config.prices, Arc::clone(store) as _).await?;
        let (tokens, endpoint) = (Arc::clone(store) as _, Arc::clone(&upstream) as Arc<dyn CredentialService>);
        let accounts = Accounts::open(&config.accounts, tokens, vault.clone(), endpoint, node.clone()).await?;
        let (limiter, metrics) = (Arc::new(RequestLimiter::new(Arc::clone(store) as _)), Arc::new(Metrics::new()));
        let console_services = ConsoleServices {
            store: Arc::clone(store),
            keys: Arc::clone(&keys),
            people: Arc::clone(&people),
            prices: Arc::clone(&prices),
            limiter: Arc::clone(&limiter),
        };
        let parts = ServerParts { accounts: Arc::clone(&accounts), upstream: Arc::clone(&upstream), group_refresh };
        let console = Arc::new(Console::new(&settings, console_services, parts));
        accounts.start_tasks().await?;
        let heartbeat = HeartbeatTask::start(Arc::clone(store) as _, Arc::clone(&limiter)).await?;
        let ledger =
            Ledger::start(Arc::clone(store) as _, node.clone(), Arc::clone(&metrics), Arc::clone(&prices)).await?;
        let spool = open_spool(config, Arc::clone(&request_budgets))?;
        let free = spool.free_space(config.data_dir.clone());
        let replay = AnswerStore::open(&config.replay, free, replays, ledger.clone(), vault.clone(), node).await?;
        keys.spawn_refresh_task();
        let images = Arc::new(ImageServices {
            catalog: Arc::new(TextModelCatalog::new(&accounts, &upstream)),
            usage_fold: Arc::new(UsageFoldTask::start(Arc::clone(store) as _)),
            cutoff: CancellationToken::new(),
            people: Arc::clone(&people),
            settings: Arc::clone(&settings),
            keys,
            accounts,
            upstream,
            replay,
            ledger,
            limiter,
            prices,
            spool,
            request_budgets,
            metrics,
        });
        Ok(Self {
            lifecycle: Arc::new(GatewayLifecycle::start(&images, store, heartbeat)),
            pages: Arc::new(Pages::new(config.public_url.as_ref(), vault.clone())),
            registry: config.skills_dir.as_deref().map(|folder| Arc::new(RegistryPublisher::new(folder))),
            images,
            console,
            people,
        })
    }

    /// Returns a gateway with these settings and these groups of the store, which takes the place of this one. Both
    /// gateways share all services, with the requests in progress, the accounts and the sessions. The services learn of the
    /// settings when the new gateway comes into force ([`CurrentGateway::replace`]).
    ///
    /// # Errors
    ///
    /// Returns an error if the settings cannot be used. Groups of the store do not cause one.
    async fn with_config(&self, config: &Config, groups: &[(String, String)]) -> Result<Self, ServeError> {
        let upstream = &self.images.upstream;
        let settings = ActiveSettings::prepare(config, groups.to_vec(), upstream, Some(self.settings())).await?;
        let console = Arc::new(self.console.with_settings(&settings));
        let images = Arc::new(ImageServices { settings, ..ImageServices::clone(&self.images) });
        Ok(Self { images, console, ..self.clone() })
    }

    /// The settings in force.
    pub(crate) fn settings(&self) -> &ActiveSettings {
        &self.images.settings
    }

    /// The skills that are published now; `None` if there is no skills folder, or nothing of it has been published.
    pub(crate) async fn skills(&self) -> Option<Arc<PublishedRegistry>> {
        match &self.registry {
            Some(registry) => registry.published().await,
            None => None,
        }
    }

    /// The metrics: the counters, and the current values of the gauges.
    ///
    /// # Errors
    ///
    /// Returns an error if the text cannot be written, which is an internal error.
    pub(crate) fn render_metrics(&self) -> Result<String, std::fmt::Error> {
        let (accounts, waiting) = self.images.accounts.snapshot();
        self.lifecycle.connections.report_to_metrics();
        let held = self.images.request_budgets.usage();
        self.images.metrics.render(&MetricsSnapshot {
            accounts,
            waiting,
            unsettled: self.images.ledger.unsettled_records(),
            body_bytes: held.memory,
            spool_bytes: held.disk,
            refused_for_space: held.refused,
        })
    }
}

/// Opens the client of the upstreams.
fn open_upstream(config: &Config, budgets: &Arc<RequestBudgets>) -> Result<Arc<UpstreamClient>, SettingsError> {
    let (addresses, budgets) = (AddressPolicy::for_services(config.allow_link_local), Arc::clone(budgets));
    Ok(Arc::new(UpstreamClient::new(config.deadlines.connect, addresses, budgets)?))
}

/// Opens the spool, and begins to check the free space of its disk.
fn open_spool(config: &Config, budgets: Arc<RequestBudgets>) -> Result<Spool, ServeError> {
    let spool = Spool::open_in(&config.data_dir, config.uploads.min_free, budgets).map_err(ServeError::Spool)?;
    spool.start_space_checks();
    Ok(spool)
}
