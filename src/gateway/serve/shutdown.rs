//! The shutdown of the process: running requests may finish; those that do not finish in time end with an error.
//!
//! There are three steps. During the shutdown delay, requests are still accepted, and only `/readyz` answers that the
//! gateway is not ready. Then the port is closed, no request waits for an account any more, and the requests that were
//! accepted have the drain timeout to finish. After that, the remaining requests are cut off: a request that still waits
//! for an upstream gets 502 without advice to retry, a stream that has begun gets its error event, and the records say
//! `interrupted`.
//! **Invariant:** no step takes longer than its time limit, and each further signal ends the current step at once.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::signals::SignalListeners;
use crate::gateway::Gateway;
use crate::gateway::config::Config;

/// The short time limit of the shutdown (our choice): for the last writes after a second signal, for a reload that
/// still runs, and for the metrics server. The database answers in milliseconds, or not at all.
pub(super) const SHORT_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// The time to write the answers and the records after the remaining requests are cut off (our choice).
const CUTOFF_TIMEOUT: Duration = Duration::from_secs(10);

/// The time to close the store after all work has ended (our choice).
pub(super) const STORE_CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the result of a reload, or `None` if the process is asked to stop before the reload has ended. In that case,
/// the reload may run for [`SHORT_SHUTDOWN_TIMEOUT`] longer and is then dropped: its last write is complete or absent,
/// and the next start repeats the reload.
pub(super) async fn finish_reload_unless_stopped<T>(
    reload: impl Future<Output = T>,
    stop: impl Future<Output = ()>,
) -> Option<T> {
    let mut reload = pin!(reload);
    tokio::select! {
        biased;
        result = &mut reload => return Some(result),
        () = stop => {}
    }
    if timeout(SHORT_SHUTDOWN_TIMEOUT, reload).await.is_err() {
        tracing::warn!("the settings could not be reloaded before the gateway stopped");
    }
    None
}

/// Runs `work`, which closes the store, until it ends, the time limit passes, or a further signal arrives. The jobs
/// have ended or have been cut off before.
pub(super) async fn run_final_work(
    time_limit: Duration,
    work: impl Future<Output = ()>,
    stop: impl Future<Output = ()>,
) {
    tokio::select! {
        () = work => {}
        () = sleep(time_limit) => tracing::warn!("the store could not be closed in time"),
        () = stop => tracing::warn!("the store was not closed because of a second signal"),
    }
}

/// Ends all running work. `close_server` closes the port, waits for the connections at most for the time that it is
/// given, and returns true if all of them have ended. Returns when all work has ended, when the time limits have
/// passed, or when a further signal arrives after the cutoff.
pub(super) async fn drain_and_stop(
    gateway: &Gateway,
    close_server: impl AsyncFnOnce(Duration) -> bool,
    signals: &mut SignalListeners,
    config: &Config,
) {
    let services = &gateway.images;
    gateway.lifecycle.shutdown_requested.cancel();
    tracing::info!(
        delay = ?config.shutdown_delay,
        drain_timeout = ?config.drain_timeout,
        "stopping: running requests may finish; a second signal cuts them off"
    );
    if !config.shutdown_delay.is_zero() {
        // A second signal ends the delay early; the drain then has its own timeout.
        let _ = timeout(config.shutdown_delay, signals.stop_requested()).await;
    }
    services.accounts.stop();
    let connection_time_limit = config.drain_timeout + CUTOFF_TIMEOUT;
    let mut all_ended = pin!(async {
        if !close_server(connection_time_limit).await {
            tracing::warn!("some connections did not finish in time");
        }
        // The upstream answers of jobs whose callers have left are still read to their end.
        tokio::join!(services.ledger.drain(), services.replay.drain(), services.accounts.finish());
    });
    let time_limit = tokio::select! {
        () = &mut all_ended => return,
        () = sleep(config.drain_timeout) => CUTOFF_TIMEOUT,
        () = signals.stop_requested() => SHORT_SHUTDOWN_TIMEOUT,
    };
    tracing::warn!(unsettled = services.ledger.unsettled_records(), "cutting off the requests that are still running");
    services.cutoff.cancel();
    let settled = tokio::select! {
        settled = timeout(time_limit, all_ended) => settled.is_ok(),
        () = signals.stop_requested() => false,
    };
    if !settled {
        tracing::warn!(
            unsettled = services.ledger.unsettled_records(),
            "some jobs did not finish in time; the next start records them as interrupted"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hanging_reload_is_dropped_only_after_a_stop() {
        assert_eq!(finish_reload_unless_stopped(ready(7), ready(())).await, Some(7), "the reload has already ended");
        assert_eq!(
            finish_reload_unless_stopped(async { sleep(Duration::from_secs(900)).await }, pending()).await,
            Some(())
        );
        assert_eq!(finish_reload_unless_stopped(pending::<()>(), sleep(Duration::from_secs(900))).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_in_progress_at_a_stop_may_finish() {
        let mut written = false;
        let reload = async {
            sleep(Duration::from_secs(1)).await;
            written = true;
        };
        assert_eq!(finish_reload_unless_stopped(reload, ready(())).await, None);
        assert!(written);
    }

    #[tokio::test(start_paused = true)]
    async fn the_final_work_ends_at_its_time_limit_or_at_a_signal() {
        let begun = tokio::time::Instant::now();
        run_final_work(STORE_CLOSE_TIMEOUT, pending(), pending()).await;
        assert_eq!(begun.elapsed(), STORE_CLOSE_TIMEOUT);
        run_final_work(STORE_CLOSE_TIMEOUT, pending(), ready(())).await;
        run_final_work(STORE_CLOSE_TIMEOUT, ready(()), pending()).await;
        assert_eq!(begun.elapsed(), STORE_CLOSE_TIMEOUT);
    }
}
