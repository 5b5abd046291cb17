//! The state of one connection. The task of the connection writes it; other threads may read it.
//!
//! The socket, the service and the bodies set flags while the connection is polled. After the poll, the flags are
//! combined into one state, which is stored with the time at which it began. Other threads read the state only to
//! choose a connection for eviction; the task of that connection then checks whether the state still holds.

use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::tables::CLIENT_WRITE_STALL_SECONDS;
use crate::words::word_enum;

/// Bytes were read in this poll.
const BYTES_READ: u16 = 1;
/// Bytes were written in this poll.
const BYTES_WRITTEN: u16 = 1 << 1;
/// The last write to the socket took no byte.
const WRITE_BLOCKED: u16 = 1 << 2;
/// The head of a request is complete, and its answer has not been handed over to the connection yet.
const IN_REQUEST: u16 = 1 << 3;
/// In this poll a reader waited for more of the request's body.
const AWAITS_BODY: u16 = 1 << 4;
/// Bytes of a request's head have come, and the head is not complete.
const PARTIAL_HEAD: u16 = 1 << 5;
/// The head of a request was complete at least once.
const HAD_REQUEST: u16 = 1 << 6;
/// The bytes of the request's body may be read in large pieces.
const LARGE_READS: u16 = 1 << 7;
/// The request is answered although its body was not read to the end.
const UNREAD_BODY: u16 = 1 << 8;
/// The writing side is closed, and what still comes is discarded.
const CLOSING: u16 = 1 << 9;
/// The number of low bits of `ConnectionActivity::state` that hold the [`ConnectionState`].
const STATE_BITS: u32 = 3;

/// The time after which a connection without a complete request head counts as silent (our choice). The head of a
/// client that sends it at once after connecting arrives earlier.
const NEW_CONNECTION_MILLIS: u64 = 100;
/// The time without a byte after which an upload has stalled (our choice).
const STALLED_UPLOAD_MILLIS: u64 = 1_000;
/// The time after which a connection may be evicted although its answer is not completely sent, if the peer takes no
/// byte of the answer during that time (our choice).
const UNREAD_RESPONSE_MILLIS: u64 = 5_000;

word_enum! {
    /// The state of a connection.
    pub(super) enum ConnectionState {
        /// No byte has come yet.
        New = "new",
        /// A part of a request's head has come.
        ReadingHead = "reading_head",
        /// The last answer has been sent, and no byte of another request has come.
        Idle = "idle",
        /// The connection waits for more of a request's body.
        ReadingBody = "reading_body",
        /// A request is being served, or its answer is being written.
        Busy = "busy",
        /// The last answer is written, and what the client still sends is discarded.
        Closing = "closing",
    }
}

/// The order in which connections are evicted: connections of the first variant first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EvictionRank {
    /// The head of a request has not arrived within [`NEW_CONNECTION_MILLIS`].
    Silent,
    /// The connection waits for another request.
    Idle,
    /// The request is answered, and the client may still be sending.
    Closing,
    /// No byte of a request's body has arrived for [`STALLED_UPLOAD_MILLIS`].
    StalledUpload,
    /// The head of a request may still arrive within [`NEW_CONNECTION_MILLIS`].
    NewConnection,
    /// The client is sending the body of a request.
    ActiveUpload,
    /// The peer has taken no byte of its answer for [`UNREAD_RESPONSE_MILLIS`], and the gateway has already produced
    /// the whole answer.
    UnreadResponse,
}

/// The limits on the time that a connection may stay in one state.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionDeadlines {
    /// The time until the head of a request is complete; for the first request it runs from the start of the
    /// connection.
    pub(super) head: Duration,
    /// The time between the end of an answer and the first byte of the next request.
    pub(super) idle: Duration,
    /// The time for which a write may be blocked, because the peer takes no byte.
    pub(super) write: Duration,
    /// The time between two bytes that are discarded after the last answer.
    pub(super) discard_idle: Duration,
    /// The time for which bytes are discarded in all.
    pub(super) discard: Duration,
}

/// A deadline that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassedDeadline {
    Head,
    Idle,
    Write,
    Discard,
    /// The first request after a stop was requested.
    FirstRequest,
}

/// The flags and the state of one connection. Times are milliseconds, as `ConnectionTable::now` returns them.
#[derive(Debug)]
pub(super) struct ConnectionActivity {
    flags: AtomicU16,
    /// The number of bytes of a request's head that have come.
    head_bytes: AtomicUsize,
    /// The time at which the state began, shifted left by [`STATE_BITS`], and the state in the low bits. For
    /// [`ConnectionState::ReadingBody`] and [`ConnectionState::Closing`], it is the time at which bytes were last read.
    state: AtomicU64,
    /// The time at which writes became blocked; 0 if the last write took bytes.
    blocked_since: AtomicU64,
    /// The time at which [`ConnectionState::Closing`] began; 0 before that.
    closing_since: AtomicU64,
}

