//! Helpers for the tests of several modules: an empty store, records, keys, databases without the newest schema, child
//! processes, the supertrait of all traits, and a test double for records.

mod double;
mod shared_answers;

use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;

use super::sqlite::migrations::MIGRATIONS;
use super::*;
use crate::gateway::config::DialectSet;
use crate::wire::admin::types;
pub(crate) use double::{CallFailure, REFUSED_REQUEST_ID, RecordStoreDouble};
pub(crate) use shared_answers::SharedAnswersDouble;

/// Makes an empty store in a new directory.
pub(crate) async fn new_store() -> (TempDir, Arc<SqlStore>) {
    let dir = TempDir::new().unwrap();
    let store = SqlStore::open_sqlite(dir.path(), None).await.unwrap();
    (dir, Arc::new(store))
}

/// Runs statements in the SQLite database of this directory, as another process does.
pub(crate) async fn execute(dir: &TempDir, statements: &'static str) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(dir.path().join("imagate.db"));
    let pool = sqlx::SqlitePool::connect_with(options.create_if_missing(true)).await.unwrap();
    sqlx::raw_sql(statements).execute(&pool).await.unwrap();
    pool.close().await;
}

/// Counts records in detail in one step, in transactions of at most this number of rows where others wait for them, or if there are none to count,
/// replaced outcomes. Returns false if there was nothing to count.
pub(crate) async fn fold_records(
    store: &(impl UsageDetailStore + ?Sized),
    up_to: i64,
    rows: usize,
) -> Result<bool, StoreError> {
    let Some(mut step) = store.read_fold_step(up_to, rows.saturating_mul(20)).await? else {
        return Ok(store.count_replaced().await? > 0);
    };
    while store.write_fold_step(&mut step, rows).await? {}
    Ok(true)
}

/// Makes an empty database in the PostgreSQL server of the test run, and opens it with a new directory. Returns `None` if
/// the run has no such server: `cargo xtask postgres` and `cargo xtask test` start one.
pub(crate) async fn new_postgres_store() -> Option<(TempDir, DatabaseUrl, Arc<SqlStore>)> {
    let url = new_postgres_database().await?;
    let dir = TempDir::new().unwrap();
    let store = SqlStore::open_postgres(dir.path(), &url, None).await.unwrap();
    Some((dir, url, Arc::new(store)))
}

/// Makes an empty database in the PostgreSQL server of the test run, and returns its address.
#[expect(clippy::disallowed_methods, reason = "the runner of the tests passes the address in a variable")]
pub(crate) async fn new_postgres_database() -> Option<DatabaseUrl> {
    use sqlx::Connection as _;

    let server = std::env::var("IMAGATE_TEST_POSTGRES").ok()?;
    let mut connection = sqlx::PgConnection::connect(&server).await.unwrap();
    let name = format!("test_{}", String::from_utf8_lossy(&random_base62::<16>().unwrap()).to_lowercase());
    sqlx::query(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let (address, _) = server.rsplit_once('/').unwrap();
    Some(DatabaseUrl::parse(&format!("{address}/{name}")).unwrap())
}

/// Makes a directory with a database to which only the first `count` migrations were applied, and opens the database.
pub(crate) async fn database_at_migration(count: usize) -> (TempDir, sqlx::SqlitePool) {
    let dir = TempDir::new().unwrap();
    let first = MIGRATIONS.iter().take(count).cloned().collect();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(dir.path().join("imagate.db"));
    let pool = sqlx::SqlitePool::connect_with(options.create_if_missing(true)).await.unwrap();
    sqlx::migrate::Migrator::with_migrations(first).run(&pool).await.unwrap();
    (dir, pool)
}

/// Adds `count` claims that expired long ago to the database of this directory. Each claim names the file of a stored
/// answer, which does not exist.
pub(crate) async fn insert_expired_replays(dir: &TempDir, count: u32) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(dir.path().join("imagate.db"));
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    let insert = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) \
        INSERT INTO replays (scope, digest, request_id, node, created_at, expires_at, status, content_type, headers, \
        file, size, sealed_key) SELECT randomblob(32), randomblob(32), 'req_' || i, 'only', '2026-01-01T00:00:00.000Z', \
        '2026-01-02T00:00:00.000Z', 200, 'application/json', '{}', i || '.answer', 5000000, randomblob(61) FROM n";
    sqlx::query(insert).bind(count).execute(&pool).await.unwrap();
    pool.close().await;
}

