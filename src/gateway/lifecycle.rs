//! Start, reload, readiness and end of the parts that last as long as the process.

use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::alerts::AlertService;
use super::flow::ImageServices;
use super::front::ConnectionTable;
use super::heartbeat::HeartbeatTask;
use super::retention::RetentionTask;
use super::store::Store;

/// The parts that last as long as the process and that no request uses: the open connections, and tasks in the background.
pub(crate) struct GatewayLifecycle {
    /// The open connections of callers.
    pub(super) connections: Arc<ConnectionTable>,
    alerts: AlertService,
    retention: RetentionTask,
    heartbeat: HeartbeatTask,
    /// This token is cancelled when the gateway is asked to stop. From then on `/readyz` reports the stop, so that load
    /// balancers send no more requests.
    pub(super) shutdown_requested: CancellationToken,
}

// === impl GatewayLifecycle ===

impl GatewayLifecycle {
    /// Starts the tasks in the background that have not been started yet.
    pub(super) fn start(images: &ImageServices, store: &Arc<dyn Store>, heartbeat: HeartbeatTask) -> Self {
        let config = &images.settings.config;
        Self {
            connections: ConnectionTable::for_gateway(config, &images.metrics),
            alerts: AlertService::start(store, &images.limiter, config),
            retention: RetentionTask::start(Arc::clone(store) as _, config.retention),
            heartbeat,
            shutdown_requested: CancellationToken::new(),
        }
    }

    /// Passes settings that come into force on to the services that outlast them.
    pub(super) fn apply_settings(&self, images: &ImageServices) {
        let config = &images.settings.config;
        images.prices.set_file_prices(&config.prices);
        self.alerts.set_config(config);
        self.connections.set_exempt_proxies(&config.trusted_proxies);
    }

    /// Returns the reasons for which `/readyz` reports that the gateway is not ready; empty if it is. The answer comes from memory, without
    /// disk access.
    pub(crate) fn unready_reasons(&self, images: &ImageServices) -> Vec<&'static str> {
        let checks = [
            (images.accounts.is_stopped() || self.shutdown_requested.is_cancelled(), "stopping"),
            // The last periodic read of the accounts from the database failed or took too long.
            (!images.accounts.is_store_readable(), "store_reads"),
            // The database does not accept records, or takes too long to write them.
            (images.ledger.write_trouble(Instant::now()).is_some(), "store_writes"),
            // Less than half of the disk space that is reserved for the database is free.
            (images.spool.is_low_on_space(), "disk_space"),
        ];
        checks.into_iter().filter_map(|(applies, reason)| applies.then_some(reason)).collect()
    }

    /// Ends the tasks in the background, after all requests have ended.
    pub(super) async fn stop_tasks(&self, images: &ImageServices) {
        images.keys.stop().await;
        images.usage_fold.stop().await;
        self.retention.stop();
        self.alerts.stop();
        self.heartbeat.stop();
    }
}
