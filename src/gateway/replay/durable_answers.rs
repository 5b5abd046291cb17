//! Stored answers that survive a restart. Their bytes are in a file, and their row is in the store.

use std::sync::Arc;

use tokio::time::timeout;

use super::ReplayError;
use super::answer_head::AnswerHead;
use super::answer_recorder::PendingFile;
use super::answer_sharing::SharingSlot;
use super::answer_store::{AnswerStore, sealing_context};
use super::claim_guard::STORAGE_WAIT_MAX;
use super::disk_budget::EvictableStorage as _;
use super::fingerprint::ReplayDigest;
use super::sealed_file::{FileKey, SealedFile};
use super::stored_answer::StoredAnswer;
use crate::gateway::store::{JobState, ReplayClaim, ReplayWrite, RowWriteOutcome, StoredAnswerRow, Timestamp};

/// The reason why an answer is not stored.
pub(super) type AnswerStorageError = Box<dyn std::error::Error + Send + Sync>;

/// The state of the earlier requests that are equal to a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlierRequest {
    /// No earlier request is known, or none of them forbids a new job.
    None,
    /// The job of an earlier request runs, or its record has not been closed yet.
    Running,
    /// An earlier request may have been charged, and its outcome is unknown.
    Unknown,
}

/// The most records of equal requests that are read (our choice).
const EQUAL_RECORDS_MAX: u32 = 64;

impl AnswerStore {
    /// Makes an answer durable, until its claim expires: first its bytes, then its row. Returns false if the disk or the
    /// store fails or is too slow; later requests cannot get the answer then.
    pub(super) async fn commit(&self, claim: &ReplayClaim, file: PendingFile, answer: &StoredAnswer) -> bool {
        let (name, frames) = (file.name.clone(), Arc::clone(&file.frames));
        let result = timeout(STORAGE_WAIT_MAX, self.write_answer(claim, file, answer.length())).await;
        match result.unwrap_or_else(|_| Err("the disk or the store is too slow".into())) {
            Ok(()) => self.folder.add_finished(name, claim.expires_at, answer.take_reservation()),
            Err(error) => {
                tracing::error!(error = &*error as &dyn std::error::Error, "an answer is not stored");
                frames.spawn_unlink();
                return false;
            }
        }
        true
    }

    /// Writes the rest of the file, and then the row. After that, the bytes are written to the database for other nodes,
    /// and nobody waits for that.
    async fn write_answer(&self, claim: &ReplayClaim, file: PendingFile, size: u64) -> Result<(), AnswerStorageError> {
        let PendingFile { name, key, head, frames } = file;
        self.folder.free().run_blocking(move || frames.finish()).await?;
        let slot = self.sharing.as_ref().and_then(|sharing| sharing.reserve_slot(size, self.begin_work()));
        let answer = StoredAnswerRow {
            status: head.status,
            headers: serde_json::to_string(&head.headers)?,
            content_type: head.content_type,
            file: name.clone(),
            size,
            sealed_key: self.vault.seal(&sealing_context(&claim.scope, size), key.expose())?,
        };
        let shared_bytes = slot.as_ref().map(SharingSlot::bytes);
        let ReplayClaim { scope, request_id, expires_at, retry_until, .. } = claim.clone();
        let finish = ReplayWrite::Finish { scope, request_id, expires_at, retry_until, answer, shared_bytes };
        match self.ledger.write_replay(finish).await? {
            RowWriteOutcome::Done => {
                if let Some(slot) = slot {
                    slot.send(name.clone());
                }
                Ok(())
            }
            RowWriteOutcome::NoEffect | RowWriteOutcome::AlreadyClaimed(_) => {
                Err("the claim of the answer had already ended".into())
            }
        }
    }

    /// Looks up, in the records, earlier requests with this fingerprint that began at `since` or later.
    pub(super) async fn find_earlier_request(
        &self,
        fingerprint: &ReplayDigest,
        since: Timestamp,
    ) -> Result<EarlierRequest, ReplayError> {
        let states = self.store.states_by_fingerprint(fingerprint, since, EQUAL_RECORDS_MAX).await?;
        // If the newest of these requests cost nothing, a retry of it may run a job, regardless of the others. The
        // states do not include requests that have succeeded, because their callers have the answers.
        if matches!(states.first(), Some(JobState::Failed | JobState::Refused)) {
            return Ok(EarlierRequest::None);
        }
        let is_unknown =
            states.contains(&JobState::Interrupted) || self.folder.has_lost_answer(fingerprint, Timestamp::now());
        Ok(match (is_unknown, states.contains(&JobState::Running)) {
            (true, _) => EarlierRequest::Unknown,
            (false, true) => EarlierRequest::Running,
            (false, false) => EarlierRequest::None,
        })
    }

    /// Opens the file of a row and returns its answer; `None` if the row or the file cannot be read. If this node does
    /// not have the file, it is read from the database, if it is there.
    pub(super) async fn load_answer(&self, claim: &ReplayClaim, row: &StoredAnswerRow) -> Option<StoredAnswer> {
        let headers = serde_json::from_str(&row.headers).ok()?;
        let head = AnswerHead { status: row.status, content_type: row.content_type.clone(), headers };
        let frames = match self.open_file(&claim.scope, row).await {
            None if self.fetch_file(claim, row).await => self.open_file(&claim.scope, row).await?,
            frames => frames?,
        };
        Some(StoredAnswer::from_file(head, frames, row.size))
    }

    async fn open_file(&self, scope: &ReplayDigest, row: &StoredAnswerRow) -> Option<SealedFile> {
        let key = self.vault.open(&sealing_context(scope, row.size), &row.sealed_key).ok()?;
        self.folder.reopen(&row.file, FileKey::from_bytes(key)?, row.size).await.ok()
    }

    async fn fetch_file(&self, claim: &ReplayClaim, row: &StoredAnswerRow) -> bool {
        let Some(sharing) = &self.sharing else { return false };
        let fetched = sharing.fetch(row, claim.expires_at).await;
        fetched.unwrap_or_else(|error| {
            let error = &*error as &dyn std::error::Error;
            tracing::warn!(error, "the answer of another node could not be read from the database");
            false
        })
    }
}
