//! Plain jobs that a client's own retry may ask for again, and ends that must not be paid for again.
//!
//! A registered job is attended while somebody waits for its answer or reads it. When the last of them has left without
//! all of it, the job is an orphan: its answer is written down, and retries follow it. A retry that reads to the end
//! removes it; one that leaves earlier leaves an orphan again. A retry that arrives while others are reading follows
//! beside them. A remembered end is given to every retry.

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
use super::fingerprint::{Identity, rough};
use super::follower::Follower;
use super::frames::Frames;
use super::head::{Head, Recordable, is_final, written};
use super::keyed::Keyed;
use super::pending::{PendingGuard, PendingWork};
use super::recorder::Recorder;
use super::room::{Budget, Room};
use super::tape::{End, Tape};
use super::ticket::KEEP_PATIENCE;
use crate::error::{Error, Fault};
use crate::gateway::keys::Caller;
use crate::gateway::rules::SharedTask;
use crate::gateway::spool::FreeSpace;
use crate::gateway::store::Timestamp;
pub(crate) use index::JobRegistration;
pub(super) use index::{Candidate, Place, Standing};
use index::{Entry, Index, Mode, RemovedAnswer};

/// The most finished orphans that are kept; beyond it the oldest one is dropped, of the API key whose orphans hold the
/// most bytes.
const MAX_FINISHED: usize = 64;
/// The most ends that are remembered; beyond it the oldest one is dropped, of the API key that has the most.
const MAX_REMEMBERED: usize = 4096;

/// Every job of this process that a retry may ask for.
pub(super) struct Orphans {
    window: Duration,
    keyed: Arc<Keyed>,
    budget: Arc<Budget>,
    pending: PendingWork,
    hasher: RandomState,
    index: Mutex<Index>,
    /// Told when something can be adopted that could not before, and when something is gone.
    changed: watch::Sender<()>,
}

/// The state of a follower when it leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct FollowerExit {
    /// It has read all of the answer.
    pub(super) whole: bool,
    /// It was a retry, not the caller for whom the job was begun.
    pub(super) retry: bool,
}

// === impl Orphans ===

