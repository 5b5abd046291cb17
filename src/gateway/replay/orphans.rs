//! Plain jobs (no stream, no idempotency key) whose answers a retry may get, and errors that retries must get again.
//!
//! A registered job is attended while a request waits for its answer or reads it. When the last of them has left and
//! the answer was not delivered, the job is an orphan: its answer is stored for retries, and removed after a retry has
//! read it to the end. If a job ended with a final error (`is_final`), its retries get the same error.

mod early_claim;
mod index;
mod job_readers;
mod orphan_hold;
mod repeat_announcement;

use std::hash::RandomState;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::answer_head::{AnswerHead, RecordableAnswer, error_answer, is_final};
use super::answer_reader::AnswerReader;
use super::answer_recorder::AnswerRecorder;
use super::claim_guard::STORAGE_WAIT_MAX;
use super::disk_budget::{DiskBudget, EvictableStorage};
use super::durable_answers::PendingFile;
use super::fingerprint::{RequestIdentity, cheap_hash};
use super::idempotent_answers::IdempotentAnswers;
use super::pending_work::{PendingGuard, PendingWork};
use super::sealed_file::SealedFile;
use super::stored_answer::{StoredAnswer, StoredAnswerEnd};
use crate::error::{Error, UpstreamFault};
use crate::gateway::keys::Caller;
use crate::gateway::rules::SharedTask;
use crate::gateway::spool::FreeSpace;
use crate::gateway::store::Timestamp;
pub(crate) use early_claim::EarlyClaim;
pub(crate) use index::JobRegistration;
use index::{DeliveryMode, RemovedAnswer, RetryableJobEntry, RetryableJobIndex};
pub(super) use index::{RetryCandidate, RetryableJobId, RetryableJobState};

/// The maximum number of finished orphans (our choice). Beyond it, the answer of one is dropped (see `evict`).
const MAX_FINISHED: usize = 64;
/// The maximum number of remembered errors (our choice). Beyond it, the API key with the most loses its oldest.
const MAX_REMEMBERED: usize = 4096;

/// Every job of this process that a retry may ask for.
pub(super) struct RetryableJobs {
    window: Duration,
    idempotent_answers: Arc<IdempotentAnswers>,
    budget: Arc<DiskBudget>,
    pending: PendingWork,
    hasher: RandomState,
    index: Mutex<RetryableJobIndex>,
    /// Notified when the state of a job changes, and when a job is removed.
    changed: watch::Sender<()>,
}

/// The way in which a reader left.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerReaderExit {
    /// True if the reader has read all of the answer.
    pub(super) has_read_all: bool,
    /// True if the reader was a retry, and not the caller that began the job.
    pub(super) is_retry: bool,
}

// === impl RetryableJobs ===

impl RetryableJobs {
    pub(super) fn new(
        window: Duration,
        idempotent_answers: Arc<IdempotentAnswers>,
        max_bytes: u64,
        pending: PendingWork,
    ) -> Arc<Self> {
        Arc::new(Self {
            window,
            idempotent_answers,
            budget: DiskBudget::new(max_bytes),
            pending,
            hasher: RandomState::new(),
            index: Mutex::default(),
            changed: watch::Sender::new(()),
        })
    }

    fn index(&self) -> MutexGuard<'_, RetryableJobIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts work that must end before the store is closed.
    pub(super) fn begin_work(&self) -> PendingGuard {
        self.pending.begin()
    }

    /// Registers a job whose caller waits for it. If the client marks its retries, the answer is stored from the
    /// beginning.
    pub(super) fn register(&self, caller: &Caller, task: SharedTask, registration: JobRegistration) -> RetryableJobId {
        let mode = if registration.marks_retries { DeliveryMode::Stored } else { DeliveryMode::CallerOnly };
        self.insert(task, |identity| RetryableJobEntry {
            registration,
            ..RetryableJobEntry::new(caller.key(), identity, mode, Arc::default())
        })
    }

