//! The signals of the process: two that ask it to stop, and one that asks it to read its configuration again.

use super::ServeError;

/// The request that a signal represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalRequest {
    Stop,
    Reload,
}

/// The listeners for signals. Created before anything else at a start, so that no signal kills the process.
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
    /// Listens from now on. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses a handler.
    pub(crate) fn listen() -> Result<Self, ServeError> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let open = |kind| signal(kind).map_err(|source| ServeError::Io { doing: "listening for signals", source });
            Ok(Self {
                terminate: open(SignalKind::terminate())?,
                interrupt: open(SignalKind::interrupt())?,
                hangup: open(SignalKind::hangup())?,
            })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// The next request of any kind. Cancel safe: no signal is lost.
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
        // If no handler can be installed, the system's default ends the process.
        let _ = tokio::signal::ctrl_c().await;
    }
}
