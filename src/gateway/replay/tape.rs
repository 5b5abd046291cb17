//! One answer, written once and read by any number, each at its own pace.
//!
//! Whole frames lie in a file; what does not fill a frame yet lies in memory, once for all readers. Where the disk takes
//! no more, or the answer has no room, the frames go from hand to hand instead: the next begins when everybody has this
//! one. So whoever follows gets the answer that was paid for, whatever the disk does; only a repeat after it does not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::frames::{FRAME, Frames};
use super::head::Head;
use super::room::Reserved;

/// From hand to hand nobody is waited for longer; who is too slow is cut off.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer that is being written, or was.
#[derive(Default)]
pub(super) struct Tape(Mutex<State>);

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All of it is there.
    Complete,
    /// There will be no more of it.
    Broken,
}

#[derive(Default)]
struct State {
    head: Option<Head>,
    frames: Option<Arc<Frames>>,
    /// Bytes that the file has: whole frames, until the end.
    kept: u64,
    tail: Vec<u8>,
    /// Where the tail begins. It may lie behind what is kept: in between it went from hand to hand.
    tail_at: u64,
    end: Option<End>,
    seats: HashMap<u64, Seat>,
    next_seat: u64,
    writer: Option<Waker>,
    /// The room on disk, as long as anybody has the tape.
    reserved: Option<Reserved>,
}

/// One reader.
#[derive(Default)]
struct Seat {
    at: u64,
    waker: Option<Waker>,
}

/// What a reader finds.
pub(super) enum Found {
    /// These bytes.
    Bytes(Bytes),
    /// So many bytes in a frame of the file.
    Frame { frames: Arc<Frames>, number: u64, length: usize, skip: usize },
    /// There is no more.
    End,
    /// There was more, and it is gone.
    Gone,
}

// === impl Tape ===

impl Tape {
    /// An answer that lies in a file from begin to end.
    pub(super) fn from_file(head: Head, frames: Frames, size: u64) -> Self {
        Self(Mutex::new(State {
            head: Some(head),
            frames: Some(Arc::new(frames)),
            kept: size,
            tail_at: size,
            end: Some(End::Complete),
            ..State::default()
        }))
    }

    /// A small answer that lies in memory.
    pub(super) fn from_bytes(head: Head, bytes: Bytes) -> Self {
        let tape = Self::default();
        tape.speak(head, bytes);
        tape
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole of a small answer, in memory, where nothing was said yet.
    pub(super) fn speak(&self, head: Head, bytes: Bytes) {
        let mut state = self.state();
        if state.head.is_none() && state.end.is_none() {
            state.head = Some(head);
            state.tail = bytes.into();
            state.end = Some(End::Complete);
            state.wake_readers();
        }
    }

    pub(super) fn begin(&self, head: Head, frames: Option<Arc<Frames>>) {
        let mut state = self.state();
        state.head = Some(head);
        state.frames = frames;
        state.wake_readers();
    }

    /// Says how it ended, if that has not been said.
    pub(super) fn end(&self, end: End) {
        let mut state = self.state();
        state.end.get_or_insert(end);
        state.wake_readers();
    }

    /// The file of the answer, if it has one.
    pub(super) fn frames(&self) -> Option<Arc<Frames>> {
        self.state().frames.clone()
    }

    /// Whether something of it is gone already, so that nobody new can have all of it.
    pub(super) fn has_gap(&self) -> bool {
        self.state().has_gap()
    }

    /// How many bytes the answer has so far.
    pub(super) fn length(&self) -> u64 {
        self.state().length()
    }

    /// How many bytes the reader has before it, where the answer is whole.
    pub(super) fn left(&self, seat: u64) -> Option<u64> {
        let state = self.state();
        let at = state.seats.get(&seat)?.at;
        (state.end == Some(End::Complete)).then(|| state.length().saturating_sub(at))
    }

    /// Takes as much as the frame has room for, and gives back the rest; `true` where the frame is full.
    pub(super) fn append<'a>(&self, bytes: &'a [u8]) -> (&'a [u8], bool) {
        let mut state = self.state();
        let (now, later) = bytes.split_at(bytes.len().min(FRAME.saturating_sub(state.tail.len())));
        state.tail.extend_from_slice(now);
        state.wake_readers();
        (later, state.tail.len() >= FRAME)
    }

    /// The frame in memory, for the file.
    pub(super) fn tail(&self) -> Vec<u8> {
        let state = self.state();
        // With room for its seal.
        let mut frame = Vec::with_capacity(state.tail.len() + 64);
        frame.extend_from_slice(&state.tail);
        frame
    }

