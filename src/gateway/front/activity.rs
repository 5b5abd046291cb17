//! The state of one connection, as its task sees it and as others may read it.
//!
//! The socket, the service and the bodies set flags while the connection is polled; after the poll the flags are
//! combined into one state, stored with the time since which it holds. Other threads read that state only to choose the
//! connection that is closed first if there are too many; the connection's own task decides whether the state still
//! holds.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes were read in this poll.
const READ: u8 = 1;
/// Bytes were written in this poll.
const WROTE: u8 = 1 << 1;
/// The last write did not take anything.
const BLOCKED: u8 = 1 << 2;
/// A request has been read, and its answer has not been handed over yet.
const REQUEST: u8 = 1 << 3;
/// Somebody waited in this poll for more of the request's body.
const AWAITS_BODY: u8 = 1 << 4;
/// Bytes came that belong to no request yet.
const PARTIAL_HEAD: u8 = 1 << 5;
/// The head of a request was complete at least once.
const USED: u8 = 1 << 6;
const STATE_BITS: u32 = 3;

/// A head that was sent together with the connection's first packet is there after this time (ours).
const YOUNG_MILLIS: u64 = 100;
/// An upload from which nothing came for this long has stalled (ours).
const STALLED_MILLIS: u64 = 1_000;
/// A reader that took nothing for this long loses the answer that was already handed over to the connection (ours).
const UNREAD_MILLIS: u64 = 5_000;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing has come yet.
    New,
    /// A part of a request's head has come.
    ReadingHead,
    /// The last answer has been sent, and no byte of another request has come.
    Idle,
    /// The connection waits for more of a request's body.
    ReadingBody,
    /// A request is being served, or its answer is being written.
    Busy,
}

/// The order in which connections are closed when there are too many; the first variants are closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EvictionRank {
    /// Had its time and sent no request.
    Silent,
    /// Waits for another request.
    Idle,
    /// Sends no more of the body that it announced.
    StalledUpload,
    /// Has just connected.
    Young,
    /// Sends a body.
    Upload,
    /// Reads nothing of its last answer, which was handed over.
    Unread,
}

/// The limits on the time that a connection may stay in one state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// Time until the head of a request is complete; for the first request it runs from the start of the connection.
    pub(super) head: Duration,
    /// Time without a request.
    pub(super) idle: Duration,
    /// Time during which the peer takes no byte of the data to be written.
    pub(super) write: Duration,
}

/// A deadline that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassedDeadline {
    Head,
    Idle,
    Write,
}

/// The flags and the state of one connection. Times are milliseconds since a moment before its start.
#[derive(Debug)]
pub(super) struct ConnectionActivity {
    flags: AtomicU8,
    /// The time since which the state holds, with the state in the lowest bits.
    state: AtomicU64,
    /// The time since which writes take nothing; 0 if the last write took something.
    blocked_since: AtomicU64,
}

// === impl State ===

impl State {
    pub(super) const ALL: [Self; 5] = [Self::New, Self::ReadingHead, Self::Idle, Self::ReadingBody, Self::Busy];

    /// The value of the `state` label in the metrics.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::ReadingHead => "reading_head",
            Self::Idle => "idle",
            Self::ReadingBody => "reading_body",
            Self::Busy => "busy",
        }
    }
}

// === impl EvictionRank ===

impl EvictionRank {
    /// True if several connections of this rank can be closed at once, because they lose nothing.
    pub(super) const fn is_batched(self) -> bool {
        matches!(self, Self::Silent | Self::Idle | Self::Young)
    }
}

// === impl ConnectionActivity ===

impl ConnectionActivity {
    pub(super) const fn new(now: u64) -> Self {
        Self { flags: AtomicU8::new(0), state: AtomicU64::new(now << STATE_BITS), blocked_since: AtomicU64::new(0) }
    }

    /// `length` bytes were read; 0 at the end of the stream.
    pub(super) fn read(&self, length: usize) {
        if length > 0 {
            let flags = self.flags.load(Ordering::Relaxed);
            self.set(if flags & REQUEST == 0 { READ | PARTIAL_HEAD } else { READ });
        }
    }

    /// A write took something.
    pub(super) fn wrote(&self) {
        self.set(WROTE);
        self.clear(BLOCKED);
    }

    /// A write took nothing.
    pub(super) fn blocked(&self) {
        self.set(BLOCKED);
    }

