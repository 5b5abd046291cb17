//! A store that counts and fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::Semaphore;

use crate::gateway::store::*;

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

    async fn insert_account(&self, account: &NewAccount) -> Result<AccountRow, StoreError> {
        self.called()?.insert_account(account).await
    }

    async fn change_account(
        &self,
        name: &str,
        change: AccountChange,
        at: Timestamp,
    ) -> Result<Option<AccountRow>, StoreError> {
        self.called()?.change_account(name, change, at).await
    }

    async fn delete_account(&self, name: &str) -> Result<bool, StoreError> {
        self.called()?.delete_account(name).await
    }

    async fn mark_absent(&self, in_file: &[&str], at: Timestamp) -> Result<u64, StoreError> {
        self.called()?.mark_absent(in_file, at).await
    }

    async fn load_token(&self, account: &str) -> Result<Option<TokenRow>, StoreError> {
        self.called()?.load_token(account).await
    }

    async fn claim_refresh(
        &self,
        account: &str,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError> {
        self.called()?.claim_refresh(account, holder, now, until).await
    }

    async fn store_token(&self, account: &str, holder: &str, sealed: &[u8]) -> Result<bool, StoreError> {
        self.called()?.store_token(account, holder, sealed).await
    }

    async fn release_refresh(&self, account: &str, holder: &str) -> Result<(), StoreError> {
        self.called()?.release_refresh(account, holder).await
    }

    async fn delete_token(&self, account: &str) -> Result<(), StoreError> {
        self.called()?.delete_token(account).await
    }

    async fn claim_replay(&self, claim: &ReplayRow) -> Result<Claimed, StoreError> {
        self.called()?.claim_replay(claim).await
    }

    async fn find_replay(&self, scope: &[u8; 32]) -> Result<Option<StoredReplay>, StoreError> {
        self.called()?.find_replay(scope).await
    }

    async fn finish_replay(
        &self,
        scope: &[u8; 32],
        request_id: &RequestId,
        done: &ReplayDone,
    ) -> Result<bool, StoreError> {
        self.called()?.finish_replay(scope, request_id, done).await
    }

    async fn forget_replay(&self, scope: &[u8; 32], request_id: &RequestId) -> Result<bool, StoreError> {
        self.called()?.forget_replay(scope, request_id).await
    }

    async fn list_replays(&self) -> Result<Vec<StoredReplay>, StoreError> {
        self.called()?.list_replays().await
    }

    async fn expired_replays(&self, now: Timestamp, limit: u32) -> Result<Vec<StoredReplay>, StoreError> {
        self.called()?.expired_replays(now, limit).await
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
