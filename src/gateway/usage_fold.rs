//! Counts records and replayed answers in detail, in the background.
//!
//! This module decides when counts are made, and the share of the database's time that they may take. It must not know
//! the layout of the counts. No request waits for it: a replay is noted in memory, and its cost is looked up later.

mod replay_counter;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::keys::Caller;
use super::store::{RequestId, StoreError, UsageDetailStore};
use replay_counter::ReplayCounter;

/// The interval at which new records and replays are counted (our choice).
const RUN_INTERVAL: Duration = Duration::from_secs(5);

/// The time after which no record with a lower number can become visible any more, where several nodes write (our
/// choice). A write that takes longer than some seconds is given up.
const LATE_COMMITS: Duration = Duration::from_secs(60);

/// About the number of rows of a step (our choice). They are in memory, with about 1 KB each.
const STEP_ROWS: usize = 5_000;

/// The maximum number of rows that the first transaction changes where others have to wait for it, and the bounds of that
/// number (our choice).
const FIRST_ROWS: usize = 100;
const MIN_ROWS: usize = 20;
const MAX_ROWS: usize = STEP_ROWS;

/// The duration of a transaction to which the number of its rows is adapted (our choice). The write of a record may have
/// to wait for it.
const TRANSACTION: Duration = Duration::from_millis(10);

/// The pause after a transaction, as a multiple of its duration (our choice).
const PAUSE_FACTOR: u32 = 2;

/// The shortest pause (our choice).
const MIN_PAUSE: Duration = Duration::from_millis(5);

/// The maximum wait at a stop (our choice).
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The task that counts. It ends when this value is dropped.
pub(crate) struct UsageFoldTask {
    store: Arc<dyn UsageDetailStore>,
    replays: Arc<ReplayCounter>,
    stop_token: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// The records that may be counted: those that were visible long enough ago.
#[derive(Debug, Default)]
struct VisibleRecords(VecDeque<(Instant, i64)>);

// === impl UsageFoldTask ===

impl UsageFoldTask {
    /// Starts the task.
    pub(crate) fn start(store: Arc<dyn UsageDetailStore>) -> Self {
        let (replays, stop_token) = (Arc::new(ReplayCounter::default()), CancellationToken::new());
        let (task_store, task_replays, task_stop) = (Arc::clone(&store), Arc::clone(&replays), stop_token.clone());
        let task = Handle::current().spawn(async move {
            let mut ticks = interval(RUN_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let (mut visible, mut rows) = (VisibleRecords::default(), FIRST_ROWS);
            loop {
                tokio::select! {
                    () = task_stop.cancelled() => return,
                    _ = ticks.tick() => {}
                }
                write_replays(&task_replays, &*task_store).await;
                tokio::select! {
                    // A transaction that is cut off is rolled back, and made again by the next process.
                    () = task_stop.cancelled() => return,
                    result = fold(&*task_store, &mut visible, &mut rows) => result.unwrap_or_else(|error| log_failure(&error)),
                }
            }
        });
        Self { store, replays, stop_token, task: Mutex::new(Some(task)) }
    }

    /// Notes that an answer was sent again to this caller. `request_id` is the request whose job had made it.
    pub(crate) fn note_replay(&self, caller: &Caller, request_id: &RequestId) {
        self.replays.note(caller, request_id);
    }

    /// Ends the task and writes the replays. Must be called before the store is closed.
    pub(crate) async fn stop(&self) {
        self.stop_token.cancel();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut task) = task
            && timeout(STOP_TIMEOUT, &mut task).await.is_err()
        {
            task.abort();
        }
        write_replays(&self.replays, &*self.store).await;
    }
}

impl Drop for UsageFoldTask {
    fn drop(&mut self) {
        self.stop_token.cancel();
    }
}

async fn write_replays(replays: &ReplayCounter, store: &dyn UsageDetailStore) {
    if let Err(error) = replays.write(store).await {
        let error = &error as &dyn std::error::Error;
        tracing::debug!(error, "the counts of replayed answers could not be stored; the write will be retried");
    }
}

fn log_failure(error: &StoreError) {
    let error = error as &dyn std::error::Error;
    tracing::warn!(error, "records could not be counted in detail; the next run will try again");
}

/// Counts all records that may be counted, in transactions of at most `rows` rows, which is adapted to their duration.
async fn fold(store: &dyn UsageDetailStore, visible: &mut VisibleRecords, rows: &mut usize) -> Result<(), StoreError> {
    let delay = if store.commits_out_of_order() { LATE_COMMITS } else { Duration::ZERO };
    let Some(up_to) = visible.advance(Instant::now(), store.newest_record().await?, delay) else { return Ok(()) };
    while let Some(mut step) = store.read_fold_step(up_to, STEP_ROWS).await? {
        let mut has_rows = true;
        while has_rows {
            let start = Instant::now();
            has_rows = store.write_fold_step(&mut step, *rows).await?;
            let duration = start.elapsed();
            *rows = adapt_rows(*rows, duration);
            sleep((duration * PAUSE_FACTOR).max(MIN_PAUSE)).await;
        }
    }
    while store.count_replaced().await? > 0 {
        sleep(MIN_PAUSE).await;
    }
    Ok(())
}

/// The number of rows for the next transaction, after one of `rows` rows that took so long.
fn adapt_rows(rows: usize, duration: Duration) -> usize {
    let next = if duration > TRANSACTION {
        rows / 2
    } else if duration < TRANSACTION / 2 {
        rows * 2
    } else {
        rows
    };
    next.clamp(MIN_ROWS, MAX_ROWS)
}

// === impl VisibleRecords ===

impl VisibleRecords {
    /// Notes the newest record of now, and returns the newest one of `delay` ago.
    fn advance(&mut self, now: Instant, newest: i64, delay: Duration) -> Option<i64> {
        self.0.push_back((now, newest));
        let is_old = |noted: &&(Instant, i64)| now.duration_since(noted.0) >= delay;
        let old = self.0.iter().take_while(is_old).count();
        let found = self.0.drain(..old).next_back().map(|(_, newest)| newest);
        if let Some(newest) = found {
            // It stays the answer until a later one is old enough.
            self.0.push_front((now.checked_sub(delay).unwrap_or(now), newest));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_transaction_is_followed_by_a_smaller_one() {
        assert_eq!(adapt_rows(50, TRANSACTION * 2), 25);
        assert_eq!(adapt_rows(50, TRANSACTION), 50);
        assert_eq!(adapt_rows(50, Duration::ZERO), 100);
        assert_eq!(adapt_rows(MIN_ROWS, TRANSACTION * 9), MIN_ROWS);
        assert_eq!(adapt_rows(MAX_ROWS, Duration::ZERO), MAX_ROWS);
    }

    #[tokio::test]
    async fn a_record_may_be_counted_some_time_after_it_was_seen() {
        let (mut visible, start, delay) = (VisibleRecords::default(), Instant::now(), Duration::from_secs(60));
        let mut at = |seconds: u64, newest| visible.advance(start + Duration::from_secs(seconds), newest, delay);
        assert_eq!(at(0, 5), None);
        assert_eq!(at(30, 8), None);
        assert_eq!(at(59, 9), None);
        assert_eq!(at(60, 11), Some(5));
        assert_eq!(at(89, 11), Some(5));
        assert_eq!(at(95, 11), Some(8));
        assert_eq!(at(500, 40), Some(11));
        let mut at_once = VisibleRecords::default();
        assert_eq!(at_once.advance(start, 7, Duration::ZERO), Some(7));
        assert_eq!(at_once.advance(start, 9, Duration::ZERO), Some(9));
    }
}
