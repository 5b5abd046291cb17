//! The server: owns the modules of the gateway, and starts and stops them.

mod accounts;
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
mod unready_reason;
mod upstream;
pub(crate) mod usage;
mod usage_fold;
pub(crate) mod work;

pub(crate) use current_gateway::CurrentGateway;
pub(crate) use serve::{ServeError, SignalListeners, serve};
pub(crate) use store::open_store;
pub(crate) use unready_reason::UnreadyReason;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use accounts::{Accounts, CredentialService};
use admission::RequestBudgets;
use alerts::AlertService;
use catalog::TextModelCatalog;
use config::{AddressPolicy, Config, SecondFactorPolicy, TrustedProxies};
use console::{Console, ConsoleServices, ServerParts};
use front::ConnectionTable;
use group_policies::GroupPolicies;
use group_refresh::{GroupRefreshHandle, merge_stored_groups, needs_tls};
use heartbeat::HeartbeatTask;
use image_links::ImageLinkSealer;
use keys::{ApiKeys, Pepper};
use ledger::Ledger;
use limits::RequestLimiter;
use oidc::OidcProvider;
use pages::Pages;
use people::IdentityService;
use prices::CurrentPrices;
use registry::{PublishedRegistry, RegistryPublisher};
use replay::AnswerStore;
use retention::RetentionTask;
use rules::ImageModels;
use spool::Spool;
use store::{PeopleStore, Store};
use telemetry::{Metrics, MetricsSnapshot};
use upstream::{ImageDownloader, UpstreamClient};
use usage_fold::UsageFoldTask;

/// The shared state and services of the gateway, which every request can reach. Clones share them.
#[derive(Clone)]
pub(crate) struct Gateway {
    console: Arc<Console>,
    keys: Arc<ApiKeys>,
    people: Arc<IdentityService>,
    pages: Arc<Pages>,
    connections: Arc<ConnectionTable>,
    accounts: Arc<Accounts>,
    upstream: Arc<UpstreamClient>,
    replay: Arc<AnswerStore>,
    ledger: Ledger,
    limiter: Arc<RequestLimiter>,
    alerts: Arc<AlertService>,
    /// The provider with which users sign in, if there is one.
    oidc: Option<Arc<OidcProvider>>,
    /// Fetches the images that callers name by a web address, if the settings allow any.
    image_downloader: Option<Arc<ImageDownloader>>,
    prices: Arc<CurrentPrices>,
    retention: Arc<RetentionTask>,
    heartbeat: Arc<HeartbeatTask>,
    /// The task that counts usage in detail.
    pub(crate) usage_fold: Arc<UsageFoldTask>,
    metrics: Arc<Metrics>,
    registry: Option<Arc<RegistryPublisher>>,
    request_budgets: Arc<RequestBudgets>,
    spool: Spool,
    image_models: ImageModels,
    catalog: Arc<TextModelCatalog>,
    groups: Arc<GroupPolicies>,
    /// The settings in force, with the groups of the store.
    config: Arc<Config>,
    /// This token is cancelled when the gateway is asked to stop. From then on `/readyz` reports the stop, so that load
    /// balancers send no more requests.
    shutdown_requested: CancellationToken,
    /// This token is cancelled when the time for the drain is over.
    cutoff: CancellationToken,
}

/// Returns the API keys of a store.
pub(crate) fn open_keys(store: &Arc<dyn Store>) -> Arc<ApiKeys> {
    Arc::new(ApiKeys::new(store, Pepper::new(store.pepper_key())))
}

