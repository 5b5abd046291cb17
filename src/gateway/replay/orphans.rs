//! Plain jobs that a client's own retry may request again, and ends that must not be paid for again.
//!
//! A registered job is attended while its caller waits for its answer or a reader reads it. If the last of them leaves
//! without the complete answer, the job is an orphan: its answer is written down, and retries follow it. A retry that
//! reads to the end removes the orphan; one that leaves earlier leaves an orphan again. A retry that arrives while
//! others are reading follows as an additional reader. A remembered end is given to every retry.

mod follow;
mod hold;
mod index;

use std::hash::RandomState;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::durable::PendingFile;
use super::fingerprint::{RequestIdentity, rough};
use super::follower::AnswerReader;
use super::frames::SealedFile;
use super::head::{AnswerHead, RecordableAnswer, is_final, written};
use super::keyed::IdempotentAnswers;
use super::pending::{PendingGuard, PendingWork};
use super::recorder::AnswerRecorder;
use super::room::{DiskBudget, EvictableStorage};
use super::tape::{StoredAnswer, StoredAnswerEnd};
use super::ticket::KEEP_PATIENCE;
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
    keyed: Arc<IdempotentAnswers>,
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
    pub(super) whole: bool,
    /// True if it was a retry, and not the caller for whom the job was begun.
    pub(super) retry: bool,
}

// === impl RetryableJobs ===

