//! The end of the process: running requests finish, and those that cannot are answered with an error.
//!
//! There are three steps. During the shutdown delay only the answer of `/readyz` has changed. Then the port is closed,
//! nothing new is begun, and running requests have the drain timeout to finish. After it, or at a second signal, the
//! cutoff is cancelled: a request that still waits for an upstream gets 502 without advice to retry, a stream that has
//! begun gets its error event, and the records say `interrupted`.
//! **Invariant:** no step takes longer than its time, and a third signal ends the wait at once.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::signals::Signals;
use crate::gateway::Gateway;
use crate::gateway::config::Config;

/// The minimum time to write the records (ours): the database answers in milliseconds, or not at all.
pub(super) const LEDGER_PATIENCE: Duration = Duration::from_secs(2);
/// The time after the cutoff to write the answers and the records (ours).
const CUTOFF_PATIENCE: Duration = Duration::from_secs(10);

/// Ends all running work. `close` closes the port and waits at most the given time for the connections. Returns when
/// everything is settled, or when the time is over.
pub(super) async fn leave(
    gateway: &Arc<Gateway>,
    close: impl AsyncFnOnce(Duration) -> bool,
    signals: &mut Signals,
    config: &Config,
) {
    gateway.leaving().cancel();
    tracing::info!(
        delay = ?config.shutdown_delay,
        drain_timeout = ?config.drain_timeout,
        "stopping: running requests may finish; a second signal cuts them off"
    );
    if !config.shutdown_delay.is_zero() {
        // A second signal ends the delay early; the drain then has its own timeout.
        let _ = timeout(config.shutdown_delay, signals.stop_asked()).await;
    }
    gateway.accounts().stop();
    let longest = config.drain_timeout + CUTOFF_PATIENCE;
    let mut settled = pin!(async {
        if !close(longest).await {
            tracing::warn!("some connections did not finish in time");
        }
        // Jobs whose callers have left are still read to their end.
        tokio::join!(gateway.ledger().drain(), gateway.replay().drain(), gateway.accounts().finish());
    });
    let patience = tokio::select! {
        () = &mut settled => return,
        () = sleep(config.drain_timeout) => CUTOFF_PATIENCE,
        () = signals.stop_asked() => LEDGER_PATIENCE,
    };
    tracing::warn!(unsettled = gateway.ledger().unsettled(), "cutting off the requests that are still running");
    gateway.cutoff().cancel();
    let settled = tokio::select! {
        settled = timeout(patience, settled) => settled.is_ok(),
        () = signals.stop_asked() => false,
    };
    if !settled {
        tracing::warn!(
            unsettled = gateway.ledger().unsettled(),
            "some jobs did not finish in time; the next start records them as interrupted"
        );
    }
}
