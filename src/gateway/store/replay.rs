//! An answer that may be replayed, as its row describes it. The bytes of its body are in a file.

use async_trait::async_trait;

use super::{JobState, NodeId, RequestId, SharedAnswers, StoreError, Timestamp, UserId};

/// The database operations that recognize repeated requests. The claims are written with the records.
#[async_trait]
pub(crate) trait ReplayStore: Send + Sync {
    /// Returns the claim of an idempotency key with that scope, expired or not.
    async fn find_replay(&self, scope: &[u8; 32]) -> Result<Option<StoredReplay>, StoreError>;

    /// Returns the claims with this fingerprint that a retry may still ask for at `now`, oldest first.
    async fn find_retried_replays(
        &self,
        fingerprint: &[u8; 32],
        now: Timestamp,
    ) -> Result<Vec<StoredReplay>, StoreError>;

    /// Returns the claim of the request with this id, expired or not. If it has several, one with an answer is returned.
    async fn find_replay_of_request(&self, request_id: &RequestId) -> Result<Option<StoredReplay>, StoreError>;

    /// Returns at most `limit` requests for images with a claim, newest first, from the newest records of the user that
    /// began at `since` or later.
    async fn image_requests_with_replay(
        &self,
        user: &UserId,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<RequestId>, StoreError>;

    /// Returns every claim, oldest first.
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests compare the stored claims"))]
    async fn list_replays(&self) -> Result<Vec<StoredReplay>, StoreError>;

    /// Removes at most `limit` expired claims, except those of the scopes in `except`, and returns the number removed.
    async fn remove_expired_replays(&self, now: Timestamp, except: &[[u8; 32]], limit: u32) -> Result<u32, StoreError>;

    /// Returns those of these API keys, by id, that were deleted.
    async fn deleted_keys(&self, keys: &[String]) -> Result<Vec<String>, StoreError>;

    /// Returns the states of at most `limit` records with this fingerprint that began at `since` or later and have not
    /// succeeded, newest first.
    async fn states_by_fingerprint(
        &self,
        fingerprint: &[u8; 32],
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<JobState>, StoreError>;

    /// Returns the progress of the job of this request; `None` if it has no record.
    async fn job_progress(&self, request_id: &RequestId) -> Result<Option<JobProgress>, StoreError>;

    /// Returns the bytes of the answers of all nodes, if several nodes share them.
    fn shared_answers(&self) -> Option<&dyn SharedAnswers>;
}

/// The claim of one request: its right to make the answer of this scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplayClaim {
    /// The unique scope of the claim: a hash of the owner of the request, of its target, and of its idempotency key; or
    /// a hash of the id of a request without such a key.
    pub(crate) scope: [u8; 32],
    /// A hash of the content of the request.
    pub(crate) digest: [u8; 32],
    /// The keyed hash by which a retry finds the answer of a request without an idempotency key. Several answers may have
    /// the same one.
    pub(crate) fingerprint: Option<[u8; 32]>,
    /// The time from which no retry may get the answer; `None` if none may, or if a retry has read it to its end.
    pub(crate) retry_until: Option<Timestamp>,
    /// True if the caller was told that its image is still being made, so that a repeat of the request is expected.
    pub(crate) repeat_expected: bool,
    /// The request that makes the answer.
    pub(crate) request_id: RequestId,
    /// The process that serves the request.
    pub(crate) node: NodeId,
    /// The time at which the claim was made.
    pub(crate) created_at: Timestamp,
    /// The end of the last reason to keep the answer, from which the scope may be claimed again. Until the claim has an
    /// answer, it is later than the end of the job.
    pub(crate) expires_at: Timestamp,
}

impl ReplayClaim {
    /// Makes a claim, at this moment, of an answer that no retry finds by a fingerprint.
    pub(crate) fn new(
        scope: [u8; 32],
        digest: [u8; 32],
        request_id: RequestId,
        node: NodeId,
        expires_at: Timestamp,
    ) -> Self {
        let (fingerprint, retry_until, repeat_expected, created_at) = (None, None, false, Timestamp::now());
        Self { scope, digest, fingerprint, retry_until, repeat_expected, request_id, node, created_at, expires_at }
    }
}

/// The progress of a job, as its record states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobProgress {
    /// The state of the job.
    pub(crate) state: JobState,
    /// The time at which the process of the job closed the record. `None` if the job runs, or if its process died and
    /// another one closed the record.
    pub(crate) ended_at: Option<Timestamp>,
}

/// An answer that was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredAnswerRow {
    /// The status of the answer.
    pub(crate) status: u16,
    /// The type of the answer's body.
    pub(crate) content_type: String,
    /// The other headers of the answer, as JSON.
    pub(crate) headers: String,
    /// The name of the file that holds the body.
    pub(crate) file: String,
    /// The length of the file in bytes.
    pub(crate) size: u64,
    /// The key of the file, sealed by the vault.
    pub(crate) sealed_key: Vec<u8>,
}

/// A stored claim with its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredReplay {
    /// The claim.
    pub(crate) claim: ReplayClaim,
    /// The state of the claim.
    pub(crate) state: ReplayState,
}

/// The state of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReplayState {
    /// The answer is being made, or the process that was to make it has ended.
    Running,
    /// The answer is stored.
    Stored(StoredAnswerRow),
}

/// One write to the table of answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReplayWrite {
    /// Claims the right to make an answer, unless the scope has a claim that is still valid at `created_at`.
    Claim(ReplayClaim),
    /// Stores the answer of the running claim of this request.
    Finish {
        /// The scope of the answered claim.
        scope: [u8; 32],
        /// The request that holds the claim.
        request_id: RequestId,
        /// The end of the last reason to keep the answer.
        expires_at: Timestamp,
        /// The time from which no retry may get the answer.
        retry_until: Option<Timestamp>,
        /// The answer.
        answer: StoredAnswerRow,
        /// The bytes that the pieces of the answer will take, if they are to be written to the database. `None` if other
        /// nodes cannot share it.
        shared_bytes: Option<u64>,
    },
    /// Records that no further retry may get the answer of this request. It is kept for its other reasons.
    EndRetry {
        /// The scope of the answer.
        scope: [u8; 32],
        /// The request that made it.
        request_id: RequestId,
    },
    /// Removes the claim of this request, but not a claim of another request with the same scope.
    Remove {
        /// The scope of the removed claim.
        scope: [u8; 32],
        /// The request that holds the claim.
        request_id: RequestId,
    },
}
