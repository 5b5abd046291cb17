//! Start and end: everything is checked before anything is bound, and nothing that was paid for is dropped at the end.

mod welcome;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::config::{Config, Listen};
use super::console::KeyAsToken;
use super::filter::FilterError;
use super::front::{self, ServerError};
use super::keys;
use super::people::PeopleError;
use super::replay::ReplayError;
use super::store::StoreError;
use super::upstream::TransportError;
use super::{Gateway, endpoints, manage, open_store};
use welcome::Welcome;

/// Records are given so long at least (ours): the database answers in milliseconds, or not at all.
const LEDGER_PATIENCE: Duration = Duration::from_secs(2);

/// Why the gateway does not serve.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The data directory cannot be used.
    #[error("the store cannot be used")]
    Store(#[from] StoreError),
    /// The first key cannot be made.
    #[error("the first key cannot be made")]
    Keys(#[from] keys::KeyError),
    /// The link that makes the first admin cannot be made.
    #[error("the link for the first admin cannot be made")]
    People(#[from] PeopleError),
    /// Upstream connections cannot be prepared.
    #[error("upstream connections cannot be prepared")]
    Transport(#[from] TransportError),
    /// Kept answers cannot be used.
    #[error("kept answers cannot be used")]
    Replay(#[from] ReplayError),
    /// A content filter cannot be used.
    #[error("a content filter cannot be used")]
    Filter(#[from] FilterError),
    /// Operators would be taken for callers.
    #[error(transparent)]
    AdminToken(#[from] KeyAsToken),
    /// There is no room for uploads.
    #[error("the folder for uploads cannot be used")]
    Spool(#[source] std::io::Error),
    /// The address cannot be listened on.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The address means nothing on this machine.
    #[error("cannot resolve the address `{0}` to listen on")]
    Address(String),
    /// Reading or writing failed.
    #[error("{doing}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
}

/// Serves until the process is asked to stop, then lets running requests finish within the drain timeout.
///
/// # Errors
///
/// Where it cannot start. Once it has printed `listening on http://…` it no longer fails.
pub(crate) async fn serve(mut config: Config, out: &mut (dyn Write + Send)) -> Result<(), ServeError> {
    let store = open_store(&config).await?;
    let _lock = store.lock_for_serving()?;
    manage::without_stand_in(&mut config, &store).await?;
    let gateway = Arc::new(Gateway::build(&config, &store).await?);
    let listen = address(&config.listen).await?;
    let mut stop = Stop::listen()?;
    let measuring = match &config.metrics_listen {
        Some(listen) => Some(front::start(endpoints::measuring, Arc::clone(&gateway), address(listen).await?)?),
        None => None,
    };
    let server = front::start(endpoints::description, Arc::clone(&gateway), listen)?;
    if let Some(measuring) = &measuring {
        tracing::info!(address = %measuring.address(), "metrics are served");
    }
    Welcome::prepare(&config, &store, &gateway).await?.say(out, &config, server.address())?;
    stop.asked().await;
    tracing::info!(patience = ?config.drain_timeout, "stopping: running requests may finish; ask again to leave at once");
    gateway.accounts().stop();
    let end = Instant::now() + config.drain_timeout;
    tokio::select! {
        finished = server.stop(config.drain_timeout) => {
            if !finished {
                tracing::warn!("some connections did not finish in time");
            }
        }
        () = stop.asked() => tracing::warn!("leaving at once: the next start records what was running as interrupted"),
    }
    // Jobs whose callers have left are still being read to their end; their records are waited for here.
    let drained = async {
        let settled = async { tokio::join!(gateway.ledger().drain(), gateway.accounts().finish()) };
        tokio::select! {
            ((), ()) = settled => true,
            () = stop.asked() => false,
        }
    };
    if !timeout_at(end.max(Instant::now() + LEDGER_PATIENCE), drained).await.unwrap_or(false) {
        tracing::warn!(
            unsettled = gateway.ledger().unsettled(),
            "some jobs did not finish in time; the next start records them as interrupted"
        );
    }
    if let Some(measuring) = measuring {
        // Last of all, so that the end can be watched; what it answers takes no time.
        measuring.stop(LEDGER_PATIENCE).await;
    }
    gateway.keys().stop();
    store.close().await;
    Ok(())
}

async fn address(listen: &Listen) -> Result<SocketAddr, ServeError> {
    let unknown = || ServeError::Address(listen.to_string());
    let mut found = tokio::net::lookup_host((listen.host(), listen.port())).await.map_err(|_| unknown())?;
    found.next().ok_or_else(unknown)
}

/// The signals that ask a process to stop.
struct Stop {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

// === impl Stop ===

impl Stop {
    /// Listens before anything is bound, so that no signal is missed.
    fn listen() -> Result<Self, ServeError> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let open = |kind| signal(kind).map_err(|source| ServeError::Io { doing: "listening for signals", source });
            Ok(Self { terminate: open(SignalKind::terminate())?, interrupt: open(SignalKind::interrupt())? })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    #[cfg(unix)]
    async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(not(unix))]
    async fn asked(&mut self) {
        // Without a handler for it the system ends the process by itself.
        let _ = tokio::signal::ctrl_c().await;
    }
}