// === impl ConnectionDeadlines ===

impl ConnectionDeadlines {
    /// The deadlines of every listener (our choice). An idle connection is kept longer than the 60 seconds for which load
    /// balancers commonly keep theirs, so that the load balancer closes first. Input is discarded for as long as common
    /// servers do.
    pub(super) const DEFAULT: Self = Self {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(75),
        write: Duration::from_secs(CLIENT_WRITE_STALL_SECONDS),
        discard_idle: Duration::from_secs(10),
        discard: Duration::from_secs(30),
    };
}

// === impl EvictionRank ===

impl EvictionRank {
    /// True if several connections of this rank can be evicted at once, because no request of theirs is lost.
    pub(super) const fn is_batched(self) -> bool {
        matches!(self, Self::Silent | Self::Idle | Self::Closing | Self::NewConnection)
    }
}

// === impl ConnectionActivity ===

impl ConnectionActivity {
    pub(super) const fn new(now: u64) -> Self {
        Self {
            flags: AtomicU16::new(0),
            head_bytes: AtomicUsize::new(0),
            state: AtomicU64::new(now << STATE_BITS),
            blocked_since: AtomicU64::new(0),
            closing_since: AtomicU64::new(0),
        }
    }

    /// Records that `length` bytes were read; 0 at the end of the stream.
    pub(super) fn record_read(&self, length: usize) {
        if length > 0 {
            let flags = self.flags.load(Ordering::Relaxed);
            self.set(if flags & IN_REQUEST == 0 { BYTES_READ | PARTIAL_HEAD } else { BYTES_READ });
            if flags & IN_REQUEST == 0 {
                self.head_bytes.fetch_add(length, Ordering::Relaxed);
            }
        }
    }

    /// Records that a write took at least one byte.
    pub(super) fn record_write(&self) {
        self.set(BYTES_WRITTEN);
        self.clear(WRITE_BLOCKED);
    }

    /// Records that a write took no byte.
    pub(super) fn record_blocked_write(&self) {
        self.set(WRITE_BLOCKED);
    }

    /// True if the last write took no byte.
    pub(super) fn is_blocked(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & WRITE_BLOCKED != 0
    }

    /// Records that the head of a request is complete.
    pub(super) fn record_request_start(&self) {
        self.set(IN_REQUEST | HAD_REQUEST);
        self.clear(PARTIAL_HEAD | LARGE_READS);
        self.head_bytes.store(0, Ordering::Relaxed);
    }

    /// The number of bytes of a head that is not complete; 0 if no head is arriving.
    pub(super) fn head_bytes(&self) -> usize {
        let is_partial = self.flags.load(Ordering::Relaxed) & PARTIAL_HEAD != 0;
        if is_partial { self.head_bytes.load(Ordering::Relaxed) } else { 0 }
    }

    /// Lets the body of the request be read in large pieces, or no longer.
    pub(super) fn set_large_reads(&self, is_allowed: bool) {
        if is_allowed { self.set(LARGE_READS) } else { self.clear(LARGE_READS) }
    }

    /// True if the bytes that come may be read in large pieces.
    pub(super) fn reads_large(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & LARGE_READS != 0
    }

    /// Records that all of the answer has been handed over to the connection.
    pub(super) fn record_request_end(&self) {
        self.clear(IN_REQUEST | LARGE_READS);
    }

    /// Records that a reader waits for more of the body.
    pub(super) fn record_body_wait(&self) {
        self.set(AWAITS_BODY);
    }

    /// Records that the bytes read belong to a body, even if its request is answered already.
    pub(super) fn record_body_read(&self) {
        self.clear(PARTIAL_HEAD);
        self.head_bytes.store(0, Ordering::Relaxed);
    }

    /// Records that the request is answered although its body was not read to the end. The answer is the last one.
    pub(super) fn record_unread_body(&self) {
        self.set(UNREAD_BODY);
        self.clear(LARGE_READS);
    }

    /// Records that the writing side is closed. Returns true if the other side must be read to its end: if the client may
    /// still be sending, because a body or a head was refused before its end, or if `checks_delivery`. If a socket with
    /// unread bytes is closed, the system resets the connection, and the client may lose the answer.
    pub(super) fn begin_closing(&self, checks_delivery: bool) -> bool {
        let may_send = self.flags.load(Ordering::Relaxed) & (UNREAD_BODY | PARTIAL_HEAD) != 0;
        if may_send || checks_delivery {
            self.clear(PARTIAL_HEAD);
            self.set(CLOSING);
        }
        may_send || checks_delivery
    }

    /// True if what comes is discarded.
    pub(super) fn is_closing(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & CLOSING != 0
    }

    /// Records that bytes were discarded.
    pub(super) fn record_discard(&self) {
        self.set(BYTES_READ);
    }

    /// Prepares the flags for a poll of the connection.
    pub(super) fn begin_poll(&self) {
        self.clear(BYTES_READ | BYTES_WRITTEN | AWAITS_BODY);
    }

