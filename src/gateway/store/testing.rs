//! What the tests of several rooms need: a store to begin with, a record to write, a store that counts and fails.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::*;

/// An empty store in a directory of its own.
pub(crate) async fn fresh() -> (TempDir, Arc<SqliteStore>) {
    let dir = TempDir::new().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    (dir, Arc::new(store))
}

/// An intent.
pub(crate) fn record(request_id: &str) -> Record {
    Record {
        request_id: request_id.into(),
        created_at: "2026-11-21T03:00:00.123Z".parse().unwrap(),
        operation: "create_image".to_owned(),
        model: Some("gpt-image-2".to_owned()),
        stream: false,
        state: State::Running,
        error_code: None,
        size: Some("1536x1024".to_owned()),
        quality: Some("low".to_owned()),
        output_format: Some("webp".to_owned()),
        n: Some(2),
        delivered: Vec::new(),
        usage: None,
        cost_usd: None,
        latency_ms: None,
        first_byte_ms: None,
        attempts: Vec::new(),
        account: None,
        group: "default".to_owned(),
        user: "usr_1".into(),
        key: "key_1".into(),
        end_user: Some("u-1".to_owned()),
    }
}

/// The same with an outcome in which nothing is unknown.
pub(crate) fn finished(request_id: &str) -> Record {
    let details = |image, text| Some(TokenDetails { image_tokens: Some(image), text_tokens: Some(text) });
    Record {
        state: State::Succeeded,
        delivered: vec![Delivered { size: Some("1536x1024".to_owned()), output_format: Some("webp".to_owned()) }],
        usage: Some(Usage {
            input_tokens: Some(17),
            input_tokens_details: details(0, 17),
            output_tokens: Some(392),
            output_tokens_details: details(392, 0),
            total_tokens: Some(409),
        }),
        latency_ms: Some(8123),
        first_byte_ms: Some(8011),
        attempts: vec![Attempt { account: "primary".to_owned(), class: None, status: Some(200), latency_ms: 8100 }],
        account: Some("primary".to_owned()),
        ..record(request_id)
    }
}

/// A key that has just been stored, with its user and group.
pub(crate) async fn key(store: &dyn Store, name: &str) -> KeyRow {
    let user = store.ensure_user("ada").await.unwrap();
    let group = store.ensure_group("default").await.unwrap();
    let row = KeyRow {
        id: KeyId::random().unwrap(),
        public_id: PublicId::from(format!("public-{name}")),
        name: name.to_owned(),
        user: user.id,
        user_name: user.name,
        group: group.id,
        group_name: group.name,
        hash: KeyHash([7; 32]),
        created_at: "2026-01-01T00:00:00Z".parse().unwrap(),
        expires_at: Some("2027-01-01T00:00:00.250Z".parse().unwrap()),
        last_used_at: None,
        disabled_at: None,
        deleted_at: None,
    };
    store.insert_key(&row).await.unwrap();
    row
}

/// The id of a record that [`Double`] always refuses, and whatever is in the same transaction with it.
pub(crate) const POISON: &str = "poison";

/// A store in front of another that counts what is asked of it, and can hold back or refuse writes of records.
pub(crate) struct Double {
    inner: Arc<dyn Store>,
    /// Calls of any kind.
    pub(crate) calls: AtomicUsize,
    /// Transactions with records.
    pub(crate) commits: AtomicUsize,
    /// Notes that a key was used.
    pub(crate) touches: AtomicUsize,
    /// One permit is one transaction; as many as anybody needs unless a test takes them away.
    pub(crate) gate: Semaphore,
    trouble: Mutex<Option<fn() -> StoreError>>,
}

impl Double {
    pub(crate) fn of(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            calls: AtomicUsize::new(0),
            commits: AtomicUsize::new(0),
            touches: AtomicUsize::new(0),
            gate: Semaphore::new(1_000_000),
            trouble: Mutex::default(),
        })
    }

    /// From now on everything fails like this, or nothing does.
    pub(crate) fn set_trouble(&self, trouble: Option<fn() -> StoreError>) {
        *self.trouble.lock().unwrap() = trouble;
    }

    /// Holds every transaction until permits are added.
    pub(crate) fn hold(&self) {
        self.gate.forget_permits(usize::MAX >> 4);
    }

    fn called(&self) -> Result<&dyn Store, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let trouble = *self.trouble.lock().unwrap();
        trouble.map_or(Ok(&*self.inner), |trouble| Err(trouble()))
    }
}

#[async_trait]
impl Store for Double {
    async fn ensure_user(&self, name: &str) -> Result<UserRow, StoreError> {
        self.called()?.ensure_user(name).await
    }

    async fn ensure_group(&self, name: &str) -> Result<GroupRow, StoreError> {
        self.called()?.ensure_group(name).await
    }

    async fn sync_account(&self, account: AccountSpec<'_>) -> Result<AccountRow, StoreError> {
        self.called()?.sync_account(account).await
    }

    async fn list_accounts(&self) -> Result<Vec<AccountRow>, StoreError> {
        self.called()?.list_accounts().await
    }

    async fn insert_key(&self, key: &KeyRow) -> Result<(), StoreError> {
        self.called()?.insert_key(key).await
    }

    async fn find_key(&self, public_id: &PublicId) -> Result<Option<KeyRow>, StoreError> {
        self.called()?.find_key(public_id).await
    }

    async fn list_keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        self.called()?.list_keys().await
    }

    async fn change_key(&self, handle: &str, change: KeyChange, at: Timestamp) -> Result<Option<KeyRow>, StoreError> {
        self.called()?.change_key(handle, change, at).await
    }

    async fn touch_key(&self, key: &KeyId, at: Timestamp) -> Result<(), StoreError> {
        let noted = self.called()?.touch_key(key, at).await;
        self.touches.fetch_add(1, Ordering::Relaxed);
        noted
    }

    async fn write_records(&self, node: &NodeId, writes: &[RecordWrite<'_>]) -> Result<Vec<Written>, StoreError> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.gate.acquire().await.unwrap().forget();
        if writes.iter().any(|write| write.record().request_id.as_str() == POISON) {
            return Err(StoreError::Refused("no database takes this row".into()));
        }
        self.called()?.write_records(node, writes).await
    }

    async fn interrupt_running(&self, node: &NodeId) -> Result<u64, StoreError> {
        self.called()?.interrupt_running(node).await
    }

    async fn list_records(&self, filter: &RecordFilter) -> Result<Vec<Record>, StoreError> {
        self.called()?.list_records(filter).await
    }
}

const CHILD_DIR: &str = "IMAGATE_TEST_CHILD_DIR";

/// Runs one test of this binary as a process of its own, with a directory to work on.
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

/// The directory of a process made by [`spawn_child`]; `None` in an ordinary run, where its test has nothing to do.
#[expect(clippy::disallowed_methods, reason = "how the parent of a test process hands it its directory")]
pub(crate) fn child_dir() -> Option<std::path::PathBuf> {
    std::env::var_os(CHILD_DIR).map(Into::into)
}
