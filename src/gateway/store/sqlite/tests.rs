//! Tests of the files of the store: permissions, locks, lost and damaged files, schema versions, a full disk, and
//! several processes.

mod journal;
mod master_key;
mod trail;
mod usage;

use std::fs;
use std::io::{Read, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinSet;

use super::*;
use crate::gateway::store::data_dir::DataDir;
use crate::gateway::store::sql::SqlDatabase;
use crate::gateway::store::testing::{
    child_dir, database_at_migration, execute, finished_record, new_store, record, running_record, spawn_child,
};
use crate::gateway::store::{
    AccountStore as _, AuditContext, InstallationStore as _, MasterKey, RecordFilter, RecordStore as _, RetentionClass,
    SqlStore, Timestamp, TokenStore as _, UsageStore as _, UserStore as _, sql,
};

const DATABASE: &str = "imagate.db";
const MASTER_KEY: &str = "master.key";

fn batch_writer(store: &SqlStore) -> &BatchWriter {
    let SqlDatabase::Sqlite(database) = &store.database else { panic!("the database is not SQLite") };
    &database.batch_writer
}

async fn close(store: Arc<SqlStore>) {
    store.close().await;
}

/// Checks that opening fails and changes neither the database nor the master key, and returns the error.
async fn open_error(dir: &TempDir) -> StoreError {
    open_error_with(dir, None).await
}

async fn open_error_with(dir: &TempDir, master_key: Option<MasterKey>) -> StoreError {
    let read = |name| fs::read(dir.path().join(name)).ok();
    let before = (read(DATABASE), read(MASTER_KEY));
    let error = SqlStore::open_sqlite(dir.path(), master_key).await.unwrap_err();
    // `assert_eq` would print all bytes of the files.
    assert!(read(DATABASE).unwrap_or_default() == before.0.unwrap_or_default() && read(MASTER_KEY) == before.1);
    error
}

#[cfg(unix)]
#[tokio::test]
async fn created_files_are_closed_to_other_users() {
    use std::os::unix::fs::PermissionsExt;

    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("a/b");
    let store = SqlStore::open_sqlite(&dir, None).await.unwrap();
    store.ensure_user(&AuditContext::command(), "ada").await.unwrap();
    let _serving = store.lock_for_serving().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    let files: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 6, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }

    fs::set_permissions(dir.join(MASTER_KEY), fs::Permissions::from_mode(0o644)).unwrap();
    SqlStore::open_sqlite(&dir, None).await.unwrap();
    assert_eq!(mode(&dir.join(MASTER_KEY)), 0o600);
}

#[tokio::test]
async fn commits_wait_for_the_disk_and_readers_cannot_write() {
    let (dir, store) = new_store().await;
    let pragma = async |pool: &SqlitePool, sql: &'static str| -> String {
        sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
    };
    assert_eq!(pragma(store.writer.sqlite(), "SELECT journal_mode FROM pragma_journal_mode").await, "wal");
    assert_eq!(pragma(store.writer.sqlite(), "SELECT CAST(synchronous AS TEXT) FROM pragma_synchronous").await, "2");
    assert_eq!(pragma(store.writer.sqlite(), "SELECT CAST(foreign_keys AS TEXT) FROM pragma_foreign_keys").await, "1");
    assert_eq!(batch_writer(&store).pragma("journal_mode"), "wal");
    assert_eq!(batch_writer(&store).pragma("synchronous"), "2");
    assert_eq!(batch_writer(&store).pragma("fullfsync"), "1");
    let fast_store = SqlStore::open_sqlite(dir.path(), None).await.unwrap().without_commit_sync();
    assert_eq!(batch_writer(&fast_store).pragma("synchronous"), "1", "records do not wait for the disk");
    let other_changes =
        pragma(fast_store.writer.sqlite(), "SELECT CAST(synchronous AS TEXT) FROM pragma_synchronous").await;
    assert_eq!(other_changes, "2", "keys and users always do");
    for pool in [store.writer.sqlite(), store.readers.sqlite()] {
        assert_eq!(pragma(pool, "SELECT CAST(fullfsync AS TEXT) FROM pragma_fullfsync").await, "1");
        let checkpoint = "SELECT CAST(checkpoint_fullfsync AS TEXT) FROM pragma_checkpoint_fullfsync";
        assert_eq!(pragma(pool, checkpoint).await, "1");
    }
    assert!(sqlx::query("DELETE FROM users").execute(store.readers.sqlite()).await.is_err());
}

