//! Tests of the journal of records: what is in it and when, two processes, and a process that was killed.

use super::*;
use crate::gateway::store::{JobState, UsageFilter};

/// Long enough for any number of records in a test.
const LONG: Duration = Duration::from_secs(60);

async fn count(store: &SqlStore, statement: &'static str) -> i64 {
    sqlx::query_scalar(statement).fetch_one(store.readers.sqlite()).await.unwrap()
}

async fn entries(store: &SqlStore) -> i64 {
    count(store, "SELECT count(*) FROM record_journal").await
}

async fn write(store: &SqlStore, writes: &[RowWrite<'_>]) {
    store.write_rows(&NodeId::only(), writes).await.unwrap();
}

async fn run_job(store: &SqlStore, id: &str) {
    write(store, &[RowWrite::Open(&running_record(id))]).await;
    write(store, &[RowWrite::Close(&finished_record(id))]).await;
}

async fn states(store: &SqlStore) -> Vec<(String, JobState)> {
    let records = store.list_records(&RecordFilter::default()).await.unwrap();
    records.into_iter().map(|record| (record.request_id, record.state)).collect()
}

/// Checks that each record was counted once, by day and by end user.
async fn assert_counted(store: &SqlStore, requests: u64, succeeded: u64) {
    let counts = store.total_usage(&UsageFilter::default()).await.unwrap();
    assert_eq!((counts.requests, counts.succeeded), (requests, succeeded));
    let end_users = count(store, "SELECT coalesce(sum(requests), 0) FROM end_user_days").await;
    assert_eq!(end_users.unsigned_abs(), requests);
}

#[tokio::test]
async fn the_records_of_closed_jobs_are_moved_and_the_others_stay() {
    let (_dir, store) = new_store().await;
    for number in 0..20 {
        run_job(&store, &format!("r{number}")).await;
    }
    write(&store, &[RowWrite::Open(&running_record("running"))]).await;
    assert_eq!((entries(&store).await, count(&store, "SELECT count(*) FROM records").await), (41, 0));
    // A move without time makes a first step.
    assert!(store.move_closed_records(Duration::ZERO).await.unwrap() > 0, "more are left");
    assert_eq!(store.move_closed_records(LONG).await.unwrap(), 0);
    assert_eq!((entries(&store).await, count(&store, "SELECT count(*) FROM records").await), (1, 20));
    assert_eq!(batch_writer(&store).pragma("synchronous"), "2", "the next intent waits for the disk");
    assert_counted(&store, 20, 20).await;
    let running = store.running_jobs().await.unwrap();
    assert_eq!(running.len(), 1);
    assert_eq!(entries(&store).await, 0, "a reader moves also the intents of running jobs");
    write(&store, &[RowWrite::Close(&finished_record("running"))]).await;
    assert_counted(&store, 21, 21).await;
}

#[tokio::test]
async fn another_process_reads_all_records_and_counts_none_twice() {
    let (dir, store) = new_store().await;
    let command = SqlStore::open_sqlite(dir.path(), None).await.unwrap();
    run_job(&store, "r1").await;
    write(&store, &[RowWrite::Open(&running_record("r2"))]).await;
    assert_eq!(states(&command).await, [("r1".to_owned(), JobState::Succeeded)]);
    assert_eq!((entries(&store).await, command.running_jobs().await.unwrap().len()), (0, 1));
    // The numbers of the removed entries are given again, to entries of other requests.
    write(&store, &[RowWrite::Open(&running_record("r3"))]).await;
    write(&store, &[RowWrite::Close(&finished_record("r2"))]).await;
    assert_eq!(store.move_closed_records(LONG).await.unwrap(), 0);
    assert_eq!(entries(&store).await, 1, "the intent of r3 stays");
    assert_counted(&command, 2, 2).await;
    assert_eq!(command.running_jobs().await.unwrap()[0].document.request_id, "r3");
}

#[tokio::test]
async fn an_outcome_may_have_the_number_of_its_own_intent() {
    let (_dir, store) = new_store().await;
    write(&store, &[RowWrite::Open(&running_record("r1"))]).await;
    assert_eq!(store.running_jobs().await.unwrap().len(), 1, "the reader has moved the intent");
    write(&store, &[RowWrite::Close(&finished_record("r1"))]).await;
    assert_eq!(count(&store, "SELECT seq FROM record_journal").await, 1);
    assert_eq!(store.move_closed_records(LONG).await.unwrap(), 0);
    assert_counted(&store, 1, 1).await;
    // The same, moved by the reader once more.
    write(&store, &[RowWrite::Open(&running_record("r2"))]).await;
    write(&store, &[RowWrite::Close(&finished_record("r2"))]).await;
    assert_counted(&store, 2, 2).await;
    assert_eq!(store.move_closed_records(LONG).await.unwrap(), 0);
    assert_counted(&store, 2, 2).await;
}

#[tokio::test]
async fn the_next_process_finds_what_a_killed_one_has_left() {
    let (dir, store) = new_store().await;
    run_job(&store, "r1").await;
    write(&store, &[RowWrite::Open(&running_record("r2"))]).await;
    let attempt = record! { account: Some("second".to_owned()), ..running_record("r2") };
    write(&store, &[RowWrite::RecordAttempts(&attempt)]).await;
    // It is not closed: a process that is killed moves nothing.
    std::mem::forget(store);
    let store = SqlStore::open_sqlite(dir.path(), None).await.unwrap();
    assert_eq!(store.interrupt_running(&NodeId::only()).await.unwrap(), 1);
    assert_eq!(
        states(&store).await,
        [("r1".to_owned(), JobState::Succeeded), ("r2".to_owned(), JobState::Interrupted)]
    );
    let records = store.list_records(&RecordFilter::default()).await.unwrap();
    assert_eq!(records[1].account.as_deref(), Some("second"), "the newest entry counts");
    assert_counted(&store, 2, 1).await;
    assert_eq!(entries(&store).await, 0);
}

#[tokio::test]
async fn a_closed_store_leaves_an_empty_journal() {
    let (dir, store) = new_store().await;
    run_job(&store, "r1").await;
    store.close().await;
    let store = SqlStore::open_sqlite(dir.path(), None).await.unwrap();
    assert_eq!((entries(&store).await, count(&store, "SELECT count(*) FROM records").await), (0, 1));
}

#[tokio::test]
async fn a_record_that_cannot_be_moved_yet_is_moved_later() {
    let (_dir, store) = new_store().await;
    run_job(&store, "r1").await;
    batch_writer(&store).run_pragma("max_page_count", 1); // The file cannot grow.
    let name = "x".repeat(1 << 20);
    let long = record! { model: Some(name), ..running_record("r2") };
    assert!(store.write_rows(&NodeId::only(), &[RowWrite::Open(&long)]).await.is_err());
    // The failed connection was replaced, and its journal is not forgotten.
    assert_eq!(store.move_closed_records(LONG).await.unwrap(), 0);
    assert_eq!(entries(&store).await, 0);
    assert_counted(&store, 1, 1).await;
}

#[tokio::test]
async fn an_entry_of_a_newer_form_is_not_lost() {
    let (dir, store) = new_store().await;
    run_job(&store, "r1").await;
    execute(&dir, "UPDATE record_journal SET body = json_set(body, '$.version', 2) WHERE seq = 2").await;
    assert!(store.interrupt_running(&NodeId::only()).await.is_err());
    assert_eq!((states(&store).await, entries(&store).await), (Vec::new(), 2));
}