impl Orphans {
    pub(super) fn new(window: Duration, keyed: Arc<Keyed>, max_bytes: u64, pending: PendingWork) -> Arc<Self> {
        Arc::new(Self {
            window,
            keyed,
            budget: Budget::new(max_bytes),
            pending,
            hasher: RandomState::new(),
            index: Mutex::default(),
            changed: watch::Sender::new(()),
        })
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts work that must be over before the store is closed.
    pub(super) fn pending(&self) -> PendingGuard {
        self.pending.begin()
    }

    /// Registers a job whose caller waits for it. If the client marks its retries, the answer is written down from the
    /// beginning.
    pub(super) fn attend(&self, caller: &Caller, task: SharedTask, expected: JobRegistration) -> Place {
        let mode = if expected.marks_retries { Mode::Written } else { Mode::Alone };
        self.insert(task, |identity| Entry { expected, ..Entry::new(caller.key(), identity, mode, Arc::default()) })
    }

    fn insert(&self, task: SharedTask, entry: impl FnOnce(Identity) -> Entry) -> Place {
        let rough = rough(&self.hasher, &task);
        let entry = entry(Identity::of(task));
        let mut index = self.index();
        index.next += 1;
        let place = (rough, index.next);
        index.entries.insert(place, entry);
        place
    }

    /// Decides who gets the finished answer. If others want it too, or may, its own caller follows it like them;
    /// otherwise it goes to the caller as it comes (`None`), and nobody else can have it.
    pub(super) fn follow_own(self: &Arc<Self>, place: Place) -> Option<Follower> {
        let tape = {
            let mut index = self.index();
            let entry = index.entries.get_mut(&place)?;
            if entry.mode == Mode::Alone {
                entry.mode = Mode::Given;
            }
            (entry.mode == Mode::Written).then(|| Arc::clone(&entry.tape))?
        };
        Some(self.told(&tape, place, false))
    }

    /// The caller has what was made: nobody else gets it.
    pub(super) fn delivered(&self, place: Place) {
        let entry = {
            let mut index = self.index();
            let given = index.entries.get(&place).is_some_and(|entry| entry.mode == Mode::Given);
            given.then(|| index.entries.remove(&place))
        };
        drop(entry);
        self.changed.send_replace(());
    }

    fn told(self: &Arc<Self>, tape: &Arc<Tape>, place: Place, retry: bool) -> Follower {
        let orphans = Arc::clone(self);
        Follower::told(tape, Box::new(move |whole| orphans.leave(place, Some(FollowerExit { whole, retry }))))
    }

    /// Notes that a follower leaves, or the own caller before there was anything to follow.
    pub(super) fn leave(self: &Arc<Self>, place: Place, left: Option<FollowerExit>) {
        let (gone, unstored) = {
            let mut index = self.index();
            let Some(entry) = index.entries.get_mut(&place) else { return };
            let FollowerExit { whole, retry } = left.unwrap_or(FollowerExit { whole: false, retry: false });
            entry.readers = entry.readers.saturating_sub(1);
            entry.retries = entry.retries.saturating_sub(usize::from(retry));
            // A retry that reads all of it settles an answer that somebody before it left unread. The own caller does
            // not: its connection may be held open by a proxy alone.
            entry.owed = !whole || (entry.owed && !retry);
            if matches!(entry.mode, Mode::Alone | Mode::Given) {
                entry.mode = Mode::Written;
            }
            let over = entry.is_over();
            // An answer that was passed on without being kept cannot be read by new followers.
            let lost = entry.readers == 0 && entry.mode == Mode::Written && entry.tape.has_gap();
            let unstored = entry.is_unstored();
            let gone = match (over, lost) {
                (true, _) => index.entries.remove(&place).map(Entry::go),
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

    /// The caller is about to be told to come back, so the job goes on without it.
    pub(super) fn expect_retry(&self, place: Place) {
        if let Some(entry) = self.index().entries.get_mut(&place) {
            entry.retry_expected = true;
        }
    }

    /// Nothing was spent on an orphan that nobody wants: it is as if it had never been. Not where a retry has it.
    pub(super) fn give_up(&self, place: Place) -> bool {
        let gone = self.index().remove_unwanted(place);
        let given_up = gone.is_some();
        drop(gone);
        self.changed.send_replace(());
        given_up
    }

    /// Returns true if somebody waits for the answer of the job, or was told to come back for it.
    pub(super) fn is_wanted(&self, place: Place) -> bool {
        self.index().entries.get(&place).is_some_and(Entry::is_wanted)
    }

    /// The jobs that may have the same request: the same key and the same cheap hash.
    pub(super) fn candidates(&self, caller: &Caller, task: &SharedTask) -> Vec<Candidate> {
        let rough = rough(&self.hasher, task);
        let index = self.index();
        let entries = index.entries.range((rough, 0)..=(rough, u64::MAX));
        let candidate = |place: &Place, entry: &Entry| {
            let (identity, retries) = (Arc::clone(&entry.identity), entry.retries);
            let (standing, retry_expected) = (entry.standing()?, entry.retry_expected);
            Some(Candidate { place: *place, identity, standing, retries, retry_expected })
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
        let tape = Arc::new(Tape::from_bytes(head, body));
        let place = self.insert(task, |identity| Entry::new(caller.key(), identity, Mode::Remembered, tape));
        self.let_task_go(place).await;
    }

    /// Closes a failed job. An end that may have been paid for is remembered; after any other end the job is removed as
    /// if it had never existed. Followers get the error, or see the answer break off.
    pub(super) fn fail(&self, place: Place, error: &Error) {
        let (head, body) = written(error);
        let before = {
            let mut index = self.index();
            let Some(entry) = index.entries.get_mut(&place) else { return };
            if is_final(error) {
                (entry.mode, entry.ended) = (Mode::Remembered, Some(Instant::now()));
                let tape = Arc::new(Tape::from_bytes(head.clone(), body.clone()));
                Some(std::mem::replace(&mut entry.tape, tape))
            } else {
                index.entries.remove(&place).map(|entry| entry.tape)
            }
        };
        if let Some(before) = before {
            before.speak(head, body);
            before.end(End::Broken);
        }
        self.changed.send_replace(());
    }

    /// Writes down the answer of a job.
    pub(super) async fn take_down<M: Recordable>(self: &Arc<Self>, place: Place, made: M) {
        let room = Arc::clone(self) as Arc<dyn Room>;
        self.write(place, made, room).await;
        self.let_task_go(place).await;
    }

    async fn write<M: Recordable>(self: &Arc<Self>, place: Place, made: M, room: Arc<dyn Room>) {
        let (head, body) = made.into_parts();
        let Some((tape, frames)) = self.file(place, &head).await else { return };
        let mut recorder = Recorder::begin(tape, head, frames, room);
        if let Err(error) = recorder.pump(body).await {
            tracing::warn!(%error, "an answer broke off while it was written down");
            self.fail(place, &Error::Upstream(Fault::Broken));
            return;
        }
        recorder.close().await;
        self.ended(place);
        self.store(place).await;
        recorder.end();
    }

    /// The tape of the job and the file to write it to. The file gets a name if a fingerprint makes retries
    /// recognizable after a restart.
    async fn file(&self, place: Place, head: &Head) -> Option<(Arc<Tape>, io::Result<Frames>)> {
        let known = |entry: &Entry| (Arc::clone(&entry.tape), entry.key.clone(), entry.expected.fingerprint);
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

    /// Notes that an answer is complete. If it was not kept and nobody follows it, it is lost.
    fn ended(&self, place: Place) {
        let gone = {
            let mut index = self.index();
            let Some(entry) = index.entries.get_mut(&place) else { return };
            entry.ended = Some(Instant::now());
            (entry.readers == 0 && entry.tape.has_gap()).then(|| entry.lose())
        };
        gone.into_iter().for_each(|gone| self.dispose(gone));
    }

    /// Makes the answer of an orphan durable. If that fails, it is kept in this process only.
    async fn store(self: &Arc<Self>, place: Place) {
        let Some((expected, answer, tape)) = self.index().unstored(place) else { return };
        let (Some(fingerprint), Some(frames)) = (expected.fingerprint, tape.frames()) else { return };
        let expires_at = Timestamp::now() + self.window;
        let row = self.keyed.orphan_row(fingerprint, expected.request_id.as_str().into(), expires_at);
        let file = answer.file.clone();
        let stored = timeout(KEEP_PATIENCE, self.keyed.finish_orphan(&row, answer, &frames, tape.length())).await;
        match stored.unwrap_or_else(|_| Err("the disk or the store takes too long".into())) {
            Ok(true) => self.note_stored(place, expected, file),
            Ok(false) => tracing::warn!("an orphan is kept in this process only: another one of its request is stored"),
            Err(error) => {
                tracing::warn!(error = &*error as &dyn std::error::Error, "an orphan is kept in this process only");
                // The claim, or even the file, may be there all the same. Neither may outlive the entry.
                frames.discard();
                self.note_stored(place, expected, file);
            }
        }
    }

    /// Notes what is to be removed when the job is over. If it is over already, that is done now.
    fn note_stored(&self, place: Place, expected: JobRegistration, file: String) {
        let mode = self.index().note_stored(place, &file);
        match mode {
            Some(Mode::Written) => {}
            // The answer was let go: the row says so after a restart.
            Some(_) => self.keyed.shelf.remove(&file),
            // A retry has read the answer meanwhile.
            None => self.forget(expected, &file),
        }
    }

    /// Runs [`Self::store`] on a task of its own.
    fn store_alone(self: &Arc<Self>, place: Place) {
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

    /// Removes the file of a dropped answer. Its row or an empty file stays, to show after a restart that it is lost.
    fn dispose(&self, gone: RemovedAnswer) {
        gone.note.iter().for_each(Frames::empty);
        gone.stored.into_iter().for_each(|file| self.keyed.shelf.remove(&file));
    }

    /// What is over, and kept, needs no files any more: their digest is enough.
    pub(super) async fn let_task_go(&self, place: Place) {
        let over = |entry: &Entry| entry.ended.map(|_| Arc::clone(&entry.identity));
        let Some(identity) = self.index().entries.get(&place).and_then(over) else { return };
        if let Err(error) = identity.digest().await {
            tracing::error!(%error, "the files of a job cannot be read, so no retry of it will be known");
            let entry = self.index().entries.remove(&place);
            drop(entry);
        }
        self.bound();
    }

    /// Lets go what is too old.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        let old = |entry: &Entry| {
            let age = entry.ended.map_or(Duration::ZERO, |ended| now.saturating_duration_since(ended));
            let read = entry.readers > 0 && entry.mode != Mode::Remembered;
            !read && age > self.window
        };
        // Their files go when the lock is free again.
        let gone: Vec<Entry> =
            self.index().entries.extract_if(.., |_, entry| old(entry)).map(|(_, entry)| entry).collect();
        gone.into_iter().map(Entry::go).for_each(|gone| self.dispose(gone));
    }

    fn bound(&self) {
        while self.over(Standing::Orphan, MAX_FINISHED) && self.lose_one() {}
        while self.over(Standing::Remembered, MAX_REMEMBERED) && self.forget_one() {}
    }

    fn over(&self, standing: Standing, max: usize) -> bool {
        let index = self.index();
        index.entries.values().filter(|entry| entry.ended.is_some() && entry.standing() == Some(standing)).count() > max
    }

    /// Drops the answer of one orphan; its end is remembered, so that no retry pays for it again.
    fn lose_one(&self) -> bool {
        let lost = {
            let mut index = self.index();
            let place = index.least_worthy(Standing::Orphan);
            place.and_then(|place| index.entries.get_mut(&place)).map(Entry::lose)
        };
        let found = lost.is_some();
        lost.into_iter().for_each(|gone| self.dispose(gone));
        found
    }

    fn forget_one(&self) -> bool {
        let forgotten = {
            let mut index = self.index();
            let place = index.least_worthy(Standing::Remembered);
            place.and_then(|place| index.entries.remove(&place))
        };
        forgotten.is_some()
    }
}

impl Room for Orphans {
    fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    fn free(&self) -> &FreeSpace {
        self.keyed.shelf.free()
    }

    /// Never one that is being read.
    fn evict(&self) -> bool {
        self.lose_one()
    }
}
