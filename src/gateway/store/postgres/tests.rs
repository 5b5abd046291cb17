//! Tests of what only a shared database has: several nodes that open it at once, lost connections, and values that
//! PostgreSQL refuses.
//!
//! They pass without a check if the run has no server: `cargo xtask test` starts one.

mod attempts;
mod import;
mod provisional;
mod reservations;
mod shared_answers;

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinSet;

use super::*;
use crate::gateway::store::sql::statement::sql;
use crate::gateway::store::testing::{
    finished_record, new_postgres_database, new_postgres_store, record, running_record,
};
use crate::gateway::store::{
    AuditContext, GroupStore as _, InstallationStore as _, JobRecord, JobState, MasterKey, RecordFilter,
    RecordStore as _, RequestId, RowWrite, RowWriteOutcome, SqlStore, UsageDetailStore as _, UsageFilter,
    UsageGrouping, UsageStore as _, UserStore as _,
};
use crate::wire::admin::types;

/// A key that the settings of all nodes give.
fn shared_key() -> MasterKey {
    MasterKey::from_text(&"7".repeat(64)).unwrap()
}

async fn record(store: &SqlStore, request_id: &str) -> Option<types::Record> {
    store.find_record(&RequestId::from(request_id), None).await.unwrap()
}

/// Ends every other session of the database, as an administrator or a crash does.
async fn end_sessions(store: &SqlStore) {
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    sqlx::query(end).execute(store.readers.postgres()).await.unwrap();
}

/// Reads often enough at once for all connections of the pool.
async fn read_with_all_connections(store: &Arc<SqlStore>) {
    let mut reads = JoinSet::new();
    for store in std::iter::repeat_n(Arc::clone(store), 20) {
        reads.spawn(async move { store.usage_details(&UsageFilter::default(), &[UsageGrouping::Day]).await });
    }
    reads.join_all().await.into_iter().for_each(|read| drop(read.unwrap()));
}

/// A browser that goes away, or a request whose time is over, drops its change wherever it is.
#[tokio::test]
async fn a_change_that_is_dropped_while_it_waits_leaves_no_transaction() {
    const OPEN: &str = "SELECT count(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'";
    let Some((_dir, _url, store)) = new_postgres_store().await else { return };
    let store = Arc::new(store);
    for wait in [0, 1, 3, 10, 30, 100] {
        let mut other_node = store.writer.begin_change().await.unwrap();
        let context = AuditContext::command();
        let name = format!("ada {wait}");
        let change = store.ensure_user(&context, &name);
        let waiting = tokio::time::timeout(Duration::from_millis(wait), change).await;
        assert!(waiting.is_err(), "changes take turns");
        sql("SELECT 1").execute(&mut *other_node).await.unwrap();
        other_node.end("COMMIT").await.unwrap();
        store.ensure_user(&context, &name).await.unwrap();
        read_with_all_connections(&store).await;
        let open: i64 = sqlx::query_scalar(OPEN).fetch_one(store.readers.postgres()).await.unwrap();
        assert_eq!(open, 0, "after {wait} ms");
    }
}

#[tokio::test]
async fn nodes_that_start_at_once_share_one_installation() {
    let Some(url) = new_postgres_database().await else { return };
    let mut starts = JoinSet::new();
    for _ in 0..3 {
        let url = url.clone();
        starts.spawn(async move {
            let dir = TempDir::new().unwrap();
            (SqlStore::open_postgres(dir.path(), &url, Some(shared_key())).await.unwrap(), dir)
        });
    }
    let nodes = starts.join_all().await;
    let (first, rest) = nodes.split_first().unwrap();
    let user = first.0.ensure_user(&AuditContext::command(), "ada").await.unwrap();
    for (node, _) in rest {
        assert_ne!(node.node_id(), first.0.node_id());
        assert_eq!(node.ensure_user(&AuditContext::command(), "ada").await.unwrap(), user);
        assert_eq!(
            node.pepper_key().expose(),
            first.0.pepper_key().expose(),
            "the keys of one node are valid on the others"
        );
    }
}

#[tokio::test]
async fn a_node_without_the_master_key_is_refused() {
    let Some((_dir, url, _store)) = new_postgres_store().await else { return };
    let other_dir = TempDir::new().unwrap();
    for key in [None, Some(shared_key())] {
        let error = SqlStore::open_postgres(other_dir.path(), &url, key).await.unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    }
    assert!(!other_dir.path().join("master.key").exists());
}

