//! A test double of the store for records and claims, and the failure that the doubles of several modules use.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::shared_answers::SharedAnswersDouble;
use crate::gateway::store::*;

/// The id of a request whose rows [`RecordStoreDouble`] always refuses, with all other rows of the transaction.
pub(crate) const REFUSED_REQUEST_ID: &str = "poison";

/// The failure of all calls of a test double, which a test begins and ends.
#[derive(Default)]
pub(crate) struct CallFailure(Mutex<Option<fn() -> StoreError>>);

/// A wrapper of a store that counts transactions, can let every call fail, and can hold back writes.
pub(crate) struct RecordStoreDouble {
    inner: Arc<SqlStore>,
    /// The number of begun transactions with records or claims, including those that are held back or fail.
    pub(crate) commits: AtomicUsize,
    /// Each write of records or claims takes one permit. There are enough of them unless a test calls
    /// [`RecordStoreDouble::hold_writes`].
    pub(crate) write_permits: Semaphore,
    pub(crate) failure: CallFailure,
    /// The bytes of answers, if the test has several nodes that share them.
    pub(crate) shared_answers: Option<SharedAnswersDouble>,
}

impl CallFailure {
    /// Makes every call fail with this error from now on. With `None`, calls no longer fail.
    pub(crate) fn set(&self, failure: Option<fn() -> StoreError>) {
        *self.0.lock().unwrap() = failure;
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.0.lock().unwrap().map_or(Ok(()), |failure| Err(failure()))
    }
}

impl RecordStoreDouble {
    pub(crate) fn wrapping(inner: &Arc<SqlStore>) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            commits: AtomicUsize::new(0),
            write_permits: Semaphore::new(1_000_000),
            failure: CallFailure::default(),
            shared_answers: None,
        })
    }

    /// Wraps a store whose nodes share the bytes of answers.
    pub(crate) fn with_shared_answers(inner: &Arc<SqlStore>) -> Arc<Self> {
        let double = Arc::into_inner(Self::wrapping(inner)).unwrap();
        Arc::new(Self { shared_answers: Some(SharedAnswersDouble::default()), ..double })
    }

    /// Holds back every write of records and claims until a test adds permits to `write_permits`.
    pub(crate) fn hold_writes(&self) {
        self.write_permits.forget_permits(self.write_permits.available_permits());
    }

    fn inner(&self) -> Result<&SqlStore, StoreError> {
        self.failure.check().map(|()| &*self.inner)
    }
}

#[async_trait]
impl RecordStore for RecordStoreDouble {
    async fn write_rows(&self, node: &NodeId, writes: &[RowWrite<'_>]) -> Result<Vec<RowWriteOutcome>, StoreError> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.write_permits.acquire().await.unwrap().forget();
        if writes.iter().any(|write| write.request_id() == REFUSED_REQUEST_ID) {
            return Err(StoreError::Refused("no database takes this row".into()));
        }
        let outcomes = self.inner()?.write_rows(node, writes).await?;
        if let Some(answers) = &self.shared_answers {
            answers.note_writes(writes, &outcomes);
        }
        Ok(outcomes)
    }

    async fn move_closed_records(&self, duration: Duration) -> Result<usize, StoreError> {
        self.inner()?.move_closed_records(duration).await
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        self.inner()?.check_writable().await
    }

    async fn interrupt_running(&self, node: &NodeId) -> Result<u64, StoreError> {
        self.inner()?.interrupt_running(node).await
    }

    async fn remove_expired_rows(
        &self,
        class: RetentionClass,
        before: Timestamp,
        limit: u32,
    ) -> Result<u64, StoreError> {
        self.inner()?.remove_expired_rows(class, before, limit).await
    }
}

#[async_trait]
impl ReplayStore for RecordStoreDouble {
    async fn find_replay(&self, scope: &[u8; 32]) -> Result<Option<StoredReplay>, StoreError> {
        self.inner()?.find_replay(scope).await
    }

    async fn find_retried_replays(
        &self,
        fingerprint: &[u8; 32],
        now: Timestamp,
    ) -> Result<Vec<StoredReplay>, StoreError> {
        self.inner()?.find_retried_replays(fingerprint, now).await
    }

    async fn find_replay_of_request(&self, request_id: &RequestId) -> Result<Option<StoredReplay>, StoreError> {
        self.inner()?.find_replay_of_request(request_id).await
    }

    async fn image_requests_with_replay(
        &self,
        user: &UserId,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<RequestId>, StoreError> {
        self.inner()?.image_requests_with_replay(user, since, limit).await
    }

    async fn list_replays(&self) -> Result<Vec<StoredReplay>, StoreError> {
        self.inner()?.list_replays().await
    }

    async fn remove_expired_replays(&self, now: Timestamp, except: &[[u8; 32]], limit: u32) -> Result<u32, StoreError> {
        self.inner()?.remove_expired_replays(now, except, limit).await
    }

    async fn deleted_keys(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        self.inner()?.deleted_keys(keys).await
    }

    async fn states_by_fingerprint(
        &self,
        fingerprint: &[u8; 32],
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<JobState>, StoreError> {
        self.inner()?.states_by_fingerprint(fingerprint, since, limit).await
    }

    async fn job_progress(&self, request_id: &RequestId) -> Result<Option<JobProgress>, StoreError> {
        self.inner()?.job_progress(request_id).await
    }

    fn shared_answers(&self) -> Option<&dyn SharedAnswers> {
        self.shared_answers.as_ref().map(|answers| answers as _)
    }
}
