//! Announces to the other nodes of a shared store that a caller got [`Error::InProgress`](crate::error::Error::InProgress)
//! and will repeat its request.
//!
//! The node of the job finds it in memory. For the other nodes, an announcement is a claim that names the request, under
//! a hash of the fingerprint. It never gets an answer: the answer is stored under the fingerprint, as that of every
//! orphan. An announcement whose answer was read, or does not come, is removed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::index::RetryableJobId;
use super::{AnswerReader, RetryableJobs, STORAGE_WAIT_MAX};
use crate::gateway::ledger::LedgerError;
use crate::gateway::replay::claim_guard::OTHER_NODE_PAUSE;
use crate::gateway::replay::durable_answers::OrphanAnswer;
use crate::gateway::replay::fingerprint::ReplayDigest;
use crate::gateway::replay::idempotent_answers::IdempotentAnswers;
use crate::gateway::replay::{LONGEST_CLAIM, ReplayError};
use crate::gateway::store::{JobState, ReplayClaim, ReplayWrite, RequestId, RowWriteOutcome, StoreError, Timestamp};

/// The longest wait for the announcement (our choice): callers may give up soon after the answer deadline.
const ANNOUNCEMENT_TIME_MAX: Duration = Duration::from_secs(2);

// === impl RetryableJobs ===

impl RetryableJobs {
    /// Makes the announcement durable, if several nodes share the store. Must be called before the caller gets the
    /// error.
    pub(in super::super) async fn announce_repeat(&self, job_id: RetryableJobId) {
        if self.idempotent_answers.sharing.is_none() {
            return;
        }
        let registration = self.index().entries.get(&job_id).map(|entry| entry.registration.clone());
        let Some(registration) = registration else { return };
        let Some(fingerprint) = registration.fingerprint else { return };
        let scope = self.idempotent_answers.announcement_scope(&fingerprint);
        let (request_id, expires_at) = (registration.request_id.as_str().into(), Timestamp::now() + LONGEST_CLAIM);
        let row = self.idempotent_answers.orphan_row(scope, request_id, expires_at + self.window);
        let written = timeout(ANNOUNCEMENT_TIME_MAX, self.idempotent_answers.write_announcement(row)).await;
        if !matches!(written, Ok(Ok(()))) {
            tracing::warn!("other nodes may not find a job whose caller will repeat its request: the store has failed");
        }
    }
}

// === impl IdempotentAnswers ===

impl IdempotentAnswers {
    fn announcement_scope(&self, fingerprint: &ReplayDigest) -> ReplayDigest {
        self.vault.keyed_hash("expected repeat", fingerprint)
    }

    /// Writes an announcement. It replaces that of an earlier job, which may be over.
    async fn write_announcement(&self, row: ReplayClaim) -> Result<(), LedgerError> {
        let written = self.ledger.write_replay(ReplayWrite::Claim(row.clone())).await?;
        if let RowWriteOutcome::AlreadyClaimed(earlier) = written {
            let (scope, request_id) = (row.scope, earlier.claim.request_id);
            self.ledger.write_replay(ReplayWrite::Remove { scope, request_id }).await?;
            self.ledger.write_replay(ReplayWrite::Claim(row)).await?;
        }
        Ok(())
    }

    /// Returns the answer of a job of another node for which a repeat with this fingerprint was announced, or the error
    /// "outcome unknown"; `None` if there is no such job, or if it ended without cost. Waits while the job runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(in super::super) async fn find_announced_answer(
        self: &Arc<Self>,
        fingerprint: &ReplayDigest,
    ) -> Result<Option<AnswerReader>, ReplayError> {
        let mut storage_deadline = Instant::now() + STORAGE_WAIT_MAX;
        while let Some(announcement) = self.find_announcement(fingerprint).await? {
            // In this order: an answer is claimed before its record ends, so one of the two is found.
            let progress = self.store.job_progress(&announcement.request_id).await?;
            match (self.find_orphan(fingerprint).await?, progress.map(|progress| progress.state)) {
                (OrphanAnswer::Stored(reader), _) => return Ok(Some(reader)),
                (OrphanAnswer::Claimed | OrphanAnswer::None, Some(JobState::Running)) => {
                    storage_deadline = Instant::now() + STORAGE_WAIT_MAX;
                }
                (OrphanAnswer::Claimed, _) if Instant::now() < storage_deadline => {}
                (OrphanAnswer::Claimed, _) | (OrphanAnswer::None, Some(JobState::Interrupted)) => {
                    self.release_claim(&announcement).await;
                    return Ok(Some(RetryableJobs::unknown_outcome()));
                }
                (
                    OrphanAnswer::None,
                    None | Some(JobState::Succeeded | JobState::Failed | JobState::Refused | JobState::Cancelled),
                ) => {
                    self.release_claim(&announcement).await;
                    return Ok(None);
                }
            }
            sleep(OTHER_NODE_PAUSE).await;
        }
        Ok(None)
    }

    /// Returns the announcement of another node. A node finds its own jobs in memory.
    async fn find_announcement(&self, fingerprint: &ReplayDigest) -> Result<Option<ReplayClaim>, StoreError> {
        if self.sharing.is_none() {
            return Ok(None);
        }
        let found = self.store.find_replay(&self.announcement_scope(fingerprint)).await?;
        let is_valid = |claim: &ReplayClaim| claim.node != self.node && claim.expires_at > Timestamp::now();
        Ok(found.map(|replay| replay.claim).filter(is_valid))
    }

    /// Removes the announcement of this request, if there is one, because a repeat has read the answer.
    pub(in super::super) async fn remove_repeat_announcement(
        &self,
        fingerprint: &ReplayDigest,
        request_id: &RequestId,
    ) {
        if self.sharing.is_some() {
            let scope = self.announcement_scope(fingerprint);
            self.release_claim(&self.orphan_row(scope, request_id.clone(), Timestamp::now())).await;
        }
    }
}
