//! Tells the other nodes of a shared database that this one lives, and closes the records of nodes that have died.
//! It also removes what jobs of this node have reserved in limits and could not release.
//!
//! This module decides the interval of the heartbeats, and when this node may judge others. It must not know how a
//! record is closed. With a database of one node alone it has nothing to do: that node closes its own records when it
//! starts again.
//!
//! A record is closed by exactly one node, because its row changes its state only once.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, interval};

use super::limits::RequestLimiter;
use super::store::{InstallationStore, NODE_TIMEOUT, StoreError};

/// The interval of the heartbeats (our choice): several of them fit into the time after which a node counts as dead.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// The task that writes the heartbeats. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct HeartbeatTask(AbortHandle);

// === impl HeartbeatTask ===

impl HeartbeatTask {
    /// Writes the first heartbeat, and starts the task. Must be called before the node opens its first record, so that
    /// the other nodes know it by then.
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not take the heartbeat.
    pub(crate) async fn start(
        store: Arc<dyn InstallationStore>,
        limiter: Arc<RequestLimiter>,
    ) -> Result<Self, StoreError> {
        store.record_heartbeat().await?;
        let task = Handle::current().spawn(async move {
            let mut history = HeartbeatHistory::new(Instant::now());
            let mut ticks = interval(HEARTBEAT_INTERVAL);
            loop {
                ticks.tick().await;
                match history.run_once(&*store).await {
                    Ok(()) => remove_abandoned_reservations(&limiter).await,
                    Err(error) => log_failure(&error),
                }
            }
        });
        Ok(Self(task.abort_handle()))
    }

    /// Ends the task, because the store is about to be closed.
    pub(crate) fn stop(&self) {
        self.0.abort();
    }
}

impl Drop for HeartbeatTask {
    fn drop(&mut self) {
        self.stop();
    }
}

fn log_failure(error: &StoreError) {
    let error = error as &dyn std::error::Error;
    tracing::warn!(error, "the heartbeat could not be written; other nodes may take this one for dead");
}

async fn remove_abandoned_reservations(limiter: &RequestLimiter) {
    match limiter.remove_abandoned_reservations().await {
        Ok(0) => {}
        Ok(removed) => tracing::warn!(removed, "reservations of jobs that have not begun were removed from limits"),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "reservations of jobs that have not begun could not be looked for");
        }
    }
}

/// The judgement about other nodes. While the database is away, no node writes heartbeats: after that, every node looks
/// dead to the first one that is back. So a node judges others only after it has itself written heartbeats without a gap
/// for the time after which a node counts as dead.
#[derive(Debug)]
struct HeartbeatHistory {
    last_heartbeat: Instant,
    unbroken_since: Instant,
}

impl HeartbeatHistory {
    fn new(now: Instant) -> Self {
        Self { last_heartbeat: now, unbroken_since: now }
    }

    async fn run_once(&mut self, store: &dyn InstallationStore) -> Result<(), StoreError> {
        store.record_heartbeat().await?;
        if !self.may_judge(Instant::now()) {
            return Ok(());
        }
        let closed = store.close_records_of_dead_nodes().await?;
        if closed > 0 {
            tracing::warn!(closed, "records of a node that has died were closed as interrupted");
        }
        Ok(())
    }

    /// Notes a heartbeat that was written now. Returns true if this node may judge others.
    fn may_judge(&mut self, now: Instant) -> bool {
        if now - self.last_heartbeat > HEARTBEAT_INTERVAL * 3 {
            self.unbroken_since = now;
        }
        self.last_heartbeat = now;
        now - self.unbroken_since >= NODE_TIMEOUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_judges_others_only_after_unbroken_heartbeats() {
        let start = Instant::now();
        let mut history = HeartbeatHistory::new(start);
        let judges_at =
            |history: &mut HeartbeatHistory, seconds: u64| history.may_judge(start + Duration::from_secs(seconds));
        for seconds in (5..60).step_by(5) {
            assert!(!judges_at(&mut history, seconds), "{seconds}");
        }
        assert!(judges_at(&mut history, 60));
        // The database was away for 40 seconds.
        assert!(!judges_at(&mut history, 100));
        assert!(!judges_at(&mut history, 105));
        for seconds in (110..160).step_by(5) {
            assert!(!judges_at(&mut history, seconds), "{seconds}");
        }
        assert!(judges_at(&mut history, 160));
    }
}
