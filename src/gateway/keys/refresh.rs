//! The background task of API keys: it reads changed keys, and writes the counts of refused requests.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{ApiKeys, Caller};
use crate::gateway::work::Work;

/// The interval at which counts of refused requests are written (our choice).
const COUNT_WRITE_INTERVAL: Duration = Duration::from_secs(2);

/// The pause between two refreshes (our choice): the maximum delay until a change by another process takes effect here.
const REFRESH_INTERVAL: Duration = Duration::from_millis(250);

/// The maximum wait for the store at a stop (our choice): the store answers in milliseconds, or not at all.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The task that keeps the key cache up to date.
pub(super) struct KeyRefreshTask {
    stop_token: CancellationToken,
    task: JoinHandle<()>,
}

// === impl ApiKeys ===

impl ApiKeys {
    /// Starts the task that keeps the key cache up to date. [`Self::stop`] ends it, and so
    /// does the drop of the last reference to these keys.
    pub(crate) fn spawn_refresh_task(self: &Arc<Self>) {
        let (keys, stop_token) = (Arc::downgrade(self), CancellationToken::new());
        let task_stop_token = stop_token.clone();
        let task = tokio::runtime::Handle::current().spawn(async move {
            let (mut is_readable, mut last_write, mut is_stopping) = (true, Instant::now(), false);
            while !is_stopping && let Some(keys) = keys.upgrade() {
                is_readable = keys.refresh_once(is_readable).await;
                last_write = keys.write_when_due(last_write).await;
                drop(keys);
                is_stopping = timeout(REFRESH_INTERVAL, task_stop_token.cancelled()).await.is_ok();
            }
        });
        *self.refresh_task.lock().unwrap_or_else(PoisonError::into_inner) = Some(KeyRefreshTask { stop_token, task });
    }

    /// Ends the refresh task and writes the counts. Must be called before the store is closed.
    pub(crate) async fn stop(&self) {
        let refresh_task = self.refresh_task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(KeyRefreshTask { stop_token, mut task }) = refresh_task {
            stop_token.cancel();
            // The task may finish a running write, because its counts would be lost otherwise.
            if timeout(STOP_TIMEOUT, &mut task).await.is_err() {
                task.abort();
            }
        }
        self.write_refusals().await;
    }

    /// Counts a request of this caller that was refused before there was a job, and charges it as work.
    pub(crate) fn note_refusal(&self, caller: &Caller) {
        self.refusals.count_caller(caller);
        caller.charge(Work::Refusal);
    }

    /// Writes the counts if the last write was long enough ago, and returns the time of the newest write.
    async fn write_when_due(&self, last_write: Instant) -> Instant {
        if last_write.elapsed() < COUNT_WRITE_INTERVAL {
            return last_write;
        }
        self.write_refusals().await;
        Instant::now()
    }

    pub(super) async fn write_refusals(&self) {
        if let Err(error) = self.refusals.write(&*self.store).await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the counts of refused requests could not be stored; the write will be retried"
            );
        }
    }

    /// Refreshes the key cache once. Returns true if the store answered; the next call gets this as `was_readable`, so
    /// that an outage is logged once and not four times a second.
    pub(super) async fn refresh_once(&self, was_readable: bool) -> bool {
        match self.cache.refresh().await {
            Ok(()) => true,
            Err(error) => {
                if was_readable {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "changes of keys could not be read; the known keys stay as they are");
                }
                false
            }
        }
    }
}
