//! Jobs whose callers have left, and ends that must not be paid for again: both for whoever comes back.
//!
//! A job that is registered is attended while its own caller waits for it. When the caller leaves, it is an orphan: what
//! it makes is written down, and one retry follows. A retry that reads to the end takes it away; one that leaves before
//! that leaves an orphan again. An end that is remembered is given to every retry.

use std::collections::BTreeMap;
use std::hash::RandomState;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::fingerprint::{Identity, rough};
use super::follower::Follower;
use super::frames::Frames;
use super::head::{Recordable, is_final, written};
use super::recorder::Recorder;
use super::room::{Budget, Room};
use super::tape::{End, Tape};
use crate::error::{Error, Fault};
use crate::gateway::keys::Caller;
use crate::gateway::rules::Job;
use crate::gateway::store::KeyId;

/// Finished orphans that are kept; the oldest goes first.
const MAX_FINISHED: usize = 64;
/// Ends that are remembered; the oldest goes first.
const MAX_REMEMBERED: usize = 4096;

/// Every job of this process that a retry may ask for.
pub(super) struct Orphans {
    window: Duration,
    folder: PathBuf,
    budget: Arc<Budget>,
    hasher: RandomState,
    index: Mutex<Index>,
    /// Told when something can be adopted that could not before, and when something is gone.
    changed: watch::Sender<()>,
}

/// The cheap hash of the request, and a number: the older, the smaller.
pub(super) type Place = (u64, u64);

#[derive(Default)]
struct Index {
    next: u64,
    entries: BTreeMap<Place, Entry>,
}

struct Entry {
    key: KeyId,
    identity: Arc<Identity>,
    tape: Arc<Tape>,
    standing: Standing,
    /// When it was over. What is in flight does not grow old: its own deadlines bound it.
    ended: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its own caller waits.
    Attended,
    /// Nobody does.
    Orphan,
    /// A retry follows it.
    Adopted,
    /// An end that every retry gets again.
    Remembered,
}

/// What a retry may mean.
pub(super) struct Candidate {
    pub(super) place: Place,
    pub(super) identity: Arc<Identity>,
    pub(super) standing: Standing,
}

// === impl Orphans ===

