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

use super::answer_head::AnswerHead;
use super::disk_budget::DiskReservation;
use super::sealed_file::{FRAME_BYTES, SealedFile};

/// The longest wait for a reader if frames are passed on from memory; a slower reader is cut off.
const READER_WAIT_MAX: Duration = Duration::from_secs(60);

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
    bytes_in_file: u64,
    tail: Vec<u8>,
    /// The offset at which the tail begins. It may be greater than `kept`: the bytes in between were passed on from
    /// memory.
    tail_offset: u64,
    end: Option<StoredAnswerEnd>,
    readers: HashMap<u64, ReaderPosition>,
    next_reader_id: u64,
    writer: Option<Waker>,
    /// The reserved disk space, as long as the answer has a holder.
    reservation: Option<DiskReservation>,
}

/// The position of one reader.
#[derive(Default)]
struct ReaderPosition {
    offset: u64,
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
    Lost,
}

// === impl StoredAnswer ===

impl StoredAnswer {
    /// Returns an answer that is completely in a file.
    pub(super) fn from_file(head: AnswerHead, frames: SealedFile, size: u64) -> Self {
        Self(Mutex::new(StoredAnswerState {
            head: Some(head),
            frames: Some(Arc::new(frames)),
            bytes_in_file: size,
            tail_offset: size,
            end: Some(StoredAnswerEnd::Complete),
            ..StoredAnswerState::default()
        }))
    }

    /// Returns a small answer in memory.
    pub(super) fn from_bytes(head: AnswerHead, bytes: Bytes) -> Self {
        let answer = Self::default();
        answer.set_complete(head, bytes);
        answer
    }

    fn state(&self) -> MutexGuard<'_, StoredAnswerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a small, complete answer in memory, unless one was begun already.
    pub(super) fn set_complete(&self, head: AnswerHead, bytes: Bytes) {
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
    pub(super) fn remaining_bytes(&self, reader_id: u64) -> Option<u64> {
        let state = self.state();
        let at = state.readers.get(&reader_id)?.offset;
        (state.end == Some(StoredAnswerEnd::Complete)).then(|| state.length().saturating_sub(at))
    }

    /// Appends as many bytes as the frame can hold, and returns the rest, and true if the frame is full.
    pub(super) fn append<'a>(&self, bytes: &'a [u8]) -> (&'a [u8], bool) {
        let mut state = self.state();
        let (now, later) = bytes.split_at(bytes.len().min(FRAME_BYTES.saturating_sub(state.tail.len())));
        state.tail.extend_from_slice(now);
        state.wake_readers();
        (later, state.tail.len() >= FRAME_BYTES)
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
    pub(super) fn note_tail_written(&self, reservation: DiskReservation) {
        let mut state = self.state();
        match &mut state.reservation {
            Some(existing) => existing.merge(reservation),
            none => *none = Some(reservation),
        }
        state.bytes_in_file += state.tail.len() as u64;
        if state.tail.len() >= FRAME_BYTES {
            state.tail.clear();
            state.tail_offset = state.bytes_in_file;
        }
    }

    /// Returns the reserved disk space to the new holder of the file.
    pub(super) fn take_reservation(&self) -> Option<DiskReservation> {
        self.state().reservation.take()
    }

    /// Drops the frame in memory when all readers have it.
    pub(super) async fn discard_tail_when_read(&self) {
        let all_readers = std::future::poll_fn(|cx| self.poll_all_readers(cx));
        if tokio::time::timeout(READER_WAIT_MAX, all_readers).await.is_err() {
            tracing::warn!("an answer that is not on disk continues without its slowest reader");
        }
        let mut state = self.state();
        state.tail_offset += state.tail.len() as u64;
        state.tail.clear();
    }

    fn poll_all_readers(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let (gap, length) = (state.has_gap(), state.length());
        // A reader before the gap can never get past it.
        let cut_off = |at: u64| gap && at < state.tail_offset;
        if state.readers.values().all(|seat| seat.offset >= length || cut_off(seat.offset)) {
            return Poll::Ready(());
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Adds a reader at the beginning.
    pub(super) fn add_reader(&self) -> u64 {
        let mut state = self.state();
        let number = state.next_reader_id;
        state.next_reader_id += 1;
        state.readers.insert(number, ReaderPosition::default());
        number
    }

    /// Removes a reader.
    pub(super) fn remove_reader(&self, reader_id: u64) {
        let mut state = self.state();
        state.readers.remove(&reader_id);
        state.wake_writer();
    }

    /// Returns the head, when it is there.
    pub(super) fn poll_head(&self, cx: &Context<'_>, reader_id: u64) -> Poll<Option<AnswerHead>> {
        let mut state = self.state();
        match (&state.head, state.end) {
            (Some(head), _) => Poll::Ready(Some(head.clone())),
            (None, Some(_)) => Poll::Ready(None),
            (None, None) => state.wait_reader(cx, reader_id),
        }
    }

    /// Returns the next bytes, when they are there.
    pub(super) fn poll_next(&self, cx: &Context<'_>, reader_id: u64) -> Poll<AnswerChunk> {
        let mut state = self.state();
        let at = state.readers.get(&reader_id).map_or(0, |seat| seat.offset);
        if at < state.bytes_in_file.min(state.tail_offset) {
            let Some(frames) = state.frames.clone() else { return Poll::Ready(AnswerChunk::Lost) };
            let (number, frame) = (at / FRAME_BYTES as u64, FRAME_BYTES as u64);
            let length = usize::try_from((state.bytes_in_file - number * frame).min(frame)).unwrap_or(FRAME_BYTES);
            let skip = usize::try_from(at % frame).unwrap_or_default();
            return Poll::Ready(AnswerChunk::Frame { frames, number, length, skip });
        }
        let Some(into) = at.checked_sub(state.tail_offset) else { return Poll::Ready(AnswerChunk::Lost) };
        let left = usize::try_from(into).ok().and_then(|into| state.tail.get(into..)).unwrap_or_default();
        if !left.is_empty() {
            let bytes = Bytes::copy_from_slice(left);
            state.advance(reader_id, bytes.len());
            return Poll::Ready(AnswerChunk::Bytes(bytes));
        }
        match state.end {
            Some(StoredAnswerEnd::Complete) => Poll::Ready(AnswerChunk::End),
            Some(StoredAnswerEnd::Broken) => Poll::Ready(AnswerChunk::Lost),
            None => state.wait_reader(cx, reader_id),
        }
    }

    /// Notes that the reader has read this number of bytes from the file.
    pub(super) fn advance(&self, reader_id: u64, by: usize) {
        self.state().advance(reader_id, by);
    }
}

// === impl StoredAnswerState ===

impl StoredAnswerState {
    fn has_gap(&self) -> bool {
        self.bytes_in_file < self.tail_offset
    }

    fn length(&self) -> u64 {
        self.tail_offset + self.tail.len() as u64
    }

    fn advance(&mut self, seat: u64, by: usize) {
        if let Some(seat) = self.readers.get_mut(&seat) {
            seat.offset += by as u64;
        }
        self.wake_writer();
    }

    fn wait_reader<T>(&mut self, cx: &Context<'_>, reader_id: u64) -> Poll<T> {
        if let Some(seat) = self.readers.get_mut(&reader_id) {
            seat.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    fn wake_readers(&mut self) {
        self.readers.values_mut().filter_map(|seat| seat.waker.take()).for_each(Waker::wake);
    }

    fn wake_writer(&mut self) {
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }
}
