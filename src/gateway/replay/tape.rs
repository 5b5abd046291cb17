//! One answer, written once and read by any number of readers, each at its own pace.
//!
//! Complete frames are in a file; an incomplete frame is in memory, once for all readers. If the disk is full, or the
//! answer has no space, each frame is passed on from memory instead: the next one begins when all readers have this
//! one. A follower thus gets the answer that was paid for, whatever the disk does; only a later repeat does not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::frames::{FRAME, SealedFile};
use super::head::AnswerHead;
use super::room::DiskReservation;

/// The longest wait for a reader if frames are passed on from memory; a slower reader is cut off.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer that is being written, or that is complete.
#[derive(Default)]
pub(super) struct StoredAnswer(Mutex<StoredAnswerState>);

/// The end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredAnswerEnd {
    /// The answer is complete.
    Complete,
    /// The answer broke off.
    Broken,
}

#[derive(Default)]
struct StoredAnswerState {
    head: Option<AnswerHead>,
    frames: Option<Arc<SealedFile>>,
    /// The number of bytes in the file: complete frames, until the end.
    kept: u64,
    tail: Vec<u8>,
    /// The offset at which the tail begins. It may be greater than `kept`: the bytes in between were passed on from
    /// memory.
    tail_at: u64,
    end: Option<StoredAnswerEnd>,
    seats: HashMap<u64, ReaderPosition>,
    next_seat: u64,
    writer: Option<Waker>,
    /// The reserved disk space, as long as the answer has a holder.
    reserved: Option<DiskReservation>,
}

/// The position of one reader.
#[derive(Default)]
struct ReaderPosition {
    at: u64,
    waker: Option<Waker>,
}

/// The next part for a reader.
pub(super) enum AnswerChunk {
    /// Bytes from memory.
    Bytes(Bytes),
    /// A frame of the file, of this length.
    Frame { frames: Arc<SealedFile>, number: u64, length: usize, skip: usize },
    /// The end of a complete answer.
    End,
    /// The rest of the answer is lost.
    Gone,
}

// === impl StoredAnswer ===

impl StoredAnswer {
    /// Returns an answer that is completely in a file.
    pub(super) fn from_file(head: AnswerHead, frames: SealedFile, size: u64) -> Self {
        Self(Mutex::new(StoredAnswerState {
            head: Some(head),
            frames: Some(Arc::new(frames)),
            kept: size,
            tail_at: size,
            end: Some(StoredAnswerEnd::Complete),
            ..StoredAnswerState::default()
        }))
    }

    /// Returns a small answer in memory.
    pub(super) fn from_bytes(head: AnswerHead, bytes: Bytes) -> Self {
        let tape = Self::default();
        tape.speak(head, bytes);
        tape
    }

    fn state(&self) -> MutexGuard<'_, StoredAnswerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a small, complete answer in memory, unless one was begun already.
    pub(super) fn speak(&self, head: AnswerHead, bytes: Bytes) {
        let mut state = self.state();
        if state.head.is_none() && state.end.is_none() {
            state.head = Some(head);
            state.tail = bytes.into();
            state.end = Some(StoredAnswerEnd::Complete);
            state.wake_readers();
        }
    }

    pub(super) fn begin(&self, head: AnswerHead, frames: Option<Arc<SealedFile>>) {
        let mut state = self.state();
        state.head = Some(head);
        state.frames = frames;
        state.wake_readers();
    }

    /// Sets the end, unless it was set already.
    pub(super) fn end(&self, end: StoredAnswerEnd) {
        let mut state = self.state();
        state.end.get_or_insert(end);
        state.wake_readers();
    }

    /// Returns the file of the answer, if it has one.
    pub(super) fn frames(&self) -> Option<Arc<SealedFile>> {
        self.state().frames.clone()
    }

    /// True if a part of the answer is lost already, so that no new reader can have all of it.
    pub(super) fn has_gap(&self) -> bool {
        self.state().has_gap()
    }

    /// Returns the number of bytes of the answer so far.
    pub(super) fn length(&self) -> u64 {
        self.state().length()
    }

    /// Returns the number of bytes that the reader has not read yet, if the answer is complete.
    pub(super) fn left(&self, seat: u64) -> Option<u64> {
        let state = self.state();
        let at = state.seats.get(&seat)?.at;
        (state.end == Some(StoredAnswerEnd::Complete)).then(|| state.length().saturating_sub(at))
    }