impl RetryableJobs {
    pub(super) fn new(
        window: Duration,
        keyed: Arc<IdempotentAnswers>,
        max_bytes: u64,
        pending: PendingWork,
    ) -> Arc<Self> {
        Arc::new(Self {
            window,
            keyed,
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
    pub(super) fn pending(&self) -> PendingGuard {
        self.pending.begin()
    }

    /// Registers a job whose caller waits for it. If the client marks its retries, the answer is written down from the
    /// beginning.
    pub(super) fn attend(&self, caller: &Caller, task: SharedTask, expected: JobRegistration) -> RetryableJobId {
        let mode = if expected.marks_retries { DeliveryMode::Written } else { DeliveryMode::Alone };
        self.insert(task, |identity| RetryableJobEntry {
            expected,
            ..RetryableJobEntry::new(caller.key(), identity, mode, Arc::default())
        })
    }

    fn insert(&self, task: SharedTask, entry: impl FnOnce(RequestIdentity) -> RetryableJobEntry) -> RetryableJobId {
        let rough = rough(&self.hasher, &task);
        let entry = entry(RequestIdentity::of(task));
        let mut index = self.index();
        index.next += 1;
        let place = (rough, index.next);
        index.entries.insert(place, entry);
        place
    }

    /// Decides which request gets the finished answer. If others want it too, or may want it, the own caller follows it
    /// like them. Otherwise it goes to the caller as it comes (`None`), and no other request can have it.
    pub(super) fn follow_own(self: &Arc<Self>, place: RetryableJobId) -> Option<AnswerReader> {
        let tape = {
            let mut index = self.index();
            let entry = index.entries.get_mut(&place)?;
            if entry.mode == DeliveryMode::Alone {
                entry.mode = DeliveryMode::Given;
            }
            (entry.mode == DeliveryMode::Written).then(|| Arc::clone(&entry.tape))?
        };
        Some(self.told(&tape, place, false))
    }

    /// Notes that the caller has received the answer: no other request gets it.
    pub(super) fn delivered(&self, place: RetryableJobId) {
        let entry = {
            let mut index = self.index();
            let given = index.entries.get(&place).is_some_and(|entry| entry.mode == DeliveryMode::Given);
            given.then(|| index.entries.remove(&place))
        };
        drop(entry);
        self.changed.send_replace(());
    }

    fn told(self: &Arc<Self>, tape: &Arc<StoredAnswer>, place: RetryableJobId, retry: bool) -> AnswerReader {
        let orphans = Arc::clone(self);
        AnswerReader::told(tape, Box::new(move |whole| orphans.leave(place, Some(AnswerReaderExit { whole, retry }))))
    }

    /// Notes that a follower leaves, or the own caller before there was anything to follow.
    pub(super) fn leave(self: &Arc<Self>, place: RetryableJobId, left: Option<AnswerReaderExit>) {
        let (gone, unstored) = {
            let mut index = self.index();
            let Some(entry) = index.entries.get_mut(&place) else { return };
            let AnswerReaderExit { whole, retry } = left.unwrap_or(AnswerReaderExit { whole: false, retry: false });
            entry.readers = entry.readers.saturating_sub(1);
            entry.retries = entry.retries.saturating_sub(usize::from(retry));
            // A retry that reads the complete answer settles one that an earlier reader left incomplete. The own caller
            // does not: a proxy alone may hold its connection open.
            entry.owed = !whole || (entry.owed && !retry);
            if matches!(entry.mode, DeliveryMode::Alone | DeliveryMode::Given) {
                entry.mode = DeliveryMode::Written;
            }
            let over = entry.is_over();
            // An answer that was passed on without being kept cannot be read by new followers.
            let lost = entry.readers == 0 && entry.mode == DeliveryMode::Written && entry.tape.has_gap();
            let unstored = entry.is_unstored();
            let gone = match (over, lost) {
                (true, _) => index.entries.remove(&place).map(RetryableJobEntry::go),
                (false, true) => Some(entry.lose()),
                (false, false) => None,
            };
            (gone.map(|gone| (over, gone)), unstored)
        };
        match gone {
            Some((true, RemovedAnswer { stored: Some(file), request, .. })) => self.forget(request, &file),
            Some((_, gone)) => self.dispose(gone),
            None if unstored => self.store_alone(place),
            None => {}
        }
        self.changed.send_replace(());
        self.bound();
    }

    /// Notes that the caller is about to be told to come back, so the job continues without it.
    pub(super) fn expect_retry(&self, place: RetryableJobId) {
        if let Some(entry) = self.index().entries.get_mut(&place) {
            entry.retry_expected = true;
        }
    }

    /// Removes an orphan for which nothing was spent, as if it had never existed, unless a retry follows it. Returns
    /// true if it was removed.
    pub(super) fn give_up(&self, place: RetryableJobId) -> bool {
        let gone = self.index().remove_unwanted(place);
        let given_up = gone.is_some();
        drop(gone);
        self.changed.send_replace(());
        given_up
    }

    /// Returns true if a caller waits for the answer of the job, or was told to come back for it.
    pub(super) fn is_wanted(&self, place: RetryableJobId) -> bool {
        self.index().entries.get(&place).is_some_and(RetryableJobEntry::is_wanted)
    }

    /// Returns the jobs that may have the same request: the same key and the same cheap hash.
    pub(super) fn candidates(&self, caller: &Caller, task: &SharedTask) -> Vec<RetryCandidate> {
        let rough = rough(&self.hasher, task);
        let index = self.index();
        let entries = index.entries.range((rough, 0)..=(rough, u64::MAX));
        let candidate = |place: &RetryableJobId, entry: &RetryableJobEntry| {
            let (identity, retries) = (Arc::clone(&entry.identity), entry.retries);
            let (standing, retry_expected) = (entry.standing()?, entry.retry_expected);
            Some(RetryCandidate { place: *place, identity, standing, retries, retry_expected })
        };
        let of_key = entries.filter(|(_, entry)| entry.key == *caller.key());
        of_key.filter_map(|(place, entry)| candidate(place, entry)).collect()
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Remembers an end for every retry.
    pub(super) async fn remember(&self, caller: &Caller, task: SharedTask, error: &Error) {
        let (head, body) = written(error);
        let tape = Arc::new(StoredAnswer::from_bytes(head, body));
        let place = self
            .insert(task, |identity| RetryableJobEntry::new(caller.key(), identity, DeliveryMode::Remembered, tape));
        self.let_task_go(place).await;
    }

    /// Closes a failed job. An end that may have been paid for is remembered; after any other end the job is removed as
    /// if it had never existed. Followers get the error, or see the answer break off.
    pub(super) fn fail(&self, place: RetryableJobId, error: &Error) {
        let (head, body) = written(error);
        let before = {
            let mut index = self.index();
            let Some(entry) = index.entries.get_mut(&place) else { return };
            if is_final(error) {
                (entry.mode, entry.ended) = (DeliveryMode::Remembered, Some(Instant::now()));
                let tape = Arc::new(StoredAnswer::from_bytes(head.clone(), body.clone()));
                Some(std::mem::replace(&mut entry.tape, tape))
            } else {
                index.entries.remove(&place).map(|entry| entry.tape)
            }
        };
        if let Some(before) = before {
            before.speak(head, body);
            before.end(StoredAnswerEnd::Broken);
        }
        self.changed.send_replace(());
    }

    /// Writes down the answer of a job.
    pub(super) async fn take_down<M: RecordableAnswer>(self: &Arc<Self>, place: RetryableJobId, made: M) {
        let room = Arc::clone(self) as Arc<dyn EvictableStorage>;
        self.write(place, made, room).await;
        self.let_task_go(place).await;
    }

    async fn write<M: RecordableAnswer>(
        self: &Arc<Self>,
        place: RetryableJobId,
        made: M,
        room: Arc<dyn EvictableStorage>,
    ) {
        let (head, body) = made.into_parts();
        let Some((tape, frames)) = self.file(place, &head).await else { return };
        let mut recorder = AnswerRecorder::begin(tape, head, frames, room);
        if let Err(error) = recorder.pump(body).await {
            tracing::warn!(%error, "an answer broke off while it was being stored");
            self.fail(place, &Error::Upstream(UpstreamFault::Broken));
            return;
        }
        recorder.close().await;
        self.ended(place);
        self.store(place).await;
        recorder.end();
    }

    /// Returns the stored answer of the job and the file to write it to. The file gets a name if a fingerprint makes
    /// retries recognizable after a restart.
    async fn file(
        &self,
        place: RetryableJobId,
        head: &AnswerHead,
    ) -> Option<(Arc<StoredAnswer>, io::Result<SealedFile>)> {
        let known =
            |entry: &RetryableJobEntry| (Arc::clone(&entry.tape), entry.key.clone(), entry.expected.fingerprint);
        let (tape, owner, fingerprint) = self.index().entries.get(&place).map(known)?;
        let shelf = &self.keyed.shelf;
        let frames = match fingerprint {
            None => shelf.nameless().await,
            Some(fingerprint) => shelf.begin(&owner, Some(fingerprint)).await.map(|(file, frames, key)| {
                if let Some(entry) = self.index().entries.get_mut(&place) {
                    entry.unfinished = Some(PendingFile { file, key, head: head.clone() });
                }
                frames
            }),
        };
        Some((tape, frames))
    }

    /// Notes that an answer is complete. If it was not kept and has no follower, it is lost.
    fn ended(&self, place: RetryableJobId) {
        let gone = {
            let mut index = self.index();
            let Some(entry) = index.entries.get_mut(&place) else { return };
            entry.ended = Some(Instant::now());
            (entry.readers == 0 && entry.tape.has_gap()).then(|| entry.lose())
        };
        gone.into_iter().for_each(|gone| self.dispose(gone));
    }

    /// Makes the answer of an orphan durable. If that fails, it is kept in this process only.
    async fn store(self: &Arc<Self>, place: RetryableJobId) {
        let Some((expected, answer, tape)) = self.index().unstored(place) else { return };
        let (Some(fingerprint), Some(frames)) = (expected.fingerprint, tape.frames()) else { return };
        let expires_at = Timestamp::now() + self.window;
        let row = self.keyed.orphan_row(fingerprint, expected.request_id.as_str().into(), expires_at);
        let file = answer.file.clone();
        let stored = timeout(KEEP_PATIENCE, self.keyed.finish_orphan(&row, answer, &frames, tape.length())).await;
        match stored.unwrap_or_else(|_| Err("the disk or the store is too slow".into())) {
            Ok(true) => self.note_stored(place, expected, file),
            Ok(false) => {
                tracing::warn!("an orphan is kept in memory only: another orphan of the same request is stored");
            }
            Err(error) => {
                tracing::warn!(error = &*error as &dyn std::error::Error, "an orphan is kept in memory only");
                // The claim, or even the file, may exist nevertheless. Neither may outlive the entry.
                frames.discard();
                self.note_stored(place, expected, file);
            }
        }
    }

    /// Notes the file that must be removed when the job is over. If it is over already, the file is removed now.
    fn note_stored(&self, place: RetryableJobId, expected: JobRegistration, file: String) {
        let mode = self.index().note_stored(place, &file);
        match mode {
            Some(DeliveryMode::Written) => {}
            // The answer was dropped: the row shows this after a restart.
            Some(_) => self.keyed.shelf.remove(&file),
            // A retry has read the answer in the meantime.
            None => self.forget(expected, &file),
        }
    }

    /// Runs [`Self::store`] in a task of its own.
    fn store_alone(self: &Arc<Self>, place: RetryableJobId) {
        let (orphans, pending) = (Arc::clone(self), self.pending());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(async move {
                orphans.store(place).await;
                drop(pending);
            }));
        }
    }

    fn forget(&self, request: JobRegistration, file: &str) {
        if let Some(fingerprint) = request.fingerprint {
            self.keyed.forget_orphan(fingerprint, request.request_id.as_str().into(), file);
        }
    }

    /// Removes the file of a dropped answer. Its row or an empty file remains, to show after a restart that it is lost.
    fn dispose(&self, gone: RemovedAnswer) {
        gone.note.iter().for_each(SealedFile::empty);
        gone.stored.into_iter().for_each(|file| self.keyed.shelf.remove(&file));
    }

    /// Releases the files of a job that is over and kept: their digest is enough.
    pub(super) async fn let_task_go(&self, place: RetryableJobId) {
        let over = |entry: &RetryableJobEntry| entry.ended.map(|_| Arc::clone(&entry.identity));
        let Some(identity) = self.index().entries.get(&place).and_then(over) else { return };
        if let Err(error) = identity.digest().await {
            tracing::error!(%error, "the files of a job cannot be read, so a retry will not be recognised");
            let entry = self.index().entries.remove(&place);
            drop(entry);
        }
        self.bound();
    }

    /// Removes jobs that are too old.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        let old = |entry: &RetryableJobEntry| {
            let age = entry.ended.map_or(Duration::ZERO, |ended| now.saturating_duration_since(ended));
            let read = entry.readers > 0 && entry.mode != DeliveryMode::Remembered;
            !read && age > self.window
        };
        // Their files are removed after the lock is released.
        let gone: Vec<RetryableJobEntry> =
            self.index().entries.extract_if(.., |_, entry| old(entry)).map(|(_, entry)| entry).collect();
        gone.into_iter().map(RetryableJobEntry::go).for_each(|gone| self.dispose(gone));
    }