/// Makes a record of another one and other values, in the form of a struct expression: `record! { n: Some(2), ..base }`.
macro_rules! record {
    ($($field:ident $(: $value:expr)?,)* ..$base:expr) => {{
        let mut record: $crate::gateway::store::JobRecord = $base;
        $($crate::gateway::store::testing::set_in_record!(record, $field $(, $value)?);)*
        record
    }};
}
pub(crate) use record;

/// Sets a value of a record, in the document or beside it.
macro_rules! set_in_record {
    ($record:ident, $field:ident) => {
        $crate::gateway::store::testing::set_in_record!($record, $field, $field)
    };
    ($record:ident, cost_usd, $value:expr) => {
        $record.cost = $value;
        $record.document.cost_usd = $record.cost.map($crate::gateway::money::Usd::dollars);
    };
    ($record:ident, max_cost_usd, $value:expr) => {
        $record.max_cost = $value
    };
    ($record:ident, max_job_cost_usd, $value:expr) => {
        $record.max_job_cost = $value
    };
    ($record:ident, created_at, $value:expr) => {
        $record.document.created_at = ::chrono::DateTime::from($value)
    };
    ($record:ident, user, $value:expr) => {
        $record.document.user = ToString::to_string(&$value)
    };
    ($record:ident, key, $value:expr) => {
        $record.document.key = ToString::to_string(&$value)
    };
    ($record:ident, fingerprint, $value:expr) => {
        $record.fingerprint = $value
    };
    ($record:ident, bindings, $value:expr) => {
        $record.bindings = $value
    };
    ($record:ident, charges, $value:expr) => {
        $record.usage.charges = $value
    };
    ($record:ident, usage, $value:expr) => {
        let image = $value;
        $record.set_usage($crate::gateway::store::ModelUsage { image, ..$record.usage.clone() });
    };
    ($record:ident, host_usage, $value:expr) => {
        let host = $value;
        $record.set_usage($crate::gateway::store::ModelUsage { host, ..$record.usage.clone() });
    };
    ($record:ident, $field:ident, $value:expr) => {
        $record.document.$field = $value
    };
}
pub(crate) use set_in_record;

/// Makes token counts of other ones and other values, in the same form.
macro_rules! token_usage {
    ($($field:ident $(: $value:expr)?,)* ..$base:expr) => {{
        let mut usage: $crate::gateway::store::TokenUsage = $base;
        $($crate::gateway::store::testing::set_in_usage!(usage, $field $(, $value)?);)*
        usage
    }};
}
pub(crate) use token_usage;

/// Sets a count, or a value beside the counts.
macro_rules! set_in_usage {
    ($usage:ident, $field:ident) => {
        $crate::gateway::store::testing::set_in_usage!($usage, $field, $field)
    };
    ($usage:ident, cache_writes, $value:expr) => {
        $usage.cache_writes = $value
    };
    ($usage:ident, is_breakdown_assumed, $value:expr) => {
        $usage.is_breakdown_assumed = $value
    };
    ($usage:ident, is_cache_breakdown_assumed, $value:expr) => {
        $usage.is_cache_breakdown_assumed = $value
    };
    ($usage:ident, uncounted_calls, $value:expr) => {
        $usage.uncounted_calls = $value
    };
    ($usage:ident, $field:ident, $value:expr) => {
        $usage.counts.$field = $value
    };
}
pub(crate) use set_in_usage;

/// Makes a filter of another one and other values, in the same form.
macro_rules! record_filter {
    ($($field:ident $(: $value:expr)?,)* ..$base:expr) => {{
        let mut filter: $crate::gateway::store::RecordFilter = $base;
        $($crate::gateway::store::testing::set_in_filter!(filter, $field $(, $value)?);)*
        filter
    }};
}
pub(crate) use record_filter;

/// Sets a value of a filter, in the query or beside it.
macro_rules! set_in_filter {
    ($filter:ident, $field:ident) => {
        $crate::gateway::store::testing::set_in_filter!($filter, $field, $field)
    };
    ($filter:ident, owner, $value:expr) => {
        $filter.owner = $value
    };
    ($filter:ident, limit, $value:expr) => {
        $filter.limit = $value
    };
    ($filter:ident, $field:ident, $value:expr) => {
        $filter.query.$field = $value
    };
}
pub(crate) use set_in_filter;

