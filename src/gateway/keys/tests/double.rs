//! A test double of the store for keys, which counts calls and can let them fail.

use std::sync::atomic::AtomicUsize;

use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::*;
use crate::gateway::store::testing::CallFailure;
use crate::gateway::store::{KeyCheck, RefusalCount};

/// A wrapper of a store that counts calls, can let every call fail, and can hold back writes of refusal counts.
pub(super) struct KeyStoreDouble {
    inner: Arc<SqlStore>,
    /// The number of calls of any method, without writes that are still held back.
    pub(super) calls: AtomicUsize,
    /// The number of queries for changed keys.
    pub(super) refreshes: AtomicUsize,
    /// The number of completed calls that store the last use of keys.
    pub(super) touches: AtomicUsize,
    /// Each write of refusal counts takes one permit. There are enough of them unless a test removes them.
    pub(super) write_permits: Semaphore,
    pub(super) failure: CallFailure,
}

impl KeyStoreDouble {
    pub(super) fn wrapping(inner: &Arc<SqlStore>) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            calls: AtomicUsize::new(0),
            refreshes: AtomicUsize::new(0),
            touches: AtomicUsize::new(0),
            write_permits: Semaphore::new(1_000_000),
            failure: CallFailure::default(),
        })
    }

    fn inner(&self) -> Result<&SqlStore, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.failure.check().map(|()| &*self.inner)
    }
}

#[async_trait]
impl KeyStore for KeyStoreDouble {
    async fn insert_key(&self, audit: &AuditContext, key: &KeyRow, max_keys: Option<u32>) -> Result<bool, StoreError> {
        self.inner()?.insert_key(audit, key, max_keys).await
    }

    async fn insert_first_key(&self, audit: &AuditContext, key: &KeyRow) -> Result<bool, StoreError> {
        self.inner()?.insert_first_key(audit, key).await
    }

    async fn first_key(&self) -> Result<Option<KeyId>, StoreError> {
        self.inner()?.first_key().await
    }

    async fn forget_first_key(&self) -> Result<(), StoreError> {
        self.inner()?.forget_first_key().await
    }

    async fn find_key(&self, handle: &str, owner: Option<&UserId>) -> Result<Option<KeyRow>, StoreError> {
        self.inner()?.find_key(handle, owner).await
    }

    async fn list_keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        self.inner()?.list_keys().await
    }

    async fn list_keys_page(&self, filter: &KeyFilter, now: Timestamp) -> Result<ListPage<KeyRow>, StoreError> {
        self.inner()?.list_keys_page(filter, now).await
    }

    async fn change_key(
        &self,
        audit: &AuditContext,
        handle: &str,
        owner: Option<&UserId>,
        changes: &[KeyChange],
    ) -> Result<KeyChangeOutcome, StoreError> {
        self.inner()?.change_key(audit, handle, owner, changes).await
    }

    async fn rotate_key(
        &self,
        audit: &AuditContext,
        key: &KeyId,
        owner: Option<&UserId>,
        rotation: SecretRotation,
    ) -> Result<KeyChangeOutcome, StoreError> {
        self.inner()?.rotate_key(audit, key, owner, rotation).await
    }

    async fn keys_changed_since(&self, revision: i64) -> Result<Vec<KeyCheck>, StoreError> {
        self.refreshes.fetch_add(1, Ordering::Relaxed);
        self.inner()?.keys_changed_since(revision).await
    }

    async fn record_key_use(&self, keys: &[KeyId], at: Timestamp) -> Result<(), StoreError> {
        let noted = self.inner()?.record_key_use(keys, at).await;
        self.touches.fetch_add(1, Ordering::Relaxed);
        noted
    }

    async fn add_refusals(&self, refusals: &[RefusalCount]) -> Result<(), StoreError> {
        self.write_permits.acquire().await.unwrap().forget();
        self.inner()?.add_refusals(refusals).await
    }
}
