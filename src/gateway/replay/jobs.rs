//! Plain jobs (no stream, no idempotency key) whose answers a retry or a link may get, and errors that retries must get
//! again.
//!
//! A registered job is attended while a request waits for its answer or reads it. When the last of them has left and
//! the answer was not delivered, the job is an orphan: its answer is stored, and the reason to keep it for retries ends
//! when a retry has read it to the end. If a job ended with a final error (`is_final`), its retries get the same error.
//!
//! Memory has only jobs that run, answers that are being read, and what cannot be stored. Everything else is in the rows
//! of the store, where a retry finds it by its fingerprint.

mod index;
mod readers;
mod rows;

use std::sync::{Arc, MutexGuard, PoisonError};

use super::answer_head::{RecordableAnswer, error_answer, is_final};
use super::answer_reader::AnswerReader;
use super::answer_recorder::{AnswerRecorder, PendingFile};
use super::answer_store::AnswerStore;
use super::disk_budget::AnswerSpace;
use super::fingerprint::{ReplayDigest, RequestIdentity, cheap_hash};
use super::stored_answer::{StoredAnswer, StoredAnswerEnd};
use crate::error::{Error, UpstreamFault};
use crate::gateway::keys::Caller;
use crate::gateway::rules::SharedTask;
use crate::gateway::store::KeyId;
pub(crate) use index::JobRegistration;
pub(super) use index::{CandidateState, DeliveryMode, JobEntry, JobId, JobIndex, JobRow, JobStep, RetryCandidate};
pub(crate) use rows::EarlyClaim;

/// The maximum number of remembered errors (our choice). Beyond it, the API key with the most loses its oldest.
const MAX_REMEMBERED: usize = 4096;

/// The way in which a reader left.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerReaderExit {
    /// True if the reader has read all of the answer.
    pub(super) has_read_all: bool,
    /// True if the reader was a retry, and not the caller that began the job.
    pub(super) is_retry: bool,
}

/// The facts of a job that the writer of its answer needs.
struct JobToRecord {
    answer: Arc<StoredAnswer>,
    key: KeyId,
    fingerprint: Option<ReplayDigest>,
    is_linked: bool,
}

// === impl AnswerStore ===

impl AnswerStore {
    pub(super) fn jobs(&self) -> MutexGuard<'_, JobIndex> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the keyed hash by which a retry of a request with this digest is recognized. A request for links is never
    /// the same as one for images.
    pub(super) fn job_fingerprint(&self, key: &KeyId, digest: &ReplayDigest, is_linked: bool) -> ReplayDigest {
        let purpose = if is_linked { "retry for links" } else { "retry" };
        self.vault.keyed_hash(&format!("{purpose} of {key}"), digest)
    }

    /// Registers a job whose caller waits for it. If the client marks its retries or gets links, the answer is stored
    /// from the beginning.
    pub(super) fn register(&self, caller: &Caller, task: SharedTask, registration: JobRegistration) -> JobId {
        let cheap_hash = cheap_hash(&self.hasher, &task);
        let entry = JobEntry::new(caller.key(), RequestIdentity::new(task), registration);
        self.jobs().insert(cheap_hash, entry)
    }

    /// Decides how the caller gets the answer. If other requests read it or may want it, returns a reader for the
    /// caller. Otherwise (`None`) the caller gets the answer directly; others can have it only if the caller leaves.
    pub(super) fn reader_for_caller(self: &Arc<Self>, job_id: JobId) -> Option<AnswerReader> {
        {
            let mut index = self.jobs();
            let entry = index.entries.get_mut(&job_id)?;
            if entry.mode == DeliveryMode::CallerOnly {
                entry.mode = DeliveryMode::Direct;
            }
            if entry.mode != DeliveryMode::Stored {
                return None;
            }
        }
        self.job_reader(job_id, false)
    }

    /// Records that the caller has received the answer directly, so that no other request gets it.
    pub(super) fn note_delivered(self: &Arc<Self>, job_id: JobId) {
        let exit = AnswerReaderExit { has_read_all: true, is_retry: false };
        let is_direct = |entry: &JobEntry| entry.mode == DeliveryMode::Direct;
        if self.jobs().entries.get(&job_id).is_some_and(is_direct) {
            self.note_reader_left(job_id, Some(exit));
        }
    }

    /// Records that a reader has left, or, if `exit` is `None`, that the caller has left without the answer.
    pub(super) fn note_reader_left(self: &Arc<Self>, job_id: JobId, exit: Option<AnswerReaderExit>) {
        let AnswerReaderExit { has_read_all, is_retry } =
            exit.unwrap_or(AnswerReaderExit { has_read_all: false, is_retry: false });
        self.change(job_id, |entry| {
            entry.reader_count = entry.reader_count.saturating_sub(1);
            entry.retry_count = entry.retry_count.saturating_sub(usize::from(is_retry));
            // A complete read by a retry makes up for an earlier incomplete read. A complete read by the caller does
            // not: perhaps only a proxy between client and gateway has read the answer, after the client had left.
            entry.needs_retry_read = !has_read_all || (entry.needs_retry_read && !is_retry);
            if matches!(entry.mode, DeliveryMode::CallerOnly | DeliveryMode::Direct) {
                entry.mode = DeliveryMode::Stored;
            }
        });
    }