    fn insert(&self, task: SharedTask, entry: impl FnOnce(RequestIdentity) -> RetryableJobEntry) -> RetryableJobId {
        let cheap_hash = cheap_hash(&self.hasher, &task);
        let entry = entry(RequestIdentity::new(task));
        let mut index = self.index();
        index.last_number += 1;
        let job_id = (cheap_hash, index.last_number);
        index.entries.insert(job_id, entry);
        job_id
    }

    /// Decides how the caller gets the answer. If other requests read it or may want it, returns a reader for the
    /// caller. Otherwise (`None`) the caller gets the answer directly; others can have it only if the caller leaves.
    pub(super) fn reader_for_caller(self: &Arc<Self>, job_id: RetryableJobId) -> Option<AnswerReader> {
        let answer = {
            let mut index = self.index();
            let entry = index.entries.get_mut(&job_id)?;
            if entry.mode == DeliveryMode::CallerOnly {
                entry.mode = DeliveryMode::Direct;
            }
            (entry.mode == DeliveryMode::Stored).then(|| Arc::clone(&entry.answer))?
        };
        Some(self.answer_reader(&answer, job_id, false))
    }

    /// Records that the caller has received the answer directly: removes the job, so that no other request gets it.
    pub(super) fn note_delivered(&self, job_id: RetryableJobId) {
        let entry = {
            let mut index = self.index();
            let is_direct = index.entries.get(&job_id).is_some_and(|entry| entry.mode == DeliveryMode::Direct);
            is_direct.then(|| index.entries.remove(&job_id))
        };
        drop(entry);
        self.changed.send_replace(());
    }

    fn answer_reader(
        self: &Arc<Self>,
        answer: &Arc<StoredAnswer>,
        job_id: RetryableJobId,
        is_retry: bool,
    ) -> AnswerReader {
        let orphans = Arc::clone(self);
        AnswerReader::with_leave_callback(
            answer,
            Box::new(move |has_read_all| {
                orphans.note_reader_left(job_id, Some(AnswerReaderExit { has_read_all, is_retry }));
            }),
        )
    }

    /// Records that a reader has left, or, if `exit` is `None`, that the caller has left without the answer.
    pub(super) fn note_reader_left(self: &Arc<Self>, job_id: RetryableJobId, exit: Option<AnswerReaderExit>) {
        let (removed, is_unstored) = {
            let mut index = self.index();
            let Some(entry) = index.entries.get_mut(&job_id) else { return };
            let AnswerReaderExit { has_read_all, is_retry } =
                exit.unwrap_or(AnswerReaderExit { has_read_all: false, is_retry: false });
            entry.reader_count = entry.reader_count.saturating_sub(1);
            entry.retry_count = entry.retry_count.saturating_sub(usize::from(is_retry));
            // A complete read by a retry makes up for an earlier incomplete read. A complete read by the caller does
            // not: perhaps only a proxy between client and gateway has read the answer, after the client had left.
            entry.needs_retry_read = !has_read_all || (entry.needs_retry_read && !is_retry);
            if matches!(entry.mode, DeliveryMode::CallerOnly | DeliveryMode::Direct) {
                entry.mode = DeliveryMode::Stored;
            }
            let is_over = entry.is_over();
            // New readers cannot read all of an answer with a gap.
            let is_lost = entry.reader_count == 0 && entry.mode == DeliveryMode::Stored && entry.answer.has_gap();
            let is_unstored = entry.is_unstored();
            let removed = match (is_over, is_lost) {
                (true, _) => index.entries.remove(&job_id).map(RetryableJobEntry::into_removed),
                (false, true) => Some(entry.drop_answer()),
                (false, false) => None,
            };
            (removed.map(|removed| (is_over, removed)), is_unstored)
        };
        match removed {
            Some((true, RemovedAnswer { stored_file: Some(file), registration, .. })) => {
                self.remove_stored_orphan(registration, &file);
            }
            Some((_, removed)) => self.remove_files(removed),
            None if is_unstored => self.spawn_make_durable(job_id),
            None => {}
        }
        self.changed.send_replace(());
        self.enforce_limits();
    }

