//! Removes rows when their retention period is over.
//!
//! This module decides the interval of the removals, and the share of the database's time that they may take. It must
//! not know the layout of the rows. Rows of a kind without a retention period stay, except the bindings of values to
//! accounts, whose period is fixed.

use std::sync::Arc;
use std::time::Duration;

use chrono::NaiveTime;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, interval_at, sleep};

use super::config::RetentionPeriods;
use super::limits::first_day_of_budgets;
use super::store::{BINDING_DAYS, RecordStore, RetentionClass, StoreError, Timestamp, UtcDay};

/// The delay of the first removal (our choice). At the start other work is more urgent.
const FIRST_RUN_DELAY: Duration = Duration::from_secs(10);
/// The interval between two removals (our choice).
const RUN_INTERVAL: Duration = Duration::from_secs(600);

/// The maximum number of rows that one transaction removes (our choice). Such a transaction takes a few milliseconds,
/// for which the write of a record may have to wait.
const BATCH_ROWS: u32 = 200;

/// The time for which a binding of a value to an account stays after its last use.
const BINDING_LIFETIME: Duration = Duration::from_secs(BINDING_DAYS as u64 * 24 * 3600);

/// After each transaction the task pauses for this many times the duration of the transaction, and at least for
/// `MIN_PAUSE` (our choice), so that others can use the database.
const PAUSE_FACTOR: u32 = 4;
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// The task that removes expired rows. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct RetentionTask(AbortHandle);

// === impl RetentionTask ===

impl RetentionTask {
    /// Starts the task.
    pub(crate) fn start(store: Arc<dyn RecordStore>, retention: RetentionPeriods) -> Self {
        let task = Handle::current().spawn(async move {
            let mut ticks = interval_at(Instant::now() + FIRST_RUN_DELAY, RUN_INTERVAL);
            loop {
                ticks.tick().await;
                remove_expired_rows(&*store, retention, Timestamp::now()).await;
            }
        });
        Self(task.abort_handle())
    }

    /// Ends the task, because the store is about to be closed.
    pub(crate) fn stop(&self) {
        self.0.abort();
    }
}

impl Drop for RetentionTask {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Removes all rows whose retention period is over at `now`, except the records of running jobs.
async fn remove_expired_rows(store: &dyn RecordStore, retention: RetentionPeriods, now: Timestamp) {
    let periods = [
        (RetentionClass::Records, retention.records),
        (RetentionClass::Audit, retention.audit),
        (RetentionClass::UsageDays, retention.usage),
        (RetentionClass::UsageDetails, retention.usage),
        (RetentionClass::AccountBindings, Some(BINDING_LIFETIME)),
    ];
    for (class, period) in periods {
        let Some(period) = period else { continue };
        let before = match class {
            // Budgets are computed from these counts: without those of their period, spent money could be spent again.
            RetentionClass::UsageDays => (now - period).min(begin_of_budgets(now)),
            RetentionClass::Records
            | RetentionClass::Audit
            | RetentionClass::UsageDetails
            | RetentionClass::AccountBindings => now - period,
        };
        match remove_expired_of_class(store, class, before).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, ?class, "expired rows were deleted"),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, ?class, "expired rows could not be deleted; the next removal will try again");
            }
        }
    }
}

/// The beginning of the earliest budget period that has not ended at `now`.
fn begin_of_budgets(now: Timestamp) -> Timestamp {
    let first = first_day_of_budgets(UtcDay::from(now).into());
    Timestamp::from(first.and_time(NaiveTime::MIN).and_utc())
}

