//! Plain jobs that a client's own retry may request again, and ends that must not be paid for again.
//!
//! A registered job is attended while its caller waits for its answer or a reader reads it. If the last of them leaves
//! without the complete answer, the job is an orphan: its answer is written down, and retries follow it. A retry that
//! reads to the end removes the orphan; one that leaves earlier leaves an orphan again. A retry that arrives while
//! others are reading follows as an additional reader. A remembered end is given to every retry.

mod index;
mod job_readers;
mod orphan_hold;

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
pub(crate) use index::JobRegistration;
use index::{DeliveryMode, RemovedAnswer, RetryableJobEntry, RetryableJobIndex};
pub(super) use index::{RetryCandidate, RetryableJobId, RetryableJobState};

/// The most finished orphans that are kept; beyond it the oldest one is dropped, of the API key whose orphans hold the
/// most bytes.
const MAX_FINISHED: usize = 64;
/// The most ends that are remembered; beyond it the oldest one is dropped, of the API key that has the most.
const MAX_REMEMBERED: usize = 4096;

/// Every job of this process that a retry may ask for.
pub(super) struct RetryableJobs {
    window: Duration,
    idempotent_answers: Arc<IdempotentAnswers>,
    budget: Arc<DiskBudget>,
    pending: PendingWork,
    hasher: RandomState,
    index: Mutex<RetryableJobIndex>,
    /// Notified when a job can be adopted that could not be adopted before, and when one is gone.
    changed: watch::Sender<()>,
}