    /// Changes a job, and takes its next step in a task of its own.
    fn change(self: &Arc<Self>, job_id: JobId, change: impl FnOnce(&mut JobEntry)) {
        let step = {
            let mut index = self.jobs();
            if let Some(entry) = index.entries.get_mut(&job_id) {
                change(entry);
            }
            index.settle(job_id)
        };
        match step {
            Some(JobStep::Forget(entry)) => drop(entry),
            Some(step) => self.spawn_work(|answers| async move { answers.take_steps(job_id, Some(step)).await }),
            None => {}
        }
        self.changed.send_replace(());
    }

    /// Runs work in a task of its own, which ends before the store is closed.
    fn spawn_work<F>(self: &Arc<Self>, work: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let pending = self.begin_work();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let work = work(Arc::clone(self));
            drop(runtime.spawn(async move {
                work.await;
                drop(pending);
            }));
        }
    }

    /// Removes the job, unless a request wants its answer ([`JobEntry::is_wanted`]). Returns true if the job was removed.
    /// May be called only if nothing was spent for the job.
    pub(super) fn remove_if_unwanted(&self, job_id: JobId) -> bool {
        let removed = {
            let mut index = self.jobs();
            let is_unwanted = index.entries.get(&job_id).is_some_and(|entry| !entry.is_wanted());
            if is_unwanted { index.entries.remove(&job_id) } else { None }
        };
        let was_removed = removed.is_some();
        drop(removed);
        self.changed.send_replace(());
        was_removed
    }

    /// True if the job is in the index and a request wants its answer ([`JobEntry::is_wanted`]).
    pub(super) fn is_wanted(&self, job_id: JobId) -> bool {
        self.jobs().entries.get(&job_id).is_some_and(JobEntry::is_wanted)
    }

    /// Returns the jobs that may be the same request: same API key, same cheap hash, and an answer that others may get.
    /// A request for links is never the same as one for images.
    pub(super) fn candidates(&self, caller: &Caller, task: &SharedTask, is_linked: bool) -> Vec<RetryCandidate> {
        let cheap_hash = cheap_hash(&self.hasher, task);
        let index = self.jobs();
        let entries = index.entries.range((cheap_hash, 0)..=(cheap_hash, u64::MAX));
        let to_candidate = |job_id: &JobId, entry: &JobEntry| {
            let (identity, retry_count) = (Arc::clone(&entry.identity), entry.retry_count);
            let (state, repeat_expected) = (entry.state()?, entry.repeat_expected);
            Some(RetryCandidate { job_id: *job_id, identity, state, retry_count, repeat_expected })
        };
        let is_same =
            |entry: &JobEntry| entry.key == *caller.key() && entry.registration.link_window.is_some() == is_linked;
        let of_key = entries.filter(|(_, entry)| is_same(entry));
        of_key.filter_map(|(job_id, entry)| to_candidate(job_id, entry)).collect()
    }

    /// Remembers a failure that was not sent through an [`AnswerSender`](super::AnswerSender), such as a body that broke
    /// off after its answer had begun: every retry gets it. Failures that cost nothing are not remembered.
    pub(crate) async fn remember(
        &self,
        caller: &Caller,
        task: impl Into<SharedTask>,
        registration: JobRegistration,
        error: &Error,
    ) {
        if !self.adopts_jobs || !is_final(error) {
            return;
        }
        let task = task.into();
        let (head, body) = error_answer(error);
        let answer = Arc::new(StoredAnswer::from_bytes(head, body));
        let cheap_hash = cheap_hash(&self.hasher, &task);
        let entry = JobEntry::new(caller.key(), RequestIdentity::new(task), registration);
        let job_id = self.jobs().insert(cheap_hash, entry.ended(DeliveryMode::Remembered, answer));
        self.release_task(job_id).await;
    }

    /// Closes a failed job. A final error is remembered; after any other error, which cost nothing, the job is removed.
    /// Present readers get the error, or, if the answer has already begun, see it break off.
    pub(super) fn fail_job(self: &Arc<Self>, job_id: JobId, error: &Error) {
        let (head, body) = error_answer(error);
        let (previous_answer, claimed) = {
            let mut index = self.jobs();
            let Some(entry) = index.entries.get_mut(&job_id) else { return };
            // Other nodes learn the outcome of an expected repeat from the claim and the record.
            let is_claim_over = entry.row == JobRow::Claimed && !(is_final(error) && entry.repeat_expected);
            let claimed = is_claim_over.then(|| entry.id.clone());
            if is_final(error) {
                let answer = Arc::new(StoredAnswer::from_bytes(head.clone(), body.clone()));
                (entry.mode, entry.ended_at) = (DeliveryMode::Remembered, Some(tokio::time::Instant::now()));
                (Some(std::mem::replace(&mut entry.answer, answer)), claimed)
            } else {
                (index.entries.remove(&job_id).map(|entry| entry.answer), claimed)
            }
        };
        if let Some(previous) = previous_answer {
            previous.set_complete(head, body);
            previous.end(StoredAnswerEnd::Broken);
        }
        if let Some(id) = claimed {
            self.spawn_release(id);
        }
        self.changed.send_replace(());
    }

    /// Writes the answer of a job to its end, within this space if it was reserved.
    pub(super) async fn record_answer<M: RecordableAnswer>(
        self: &Arc<Self>,
        job_id: JobId,
        output: M,
        space: Option<AnswerSpace>,
    ) {
        let (head, body) = output.into_parts();
        if let Some(job) = self.prepare(job_id).await {
            let must_be_kept = space.is_some();
            let mut recorder = AnswerRecorder::begin(&self.folder, &job.answer, &job.key, job.fingerprint, head).await;
            match space {
                Some(space) => recorder.keep_all(Some(space), &self.unstored),
                // Links to images in memory would end before they say.
                None if job.is_linked => {}
                None => recorder.keep_for_later(&self.unstored),
            }
            let recorded = self.record_job(job_id, recorder, body).await;
            if recorded.is_some() && job.is_linked && !self.is_stored(job_id) {
                self.note_unstored(job_id, &job.answer, must_be_kept);
            }
            if let Some(recorder) = recorded {
                recorder.mark_complete();
            }
        }
        self.release_task(job_id).await;
    }

    /// Returns `None` if the body breaks off.
    async fn record_job<B>(
        self: &Arc<Self>,
        job_id: JobId,
        mut recorder: AnswerRecorder,
        body: B,
    ) -> Option<AnswerRecorder>
    where
        B: http_body::Body<Data = bytes::Bytes, Error: std::fmt::Display> + Unpin,
    {
        if let Err(error) = recorder.record_body(body).await {
            tracing::warn!(%error, "an answer broke off while it was being stored");
            self.fail_job(job_id, &Error::Upstream(UpstreamFault::Broken));
            return None;
        }
        let file = recorder.finish_file().await;
        let step = self.note_complete(job_id, file);
        self.take_steps(job_id, step).await;
        Some(recorder)
    }

    /// Returns the facts of a job whose answer is about to be written; `None` if the job was removed. Its fingerprint is
    /// in the name of the file. If its caller gets links, its row is claimed before, as that of an idempotency key is.
    async fn prepare(self: &Arc<Self>, job_id: JobId) -> Option<JobToRecord> {
        let facts = |entry: &JobEntry| (entry.registration.fingerprint, Arc::clone(&entry.identity));
        let (known, identity) = self.jobs().entries.get(&job_id).map(facts)?;
        let digest = if known.is_none() { identity.digest().await.ok() } else { None };
        let is_linked = {
            let mut index = self.jobs();
            let entry = index.entries.get_mut(&job_id)?;
            let is_linked = entry.registration.link_window.is_some();
            let computed = digest.map(|digest| self.job_fingerprint(&entry.key, &digest, is_linked));
            entry.registration.fingerprint = known.or(computed);
            is_linked
        };
        let is_linked = is_linked && self.claim_linked_job(job_id).await;
        let index = self.jobs();
        let entry = index.entries.get(&job_id)?;
        let (answer, fingerprint) = (Arc::clone(&entry.answer), entry.registration.fingerprint);
        Some(JobToRecord { answer, key: entry.key.clone(), fingerprint, is_linked })
    }

    /// Records that the answer of a job is complete, and in this file if it could be written.
    fn note_complete(&self, job_id: JobId, file: Option<PendingFile>) -> Option<JobStep> {
        let mut index = self.jobs();
        let entry = index.entries.get_mut(&job_id)?;
        (entry.ended_at, entry.file) = (Some(tokio::time::Instant::now()), file);
        index.settle(job_id)
    }

    /// Releases the request of an ended job and its files; only the digest is kept. Then enforces the limit on errors.
    pub(super) async fn release_task(&self, job_id: JobId) {
        let ended_identity = |entry: &JobEntry| entry.ended_at.map(|_| Arc::clone(&entry.identity));
        let identity = self.jobs().entries.get(&job_id).and_then(ended_identity);
        if let Some(identity) = identity
            && let Err(error) = identity.digest().await
        {
            tracing::error!(%error, "the files of a job cannot be read, so a retry will not be recognized");
            let entry = self.jobs().entries.remove(&job_id);
            drop(entry);
        }
        loop {
            let evicted = self.jobs().evict_error(MAX_REMEMBERED);
            if evicted.is_none() {
                return;
            }
        }
    }

    /// Removes jobs that ended longer ago than retries may get their answers, except those that are being read.
    pub(super) fn sweep_jobs(&self) {
        let window = self.windows.retry;
        // The lock is released before the entries, and with them their files, are dropped.
        let expired: Vec<_> = self.jobs().entries.extract_if(.., |_, entry| entry.is_expired(window)).collect();
        drop(expired);
    }
}