    /// Appends as many bytes as the frame can hold, and returns the rest, and true if the frame is full.
    pub(super) fn append<'a>(&self, bytes: &'a [u8]) -> (&'a [u8], bool) {
        let mut state = self.state();
        let (now, later) = bytes.split_at(bytes.len().min(FRAME.saturating_sub(state.tail.len())));
        state.tail.extend_from_slice(now);
        state.wake_readers();
        (later, state.tail.len() >= FRAME)
    }

    /// Returns the frame in memory, for the file.
    pub(super) fn tail(&self) -> Vec<u8> {
        let state = self.state();
        // The capacity includes the seal.
        let mut frame = Vec::with_capacity(state.tail.len() + 64);
        frame.extend_from_slice(&state.tail);
        frame
    }

    /// Notes that the frame in memory is in the file too. An incomplete last frame stays in memory, because some
    /// readers may not have read it.
    pub(super) fn kept(&self, reserved: DiskReservation) {
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

    /// Returns the reserved disk space to the new holder of the file.
    pub(super) fn take_reserved(&self) -> Option<DiskReservation> {
        self.state().reserved.take()
    }

    /// Drops the frame in memory when all readers have it.
    pub(super) async fn hand_on(&self) {
        let everybody = std::future::poll_fn(|cx| self.poll_everybody(cx));
        if tokio::time::timeout(PATIENCE, everybody).await.is_err() {
            tracing::warn!("an answer that is not on disk continues without its slowest reader");
        }
        let mut state = self.state();
        state.tail_at += state.tail.len() as u64;
        state.tail.clear();
    }

    fn poll_everybody(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let (gap, length) = (state.has_gap(), state.length());
        // A reader before the gap can never get past it.
        let cut_off = |at: u64| gap && at < state.tail_at;
        if state.seats.values().all(|seat| seat.at >= length || cut_off(seat.at)) {
            return Poll::Ready(());
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Adds a reader at the beginning.
    pub(super) fn sit(&self) -> u64 {
        let mut state = self.state();
        let number = state.next_seat;
        state.next_seat += 1;
        state.seats.insert(number, ReaderPosition::default());
        number
    }

    /// Removes a reader.
    pub(super) fn leave(&self, seat: u64) {
        let mut state = self.state();
        state.seats.remove(&seat);
        state.wake_writer();
    }

    /// Returns the head, when it is there.
    pub(super) fn poll_head(&self, cx: &Context<'_>, seat: u64) -> Poll<Option<AnswerHead>> {
        let mut state = self.state();
        match (&state.head, state.end) {
            (Some(head), _) => Poll::Ready(Some(head.clone())),
            (None, Some(_)) => Poll::Ready(None),
            (None, None) => state.wait(cx, seat),
        }
    }

    /// Returns the next bytes, when they are there.
    pub(super) fn poll_next(&self, cx: &Context<'_>, seat: u64) -> Poll<AnswerChunk> {
        let mut state = self.state();
        let at = state.seats.get(&seat).map_or(0, |seat| seat.at);
        if at < state.kept.min(state.tail_at) {
            let Some(frames) = state.frames.clone() else { return Poll::Ready(AnswerChunk::Gone) };
            let (number, frame) = (at / FRAME as u64, FRAME as u64);
            let length = usize::try_from((state.kept - number * frame).min(frame)).unwrap_or(FRAME);
            let skip = usize::try_from(at % frame).unwrap_or_default();
            return Poll::Ready(AnswerChunk::Frame { frames, number, length, skip });
        }
        let Some(into) = at.checked_sub(state.tail_at) else { return Poll::Ready(AnswerChunk::Gone) };
        let left = usize::try_from(into).ok().and_then(|into| state.tail.get(into..)).unwrap_or_default();
        if !left.is_empty() {
            let bytes = Bytes::copy_from_slice(left);
            state.advance(seat, bytes.len());
            return Poll::Ready(AnswerChunk::Bytes(bytes));
        }
        match state.end {
            Some(StoredAnswerEnd::Complete) => Poll::Ready(AnswerChunk::End),
            Some(StoredAnswerEnd::Broken) => Poll::Ready(AnswerChunk::Gone),
            None => state.wait(cx, seat),
        }
    }

    /// Notes that the reader has read this number of bytes from the file.
    pub(super) fn advance(&self, seat: u64, by: usize) {
        self.state().advance(seat, by);
    }
}

// === impl StoredAnswerState ===

impl StoredAnswerState {
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