    /// True if the last write took nothing.
    pub(super) fn is_blocked(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & BLOCKED != 0
    }

    /// The head of a request is complete.
    pub(super) fn request_begins(&self) {
        self.set(REQUEST | USED);
        self.clear(PARTIAL_HEAD);
    }

    /// The answer is handed over.
    pub(super) fn request_ends(&self) {
        self.clear(REQUEST);
    }

    /// Somebody waits for more of the body.
    pub(super) fn awaits_body(&self) {
        self.set(AWAITS_BODY);
    }

    /// The bytes that were read belong to a body, even if its request is answered already.
    pub(super) fn took_body(&self) {
        self.clear(PARTIAL_HEAD);
    }

    /// The connection is about to be polled.
    pub(super) fn poll_begins(&self) {
        self.clear(READ | WROTE | AWAITS_BODY);
    }

    /// The connection was polled.
    pub(super) fn poll_ends(&self, now: u64) {
        let flags = self.flags.load(Ordering::Relaxed);
        let (before, since) = self.state();
        let state = match flags {
            _ if flags & (REQUEST | AWAITS_BODY) == REQUEST | AWAITS_BODY => State::ReadingBody,
            _ if flags & REQUEST != 0 => State::Busy,
            _ if flags & PARTIAL_HEAD != 0 => State::ReadingHead,
            _ if flags & USED == 0 => State::New,
            _ => State::Idle,
        };
        let goes_on = match (before, state) {
            (State::New, State::ReadingHead) => true,
            (State::ReadingBody, State::ReadingBody) => flags & READ == 0,
            _ => before == state,
        };
        let since = if goes_on { since } else { now };
        self.state.store(since << STATE_BITS | state as u64, Ordering::Relaxed);
        if flags & BLOCKED == 0 {
            self.blocked_since.store(0, Ordering::Relaxed);
        } else if flags & WROTE != 0 || self.blocked_since.load(Ordering::Relaxed) == 0 {
            self.blocked_since.store(now, Ordering::Relaxed);
        }
    }

    /// The state, and the time since which it holds.
    pub(super) fn state(&self) -> (State, u64) {
        let word = self.state.load(Ordering::Relaxed);
        let state = State::ALL.into_iter().find(|state| *state as u64 == word & ((1 << STATE_BITS) - 1));
        (state.unwrap_or(State::Busy), word >> STATE_BITS)
    }

    /// The deadline that comes next, if there is one.
    pub(super) fn deadline(&self, deadlines: &Deadlines) -> Option<(u64, PassedDeadline)> {
        let blocked_since = self.blocked_since.load(Ordering::Relaxed);
        if blocked_since != 0 {
            return Some((blocked_since + millis(deadlines.write), PassedDeadline::Write));
        }
        match self.state() {
            (State::New | State::ReadingHead, since) => Some((since + millis(deadlines.head), PassedDeadline::Head)),
            (State::Idle, since) => Some((since + millis(deadlines.idle), PassedDeadline::Idle)),
            (State::ReadingBody | State::Busy, _) => None,
        }
    }

    /// The rank of the connection when connections must be closed, and the time since which it has had this rank;
    /// `None` while a job runs or an answer is being written.
    pub(super) fn rank(&self, now: u64) -> Option<(EvictionRank, u64)> {
        let (state, since) = self.state();
        let blocked_since = self.blocked_since.load(Ordering::Relaxed);
        if blocked_since != 0 {
            let is_over = state != State::Busy && now.saturating_sub(blocked_since) >= UNREAD_MILLIS;
            return is_over.then_some((EvictionRank::Unread, blocked_since));
        }
        let age = now.saturating_sub(since);
        let rank = match state {
            State::New | State::ReadingHead if age >= YOUNG_MILLIS => EvictionRank::Silent,
            State::New | State::ReadingHead => EvictionRank::Young,
            State::Idle => EvictionRank::Idle,
            State::ReadingBody if age >= STALLED_MILLIS => EvictionRank::StalledUpload,
            State::ReadingBody => EvictionRank::Upload,
            State::Busy => return None,
        };
        Some((rank, since))
    }

    fn set(&self, flags: u8) {
        self.flags.fetch_or(flags, Ordering::Relaxed);
    }

    fn clear(&self, flags: u8) {
        self.flags.fetch_and(!flags, Ordering::Relaxed);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 16)
}

#[cfg(test)]
mod tests;
