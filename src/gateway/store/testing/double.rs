//! A test double of the store that counts calls, and can delay them and let them fail.

mod people;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::Semaphore;

use crate::gateway::store::*;

/// The id of a request whose rows [`StoreDouble`] always refuses, together with all other rows of the transaction.
pub(crate) const REFUSED_REQUEST_ID: &str = "poison";

/// A wrapper of another store that counts calls, can let every call fail, and can hold back writes of records, claims
/// and refusal counts.
pub(crate) struct StoreDouble {
    inner: Arc<dyn Store>,
    /// The number of calls of any method, without writes that are still held back or that [`REFUSED_REQUEST_ID`] made fail.
    pub(crate) calls: AtomicUsize,
    /// The number of begun transactions with records or claims, including those that are held back or fail.
    pub(crate) commits: AtomicUsize,
    /// The number of queries for changed keys.
    pub(crate) refreshes: AtomicUsize,
    /// The number of completed calls that store the last use of keys.
    pub(crate) touches: AtomicUsize,
    /// Each write of records, claims or refusal counts takes one permit. There are enough of them unless a test calls
    /// [`StoreDouble::hold_writes`].
    pub(crate) write_permits: Semaphore,
    failure: Mutex<Option<fn() -> StoreError>>,
}

impl StoreDouble {
    pub(crate) fn wrapping(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            calls: AtomicUsize::new(0),
            commits: AtomicUsize::new(0),
            refreshes: AtomicUsize::new(0),
            touches: AtomicUsize::new(0),
            write_permits: Semaphore::new(1_000_000),
            failure: Mutex::default(),
        })
    }

    /// Makes every call fail with this error from now on. With `None`, calls no longer fail.
    pub(crate) fn set_failure(&self, trouble: Option<fn() -> StoreError>) {
        *self.failure.lock().unwrap() = trouble;
    }

    /// Holds back every write of records, claims and refusal counts until a test adds permits to `write_permits`.
    pub(crate) fn hold_writes(&self) {
        self.write_permits.forget_permits(usize::MAX >> 4);
    }

    fn inner_or_failure(&self) -> Result<&dyn Store, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let trouble = *self.failure.lock().unwrap();
        trouble.map_or(Ok(&*self.inner), |trouble| Err(trouble()))
    }
}

#[async_trait]
impl Store for StoreDouble {
    async fn sync_account(&self, account: AccountSpec<'_>) -> Result<AccountRow, StoreError> {
        self.inner_or_failure()?.sync_account(account).await
    }

    async fn list_accounts(&self) -> Result<Vec<AccountRow>, StoreError> {
        self.inner_or_failure()?.list_accounts().await
    }

    async fn insert_account(&self, audit: &AuditContext, account: &NewAccount) -> Result<AccountRow, StoreError> {
        self.inner_or_failure()?.insert_account(audit, account).await
    }

    async fn change_account(
        &self,
        audit: &AuditContext,
        name: &str,
        change: AccountChange,
    ) -> Result<Option<AccountRow>, StoreError> {
        self.inner_or_failure()?.change_account(audit, name, change).await
    }

    async fn delete_account(&self, audit: &AuditContext, name: &str) -> Result<bool, StoreError> {
        self.inner_or_failure()?.delete_account(audit, name).await
    }

    async fn mark_others_absent(&self, in_file: &[&str], at: Timestamp) -> Result<u64, StoreError> {
        self.inner_or_failure()?.mark_others_absent(in_file, at).await
    }

    async fn load_token(&self, account: &str) -> Result<Option<TokenRow>, StoreError> {
        self.inner_or_failure()?.load_token(account).await
    }