#[tokio::test]
async fn opening_again_keeps_the_data() {
    let (dir, store) = new_store().await;
    let user = store.ensure_user(&AuditContext::command(), "ada").await.unwrap();
    let master_key = store.pepper_key().expose().to_vec();
    close(store).await;
    let store = SqlStore::open_sqlite(dir.path(), None).await.unwrap();
    assert_eq!(store.ensure_user(&AuditContext::command(), "ada").await.unwrap(), user);
    assert_eq!(store.pepper_key().expose(), master_key);
}

#[tokio::test]
async fn concurrent_openings_of_a_new_directory_create_one_key() {
    let dir = TempDir::new().unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let path = dir.path().to_owned();
        tasks.spawn(async move { SqlStore::open_sqlite(&path, None).await.unwrap().pepper_key().expose().to_vec() });
    }
    let mut keys = tasks.join_all().await;
    keys.dedup();
    assert_eq!(keys.len(), 1);
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let (dir, store) = new_store().await;
    close(store).await;
    execute(
        &dir,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9000, 'later', TRUE, x'00', 0)",
    )
    .await;
    let error = open_error(&dir).await;
    assert!(matches!(error, StoreError::NewerSchema { found: 9000, known } if known < 9000), "{error:?}");
    assert!(error.to_string().contains("use a newer version"));
}

#[tokio::test]
async fn an_edited_history_is_refused() {
    let (dir, store) = new_store().await;
    close(store).await;
    execute(&dir, "UPDATE _sqlx_migrations SET checksum = x'00' WHERE version = 1").await;
    assert!(matches!(open_error(&dir).await, StoreError::ForeignDatabase { .. }));
}

#[tokio::test]
async fn the_database_of_another_program_is_refused() {
    let dir = TempDir::new().unwrap();
    execute(&dir, "CREATE TABLE recipes (name TEXT)").await;
    assert!(matches!(SqlStore::open_sqlite(dir.path(), None).await, Err(StoreError::ForeignDatabase { .. })));
    assert!(!dir.path().join(MASTER_KEY).exists());
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join(DATABASE), "this text is not a database".repeat(100)).unwrap();
    assert!(matches!(open_error(&dir).await, StoreError::Damaged { .. }));
}

#[tokio::test]
async fn a_truncated_database_is_refused() {
    let (dir, store) = new_store().await;
    close(store).await;
    let file = fs::OpenOptions::new().write(true).open(dir.path().join(DATABASE)).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    assert!(matches!(open_error(&dir).await, StoreError::Damaged { .. }));
    file.set_len(0).unwrap();
    assert!(matches!(open_error(&dir).await, StoreError::Damaged { .. }));
}

#[tokio::test]
async fn a_directory_that_lost_its_database_does_not_become_a_new_installation() {
    let (dir, store) = new_store().await;
    close(store).await;
    fs::remove_file(dir.path().join(DATABASE)).unwrap();
    let error = open_error(&dir).await;
    assert!(error.to_string().contains("restore the database"), "{error}");
    assert!(!dir.path().join(DATABASE).exists());
}

