//! Stored answers that survive a restart, for idempotency keys and for orphans. Their bytes are in a file, and their
//! row is in the store.

use std::sync::Arc;

use super::ReplayError;
use super::answer_head::AnswerHead;
use super::answer_reader::AnswerReader;
use super::answer_sharing::SharingSlot;
use super::disk_budget::EvictableStorage as _;
use super::fingerprint::ReplayDigest;
use super::idempotent_answers::{IdempotentAnswers, sealing_context};
use super::orphans::RetryableJobs;
use super::sealed_file::{FileKey, SealedFile};
use super::stored_answer::StoredAnswer;
use crate::gateway::store::{
    JobState, ReplayClaim, ReplayState, ReplayWrite, RequestId, RowWriteOutcome, StoredAnswerRow, Timestamp,
};

/// The reason why an answer is not stored.
pub(super) type AnswerStorageError = Box<dyn std::error::Error + Send + Sync>;

/// A file that is being written, with the content of its future row.
pub(super) struct PendingFile {
    /// The name of the file when it is complete.
    pub(super) file: String,
    pub(super) key: FileKey,
    pub(super) head: AnswerHead,
}

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

/// The stored answer of an orphan, as a retry finds it.
pub(super) enum OrphanAnswer {
    /// There is none.
    None,
    /// It is claimed: a node is about to store it, or has died before that.
    Claimed,
    /// It is stored; or it is lost, and the reader gives the error "outcome unknown".
    Stored(AnswerReader),
}

/// The most records of equal requests that are read (our choice).
const EQUAL_RECORDS_MAX: u32 = 64;

impl IdempotentAnswers {
    /// Makes an answer durable, until `row` expires: first its bytes, then its row. After that, its bytes are written for
    /// other nodes; nobody waits for that.
    pub(super) async fn commit_answer(
        &self,
        row: &ReplayClaim,
        answer: PendingFile,
        frames: &Arc<SealedFile>,
        size: u64,
    ) -> Result<(), AnswerStorageError> {
        let file_to_finish = Arc::clone(frames);
        self.folder.free().run_blocking(move || file_to_finish.finish()).await?;
        let PendingFile { file, key, head } = answer;
        let slot = self.sharing.as_ref().and_then(|sharing| sharing.reserve_slot(size, self.begin_work()));
        let shared_file = file.clone();
        let done = StoredAnswerRow {
            status: head.status,
            headers: serde_json::to_string(&head.headers)?,
            content_type: head.content_type,
            file,
            size,
            sealed_key: self.vault.seal(&sealing_context(&row.scope, size), key.expose())?,
        };
        let shared_bytes = slot.as_ref().map(SharingSlot::bytes);
        let ReplayClaim { scope, request_id, expires_at, .. } = row.clone();
        let finish = ReplayWrite::Finish { scope, request_id, expires_at, answer: done, shared_bytes };
        match self.ledger.write_replay(finish).await? {
            RowWriteOutcome::Done => {
                if let Some(slot) = slot {
                    slot.send(shared_file);
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
        // The newest of these requests cost nothing, so a retry of it may run a job, regardless of the others. A request
        // that has succeeded is none of them: its caller has the answer.
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

    /// Builds the row for the answer of an orphan.
    pub(super) fn orphan_row(
        &self,
        fingerprint: ReplayDigest,
        request_id: RequestId,
        expires_at: Timestamp,
    ) -> ReplayClaim {
        ReplayClaim {
            scope: fingerprint,
            digest: fingerprint,
            request_id,
            node: self.node.clone(),
            created_at: Timestamp::now(),
            expires_at,
        }
    }

    /// Makes the answer of an orphan durable. If several orphans have answers to the same request, the first is stored;
    /// returns false for the others.
    pub(super) async fn commit_orphan(
        &self,
        row: &ReplayClaim,
        answer: PendingFile,
        frames: &Arc<SealedFile>,
        size: u64,
    ) -> Result<bool, AnswerStorageError> {
        match self.ledger.write_replay(ReplayWrite::Claim(row.clone())).await? {
            RowWriteOutcome::Done => {}
            // The claim that was written before the end of the record.
            RowWriteOutcome::AlreadyClaimed(existing)
                if existing.claim.request_id == row.request_id && existing.state == ReplayState::Running => {}
            RowWriteOutcome::NoEffect | RowWriteOutcome::AlreadyClaimed(_) => return Ok(false),
        }
        self.commit_answer(row, answer, frames, size).await.map(|()| true)
    }

    /// Returns the stored answer of an orphan with this fingerprint, also of an earlier process.
    pub(super) async fn find_orphan(self: &Arc<Self>, fingerprint: &ReplayDigest) -> Result<OrphanAnswer, ReplayError> {
        let now = Timestamp::now();
        // The set is checked before and after the read of the store: the row may be removed during the read.
        if self.orphans_in_removal().contains(fingerprint) {
            return Ok(OrphanAnswer::None);
        }
        let replay = self.store.find_replay(fingerprint).await?;
        let replay =
            replay.filter(|replay| replay.claim.expires_at > now && !self.orphans_in_removal().contains(fingerprint));
        let Some(replay) = replay else { return Ok(OrphanAnswer::None) };
        let ReplayState::Stored(answer_row) = replay.state else { return Ok(OrphanAnswer::Claimed) };
        let Some(answer) = self.load_answer(&replay.claim, &answer_row).await else {
            return Ok(OrphanAnswer::Stored(RetryableJobs::unknown_outcome()));
        };
        let (idempotent_answers, row, file) = (Arc::clone(self), replay.claim, answer_row.file);
        let request_id = row.request_id.clone();
        let on_leave = move |has_read_all: bool| {
            if has_read_all {
                idempotent_answers.remove_orphan(row.scope, row.request_id, &file);
            }
        };
        let reader = AnswerReader::with_leave_callback(&Arc::new(answer), Box::new(on_leave));
        Ok(OrphanAnswer::Stored(reader.with_request_id(request_id)))
    }

    /// Removes an orphan after a retry has read all of its answer. No other retry gets the answer.
    pub(super) fn remove_orphan(self: &Arc<Self>, scope: ReplayDigest, request_id: RequestId, file: &str) {
        self.folder.remove(file);
        // Retries in this process see the removal at once. The row in the store is removed later, by a task.
        self.orphans_in_removal().insert(scope);
        let (idempotent_answers, pending) = (Arc::clone(self), self.begin_work());
        let file = file.to_owned();
        let remove_row = async move {
            // The commit that removes the row shall not wait for the removal of many bytes.
            if let Some(sharing) = &idempotent_answers.sharing {
                sharing.withdraw(&file).await;
            }
            idempotent_answers.remove_repeat_announcement(&scope, &request_id).await;
            if idempotent_answers
                .release_claim(&idempotent_answers.orphan_row(scope, request_id, Timestamp::now()))
                .await
            {
                idempotent_answers.orphans_in_removal().remove(&scope);
            }
            drop(pending);
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(remove_row));
        }
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