#[tokio::test]
async fn a_node_keeps_its_id_and_closes_only_its_own_records() {
    let Some(url) = new_postgres_database().await else { return };
    let (first_dir, second_dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let first = SqlStore::open_postgres(first_dir.path(), &url, Some(shared_key())).await.unwrap();
    let second = SqlStore::open_postgres(second_dir.path(), &url, Some(shared_key())).await.unwrap();
    for (store, id) in [(&first, "r1"), (&second, "r2")] {
        store.write_rows(store.node_id(), &[RowWrite::Open(&running_record(id))]).await.unwrap();
    }
    first.close().await;
    let again = SqlStore::open_postgres(first_dir.path(), &url, Some(shared_key())).await.unwrap();
    assert_eq!(again.node_id(), first.node_id());
    assert_eq!(again.interrupt_running(again.node_id()).await.unwrap(), 1);
    assert_eq!(record(&again, "r1").await.unwrap().state, JobState::Interrupted);
    assert_eq!(record(&again, "r2").await.unwrap().state, JobState::Running);
}

#[tokio::test]
async fn a_schema_of_another_program_is_not_touched() {
    let Some(url) = new_postgres_database().await else { return };
    let mut connection = url.connect_for_migration().await.unwrap();
    sqlx::raw_sql("CREATE TABLE orders (id INT)").execute(&mut connection).await.unwrap();
    let dir = TempDir::new().unwrap();
    let error = SqlStore::open_postgres(dir.path(), &url, None).await.unwrap_err();
    assert!(matches!(error, StoreError::ForeignDatabase { .. }), "{error}");
    let tables: i64 =
        sqlx::query_scalar("SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'")
            .fetch_one(&mut connection)
            .await
            .unwrap();
    assert_eq!(tables, 1);
}

#[tokio::test]
async fn writes_and_reads_continue_after_every_session_was_ended() {
    let Some((_dir, _url, store)) = new_postgres_store().await else { return };
    store.write_rows(&store.node, &[RowWrite::Open(&running_record("r1"))]).await.unwrap();
    for round in 0..3 {
        end_sessions(&store).await;
        store.check_writable().await.unwrap();
        end_sessions(&store).await;
        let id = format!("after_{round}");
        let outcomes = store.write_rows(&store.node, &[RowWrite::Open(&running_record(&id))]).await.unwrap();
        assert_eq!(outcomes, [RowWriteOutcome::Done]);
        assert_eq!(record(&store, &id).await.unwrap().state, JobState::Running);
    }
}

/// The answer of a commit that was lost: the rows are there, and the writer does not know it.
#[tokio::test]
async fn a_batch_whose_commit_was_not_confirmed_is_written_once() {
    let Some((_dir, _url, store)) = new_postgres_store().await else { return };
    let lost = running_record("r1");
    store.write_rows(&store.node, &[RowWrite::Open(&lost)]).await.unwrap();
    store.as_shared().unwrap().batch_writer.assume_lost(&[RowWrite::Open(&lost)]).await;
    let outcomes = store.write_rows(&store.node, &[RowWrite::Open(&lost)]).await.unwrap();
    assert_eq!(outcomes, [RowWriteOutcome::Done], "the caller of the second try gets its intent");
    // Nobody wants the intent of a batch that was reported as failed.
    store.as_shared().unwrap().batch_writer.assume_lost(&[RowWrite::Open(&lost)]).await;
    store.check_writable().await.unwrap();
    assert!(record(&store, "r1").await.is_none());
}

#[tokio::test]
async fn an_outcome_that_is_written_again_is_counted_once() {
    let Some((_dir, _url, store)) = new_postgres_store().await else { return };
    let (open, closed) = (running_record("r1"), finished_record("r1"));
    store.write_rows(&store.node, &[RowWrite::Open(&open)]).await.unwrap();
    let close = [RowWrite::Close(&closed)];
    assert_eq!(store.write_rows(&store.node, &close).await.unwrap(), [RowWriteOutcome::Done]);
    store.as_shared().unwrap().batch_writer.assume_lost(&close).await;
    assert_eq!(store.write_rows(&store.node, &close).await.unwrap(), [RowWriteOutcome::NoEffect]);
    assert_eq!(store.total_usage(&UsageFilter::default()).await.unwrap().requests, 1);
}

#[tokio::test]
async fn a_null_character_does_not_lose_a_record() {
    let Some((_dir, _url, store)) = new_postgres_store().await else { return };
    let intent = record! { end_user: Some("a\0b".to_owned()), ..running_record("r1") };
    store.write_rows(&store.node, &[RowWrite::Open(&intent)]).await.unwrap();
    assert_eq!(record(&store, "r1").await.unwrap().end_user.as_deref(), Some("a\u{fffd}b"));
}

#[tokio::test]
async fn a_stopped_server_is_unavailable_and_not_a_missing_row() {
    let Some((_dir, _url, store)) = new_postgres_store().await else { return };
    store.close().await;
    let error = store.find_user("ada").await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    let error = store.write_rows(&store.node, &[RowWrite::Open(&running_record("r1"))]).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }) && !error.is_row_fault(), "{error}");
}