    /// Combines the flags into a state after a poll of the connection.
    pub(super) fn end_poll(&self, now: u64) {
        let flags = self.flags.load(Ordering::Relaxed);
        let (previous, since) = self.state();
        let has = |flag| flags & flag != 0;
        let state = if has(CLOSING) {
            ConnectionState::Closing
        } else if has(IN_REQUEST) && has(AWAITS_BODY) {
            ConnectionState::ReadingBody
        } else if has(IN_REQUEST) {
            ConnectionState::Busy
        } else if has(PARTIAL_HEAD) {
            ConnectionState::ReadingHead
        } else if has(HAD_REQUEST) {
            ConnectionState::Idle
        } else {
            ConnectionState::New
        };
        let is_unchanged = match (previous, state) {
            (ConnectionState::New, ConnectionState::ReadingHead) => true,
            (ConnectionState::ReadingBody, ConnectionState::ReadingBody)
            | (ConnectionState::Closing, ConnectionState::Closing) => flags & BYTES_READ == 0,
            _ => previous == state,
        };
        let since = if is_unchanged { since } else { now };
        self.state.store(since << STATE_BITS | state as u64, Ordering::Relaxed);
        if state == ConnectionState::Closing && previous != state {
            self.closing_since.store(now, Ordering::Relaxed);
        }
        if flags & WRITE_BLOCKED == 0 {
            self.blocked_since.store(0, Ordering::Relaxed);
        } else if flags & BYTES_WRITTEN != 0 || self.blocked_since.load(Ordering::Relaxed) == 0 {
            self.blocked_since.store(now, Ordering::Relaxed);
        }
    }

    /// The state, and the time at which it began.
    pub(super) fn state(&self) -> (ConnectionState, u64) {
        let word = self.state.load(Ordering::Relaxed);
        // Only `end_poll` and `new` write the word, so it always holds a state.
        let state = ConnectionState::ALL.into_iter().find(|state| *state as u64 == word & ((1 << STATE_BITS) - 1));
        (state.unwrap_or(ConnectionState::Busy), word >> STATE_BITS)
    }

    /// The next deadline, if the state has one.
    pub(super) fn next_deadline(&self, deadlines: &ConnectionDeadlines) -> Option<(u64, PassedDeadline)> {
        let blocked_since = self.blocked_since.load(Ordering::Relaxed);
        if blocked_since != 0 {
            return Some((blocked_since + millis(deadlines.write), PassedDeadline::Write));
        }
        match self.state() {
            (ConnectionState::New | ConnectionState::ReadingHead, since) => {
                Some((since + millis(deadlines.head), PassedDeadline::Head))
            }
            (ConnectionState::Idle, since) => Some((since + millis(deadlines.idle), PassedDeadline::Idle)),
            (ConnectionState::Closing, last_read) => {
                let end = self.closing_since.load(Ordering::Relaxed) + millis(deadlines.discard);
                Some((end.min(last_read + millis(deadlines.discard_idle)), PassedDeadline::Discard))
            }
            (ConnectionState::ReadingBody | ConnectionState::Busy, _) => None,
        }
    }

    /// The rank of the connection for an eviction, and the time at which its state began; `None` if it must not be
    /// evicted, because a request is being served or an answer is being written.
    pub(super) fn eviction_rank(&self, now: u64) -> Option<(EvictionRank, u64)> {
        let (state, since) = self.state();
        let blocked_since = self.blocked_since.load(Ordering::Relaxed);
        if blocked_since != 0 {
            let is_stalled =
                state != ConnectionState::Busy && now.saturating_sub(blocked_since) >= UNREAD_RESPONSE_MILLIS;
            return is_stalled.then_some((EvictionRank::UnreadResponse, blocked_since));
        }
        let age = now.saturating_sub(since);
        let rank = match state {
            ConnectionState::New | ConnectionState::ReadingHead if age >= NEW_CONNECTION_MILLIS => EvictionRank::Silent,
            ConnectionState::New | ConnectionState::ReadingHead => EvictionRank::NewConnection,
            ConnectionState::Idle => EvictionRank::Idle,
            ConnectionState::Closing => EvictionRank::Closing,
            ConnectionState::ReadingBody if age >= STALLED_UPLOAD_MILLIS => EvictionRank::StalledUpload,
            ConnectionState::ReadingBody => EvictionRank::ActiveUpload,
            ConnectionState::Busy => return None,
        };
        Some((rank, since))
    }

    fn set(&self, flags: u16) {
        self.flags.fetch_or(flags, Ordering::Relaxed);
    }

    fn clear(&self, flags: u16) {
        self.flags.fetch_and(!flags, Ordering::Relaxed);
    }
}

/// Milliseconds. A duration that is too long is cut to a value that can be added to a time and shifted.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 16)
}

#[cfg(test)]
mod tests;