    async fn claim_refresh(
        &self,
        account: &str,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError> {
        self.inner_or_failure()?.claim_refresh(account, holder, now, until).await
    }

    async fn store_token(&self, account: &str, holder: &str, sealed: &[u8]) -> Result<bool, StoreError> {
        self.inner_or_failure()?.store_token(account, holder, sealed).await
    }

    async fn release_refresh(&self, account: &str, holder: &str) -> Result<(), StoreError> {
        self.inner_or_failure()?.release_refresh(account, holder).await
    }

    async fn delete_token(&self, account: &str) -> Result<(), StoreError> {
        self.inner_or_failure()?.delete_token(account).await
    }

    async fn find_replay(&self, scope: &[u8; 32]) -> Result<Option<StoredReplay>, StoreError> {
        self.inner_or_failure()?.find_replay(scope).await
    }

    async fn list_replays(&self) -> Result<Vec<StoredReplay>, StoreError> {
        self.inner_or_failure()?.list_replays().await
    }

    async fn remove_expired_replays(&self, now: Timestamp, except: &[[u8; 32]], limit: u32) -> Result<u32, StoreError> {
        self.inner_or_failure()?.remove_expired_replays(now, except, limit).await
    }

    async fn write_rows(&self, node: &NodeId, writes: &[RowWrite<'_>]) -> Result<Vec<RowWriteOutcome>, StoreError> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.write_permits.acquire().await.unwrap().forget();
        if writes.iter().any(|write| write.request_id().as_str() == REFUSED_REQUEST_ID) {
            return Err(StoreError::Refused("no database takes this row".into()));
        }
        self.inner_or_failure()?.write_rows(node, writes).await
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        self.inner_or_failure()?.check_writable().await
    }

    async fn interrupt_running(&self, node: &NodeId) -> Result<u64, StoreError> {
        self.inner_or_failure()?.interrupt_running(node).await
    }

    async fn remove_expired_rows(
        &self,
        class: RetentionClass,
        before: Timestamp,
        limit: u32,
    ) -> Result<u64, StoreError> {
        self.inner_or_failure()?.remove_expired_rows(class, before, limit).await
    }

    async fn list_records(&self, filter: &RecordFilter) -> Result<Vec<Record>, StoreError> {
        self.inner_or_failure()?.list_records(filter).await
    }

    async fn find_record(&self, request_id: &RequestId, owner: Option<&UserId>) -> Result<Option<Record>, StoreError> {
        self.inner_or_failure()?.find_record(request_id, owner).await
    }

    async fn states_by_fingerprint(
        &self,
        fingerprint: &[u8; 32],
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<JobState>, StoreError> {
        self.inner_or_failure()?.states_by_fingerprint(fingerprint, since, limit).await
    }

    async fn account_of_response(
        &self,
        response_id: &str,
        user: &UserId,
        key: &KeyId,
    ) -> Result<Option<String>, StoreError> {
        self.inner_or_failure()?.account_of_response(response_id, user, key).await
    }
}

#[async_trait]
impl UsageStore for StoreDouble {
    async fn usage_by_day(&self, filter: &UsageFilter) -> Result<Vec<DayCounts>, StoreError> {
        self.inner_or_failure()?.usage_by_day(filter).await
    }

    async fn usage_by_key(&self, filter: &UsageFilter, limit: Option<u32>) -> Result<Vec<KeyCounts>, StoreError> {
        self.inner_or_failure()?.usage_by_key(filter, limit).await
    }

    async fn total_usage(&self, filter: &UsageFilter) -> Result<UsageCounters, StoreError> {
        self.inner_or_failure()?.total_usage(filter).await
    }

    async fn total_usage_by_key(&self, keys: &[KeyId]) -> Result<BTreeMap<KeyId, UsageCounters>, StoreError> {
        self.inner_or_failure()?.total_usage_by_key(keys).await
    }

    async fn add_refusals(&self, refusals: &[RefusalCount]) -> Result<(), StoreError> {
        self.write_permits.acquire().await.unwrap().forget();
        self.inner_or_failure()?.add_refusals(refusals).await
    }

    async fn key_names(&self, keys: &[KeyId]) -> Result<BTreeMap<KeyId, KeyDisplayNames>, StoreError> {
        self.inner_or_failure()?.key_names(keys).await
    }
}