#[tokio::test]
async fn a_lost_database_is_noticed_by_any_remaining_file() {
    let master_key = || Some(MasterKey::for_test(7));
    let (marker, answers) = ("imagate.db.marker", "replays/ans_1");
    for remaining_files in [&[marker][..], &[answers], &["imagate.db-wal"], &[marker, answers]] {
        let dir = TempDir::new().unwrap();
        // An empty folder, which a failed start leaves behind, does not prove that a database was here.
        fs::create_dir(dir.path().join("replays")).unwrap();
        let store = SqlStore::open_sqlite(dir.path(), master_key()).await.unwrap();
        store.close().await;
        drop(store);
        assert!(dir.path().join(marker).exists() && !dir.path().join(MASTER_KEY).exists());
        for file in [DATABASE, marker] {
            fs::remove_file(dir.path().join(file)).unwrap();
        }
        for name in remaining_files {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        let error = open_error_with(&dir, master_key()).await;
        let is_named = |name: &&str| error.to_string().contains(name.split('/').next().unwrap());
        assert!(matches!(error, StoreError::Damaged { .. }) && remaining_files.iter().all(is_named), "{error}");
        assert!(error.to_string().contains("restore the database") && !dir.path().join(DATABASE).exists(), "{error}");
        for name in remaining_files {
            fs::remove_file(dir.path().join(name)).unwrap();
        }
        SqlStore::open_sqlite(dir.path(), master_key()).await.unwrap();
    }
}

#[tokio::test]
async fn a_missing_marker_is_written_at_the_next_start() {
    let (dir, store) = new_store().await;
    close(store).await;
    let marker = dir.path().join("imagate.db.marker");
    fs::remove_file(&marker).unwrap();
    SqlStore::open_sqlite(dir.path(), None).await.unwrap();
    assert!(marker.exists());
}

#[tokio::test]
async fn a_lost_master_key_is_not_replaced() {
    let (dir, store) = new_store().await;
    close(store).await;
    fs::remove_file(dir.path().join(MASTER_KEY)).unwrap();
    let error = open_error(&dir).await;
    assert!(matches!(error, StoreError::Damaged { .. }) && error.to_string().contains("master.key is missing"));
}

#[tokio::test]
async fn a_second_server_is_refused_and_a_command_is_not() {
    let (dir, store) = new_store().await;
    let serving = store.lock_for_serving().unwrap();
    let command = SqlStore::open_sqlite(dir.path(), None).await.unwrap();
    let error = command.lock_for_serving().unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }));
    assert!(error.to_string().contains(&dir.path().display().to_string()));
    command.ensure_user(&AuditContext::command(), "ada").await.unwrap();
    drop(serving);
    command.lock_for_serving().unwrap();
}

#[tokio::test]
async fn a_database_is_not_migrated_while_an_older_gateway_serves() {
    let newest = newest_schema_version();
    let (dir, pool) = database_at_migration(usize::try_from(newest).unwrap() - 1).await;
    let version = async || -> i64 {
        sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM _sqlx_migrations").fetch_one(&pool).await.unwrap()
    };
    let serving = DataDir::at(dir.path()).lock_for_serving().unwrap();
    let error = SqlStore::open_sqlite(dir.path(), None).await.unwrap_err();
    assert!(matches!(error, StoreError::OlderGateway { .. }), "{error}");
    assert_eq!(version().await, newest - 1);
    drop(serving);
    let store = SqlStore::open_sqlite(dir.path(), None).await.unwrap();
    assert_eq!(version().await, newest);
    // A command of the same version may open the database beside the gateway.
    let _serving = store.lock_for_serving().unwrap();
    SqlStore::open_sqlite(dir.path(), None).await.unwrap();
}

#[tokio::test]
async fn a_write_waits_for_a_lock_that_is_held() {
    let (dir, store) = new_store().await;
    let second_store = SqlStore::open_sqlite(dir.path(), None).await.unwrap();
    let mut connection = second_store.writer.sqlite().acquire().await.unwrap();
    let transaction = sqlx::Connection::begin_with(&mut *connection, "BEGIN IMMEDIATE").await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { store.ensure_user(&AuditContext::command(), "ada").await });
    // Readers do not wait for the lock.
    assert_eq!(second_store.list_records(&RecordFilter::default()).await.unwrap(), []);
    transaction.rollback().await.unwrap();
    tasks.join_next().await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_lock_that_is_held_for_too_long_is_reported_as_busy() {
    let (dir, store) = new_store().await;
    let second_store = SqlStore::open_sqlite(dir.path(), None).await.unwrap();
    let mut connection = second_store.writer.sqlite().acquire().await.unwrap();
    let transaction = sqlx::Connection::begin_with(&mut *connection, "BEGIN IMMEDIATE").await.unwrap();
    batch_writer(&store).run_pragma("busy_timeout", 1);
    let (node, intents) = (NodeId::only(), [running_record("r1"), running_record("r2")]);
    let writes = [RowWrite::Open(&intents[0]), RowWrite::Open(&intents[1])];
    assert!(matches!(store.write_rows(&node, &writes[..1]).await, Err(StoreError::Busy)));
    assert!(matches!(store.write_rows(&node, &writes).await, Err(StoreError::Busy)));
    transaction.rollback().await.unwrap();
    assert_eq!(store.write_rows(&node, &writes).await.unwrap(), [RowWriteOutcome::Done, RowWriteOutcome::Done]);
}