    /// Removes the job, unless a request wants its answer ([`Self::is_wanted`]). Returns true if the job was removed.
    /// May be called only if nothing was spent for the job.
    pub(super) fn remove_if_unwanted(&self, job_id: RetryableJobId) -> bool {
        let removed = self.index().remove_unwanted(job_id);
        let was_removed = removed.is_some();
        drop(removed);
        self.changed.send_replace(());
        was_removed
    }

    /// True if the job is in the index and a request wants its answer ([`RetryableJobEntry::is_wanted`]).
    pub(super) fn is_wanted(&self, job_id: RetryableJobId) -> bool {
        self.index().entries.get(&job_id).is_some_and(RetryableJobEntry::is_wanted)
    }

    /// Returns the jobs that may be the same request: same API key, same cheap hash, and an answer that others may get.
    pub(super) fn candidates(&self, caller: &Caller, task: &SharedTask) -> Vec<RetryCandidate> {
        let cheap_hash = cheap_hash(&self.hasher, task);
        let index = self.index();
        let entries = index.entries.range((cheap_hash, 0)..=(cheap_hash, u64::MAX));
        let to_candidate = |job_id: &RetryableJobId, entry: &RetryableJobEntry| {
            let (identity, retries) = (Arc::clone(&entry.identity), entry.retry_count);
            let (state, repeat_expected) = (entry.state()?, entry.repeat_expected);
            Some(RetryCandidate { job_id: *job_id, identity, state, retry_count: retries, repeat_expected })
        };
        let of_key = entries.filter(|(_, entry)| entry.key == *caller.key());
        of_key.filter_map(|(job_id, entry)| to_candidate(job_id, entry)).collect()
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Remembers an error, which every retry gets.
    pub(super) async fn remember(&self, caller: &Caller, task: SharedTask, error: &Error) {
        let (head, body) = error_answer(error);
        let answer = Arc::new(StoredAnswer::from_bytes(head, body));
        let job_id = self
            .insert(task, |identity| RetryableJobEntry::new(caller.key(), identity, DeliveryMode::Remembered, answer));
        self.release_task(job_id).await;
    }

    /// Closes a failed job. A final error is remembered; after any other error, which cost nothing, the job is removed.
    /// Present readers get the error, or, if the answer has already begun, see it break off.
    pub(super) fn fail_job(&self, job_id: RetryableJobId, error: &Error) {
        let (head, body) = error_answer(error);
        let previous_answer = {
            let mut index = self.index();
            let Some(entry) = index.entries.get_mut(&job_id) else { return };
            if is_final(error) {
                (entry.mode, entry.ended_at) = (DeliveryMode::Remembered, Some(Instant::now()));
                let answer = Arc::new(StoredAnswer::from_bytes(head.clone(), body.clone()));
                Some(std::mem::replace(&mut entry.answer, answer))
            } else {
                index.entries.remove(&job_id).map(|entry| entry.answer)
            }
        };
        if let Some(previous) = previous_answer {
            previous.set_complete(head, body);
            previous.end(StoredAnswerEnd::Broken);
        }
        self.changed.send_replace(());
    }

    /// Stores the answer of a job.
    pub(super) async fn record_answer<M: RecordableAnswer>(self: &Arc<Self>, job_id: RetryableJobId, output: M) {
        let storage = Arc::clone(self) as Arc<dyn EvictableStorage>;
        self.write(job_id, output, storage).await;
        self.release_task(job_id).await;
    }

    async fn write<M: RecordableAnswer>(
        self: &Arc<Self>,
        job_id: RetryableJobId,
        output: M,
        storage: Arc<dyn EvictableStorage>,
    ) {
        let (head, body) = output.into_parts();
        let Some((answer, frames)) = self.create_file(job_id, &head).await else { return };
        let mut recorder = AnswerRecorder::begin(answer, head, frames, storage);
        if let Err(error) = recorder.record_body(body).await {
            tracing::warn!(%error, "an answer broke off while it was being stored");
            self.fail_job(job_id, &Error::Upstream(UpstreamFault::Broken));
            return;
        }
        recorder.finish_file().await;
        self.note_complete(job_id);
        self.make_durable(job_id).await;
        recorder.mark_complete();
    }

    /// Returns the still empty answer of the job and the file to write it to; `None` if the job was removed. The file
    /// has a name only if the job has a fingerprint, by which retries are recognized after a restart.
    async fn create_file(
        &self,
        job_id: RetryableJobId,
        head: &AnswerHead,
    ) -> Option<(Arc<StoredAnswer>, io::Result<SealedFile>)> {
        let parts =
            |entry: &RetryableJobEntry| (Arc::clone(&entry.answer), entry.key.clone(), entry.registration.fingerprint);
        let (answer, owner, fingerprint) = self.index().entries.get(&job_id).map(parts)?;
        let folder = &self.idempotent_answers.folder;
        let frames = match fingerprint {
            None => folder.create_nameless_file().await,
            Some(fingerprint) => folder.create_file(&owner, Some(fingerprint)).await.map(|(file, frames, key)| {
                if let Some(entry) = self.index().entries.get_mut(&job_id) {
                    entry.pending_file = Some(PendingFile { file, key, head: head.clone() });
                }
                frames
            }),
        };
        Some((answer, frames))
    }

    /// Records that an answer is complete. If it has a gap and no reader, nobody can get all of it, so it is dropped.
    fn note_complete(&self, job_id: RetryableJobId) {
        let removed = {
            let mut index = self.index();
            let Some(entry) = index.entries.get_mut(&job_id) else { return };
            entry.ended_at = Some(Instant::now());
            (entry.reader_count == 0 && entry.answer.has_gap()).then(|| entry.drop_answer())
        };
        removed.into_iter().for_each(|removed| self.remove_files(removed));
    }

    /// Makes the answer of a finished orphan durable. If that fails, the answer is lost when the process ends.
    async fn make_durable(self: &Arc<Self>, job_id: RetryableJobId) {
        let Some((registration, answer, stored_answer)) = self.index().take_unstored(job_id) else { return };
        let (Some(fingerprint), Some(frames)) = (registration.fingerprint, stored_answer.frames()) else { return };
        let expires_at = Timestamp::now() + self.window;
        let row = self.idempotent_answers.orphan_row(fingerprint, registration.request_id.as_str().into(), expires_at);
        let file = answer.file.clone();
        let result = timeout(
            STORAGE_WAIT_MAX,
            self.idempotent_answers.commit_orphan(&row, answer, &frames, stored_answer.length()),
        )
        .await;
        match result.unwrap_or_else(|_| Err("the disk or the store is too slow".into())) {
            Ok(true) => self.note_stored(job_id, registration, file),
            Ok(false) => {
                tracing::warn!("an orphan will not survive a restart: another one of the same request is stored");
            }
            Err(error) => {
                tracing::warn!(error = &*error as &dyn std::error::Error, "an orphan will not survive a restart");
                // The row, or even the file, may exist nevertheless. Both are removed together with the entry.
                frames.discard();
                self.note_stored(job_id, registration, file);
            }
        }
    }

    /// Records the file that must be removed when the job is over. If it is over already, removes the file now.
    fn note_stored(&self, job_id: RetryableJobId, registration: JobRegistration, file: String) {
        let mode = self.index().note_stored(job_id, &file);
        match mode {
            Some(DeliveryMode::Stored) => {}
            // The answer was dropped. The row without a file shows the loss after a restart.
            Some(_) => self.idempotent_answers.folder.remove(&file),
            // The job was removed in the meantime: a retry has read the answer, or it has expired.
            None => self.remove_stored_orphan(registration, &file),
        }
    }

    /// Runs [`Self::make_durable`] in a task of its own.
    fn spawn_make_durable(self: &Arc<Self>, job_id: RetryableJobId) {
        let (orphans, pending) = (Arc::clone(self), self.begin_work());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(async move {
                orphans.make_durable(job_id).await;
                drop(pending);
            }));
        }
    }

    fn remove_stored_orphan(&self, registration: JobRegistration, file: &str) {
        if let Some(fingerprint) = registration.fingerprint {
            self.idempotent_answers.remove_orphan(fingerprint, registration.request_id.as_str().into(), file);
        }
    }

    /// Removes the file of an answer. After `drop_answer`, its row or an empty file shows the loss after a restart.
    fn remove_files(&self, removed: RemovedAnswer) {
        removed.loss_marker.iter().for_each(SealedFile::spawn_truncate);
        removed.stored_file.into_iter().for_each(|file| self.idempotent_answers.folder.remove(&file));
    }

    /// Releases the request of an ended job and its files; only the digest is kept. Then enforces the limits.
    pub(super) async fn release_task(&self, job_id: RetryableJobId) {
        let ended_identity = |entry: &RetryableJobEntry| entry.ended_at.map(|_| Arc::clone(&entry.identity));
        let Some(identity) = self.index().entries.get(&job_id).and_then(ended_identity) else { return };
        if let Err(error) = identity.digest().await {
            tracing::error!(%error, "the files of a job cannot be read, so a retry will not be recognized");
            let entry = self.index().entries.remove(&job_id);
            drop(entry);
        }
        self.enforce_limits();
    }

    /// Removes jobs that ended longer ago than the orphan window, except those whose answers are being read.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        let is_expired = |entry: &RetryableJobEntry| {
            let is_read = entry.reader_count > 0 && entry.mode != DeliveryMode::Remembered;
            !is_read && entry.ended_at.is_some_and(|ended| now.saturating_duration_since(ended) > self.window)
        };
        // The lock is released before the files are removed.
        let removed: Vec<_> = self.index().entries.extract_if(.., |_, entry| is_expired(entry)).collect();
        removed.into_iter().for_each(|(_, entry)| self.remove_files(entry.into_removed()));
    }

    fn enforce_limits(&self) {
        while self.is_over_limit(RetryableJobState::Orphan, MAX_FINISHED) && self.drop_one_orphan() {}
        while self.is_over_limit(RetryableJobState::Remembered, MAX_REMEMBERED) && self.drop_one_error() {}
    }

    fn is_over_limit(&self, state: RetryableJobState, max: usize) -> bool {
        self.index().entries.values().filter(|entry| entry.ended_at.is_some() && entry.state() == Some(state)).count()
            > max
    }

    /// Drops the answer of one orphan. Its retries get the error "outcome unknown", so that none is charged again.
    fn drop_one_orphan(&self) -> bool {
        let mut index = self.index();
        let candidate = index.eviction_candidate(RetryableJobState::Orphan);
        let removed = candidate.and_then(|job_id| index.entries.get_mut(&job_id)).map(RetryableJobEntry::drop_answer);
        drop(index);
        removed.map(|removed| self.remove_files(removed)).is_some()
    }

    fn drop_one_error(&self) -> bool {
        let mut index = self.index();
        let Some(job_id) = index.eviction_candidate(RetryableJobState::Remembered) else { return false };
        let removed = index.entries.remove(&job_id);
        drop(index);
        removed.is_some()
    }
}

impl EvictableStorage for RetryableJobs {
    fn budget(&self) -> &Arc<DiskBudget> {
        &self.budget
    }

    fn free(&self) -> &FreeSpace {
        self.idempotent_answers.folder.free()
    }

    /// Evicts the oldest finished orphan of the API key with the most bytes. Orphans have no readers.
    fn evict(&self) -> bool {
        self.drop_one_orphan()
    }
}