    fn bound(&self) {
        while self.over(RetryableJobState::Orphan, MAX_FINISHED) && self.lose_one() {}
        while self.over(RetryableJobState::Remembered, MAX_REMEMBERED) && self.forget_one() {}
    }

    fn over(&self, standing: RetryableJobState, max: usize) -> bool {
        let index = self.index();
        index.entries.values().filter(|entry| entry.ended.is_some() && entry.standing() == Some(standing)).count() > max
    }

    /// Drops the answer of one orphan; its end is remembered, so that no retry pays for it again.
    fn lose_one(&self) -> bool {
        let lost = {
            let mut index = self.index();
            let place = index.least_worthy(RetryableJobState::Orphan);
            place.and_then(|place| index.entries.get_mut(&place)).map(RetryableJobEntry::lose)
        };
        let found = lost.is_some();
        lost.into_iter().for_each(|gone| self.dispose(gone));
        found
    }

    fn forget_one(&self) -> bool {
        let forgotten = {
            let mut index = self.index();
            let place = index.least_worthy(RetryableJobState::Remembered);
            place.and_then(|place| index.entries.remove(&place))
        };
        forgotten.is_some()
    }
}

impl EvictableStorage for RetryableJobs {
    fn budget(&self) -> &Arc<DiskBudget> {
        &self.budget
    }

    fn free(&self) -> &FreeSpace {
        self.keyed.shelf.free()
    }

    /// Evicts an orphan, which has no reader.
    fn evict(&self) -> bool {
        self.lose_one()
    }
}