/// Returns the users of a store.
pub(crate) fn open_people(config: &Config, store: &Arc<dyn Store>) -> Arc<IdentityService> {
    let people = Arc::clone(store) as Arc<dyn PeopleStore>;
    let secrets = (Pepper::new(store.pepper_key()), store.vault().clone());
    Arc::new(IdentityService::new(people, secrets, config.file_groups()))
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
        let (config, groups) = merge_stored_groups(config, store.group_policies().await?, &upstream).await?;
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
        let console = Arc::new(Console::new(&config, console_services, parts)?);
        accounts.start_tasks().await?;
        let heartbeat = HeartbeatTask::start(Arc::clone(store) as _, Arc::clone(&limiter)).await?;
        let ledger =
            Ledger::start(Arc::clone(store) as _, node.clone(), Arc::clone(&metrics), Arc::clone(&prices)).await?;
        let spool = open_spool(&config, Arc::clone(&request_budgets))?;
        let free = spool.free_space(config.data_dir.clone());
        let replay = AnswerStore::open(&config.replay, free, replays, ledger.clone(), vault.clone(), node).await?;
        keys.spawn_refresh_task();
        Ok(Self {
            console,
            keys,
            people,
            pages: Arc::new(Pages::new(config.public_url.as_ref(), vault.clone())),
            connections: ConnectionTable::for_gateway(&config, &metrics),
            catalog: Arc::new(TextModelCatalog::new(&accounts, &upstream)),
            upstream,
            accounts,
            replay,
            retention: Arc::new(RetentionTask::start(Arc::clone(store) as _, config.retention)),
            heartbeat: Arc::new(heartbeat),
            usage_fold: Arc::new(UsageFoldTask::start(Arc::clone(store) as _)),
            ledger,
            alerts: Arc::new(AlertService::start(store, &limiter, &config)),
            oidc: OidcProvider::renew(None, config.oidc.as_ref())?,
            image_downloader: ImageDownloader::for_settings(config.remote_images.as_ref())?,
            limiter,
            prices,
            metrics,
            registry: config.skills_dir.as_deref().map(|folder| Arc::new(RegistryPublisher::new(folder))),
            request_budgets,
            spool,
            image_models: ImageModels::from_config(&config),
            groups: Arc::new(groups),
            config,
            shutdown_requested: CancellationToken::new(),
            cutoff: CancellationToken::new(),
        })
    }

    /// Returns a gateway with these settings and these groups of the store, which takes the place of this one. Both
    /// gateways share all lasting state, such as the requests in progress, the accounts and the sessions. That state is
    /// not changed before the new gateway comes into force ([`CurrentGateway::replace`]).
    ///
    /// # Errors
    ///
    /// Returns an error if the settings cannot be used. Groups of the store do not cause one.
    async fn with_config(&self, config: &Config, groups: &[(String, String)]) -> Result<Self, ServeError> {
        if needs_tls(config) {
            self.upstream.prepare_tls()?;
        }
        let (config, groups) = merge_stored_groups(config, groups.to_vec(), &self.upstream).await?;
        let console = Arc::new(self.console.with_config(&config)?);
        let oidc = OidcProvider::renew(self.oidc.as_ref(), config.oidc.as_ref())?;
        let image_downloader = ImageDownloader::for_settings(config.remote_images.as_ref())?;
        Ok(Self {
            console,
            oidc,
            image_downloader,
            image_models: ImageModels::from_config(&config),
            groups: Arc::new(groups),
            config,
            ..self.clone()
        })
    }

    /// Passes the settings on to the services that this gateway shares with the one before it. Called when it comes
    /// into force.
    fn apply_to_shared_services(&self) {
        self.prices.set_file_prices(&self.config.prices);
        self.alerts.set_config(&self.config);
        self.connections.set_exempt_proxies(&self.config.trusted_proxies);
    }

    /// Ends the tasks in the background, after all requests have ended.
    async fn stop_tasks(&self) {
        self.keys.stop().await;
        self.usage_fold.stop().await;
        self.retention.stop();
        self.alerts.stop();
        self.heartbeat.stop();
    }

    /// Returns the provider with which users sign in, if there is one.
    pub(crate) const fn oidc(&self) -> Option<&Arc<OidcProvider>> {
        self.oidc.as_ref()
    }

    /// Fetches the images that callers name by a web address, if the settings allow any.
    pub(crate) const fn image_downloader(&self) -> Option<&Arc<ImageDownloader>> {
        self.image_downloader.as_ref()
    }

    pub(crate) const fn console(&self) -> &Arc<Console> {
        &self.console
    }

    pub(crate) const fn keys(&self) -> &Arc<ApiKeys> {
        &self.keys
    }

    pub(crate) const fn people(&self) -> &Arc<IdentityService> {
        &self.people
    }

    pub(crate) fn trusted_proxies(&self) -> &TrustedProxies {
        &self.config.trusted_proxies
    }

    /// The users who must have a second factor.
    pub(crate) fn second_factor_policy(&self) -> SecondFactorPolicy {
        self.config.require_second_factor
    }

    /// The open connections of callers.
    pub(crate) const fn connections(&self) -> &Arc<ConnectionTable> {
        &self.connections
    }

    pub(crate) fn pages(&self) -> &Pages {
        &self.pages
    }

    /// The policies of groups.
    pub(crate) fn groups(&self) -> &GroupPolicies {
        &self.groups
    }

    pub(crate) fn replay(&self) -> &Arc<AnswerStore> {
        &self.replay
    }

    /// Makes and opens the links to images of stored answers.
    pub(crate) fn image_links(&self) -> ImageLinkSealer {
        ImageLinkSealer::new(self.replay.vault().clone())
    }

    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    pub(crate) fn upstream(&self) -> &UpstreamClient {
        &self.upstream
    }

    pub(crate) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The limits of groups, users and keys.
    pub(crate) const fn limiter(&self) -> &Arc<RequestLimiter> {
        &self.limiter
    }

    /// The prices of models.
    pub(crate) fn prices(&self) -> &CurrentPrices {
        &self.prices
    }

    /// The skills that are published now; `None` if there is no skills folder, or nothing of it has been published.
    pub(crate) async fn skills(&self) -> Option<Arc<PublishedRegistry>> {
        match &self.registry {
            Some(registry) => registry.published().await,
            None => None,
        }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The metrics: the counters, and the current values of the gauges.
    ///
    /// # Errors
    ///
    /// Returns an error if the text cannot be written, which is an internal error.
    pub(crate) fn render_metrics(&self) -> Result<String, std::fmt::Error> {
        let (accounts, waiting) = self.accounts.snapshot();
        self.connections.report_to_metrics();
        let held = self.request_budgets.usage();
        self.metrics.render(&MetricsSnapshot {
            accounts,
            waiting,
            unsettled: self.ledger.unsettled_records(),
            body_bytes: held.memory,
            spool_bytes: held.disk,
            refused_for_space: held.refused,
        })
    }

    /// The reasons why the gateway is not ready; empty if it is. The answer comes from memory, without disk access.
    pub(crate) fn unready_reasons(&self) -> Vec<UnreadyReason> {
        let checks = [
            (self.accounts.is_stopped() || self.shutdown_requested.is_cancelled(), UnreadyReason::Stopping),
            (!self.accounts.is_store_readable(), UnreadyReason::StoreReads),
            (self.ledger.write_trouble(Instant::now()).is_some(), UnreadyReason::StoreWrites),
            (self.spool.is_low_on_space(), UnreadyReason::DiskSpace),
        ];
        checks.into_iter().filter_map(|(applies, reason)| applies.then_some(reason)).collect()
    }

    /// The token that is cancelled when the gateway is asked to stop.
    pub(crate) const fn shutdown_requested(&self) -> &CancellationToken {
        &self.shutdown_requested
    }

    /// The token that is cancelled when the time for the drain is over: requests that still wait for an upstream are
    /// then answered at once, and answers that are being sent end early.
    pub(crate) const fn cutoff(&self) -> &CancellationToken {
        &self.cutoff
    }

    pub(crate) const fn request_budgets(&self) -> &Arc<RequestBudgets> {
        &self.request_budgets
    }

    pub(crate) const fn spool(&self) -> &Spool {
        &self.spool
    }

    /// The properties that can be requested from each image model.
    pub(crate) const fn image_models(&self) -> &ImageModels {
        &self.image_models
    }

    /// The text models.
    pub(crate) fn catalog(&self) -> &TextModelCatalog {
        &self.catalog
    }

    /// The time after which a plain request is answered even if its job is still running.
    pub(crate) fn answer_deadline(&self) -> Duration {
        self.config.answer_deadline
    }

    /// The settings in force, with the groups of the store.
    pub(crate) const fn config(&self) -> &Arc<Config> {
        &self.config
    }
}

/// Opens the client of the upstreams, which prepares TLS if the settings need it: a problem fails the start, not a call.
fn open_upstream(config: &Config, budgets: &Arc<RequestBudgets>) -> Result<Arc<UpstreamClient>, ServeError> {
    let (addresses, budgets) = (AddressPolicy::for_services(config.allow_link_local), Arc::clone(budgets));
    Ok(Arc::new(UpstreamClient::new(config.deadlines.connect, addresses, budgets, needs_tls(config))?))
}

/// Opens the spool, and begins to check the free space of its disk.
fn open_spool(config: &Config, budgets: Arc<RequestBudgets>) -> Result<Spool, ServeError> {
    let spool = Spool::open_in(&config.data_dir, config.uploads.min_free, budgets).map_err(ServeError::Spool)?;
    spool.start_space_checks();
    Ok(spool)
}
