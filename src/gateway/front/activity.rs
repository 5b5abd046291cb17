//! The state of one connection, as its own task sees it and as other threads may read it.
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
/// The last write took no byte.
const BLOCKED: u8 = 1 << 2;
/// A request has been read, and its answer has not been handed over yet.
const REQUEST: u8 = 1 << 3;
/// In this poll a reader waited for more of the request's body.
const AWAITS_BODY: u8 = 1 << 4;
/// Bytes came that belong to no request yet.
const PARTIAL_HEAD: u8 = 1 << 5;
/// The head of a request was complete at least once.
const USED: u8 = 1 << 6;
const STATE_BITS: u32 = 3;

/// The time after which a head that was sent with the connection's first packet has arrived (ours).
const YOUNG_MILLIS: u64 = 100;
/// The time without a byte after which an upload has stalled (ours).
const STALLED_MILLIS: u64 = 1_000;
/// The time after which a peer that takes no byte loses an answer that was handed over to the connection (ours).
const UNREAD_MILLIS: u64 = 5_000;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// No byte has come yet.
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
    /// The connection had its time and sent no request.
    Silent,
    /// The connection waits for another request.
    Idle,
    /// The connection sends no more of the body that it announced.
    StalledUpload,
    /// The connection is new.
    Young,
    /// The connection sends a body.
    Upload,
    /// The peer reads nothing of its last answer, which was handed over.
    Unread,
}

/// The limits on the time that a connection may stay in one state.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionDeadlines {
    /// The time until the head of a request is complete; for the first request it runs from the start of the
    /// connection.
    pub(super) head: Duration,
    /// The time without a request.
    pub(super) idle: Duration,
    /// The time during which the peer takes no byte of the data to be written.
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

// === impl ConnectionState ===

impl ConnectionState {
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

    /// Records that `length` bytes were read; 0 at the end of the stream.
    pub(super) fn read(&self, length: usize) {
        if length > 0 {
            let flags = self.flags.load(Ordering::Relaxed);
            self.set(if flags & REQUEST == 0 { READ | PARTIAL_HEAD } else { READ });
        }
    }

    /// Records that a write took at least one byte.
    pub(super) fn wrote(&self) {
        self.set(WROTE);
        self.clear(BLOCKED);
    }

    /// Records that a write took no byte.
    pub(super) fn blocked(&self) {
        self.set(BLOCKED);
    }

    /// True if the last write took no byte.
    pub(super) fn is_blocked(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & BLOCKED != 0
    }

    /// Records that the head of a request is complete.
    pub(super) fn request_begins(&self) {
        self.set(REQUEST | USED);
        self.clear(PARTIAL_HEAD);
    }

    /// Records that the answer is handed over.
    pub(super) fn request_ends(&self) {
        self.clear(REQUEST);
    }

    /// Records that a reader waits for more of the body.
    pub(super) fn awaits_body(&self) {
        self.set(AWAITS_BODY);
    }

    /// Records that the bytes read belong to a body, even if its request is answered already.
    pub(super) fn took_body(&self) {
        self.clear(PARTIAL_HEAD);
    }

    /// Prepares the flags for a poll of the connection.
    pub(super) fn poll_begins(&self) {
        self.clear(READ | WROTE | AWAITS_BODY);
    }

    /// Combines the flags into a state after a poll of the connection.
    pub(super) fn poll_ends(&self, now: u64) {
        let flags = self.flags.load(Ordering::Relaxed);
        let (before, since) = self.state();
        let state = match flags {
            _ if flags & (REQUEST | AWAITS_BODY) == REQUEST | AWAITS_BODY => ConnectionState::ReadingBody,
            _ if flags & REQUEST != 0 => ConnectionState::Busy,
            _ if flags & PARTIAL_HEAD != 0 => ConnectionState::ReadingHead,
            _ if flags & USED == 0 => ConnectionState::New,
            _ => ConnectionState::Idle,
        };
        let goes_on = match (before, state) {
            (ConnectionState::New, ConnectionState::ReadingHead) => true,
            (ConnectionState::ReadingBody, ConnectionState::ReadingBody) => flags & READ == 0,
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
    pub(super) fn state(&self) -> (ConnectionState, u64) {
        let word = self.state.load(Ordering::Relaxed);
        let state = ConnectionState::ALL.into_iter().find(|state| *state as u64 == word & ((1 << STATE_BITS) - 1));
        (state.unwrap_or(ConnectionState::Busy), word >> STATE_BITS)
    }

    /// The next deadline, if there is one.
    pub(super) fn deadline(&self, deadlines: &ConnectionDeadlines) -> Option<(u64, PassedDeadline)> {
        let blocked_since = self.blocked_since.load(Ordering::Relaxed);
        if blocked_since != 0 {
            return Some((blocked_since + millis(deadlines.write), PassedDeadline::Write));
        }
        match self.state() {
            (ConnectionState::New | ConnectionState::ReadingHead, since) => {
                Some((since + millis(deadlines.head), PassedDeadline::Head))
            }
            (ConnectionState::Idle, since) => Some((since + millis(deadlines.idle), PassedDeadline::Idle)),
            (ConnectionState::ReadingBody | ConnectionState::Busy, _) => None,
        }
    }

    /// The rank of the connection when connections must be closed, and the time since which it has had this rank;
    /// `None` while a job runs or an answer is being written.
    pub(super) fn rank(&self, now: u64) -> Option<(EvictionRank, u64)> {
        let (state, since) = self.state();
        let blocked_since = self.blocked_since.load(Ordering::Relaxed);
        if blocked_since != 0 {
            let is_over = state != ConnectionState::Busy && now.saturating_sub(blocked_since) >= UNREAD_MILLIS;
            return is_over.then_some((EvictionRank::Unread, blocked_since));
        }
        let age = now.saturating_sub(since);
        let rank = match state {
            ConnectionState::New | ConnectionState::ReadingHead if age >= YOUNG_MILLIS => EvictionRank::Silent,
            ConnectionState::New | ConnectionState::ReadingHead => EvictionRank::Young,
            ConnectionState::Idle => EvictionRank::Idle,
            ConnectionState::ReadingBody if age >= STALLED_MILLIS => EvictionRank::StalledUpload,
            ConnectionState::ReadingBody => EvictionRank::Upload,
            ConnectionState::Busy => return None,
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
