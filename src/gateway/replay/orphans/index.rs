//! What is known of each job that a retry may ask for.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use crate::error::{Error, Fault};
use crate::gateway::replay::durable::Unfinished;
use crate::gateway::replay::fingerprint::{Digest, Identity};
use crate::gateway::replay::head::written;
use crate::gateway::replay::tape::Tape;
use crate::gateway::store::KeyId;

/// The cheap hash of the request, and a number: the older, the smaller.
pub(in super::super) type Place = (u64, u64);

#[derive(Default)]
pub(in super::super) struct Index {
    pub(in super::super) next: u64,
    pub(in super::super) entries: BTreeMap<Place, Entry>,
}

pub(in super::super) struct Entry {
    pub(in super::super) key: KeyId,
    pub(in super::super) expected: Expected,
    pub(in super::super) identity: Arc<Identity>,
    pub(in super::super) tape: Arc<Tape>,
    /// Its own caller and the retries that are there.
    pub(in super::super) readers: usize,
    /// The retries among them.
    pub(in super::super) retries: usize,
    /// Retries that wait a little for an orphan, and follow this one otherwise.
    pub(in super::super) holds: usize,
    /// Somebody has left without all of the answer, and no retry has had it since.
    pub(in super::super) owed: bool,
    pub(in super::super) mode: Mode,
    /// The file of an answer that is not durable.
    pub(in super::super) unfinished: Option<Unfinished>,
    /// The name of the file of one that is.
    pub(in super::super) stored: Option<String>,
    /// When it was over. What is in flight does not grow old: its own deadlines bound it.
    pub(in super::super) ended: Option<Instant>,
}

/// What is known of a job when it is registered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    /// The id of the request.
    pub(crate) request_id: String,
    /// The caller's client says of each request whether it has sent it before, so this one may come back.
    pub(crate) marks_retries: bool,
    /// What tells after a restart that a retry means this request.
    pub(crate) fingerprint: Option<Digest>,
}

/// What is let go of an answer: its room, and the file that outlives it otherwise.
pub(in super::super) struct Gone {
    pub(in super::super) _tape: Arc<Tape>,
    pub(in super::super) stored: Option<String>,
    pub(in super::super) request: Expected,
}

/// What becomes of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Mode {
    /// Nobody but the own caller wants it so far: it goes there as it comes.
    Alone,
    /// It has gone there: nobody else can have it.
    Given,
    /// It is written down for whoever wants it.
    Written,
    /// An end that every retry gets again.
    Remembered,
}

/// What a retry finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Standing {
    /// Somebody waits for it or reads it.
    Attended,
    /// Nobody does, and it is owed.
    Orphan,
    /// An end that every retry gets again.
    Remembered,
}

/// What a retry may mean.
pub(in super::super) struct Candidate {
    pub(in super::super) place: Place,
    pub(in super::super) identity: Arc<Identity>,
    pub(in super::super) standing: Standing,
    /// How many retries are there already.
    pub(in super::super) retries: usize,
}

// === impl Index ===

impl Index {
    /// What must be made durable, where it is an orphan that is whole.
    pub(in super::super) fn unstored(&mut self, place: Place) -> Option<(Expected, Unfinished, Arc<Tape>)> {
        let entry = self.entries.get_mut(&place).filter(|entry| entry.is_unstored())?;
        let answer = entry.unfinished.take()?;
        Some((entry.expected.clone(), answer, Arc::clone(&entry.tape)))
    }

    /// The oldest that is over of the API key that has most: bytes of answers, or ends that are remembered.
    pub(in super::super) fn least_worthy(&self, standing: Standing) -> Option<Place> {
        let mut keys: HashMap<&KeyId, (u64, (Instant, Place))> = HashMap::new();
        for (place, entry) in &self.entries {
            let Some(ended) = entry.ended.filter(|_| entry.standing() == Some(standing)) else { continue };
            let weight = if standing == Standing::Orphan { entry.tape.length() } else { 1 };
            let (sum, oldest) = keys.entry(&entry.key).or_insert((0, (ended, *place)));
            *sum += weight;
            if (ended, place.1) < (oldest.0, oldest.1.1) {
                *oldest = (ended, *place);
            }
        }
        let most = keys.into_values().max_by_key(|(sum, (ended, place))| (*sum, Reverse((*ended, place.1))));
        most.map(|(_, (_, place))| place)
    }
}

// === impl Entry ===

impl Entry {
    pub(in super::super) fn new(key: &KeyId, identity: Identity, mode: Mode, tape: Arc<Tape>) -> Self {
        let over = mode == Mode::Remembered;
        Self {
            key: key.clone(),
            expected: Expected::default(),
            identity: Arc::new(identity),
            tape,
            readers: usize::from(!over),
            retries: 0,
            holds: 0,
            owed: false,
            mode,
            unfinished: None,
            stored: None,
            ended: over.then(Instant::now),
        }
    }

    /// What a retry finds; nothing where it cannot have the answer.
    pub(in super::super) fn standing(&self) -> Option<Standing> {
        match self.mode {
            Mode::Remembered => Some(Standing::Remembered),
            Mode::Given => None,
            Mode::Alone | Mode::Written if self.readers > 0 => Some(Standing::Attended),
            Mode::Alone | Mode::Written => Some(Standing::Orphan),
        }
    }

    /// Nobody can have the answer any more, and nobody may pay for it again. What it had is given back.
    pub(in super::super) fn lose(&mut self) -> Gone {
        self.mode = Mode::Remembered;
        let (tape, stored) = (std::mem::replace(&mut self.tape, unknown()), self.stored.take());
        Gone { _tape: tape, stored, request: self.expected.clone() }
    }

    pub(in super::super) fn go(self) -> Gone {
        Gone { _tape: self.tape, stored: self.stored, request: self.expected }
    }

    /// Whether everybody who has asked for the answer has it.
    pub(in super::super) fn is_over(&self) -> bool {
        self.readers == 0 && self.holds == 0 && !self.owed && self.mode != Mode::Remembered
    }

    /// Whether it is an orphan that is whole, and not durable.
    pub(in super::super) fn is_unstored(&self) -> bool {
        let orphan = self.owed && self.standing() == Some(Standing::Orphan);
        orphan && self.ended.is_some() && self.unfinished.is_some() && !self.tape.has_gap()
    }
}

/// The error of an answer that is lost.
pub(in super::super) fn unknown() -> Arc<Tape> {
    let (head, body) = written(&Error::Upstream(Fault::Unknown));
    Arc::new(Tape::from_bytes(head, body))
}