/// Makes an intent: the record of a running job, as it is before the first attempt.
pub(crate) fn running_record(request_id: &str) -> JobRecord {
    let document = types::Record {
        request_id: request_id.into(),
        created_at: "2026-11-21T03:00:00.123Z".parse().unwrap(),
        operation: "create_image".to_owned(),
        model: Some("gpt-image-2".to_owned()),
        size: Some("1536x1024".to_owned()),
        quality: Some("low".to_owned()),
        output_format: Some("webp".to_owned()),
        n: Some(2),
        group: "default".to_owned(),
        user: "usr_1".into(),
        key: "key_1".into(),
        end_user: Some("u-1".to_owned()),
        ..types::Record::default()
    };
    JobRecord { document, ..JobRecord::default() }
}

/// Makes the record of the same job after it has succeeded. Its cost is unknown, and one of two images is missing.
pub(crate) fn finished_record(request_id: &str) -> JobRecord {
    let details = |image, text| Some(types::RecordTokens { image_tokens: Some(image), text_tokens: Some(text) });
    let image_usage = token_usage! {
        input_tokens: Some(17),
        input_tokens_details: details(0, 17),
        output_tokens: Some(392),
        output_tokens_details: details(392, 0),
        total_tokens: Some(409),
        ..TokenUsage::default()
    };
    let host_usage = token_usage! {
        input_tokens: Some(30),
        output_tokens: Some(50),
        total_tokens: Some(80),
        ..TokenUsage::default()
    };
    let image = types::RecordImage {
        size: Some("1536x1024".to_owned()),
        output_format: Some("webp".to_owned()),
        quality: Some("low".to_owned()),
    };
    let attempt = types::RecordAttempt {
        account: Some("primary".to_owned()),
        status: Some(200),
        latency_ms: Some(8100),
        upstream_request_id: Some("req_1".to_owned()),
        start_ms: Some(12),
        ..types::RecordAttempt::default()
    };
    record! {
        state: JobState::Succeeded,
        delivered: vec![image],
        latency_ms: Some(8123),
        first_byte_ms: Some(8011),
        attempts: vec![attempt],
        account: Some("primary".to_owned()),
        missing: Some(1),
        image_model: Some("gpt-image-2-2026-04-21".to_owned()),
        host_model: Some("gpt-5.5".to_owned()),
        usage: Some(image_usage),
        host_usage: Some(host_usage),
        ..running_record(request_id)
    }
}

/// Returns the audit context of a command that an operator runs on the machine of the gateway, at that time.
pub(crate) fn audit_context_at(at: Timestamp) -> AuditContext {
    AuditContext { at, ..AuditContext::command() }
}

/// Returns the change that replaces the credentials of an account and deletes its token.
pub(crate) fn replace_credentials(sealed: Vec<u8>) -> AccountChange {
    AccountChange::ReplaceCredentials(NewCredentials { sealed, token: TokenChange::Delete })
}

/// Stores a new API key of the user `ada` in the group `default`, which are created if they do not exist.
pub(crate) async fn add_key(store: &dyn Store, name: &str) -> KeyRow {
    let context = AuditContext::command();
    let user = store.ensure_user(&context, "ada").await.unwrap();
    let group = store.ensure_group(&context, "default").await.unwrap();
    let row = KeyRow {
        id: KeyId::random().unwrap(),
        public_id: PublicId::from(format!("public-{name}")),
        name: name.to_owned(),
        user: user.id,
        user_name: Some(user.name),
        user_disabled_at: None,
        group: group.id,
        group_name: group.name,
        hash: KeyHash([7; 32]),
        previous_until: None,
        created_at: "2026-01-01T00:00:00Z".parse().unwrap(),
        expires_at: Some("2027-01-01T00:00:00.250Z".parse().unwrap()),
        last_used_at: None,
        disabled_at: None,
        locked: None,
        latest_end: Some("2027-01-01T00:00:00.250Z".parse().unwrap()),
        deleted_at: None,
        limits: None,
        dialects: DialectSet::default(),
    };
    assert!(store.insert_key(&context, &row, None).await.unwrap());
    row
}

const CHILD_DIR: &str = "IMAGATE_TEST_CHILD_DIR";

/// Starts a process that runs only one test of this binary. The test can get `dir` with [`child_dir`].
pub(crate) fn spawn_child(module: &str, test: &str, dir: &TempDir) -> Child {
    let (_crate, module) = module.split_once("::").unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{test}"), "--nocapture", "--test-threads=1"])
        .env(CHILD_DIR, dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns the directory of a process that [`spawn_child`] has started; `None` in an ordinary test run, in which the
/// child test does nothing.
#[expect(clippy::disallowed_methods, reason = "the parent of a test process passes the directory in a variable")]
pub(crate) fn child_dir() -> Option<std::path::PathBuf> {
    std::env::var_os(CHILD_DIR).map(Into::into)
}