    /// The frame in memory is in the file too. At the end it stays: some may not have read it.
    pub(super) fn kept(&self, reserved: Reserved) {
        let mut state = self.state();
        match &mut state.reserved {
            Some(before) => before.join(reserved),
            none => *none = Some(reserved),
        }
        state.kept += state.tail.len() as u64;
        if state.tail.len() >= FRAME {
            state.tail.clear();
            state.tail_at = state.kept;
        }
    }

    /// The room on disk goes to who keeps the file.
    pub(super) fn take_reserved(&self) -> Option<Reserved> {
        self.state().reserved.take()
    }

    /// Lets the frame in memory go when everybody has it.
    pub(super) async fn hand_on(&self) {
        let everybody = std::future::poll_fn(|cx| self.poll_everybody(cx));
        if tokio::time::timeout(PATIENCE, everybody).await.is_err() {
            tracing::warn!("an answer that is not on disk goes on without its slowest reader");
        }
        let mut state = self.state();
        state.tail_at += state.tail.len() as u64;
        state.tail.clear();
    }

    fn poll_everybody(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let (gap, length) = (state.has_gap(), state.length());
        // Whoever is before the gap will never get over it.
        let cut_off = |at: u64| gap && at < state.tail_at;
        if state.seats.values().all(|seat| seat.at >= length || cut_off(seat.at)) {
            return Poll::Ready(());
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// A place for a reader, at the beginning.
    pub(super) fn sit(&self) -> u64 {
        let mut state = self.state();
        let number = state.next_seat;
        state.next_seat += 1;
        state.seats.insert(number, Seat::default());
        number
    }

    /// The reader leaves.
    pub(super) fn leave(&self, seat: u64) {
        let mut state = self.state();
        state.seats.remove(&seat);
        state.wake_writer();
    }

    /// The head, when it is there.
    pub(super) fn poll_head(&self, cx: &Context<'_>, seat: u64) -> Poll<Option<Head>> {
        let mut state = self.state();
        match (&state.head, state.end) {
            (Some(head), _) => Poll::Ready(Some(head.clone())),
            (None, Some(_)) => Poll::Ready(None),
            (None, None) => state.wait(cx, seat),
        }
    }

    /// The next bytes, when they are there.
    pub(super) fn poll_next(&self, cx: &Context<'_>, seat: u64) -> Poll<Found> {
        let mut state = self.state();
        let at = state.seats.get(&seat).map_or(0, |seat| seat.at);
        if at < state.kept.min(state.tail_at) {
            let Some(frames) = state.frames.clone() else { return Poll::Ready(Found::Gone) };
            let (number, frame) = (at / FRAME as u64, FRAME as u64);
            let length = usize::try_from((state.kept - number * frame).min(frame)).unwrap_or(FRAME);
            let skip = usize::try_from(at % frame).unwrap_or_default();
            return Poll::Ready(Found::Frame { frames, number, length, skip });
        }
        let Some(into) = at.checked_sub(state.tail_at) else { return Poll::Ready(Found::Gone) };
        let left = usize::try_from(into).ok().and_then(|into| state.tail.get(into..)).unwrap_or_default();
        if !left.is_empty() {
            let bytes = Bytes::copy_from_slice(left);
            state.advance(seat, bytes.len());
            return Poll::Ready(Found::Bytes(bytes));
        }
        match state.end {
            Some(End::Complete) => Poll::Ready(Found::End),
            Some(End::Broken) => Poll::Ready(Found::Gone),
            None => state.wait(cx, seat),
        }
    }

    /// The reader has read so many bytes from the file.
    pub(super) fn advance(&self, seat: u64, by: usize) {
        self.state().advance(seat, by);
    }
}

// === impl State ===

impl State {
    fn has_gap(&self) -> bool {
        self.kept < self.tail_at
    }

    fn length(&self) -> u64 {
        self.tail_at + self.tail.len() as u64
    }

    fn advance(&mut self, seat: u64, by: usize) {
        if let Some(seat) = self.seats.get_mut(&seat) {
            seat.at += by as u64;
        }
        self.wake_writer();
    }

    fn wait<T>(&mut self, cx: &Context<'_>, seat: u64) -> Poll<T> {
        if let Some(seat) = self.seats.get_mut(&seat) {
            seat.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    fn wake_readers(&mut self) {
        self.seats.values_mut().filter_map(|seat| seat.waker.take()).for_each(Waker::wake);
    }

    fn wake_writer(&mut self) {
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }
}