#[tokio::test]
async fn writes_that_were_never_sent_are_not_remembered() {
    // Nothing listens on the port of a listener that is gone.
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let url = DatabaseUrl::parse(&format!("postgres://nobody@127.0.0.1:{port}/none")).unwrap();
    let writer = BatchWriter::new(url);
    for number in 0..3 {
        let record = running_record(&format!("r{number}"));
        let error = writer.write(&NodeId::only(), &[RowWrite::Open(&record)]).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    }
    assert_eq!(writer.uncertain_count().await, 0);
}

/// Many nodes at once: the order of the locks must not depend on the order of the rows.
#[tokio::test]
async fn batches_of_many_nodes_do_not_deadlock() {
    let Some((_dir, url, store)) = new_postgres_store().await else { return };
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        tasks.spawn(write_batches(Arc::clone(&store), url.clone(), number));
    }
    tasks.join_all().await;
    assert_eq!(store.list_records(&RecordFilter::default()).await.unwrap().len(), 400);
    assert_eq!(store.total_usage(&UsageFilter::default()).await.unwrap().requests, 400);
}

async fn write_batches(store: Arc<SqlStore>, url: DatabaseUrl, number: u32) {
    let node = NodeId::from(format!("node_{number}"));
    let writer = BatchWriter::new(url);
    let keys = ["key_1", "key_2", "key_3", "key_4", "key_5"];
    for round in 0..10 {
        let of_key = |key: &&str, record: JobRecord| record! { key: *key, ..record };
        let id = |key: &&str| format!("r_{number}_{round}_{key}");
        let opened: Vec<_> = keys.iter().map(|key| of_key(key, running_record(&id(key)))).collect();
        let mut closed: Vec<_> = keys.iter().map(|key| of_key(key, finished_record(&id(key)))).collect();
        closed.rotate_left(usize::try_from(number).unwrap() % keys.len());
        let opens: Vec<_> = opened.iter().map(RowWrite::Open).collect();
        let closes: Vec<_> = closed.iter().map(RowWrite::Close).collect();
        writer.write(&node, &opens).await.unwrap();
        writer.write(&node, &closes).await.unwrap();
        store.ensure_group(&AuditContext::command(), &format!("g{round}")).await.unwrap();
    }
}

#[tokio::test]
async fn the_records_of_a_dead_node_are_closed_by_another_one() {
    let Some((_dir, _url, store)) = new_postgres_store().await else { return };
    let (dead, silent) = (NodeId::from("node_dead"), NodeId::from("node_silent"));
    for (node, id) in [(&dead, "r1"), (&store.node, "r2"), (&silent, "r3")] {
        store.write_rows(node, &[RowWrite::Open(&running_record(id))]).await.unwrap();
        nodes::write_heartbeat(store.writer.postgres(), node).await.unwrap();
    }
    let age = "UPDATE nodes SET seen_at = seen_at - make_interval(secs => $2) WHERE id = $1";
    for (node, seconds) in [(&dead, 61.0), (&silent, 50.0)] {
        sqlx::query(age).bind(node.as_str()).bind(seconds).execute(store.writer.postgres()).await.unwrap();
    }
    assert_eq!(store.close_records_of_dead_nodes().await.unwrap(), 1);
    assert_eq!(store.close_records_of_dead_nodes().await.unwrap(), 0);
    assert_eq!(record(&store, "r1").await.unwrap().state, JobState::Interrupted);
    assert_eq!(record(&store, "r2").await.unwrap().state, JobState::Running);
    assert_eq!(record(&store, "r3").await.unwrap().state, JobState::Running);
    // The outcome that comes from the dead after all does not count the job twice.
    let late = record! { latency_ms: Some(70), ..finished_record("r1") };
    for expected in [RowWriteOutcome::Done, RowWriteOutcome::NoEffect] {
        assert_eq!(store.write_rows(&dead, &[RowWrite::Close(&late)]).await.unwrap(), [expected]);
    }
    assert_eq!(store.total_usage(&UsageFilter::default()).await.unwrap().requests, 1);
}
