//! The signals of the process: `SIGTERM` and `SIGINT` ask it to stop, `SIGHUP` asks it to read its configuration again.
//! On other systems than Unix, only Ctrl-C is handled.

use super::ServeError;

/// The request that a signal represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalRequest {
    Stop,
    Reload,
}

/// The listeners for signals. The process creates them first when it starts: from then on, none of these signals kills
/// it on Unix. On other systems, Ctrl-C is handled only from the first wait on.
pub(crate) struct SignalListeners {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
}

// === impl SignalListeners ===

impl SignalListeners {
    /// On Unix, listens from now on. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// Returns an error if a signal handler cannot be installed.
    pub(crate) fn listen() -> Result<Self, ServeError> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let install =
                |kind| signal(kind).map_err(|source| ServeError::Io { doing: "listening for signals", source });
            Ok(Self {
                terminate: install(SignalKind::terminate())?,
                interrupt: install(SignalKind::interrupt())?,
                hangup: install(SignalKind::hangup())?,
            })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Returns the next request of either kind. Cancel safe: no signal is lost.
    #[cfg(unix)]
    pub(super) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => SignalRequest::Stop,
            _ = self.interrupt.recv() => SignalRequest::Stop,
            _ = self.hangup.recv() => SignalRequest::Reload,
        }
    }

    #[cfg(not(unix))]
    pub(super) async fn next(&mut self) -> SignalRequest {
        self.stop_requested().await;
        SignalRequest::Stop
    }

    /// Resolves at the next `SIGTERM` or `SIGINT`. Cancel safe: no signal is lost.
    #[cfg(unix)]
    pub(super) async fn stop_requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(not(unix))]
    pub(super) async fn stop_requested(&mut self) {
        // If the handler cannot be installed, the system's default ends the process.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