impl Orphans {
    pub(super) fn new(window: Duration, folder: PathBuf, max_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            window,
            folder,
            budget: Budget::new(max_bytes),
            hasher: RandomState::new(),
            index: Mutex::default(),
            changed: watch::Sender::new(()),
        })
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job whose caller waits for it.
    pub(super) fn attend(&self, caller: &Caller, job: &Arc<Job>) -> Place {
        self.insert(caller, job, Standing::Attended, Arc::default())
    }

    fn insert(&self, caller: &Caller, job: &Arc<Job>, standing: Standing, tape: Arc<Tape>) -> Place {
        let ended = (standing == Standing::Remembered).then(Instant::now);
        let entry = Entry { key: caller.key().clone(), identity: Arc::new(Identity::of(job)), tape, standing, ended };
        let rough = rough(&self.hasher, job);
        let mut index = self.index();
        index.next += 1;
        let place = (rough, index.next);
        index.entries.insert(place, entry);
        place
    }

    /// The caller has what was made: nobody else gets it.
    pub(super) fn delivered(&self, place: Place) {
        let entry = {
            let mut index = self.index();
            let attended = index.entries.get(&place).is_some_and(|entry| entry.standing == Standing::Attended);
            attended.then(|| index.entries.remove(&place))
        };
        drop(entry);
        self.changed.send_replace(());
    }

    /// The caller has left.
    pub(super) fn orphan(&self, place: Place) {
        self.stand(place, Standing::Attended, Standing::Orphan);
    }

    fn stand(&self, place: Place, from: Standing, to: Standing) -> Option<Arc<Tape>> {
        let tape = {
            let mut index = self.index();
            let entry = index.entries.get_mut(&place).filter(|entry| entry.standing == from)?;
            if to == Standing::Adopted && entry.tape.has_gap() {
                return None;
            }
            entry.standing = to;
            Arc::clone(&entry.tape)
        };
        self.changed.send_replace(());
        Some(tape)
    }

    /// Nothing was spent on an orphan that nobody wants: it is as if it had never been. Not where a retry has it.
    pub(super) fn give_up(&self, place: Place) -> bool {
        let gone = {
            let mut index = self.index();
            let unwanted = index.entries.get(&place).is_some_and(|entry| entry.standing == Standing::Orphan);
            if unwanted { index.entries.remove(&place) } else { None }
        };
        let given_up = gone.is_some();
        drop(gone);
        self.changed.send_replace(());
        given_up
    }

    /// What may be the same request: same key, same cheap hash. What is too old is let go on the way.
    pub(super) fn candidates(&self, caller: &Caller, job: &Job) -> Vec<Candidate> {
        self.sweep();
        let rough = rough(&self.hasher, job);
        let index = self.index();
        let entries = index.entries.range((rough, 0)..=(rough, u64::MAX));
        entries
            .filter(|(_, entry)| entry.key == *caller.key())
            .map(|(place, entry)| Candidate {
                place: *place,
                identity: Arc::clone(&entry.identity),
                standing: entry.standing,
            })
            .collect()
    }

    /// Takes an orphan, if it still is one. It comes back when the follower leaves before the end.
    pub(super) fn take(self: &Arc<Self>, place: Place) -> Option<Follower> {
        let tape = self.stand(place, Standing::Orphan, Standing::Adopted)?;
        let orphans = Arc::clone(self);
        Some(Follower::told(&tape, Box::new(move |whole| orphans.come_back(place, whole))))
    }

    fn come_back(&self, place: Place, whole: bool) {
        let entry = whole.then(|| {
            let mut index = self.index();
            let adopted = index.entries.get(&place).is_some_and(|entry| entry.standing == Standing::Adopted);
            adopted.then(|| index.entries.remove(&place))
        });
        drop(entry);
        self.stand(place, Standing::Adopted, Standing::Orphan);
    }

    /// An end that is remembered, if it still is.
    pub(super) fn recall(&self, place: Place) -> Option<Follower> {
        let index = self.index();
        let entry = index.entries.get(&place).filter(|entry| entry.standing == Standing::Remembered)?;
        Some(Follower::of(&entry.tape))
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Remembers an end for every retry.
    pub(super) async fn remember(&self, caller: &Caller, job: &Arc<Job>, error: &Error) {
        let (head, body) = written(error);
        let place = self.insert(caller, job, Standing::Remembered, Arc::new(Tape::from_bytes(head, body)));
        self.let_job_go(place).await;
    }

    /// The same for a job that is registered. Who follows it gets the error, or sees its answer break off.
    pub(super) fn remember_at(&self, place: Place, error: &Error) {
        let (head, body) = written(error);
        let before = {
            let mut index = self.index();
            let Some(entry) = index.entries.get_mut(&place) else { return };
            (entry.standing, entry.ended) = (Standing::Remembered, Some(Instant::now()));
            let tape = Arc::new(Tape::from_bytes(head.clone(), body.clone()));
            std::mem::replace(&mut entry.tape, tape)
        };
        before.speak(head, body);
        before.end(End::Broken);
        self.changed.send_replace(());
    }

    /// Writes down what an orphan has made.
    pub(super) async fn take_down<M: Recordable>(self: &Arc<Self>, place: Place, result: Result<M, Error>) {
        match result {
            Ok(made) => {
                let room = Arc::clone(self) as Arc<dyn Room>;
                self.write(place, made, room).await;
            }
            // It has been remembered, and said.
            Err(error) if is_final(&error) => {}
            Err(error) => {
                let entry = self.index().entries.remove(&place);
                if let Some(entry) = entry {
                    let (head, body) = written(&error);
                    entry.tape.speak(head, body);
                }
                self.changed.send_replace(());
            }
        }
        self.let_job_go(place).await;
    }

    async fn write<M: Recordable>(&self, place: Place, made: M, room: Arc<dyn Room>) {
        let Some(tape) = self.index().entries.get(&place).map(|entry| Arc::clone(&entry.tape)) else { return };
        let (head, body) = made.into_parts();
        let mut recorder = Recorder::begin(tape, head, Frames::nameless(&self.folder), room);
        if let Err(error) = recorder.pump(body).await {
            tracing::warn!(%error, "an answer whose caller had left broke off");
            self.remember_at(place, &Error::Upstream(Fault::Broken));
            return;
        }
        let kept = recorder.close().is_some();
        let dropped = {
            let mut index = self.index();
            match index.entries.get_mut(&place) {
                Some(entry) if kept => entry.ended = Some(Instant::now()),
                Some(_) | None => {}
            }
            // Whoever follows one that is not kept has it from hand to hand; nobody can have it after that.
            if kept { None } else { index.entries.remove(&place) }
        };
        recorder.end();
        drop(dropped);
    }

    /// What is over, and kept, needs no files any more: their digest is enough.
    pub(super) async fn let_job_go(&self, place: Place) {
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
            entry.standing != Standing::Adopted && age > self.window
        };
        // Their files go when the lock is free again.
        let gone: Vec<Entry> =
            self.index().entries.extract_if(.., |_, entry| old(entry)).map(|(_, entry)| entry).collect();
        drop(gone);
    }

    fn bound(&self) {
        while self.over(&[Standing::Orphan, Standing::Adopted], MAX_FINISHED) && self.evict() {}
        while self.over(&[Standing::Remembered], MAX_REMEMBERED) && self.drop_oldest(Standing::Remembered) {}
    }

    fn over(&self, standings: &[Standing], max: usize) -> bool {
        let index = self.index();
        index.entries.values().filter(|entry| entry.ended.is_some() && standings.contains(&entry.standing)).count()
            > max
    }

    fn drop_oldest(&self, standing: Standing) -> bool {
        let oldest = {
            let mut index = self.index();
            let ended = index.entries.iter().filter(|(_, entry)| entry.standing == standing);
            let oldest = ended
                .filter_map(|(place, entry)| Some((entry.ended?, *place)))
                .min_by_key(|(ended, place)| (*ended, place.1));
            oldest.and_then(|(_, place)| index.entries.remove(&place))
        };
        oldest.is_some()
    }
}

impl Room for Orphans {
    fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Never one that is being read.
    fn evict(&self) -> bool {
        self.drop_oldest(Standing::Orphan)
    }
}