/// The way in which a follower leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerReaderExit {
    /// True if it has read all of the answer.
    pub(super) has_read_all: bool,
    /// True if it was a retry, and not the caller for whom the job was begun.
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

    /// Registers a job whose caller waits for it. If the client marks its retries, the answer is written down from the
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

    /// Decides which request gets the finished answer. If others want it too, or may want it, the own caller follows it
    /// like them. Otherwise it goes to the caller as it comes (`None`), and no other request can have it.
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

    /// Notes that the caller has received the answer: no other request gets it.
    pub(super) fn note_delivered(&self, job_id: RetryableJobId) {
        let entry = {
            let mut index = self.index();
            let given = index.entries.get(&job_id).is_some_and(|entry| entry.mode == DeliveryMode::Direct);
            given.then(|| index.entries.remove(&job_id))
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

    /// Notes that a follower leaves, or the own caller before there was anything to follow.
    pub(super) fn note_reader_left(self: &Arc<Self>, job_id: RetryableJobId, exit: Option<AnswerReaderExit>) {
        let (removed, unstored) = {
            let mut index = self.index();
            let Some(entry) = index.entries.get_mut(&job_id) else { return };
            let AnswerReaderExit { has_read_all, is_retry } =
                exit.unwrap_or(AnswerReaderExit { has_read_all: false, is_retry: false });
            entry.readers = entry.readers.saturating_sub(1);
            entry.retries = entry.retries.saturating_sub(usize::from(is_retry));
            // A retry that reads the complete answer settles one that an earlier reader left incomplete. The own caller
            // does not: a proxy alone may hold its connection open.
            entry.is_undelivered = !has_read_all || (entry.is_undelivered && !is_retry);
            if matches!(entry.mode, DeliveryMode::CallerOnly | DeliveryMode::Direct) {
                entry.mode = DeliveryMode::Stored;
            }
            let over = entry.is_over();
            // An answer that was passed on without being kept cannot be read by new followers.
            let lost = entry.readers == 0 && entry.mode == DeliveryMode::Stored && entry.answer.has_gap();
            let unstored = entry.is_unstored();
            let gone = match (over, lost) {
                (true, _) => index.entries.remove(&job_id).map(RetryableJobEntry::into_removed),
                (false, true) => Some(entry.drop_answer()),
                (false, false) => None,
            };
            (gone.map(|gone| (over, gone)), unstored)
        };
        match removed {
            Some((true, RemovedAnswer { stored: Some(file), registration, .. })) => {
                self.remove_stored_orphan(registration, &file);
            }
            Some((_, gone)) => self.remove_files(gone),
            None if unstored => self.spawn_make_durable(job_id),
            None => {}
        }
        self.changed.send_replace(());
        self.enforce_limits();
    }

    /// Notes that the caller is about to be told to come back, so the job continues without it.
    pub(super) fn note_retry_expected(&self, job_id: RetryableJobId) {
        if let Some(entry) = self.index().entries.get_mut(&job_id) {
            entry.retry_expected = true;
        }
    }

    /// Removes an orphan for which nothing was spent, as if it had never existed, unless a retry follows it. Returns
    /// true if it was removed.
    pub(super) fn remove_if_unwanted(&self, job_id: RetryableJobId) -> bool {
        let removed = self.index().remove_unwanted(job_id);
        let given_up = removed.is_some();
        drop(removed);
        self.changed.send_replace(());
        given_up
    }

    /// Returns true if a caller waits for the answer of the job, or was told to come back for it.
    pub(super) fn is_wanted(&self, job_id: RetryableJobId) -> bool {
        self.index().entries.get(&job_id).is_some_and(RetryableJobEntry::is_wanted)
    }

    /// Returns the jobs that may have the same request: the same key and the same cheap hash.
    pub(super) fn candidates(&self, caller: &Caller, task: &SharedTask) -> Vec<RetryCandidate> {
        let cheap_hash = cheap_hash(&self.hasher, task);
        let index = self.index();
        let entries = index.entries.range((cheap_hash, 0)..=(cheap_hash, u64::MAX));
        let candidate = |job_id: &RetryableJobId, entry: &RetryableJobEntry| {
            let (identity, retries) = (Arc::clone(&entry.identity), entry.retries);
            let (state, retry_expected) = (entry.state()?, entry.retry_expected);
            Some(RetryCandidate { job_id: *job_id, identity, state, retries, retry_expected })
        };
        let of_key = entries.filter(|(_, entry)| entry.key == *caller.key());
        of_key.filter_map(|(place, entry)| candidate(place, entry)).collect()
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Remembers an end for every retry.
    pub(super) async fn remember(&self, caller: &Caller, task: SharedTask, error: &Error) {
        let (head, body) = error_answer(error);
        let answer = Arc::new(StoredAnswer::from_bytes(head, body));
        let job_id = self
            .insert(task, |identity| RetryableJobEntry::new(caller.key(), identity, DeliveryMode::Remembered, answer));
        self.release_task(job_id).await;
    }

    /// Closes a failed job. An end that may have been paid for is remembered; after any other end the job is removed as
    /// if it had never existed. Followers get the error, or see the answer break off.
    pub(super) fn fail_job(&self, job_id: RetryableJobId, error: &Error) {
        let (head, body) = error_answer(error);
        let previous_answer = {
            let mut index = self.index();
            let Some(entry) = index.entries.get_mut(&job_id) else { return };
            if is_final(error) {
                (entry.mode, entry.ended) = (DeliveryMode::Remembered, Some(Instant::now()));
                let answer = Arc::new(StoredAnswer::from_bytes(head.clone(), body.clone()));
                Some(std::mem::replace(&mut entry.answer, answer))
            } else {
                index.entries.remove(&job_id).map(|entry| entry.answer)
            }
        };
        if let Some(before) = previous_answer {
            before.set_complete(head, body);
            before.end(StoredAnswerEnd::Broken);
        }
        self.changed.send_replace(());
    }

    /// Writes down the answer of a job.
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

    /// Returns the stored answer of the job and the file to write it to. The file gets a name if a fingerprint makes
    /// retries recognizable after a restart.
    async fn create_file(
        &self,
        job_id: RetryableJobId,
        head: &AnswerHead,
    ) -> Option<(Arc<StoredAnswer>, io::Result<SealedFile>)> {
        let known =
            |entry: &RetryableJobEntry| (Arc::clone(&entry.answer), entry.key.clone(), entry.registration.fingerprint);
        let (answer, owner, fingerprint) = self.index().entries.get(&job_id).map(known)?;
        let folder = &self.idempotent_answers.folder;
        let frames = match fingerprint {
            None => folder.create_nameless_file().await,
            Some(fingerprint) => folder.create_file(&owner, Some(fingerprint)).await.map(|(file, frames, key)| {
                if let Some(entry) = self.index().entries.get_mut(&job_id) {
                    entry.unfinished = Some(PendingFile { file, key, head: head.clone() });
                }
                frames
            }),
        };
        Some((answer, frames))
    }

    /// Notes that an answer is complete. If it was not kept and has no follower, it is lost.
    fn note_complete(&self, job_id: RetryableJobId) {
        let removed = {
            let mut index = self.index();
            let Some(entry) = index.entries.get_mut(&job_id) else { return };
            entry.ended = Some(Instant::now());
            (entry.readers == 0 && entry.answer.has_gap()).then(|| entry.drop_answer())
        };
        removed.into_iter().for_each(|gone| self.remove_files(gone));
    }

    /// Makes the answer of an orphan durable. If that fails, it is kept in this process only.
    async fn make_durable(self: &Arc<Self>, job_id: RetryableJobId) {
        let Some((registration, answer, stored_answer)) = self.index().take_unstored(job_id) else { return };
        let (Some(fingerprint), Some(frames)) = (registration.fingerprint, stored_answer.frames()) else { return };
        let expires_at = Timestamp::now() + self.window;
        let row = self.idempotent_answers.orphan_row(fingerprint, registration.request_id.as_str().into(), expires_at);
        let file = answer.file.clone();
        let stored = timeout(
            STORAGE_WAIT_MAX,
            self.idempotent_answers.commit_orphan(&row, answer, &frames, stored_answer.length()),
        )
        .await;
        match stored.unwrap_or_else(|_| Err("the disk or the store is too slow".into())) {
            Ok(true) => self.note_stored(job_id, registration, file),
            Ok(false) => {
                tracing::warn!("an orphan is kept in memory only: another orphan of the same request is stored");
            }
            Err(error) => {
                tracing::warn!(error = &*error as &dyn std::error::Error, "an orphan is kept in memory only");
                // The claim, or even the file, may exist nevertheless. Neither may outlive the entry.
                frames.discard();
                self.note_stored(job_id, registration, file);
            }
        }
    }

    /// Notes the file that must be removed when the job is over. If it is over already, the file is removed now.
    fn note_stored(&self, job_id: RetryableJobId, registration: JobRegistration, file: String) {
        let mode = self.index().note_stored(job_id, &file);
        match mode {
            Some(DeliveryMode::Stored) => {}
            // The answer was dropped: the row shows this after a restart.
            Some(_) => self.idempotent_answers.folder.remove(&file),
            // A retry has read the answer in the meantime.
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

    /// Removes the file of a dropped answer. Its row or an empty file remains, to show after a restart that it is lost.
    fn remove_files(&self, removed: RemovedAnswer) {
        removed.loss_marker.iter().for_each(SealedFile::spawn_truncate);
        removed.stored.into_iter().for_each(|file| self.idempotent_answers.folder.remove(&file));
    }

    /// Releases the files of a job that is over and kept: their digest is enough.
    pub(super) async fn release_task(&self, job_id: RetryableJobId) {
        let over = |entry: &RetryableJobEntry| entry.ended.map(|_| Arc::clone(&entry.identity));
        let Some(identity) = self.index().entries.get(&job_id).and_then(over) else { return };
        if let Err(error) = identity.digest().await {
            tracing::error!(%error, "the files of a job cannot be read, so a retry will not be recognised");
            let entry = self.index().entries.remove(&job_id);
            drop(entry);
        }
        self.enforce_limits();
    }

    /// Removes jobs that are too old.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        let old = |entry: &RetryableJobEntry| {
            let is_read = entry.readers > 0 && entry.mode != DeliveryMode::Remembered;
            !is_read && entry.ended.is_some_and(|ended| now.saturating_duration_since(ended) > self.window)
        };
        // Their files are removed after the lock is released.
        let removed: Vec<_> = self.index().entries.extract_if(.., |_, entry| old(entry)).collect();
        removed.into_iter().for_each(|(_, entry)| self.remove_files(entry.into_removed()));
    }

    fn enforce_limits(&self) {
        while self.is_over_limit(RetryableJobState::Orphan, MAX_FINISHED) && self.drop_one_orphan() {}
        while self.is_over_limit(RetryableJobState::Remembered, MAX_REMEMBERED) && self.drop_one_error() {}
    }

    fn is_over_limit(&self, state: RetryableJobState, max: usize) -> bool {
        let index = self.index();
        index.entries.values().filter(|entry| entry.ended.is_some() && entry.state() == Some(state)).count() > max
    }

    /// Drops the answer of one orphan; its end is remembered, so that no retry pays for it again.
    fn drop_one_orphan(&self) -> bool {
        let mut index = self.index();
        let candidate = index.eviction_candidate(RetryableJobState::Orphan);
        let removed = candidate.and_then(|job_id| index.entries.get_mut(&job_id)).map(RetryableJobEntry::drop_answer);
        drop(index);
        removed.map(|removed| self.remove_files(removed)).is_some()
    }

    fn drop_one_error(&self) -> bool {
        let mut index = self.index();
        let candidate = index.eviction_candidate(RetryableJobState::Remembered);
        let removed = candidate.and_then(|job_id| index.entries.remove(&job_id));
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

    /// Evicts an orphan, which has no reader.
    fn evict(&self) -> bool {
        self.drop_one_orphan()
    }
}