#[tokio::test]
async fn a_batch_on_a_full_disk_is_stored_completely_or_not_at_all() {
    let (_dir, store) = new_store().await;
    batch_writer(&store).run_pragma("max_page_count", 1); // The file cannot grow.
    let (node, long) = (NodeId::only(), "x".repeat(1 << 20));
    let intents = [running_record("r1"), record! { end_user: Some(long), ..running_record("r2") }];
    let writes = [RowWrite::Open(&intents[0]), RowWrite::Open(&intents[1])];
    let error = store.write_rows(&node, &writes).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    assert!(!error.is_row_fault());
    // The failed connection was replaced, so the file can grow again.
    // If the failed batch had stored the first intent, writing it now would have no effect.
    assert_eq!(store.write_rows(&node, &writes).await.unwrap(), [RowWriteOutcome::Done, RowWriteOutcome::Done]);
}

#[tokio::test]
async fn the_check_of_the_database_uses_the_connection_of_the_records() {
    let (dir, store) = new_store().await;
    store.ensure_user(&AuditContext::command(), "ada").await.unwrap();
    fs::rename(dir.path().join(DATABASE), dir.path().join("moved.db")).unwrap();
    // The other connections are open, and still work.
    store.ensure_user(&AuditContext::command(), "ben").await.unwrap();
    assert!(matches!(store.check_writable().await, Err(StoreError::Unavailable { .. })));
    fs::rename(dir.path().join("moved.db"), dir.path().join(DATABASE)).unwrap();
    store.check_writable().await.unwrap();
}

#[tokio::test]
async fn a_closed_store_takes_no_records() {
    let (_dir, store) = new_store().await;
    let intent = running_record("r1");
    store.write_rows(&NodeId::only(), &[RowWrite::Open(&intent)]).await.unwrap();
    store.close().await;
    assert!(batch_writer(&store).write(&NodeId::only(), &[RowWrite::Close(&intent)]).is_err());
}

const ROWS: usize = 100;

#[tokio::test]
async fn concurrent_writes_of_two_processes_are_all_stored() {
    let (dir, store) = new_store().await;
    let mut child = spawn_child(module_path!(), "child_that_adds_users", &dir);
    // The child prints `ready` before it begins to write.
    let mut child_output = child.stdout.take().unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"ready\n") {
        let mut byte = [0];
        child_output.read_exact(&mut byte).unwrap();
        received.push(byte[0]);
    }
    let node = NodeId::only();
    for number in 0..ROWS {
        let id = format!("r{number}");
        let (open, closed) = (running_record(&id), finished_record(&id));
        store.write_rows(&node, &[RowWrite::Open(&open)]).await.unwrap();
        store.write_rows(&node, &[RowWrite::Close(&closed)]).await.unwrap();
    }
    assert!(child.wait().unwrap().success());
    let users: i64 = sqlx::query_scalar("SELECT count(*) FROM users WHERE name <> ''")
        .fetch_one(store.readers.sqlite())
        .await
        .unwrap();
    assert_eq!(usize::try_from(users).unwrap(), ROWS);
    assert_eq!(store.list_records(&RecordFilter::default()).await.unwrap().len(), ROWS);
}

#[tokio::test]
async fn child_that_adds_users() {
    let Some(dir) = child_dir() else { return };
    let store = SqlStore::open_sqlite(&dir, None).await.unwrap();
    std::io::stdout().write_all(b"ready\n").unwrap();
    for number in 0..ROWS {
        store.ensure_user(&AuditContext::command(), &format!("user {number}")).await.unwrap();
    }
}