async fn remove_expired_of_class(
    store: &dyn RecordStore,
    class: RetentionClass,
    before: Timestamp,
) -> Result<u64, StoreError> {
    let mut removed = 0;
    loop {
        let start = Instant::now();
        let batch = store.remove_expired_rows(class, before, BATCH_ROWS).await?;
        removed += batch;
        if batch < u64::from(BATCH_ROWS) {
            return Ok(removed);
        }
        sleep((start.elapsed() * PAUSE_FACTOR).max(MIN_PAUSE)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::money::Usd;
    use crate::gateway::store::testing::{fold_records, new_postgres_store, new_store, record, running_record};
    use crate::gateway::store::{
        AuditContext, AuditFilter, JobRecord, JobState, NodeId, RecordFilter, ReservationSubjectKind, RowWrite,
        SqlStore, Store, UsageFilter,
    };
    use crate::gateway::store::{PeopleStore as _, UsageStore as _, UserStore as _};

    const DAY: Duration = Duration::from_secs(86_400);

    fn timestamp(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn record(id: &str, created_at: Timestamp) -> JobRecord {
        record! { created_at, ..running_record(id) }
    }

    async fn store_records(store: &dyn Store, records: &[JobRecord]) {
        let node = NodeId::only();
        let open: Vec<_> = records.iter().map(RowWrite::Open).collect();
        store.write_rows(&node, &open).await.unwrap();
        let ended: Vec<_> =
            records.iter().map(|record| record! { state: JobState::Succeeded, ..record.clone() }).collect();
        store.write_rows(&node, &ended.iter().map(RowWrite::Close).collect::<Vec<_>>()).await.unwrap();
        // No record is removed before it is moved out of its journal and counted.
        store.list_records(&RecordFilter::default()).await.unwrap();
        let newest = store.newest_record().await.unwrap();
        fold_records(store, newest, 1000).await.unwrap();
    }

    async fn ids(store: &SqlStore) -> Vec<String> {
        let records = store.list_records(&RecordFilter::default()).await.unwrap();
        records.into_iter().map(|record| record.request_id.to_string()).collect()
    }

    #[tokio::test]
    async fn each_kind_of_rows_is_removed_after_its_own_period() {
        let (_dir, store) = new_store().await;
        let now = timestamp("2026-11-22T12:00:00Z");
        let old = [record("older", now - 31 * DAY), record("just older", now - 30 * DAY - Duration::from_millis(1))];
        store_records(&*store, &old).await;
        store_records(&*store, &[record("kept", now - 30 * DAY), record("new", now)]).await;
        let running = record("running", now - 90 * DAY);
        store.write_rows(&NodeId::only(), &[RowWrite::Open(&running)]).await.unwrap();
        let days = async || {
            let filter = UsageFilter { since: Some(UtcDay::from(now).minus(365)), ..UsageFilter::default() };
            let days = store.usage_by_day(&filter).await.unwrap().len();
            let of_end_user = UsageFilter { end_user: running.document.end_user.clone(), ..filter };
            assert_eq!(store.usage_by_day(&of_end_user).await.unwrap().len(), days);
            days
        };
        assert_eq!(days().await, 3);

        remove_expired_rows(&*store, RetentionPeriods { records: Some(30 * DAY), ..RetentionPeriods::default() }, now)
            .await;
        assert_eq!(ids(&store).await, ["kept", "new"]);
        assert!(store.find_record(&"running".into(), None).await.unwrap().is_some());
        assert_eq!(days().await, 3);

        remove_expired_rows(&*store, RetentionPeriods { usage: Some(30 * DAY), ..RetentionPeriods::default() }, now)
            .await;
        assert_eq!((days().await, ids(&store).await.len()), (2, 2));
    }

    async fn spending_since(store: &dyn Store, day: &str) -> u64 {
        let spending = store.budget_spending(ReservationSubjectKind::Key, "key_1", day.parse().unwrap());
        spending.await.unwrap().nanos()
    }

    async fn check_spent_money(store: &dyn Store) {
        let spent = |id: &str, at: &str| record! { cost_usd: Some(Usd::from_nanos(7)), ..record(id, timestamp(at)) };
        let usage = |days: u32| RetentionPeriods { usage: Some(days * DAY), ..RetentionPeriods::default() };
        let end_user = UsageFilter { end_user: Some("u-1".to_owned()), ..UsageFilter::default() };
        let records = [spent("last month", "2026-10-31T08:00:00Z"), spent("first day", "2026-11-01T08:00:00Z")];
        store_records(store, &records).await;
        remove_expired_rows(store, usage(7), timestamp("2026-11-20T12:00:00Z")).await;
        let spending = (spending_since(store, "2026-11-01").await, spending_since(store, "2026-10-01").await);
        assert_eq!((spending, store.usage_by_day(&end_user).await.unwrap().len()), ((7, 7), 0));

        // A Wednesday: the week began before the month.
        store_records(store, &[spent("Monday", "2026-11-30T08:00:00Z")]).await;
        remove_expired_rows(store, usage(1), timestamp("2026-12-02T12:00:00Z")).await;
        let spending = (spending_since(store, "2026-11-30").await, spending_since(store, "2026-10-01").await);
        assert_eq!((spending, store.usage_by_day(&end_user).await.unwrap().len()), ((7, 7), 0));
    }

    #[tokio::test]
    async fn money_that_is_spent_within_a_running_budget_period_stays_spent() {
        let (_dir, store) = new_store().await;
        check_spent_money(&*store).await;
        if let Some((_dir, _, store)) = new_postgres_store().await {
            check_spent_money(&*store).await;
        }
    }

    #[tokio::test]
    async fn the_audit_trail_is_removed_after_its_own_period_only() {
        let (_dir, store) = new_store().await;
        let now = timestamp("2026-11-22T12:00:00Z");
        for (name, at) in [("old", now - 400 * DAY), ("young", now - 10 * DAY)] {
            store.ensure_user(&AuditContext { at, ..AuditContext::command() }, name).await.unwrap();
        }
        let filter = AuditFilter { action: Some("user.create".to_owned()), limit: 10, ..AuditFilter::default() };
        let names = async || -> Vec<_> {
            store.list_audit_page(&filter).await.unwrap().items.into_iter().filter_map(|row| row.target_name).collect()
        };
        remove_expired_rows(
            &*store,
            RetentionPeriods { records: Some(DAY), usage: Some(DAY), ..RetentionPeriods::default() },
            now,
        )
        .await;
        assert_eq!(names().await, ["young", "old"]);
        remove_expired_rows(&*store, RetentionPeriods { audit: Some(30 * DAY), ..RetentionPeriods::default() }, now)
            .await;
        assert_eq!(names().await, ["young"]);
    }

    #[tokio::test]
    async fn a_large_backlog_is_removed_in_batches() {
        let (_dir, store) = new_store().await;
        let now = timestamp("2026-11-22T12:00:00Z");
        let many: Vec<_> = (0..2 * BATCH_ROWS + 1).map(|id| record(&format!("r{id}"), now - 31 * DAY)).collect();
        store_records(&*store, &many).await;
        assert_eq!(
            store.remove_expired_rows(RetentionClass::Records, now - 30 * DAY, BATCH_ROWS).await.unwrap(),
            u64::from(BATCH_ROWS)
        );
        assert_eq!(
            remove_expired_of_class(&*store, RetentionClass::Records, now - 30 * DAY).await.unwrap(),
            u64::from(BATCH_ROWS + 1)
        );
        assert_eq!(ids(&store).await.len(), 0);
    }
}
