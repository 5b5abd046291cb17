//! Start and shutdown of the gateway. The store, the accounts and the settings are checked before a port is bound. At
//! the end, running requests have the drain timeout to finish, because their answers may already be paid for.

#[cfg(feature = "testing")]
mod dropshot_gateway;
mod reload;
mod shutdown;
mod signals;
mod startup_message;

use std::io::Write;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

use super::active_settings::SettingsError;
use super::config::{Config, ListenAddress};
use super::front::{self, DropshotServer, ServerError};
use super::group_refresh::{GroupRefreshQueue, group_refresh_channel};
use super::keys;
use super::people::IdentityError;
use super::replay::ReplayError;
use super::store::{AuditContext, ServeLock, Store, StoreError};
use super::{CurrentGateway, Gateway, endpoints, manage, open_store};
#[cfg(feature = "testing")]
pub use dropshot_gateway::DropshotGateway;
use reload::{ConfigReader, ConfigReloader};
use shutdown::{SHORT_SHUTDOWN_TIMEOUT, STORE_CLOSE_TIMEOUT};
pub(crate) use signals::SignalListeners;
use signals::SignalRequest;
use startup_message::StartupMessage;

/// The interval at which changed groups of the store are brought into force (our choice): a change must be in force
/// within a second.
const GROUP_REFRESH_INTERVAL: Duration = Duration::from_millis(500);

/// The reason why the gateway cannot start, or cannot put its reloaded settings into effect.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The store in the data directory cannot be used.
    #[error("the store cannot be used")]
    Store(#[from] StoreError),
    /// The first API key cannot be created.
    #[error("the first key cannot be made")]
    Keys(#[from] keys::KeyError),
    /// The link that creates the first admin cannot be created.
    #[error("the link for the first admin cannot be made")]
    People(#[from] IdentityError),
    /// Stored answers cannot be used.
    #[error("the stored answers cannot be used")]
    Replay(#[from] ReplayError),
    /// The settings cannot be brought into force.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The folder for uploads cannot be used.
    #[error("the folder for uploads cannot be used")]
    Spool(#[source] std::io::Error),
    /// The gateway cannot listen on the address.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// An address to listen on, for requests or for the metrics, cannot be resolved on this machine.
    #[error("cannot resolve the address `{0}` to listen on")]
    Address(String),
    /// A call of the operating system failed.
    #[error("{doing}")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
}

/// A gateway that listens on no address.
struct OpenGateway {
    store: Arc<dyn Store>,
    lock: ServeLock,
    current: CurrentGateway,
    changes: GroupRefreshQueue,
}

/// Serves until the process gets a stop signal, then lets running requests finish within the drain timeout.
///
/// # Errors
///
/// Returns an error if the gateway cannot start. After it has started, it returns no error, even if standard output
/// cannot be written.
pub(crate) async fn serve(
    mut config: Config,
    config_reader: ConfigReader,
    mut signals: SignalListeners,
    out: impl Write + Send + 'static,
) -> Result<(), ServeError> {
    let OpenGateway { store, lock, current, mut changes } = OpenGateway::open(&mut config).await?;
    let gateway = current.get();
    let listen = resolve_address(&config.listen).await?;
    let metrics_server = start_metrics_server(&config, &current).await?;
    let connections = Arc::clone(&gateway.lifecycle.connections);
    let server = front::start(endpoints::routes(), current.clone(), listen, connections)?;
    if let Some(metrics_server) = &metrics_server {
        tracing::info!(address = %metrics_server.address(), "metrics are served");
    }
    let startup_message = StartupMessage::prepare(&config, &gateway).await?;
    let mut printing_startup = pin!(print(out, startup_message.text(&config, server.address())));
    let mut is_printed = false;
    let mut reloader = ConfigReloader::new(config_reader, Arc::clone(&store), current, config);
    let mut refresh_ticks = group_refresh_ticks();
    let mut reloads = 0;
    lock.publish_status(reloads, &Ok(String::new()));
    loop {
        tokio::select! {
            result = &mut printing_startup, if !is_printed => {
                if let Err(error) = result {
                    tracing::warn!(%error, "standard output cannot be written to: the address, a first key and a setup link are not shown");
                }
                is_printed = true;
            }
            _ = refresh_ticks.tick() => reloader.refresh_groups_for(Vec::new()).await,
            Some(requests) = changes.next() => reloader.refresh_groups_for(requests).await,
            request = signals.next() => match request {
                SignalRequest::Stop => break,
                SignalRequest::Reload => {
                    let Some(result) = shutdown::finish_reload_unless_stopped(reloader.reload(), signals.stop_requested()).await else { break };
                    reloads += 1;
                    lock.publish_status(reloads, &result);
                }
            },
        }
    }
    // From here on, changes of groups are no longer brought into force.
    drop(changes);
    let config = reloader.current_config();
    shutdown::drain_and_stop(&gateway, async |time_limit| server.stop(time_limit).await, &mut signals, &config).await;
    let final_work = async {
        if let Some(metrics_server) = metrics_server {
            // The metrics are served until all requests have ended, so that the shutdown can be observed.
            metrics_server.stop(SHORT_SHUTDOWN_TIMEOUT).await;
        }
        gateway.lifecycle.stop_tasks(&gateway.images).await;
        store.close().await;
    };
    shutdown::run_final_work(STORE_CLOSE_TIMEOUT, final_work, signals.stop_requested()).await;
    Ok(())
}

// === impl OpenGateway ===

impl OpenGateway {
    async fn open(config: &mut Config) -> Result<Self, ServeError> {
        let store = open_store(config).await?;
        let lock = store.lock_for_serving()?;
        manage::remove_implicit_simulator(config, &*store).await?;
        if config.accounts.iter().any(manage::is_billable) || manage::has_billable_store_account(&*store).await? {
            manage::disable_first_key(&*store, &AuditContext::system()).await?;
        }
        let (group_refresh, changes) = group_refresh_channel();
        manage::sync_configured_rows(config, &*store).await?;
        let current = CurrentGateway::new(Gateway::build(config, &store, group_refresh).await?);
        Ok(Self { store, lock, current, changes })
    }
}

/// Starts the server of the metrics, if the settings have an address for it. It shares no connection and no limit with the
/// main listener, so that a shortage there can still be observed.
async fn start_metrics_server(
    config: &Config,
    current: &CurrentGateway,
) -> Result<Option<DropshotServer<CurrentGateway>>, ServeError> {
    let Some(listen) = &config.metrics_listen else { return Ok(None) };
    let listen = resolve_address(listen).await?;
    let api = endpoints::metrics_api().map_err(|error| ServerError::Routes(error.to_string()))?;
    Ok(Some(front::start_dropshot_server(api, current.clone(), listen)?))
}

/// Returns a timer that ticks when the groups of the store are due to be refreshed.
fn group_refresh_ticks() -> Interval {
    let mut ticks = interval(GROUP_REFRESH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

async fn resolve_address(listen: &ListenAddress) -> Result<SocketAddr, ServeError> {
    let unresolved = || ServeError::Address(listen.to_string());
    let mut addresses = tokio::net::lookup_host((listen.host(), listen.port())).await.map_err(|_| unresolved())?;
    addresses.next().ok_or_else(unresolved)
}

/// Prints on a blocking thread, because a write blocks indefinitely if standard output is not read.
async fn print(mut out: impl Write + Send + 'static, text: String) -> std::io::Result<()> {
    let print = move || out.write_all(text.as_bytes()).and_then(|()| out.flush());
    tokio::task::spawn_blocking(print).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}
