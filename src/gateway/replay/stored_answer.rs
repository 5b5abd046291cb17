//! One answer, written once and read by any number of readers, each at its own pace.
//!
//! Complete frames are in a file. The incomplete last frame, the tail, is in memory, once for all readers. If no file
//! can be created or written, for example because the disk is full, each further frame is passed on from memory
//! instead: the next frame begins when all readers have read the current frame. Present readers then still get the
//! whole answer, unless they take longer than [`READER_WAIT_MAX`] for a frame; a later repeat does not get it. The rest
//! of an answer for which disk space was reserved stays in memory instead
//! ([`UnstoredAnswers`](super::unstored_answers::UnstoredAnswers)).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::answer_head::AnswerHead;
use super::disk_budget::DiskReservation;
use super::sealed_file::{FRAME_BYTES, SealedFile};

/// The longest wait for the readers of one frame if frames are passed on from memory (our choice). A slower reader is
/// cut off.
const READER_WAIT_MAX: Duration = Duration::from_secs(60);
/// The most bytes that a reader copies from memory at once (our choice).
const PIECE_MAX_BYTES: usize = 1024 * 1024;

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
    /// The number of bytes of the answer that are in the file. Until the end of the answer, the file has only complete
    /// frames.
    bytes_in_file: u64,
    /// The frame in memory, or all of a small answer that has no file.
    tail: Vec<u8>,
    /// The offset of the tail in the answer. If it is greater than `bytes_in_file`, the bytes between the two were only
    /// passed on from memory: the answer has a gap.
    tail_offset: u64,
    end: Option<StoredAnswerEnd>,
    /// True if the answer is not stored, or not all of it: no later request can get it.
    is_unstored: bool,
    readers: HashMap<u64, ReaderPosition>,
    next_reader_id: u64,
    writer_waker: Option<Waker>,
    /// The reserved disk space, until the folder takes it over.
    reservation: Option<DiskReservation>,
    /// The reserved memory, if the rest of the answer is in memory.
    memory: Option<DiskReservation>,
}

/// The position of one reader.
#[derive(Default)]
struct ReaderPosition {
    offset: u64,
    /// True if the reader must be able to read from the beginning again ([`StoredAnswer::make_restartable`]).
    is_restartable: bool,
    waker: Option<Waker>,
}

/// The next part for a reader.
pub(super) enum AnswerChunk {
    /// Bytes from memory.
    Bytes(Bytes),
    /// The frame with this number, to be read from the file: `length` bytes, of which the reader has already read the
    /// first `skip`.
    Frame { frames: Arc<SealedFile>, number: u64, length: usize, skip: usize },
    /// The end of a complete answer.
    End,
    /// The answer broke off, or this reader can no longer get the rest of it.
    BrokenOff,
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

    /// Sets a small, complete answer in memory, unless the answer has already begun or ended.
    pub(super) fn set_complete(&self, head: AnswerHead, bytes: Bytes) {
        let mut state = self.state();
        if state.head.is_none() && state.end.is_none() {
            state.head = Some(head);
            state.tail = bytes.into();
            state.end = Some(StoredAnswerEnd::Complete);
            state.wake_readers();
        }
    }

    /// Sets the head and the file, if there is one.
    pub(super) fn begin(&self, head: AnswerHead, frames: Option<Arc<SealedFile>>) {
        let mut state = self.state();
        state.head = Some(head);
        state.is_unstored = frames.is_none();
        state.frames = frames;
        state.wake_readers();
    }

    /// Records that no reader that comes later can have the whole answer.
    pub(super) fn mark_unstored(&self) {
        let mut state = self.state();
        state.is_unstored = true;
        state.wake_readers();
    }

    /// Sets the end, unless it was set already.
    pub(super) fn end(&self, end: StoredAnswerEnd) {
        let mut state = self.state();
        state.end.get_or_insert(end);
        state.wake_readers();
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
        let offset = state.readers.get(&reader_id)?.offset;
        (state.end == Some(StoredAnswerEnd::Complete)).then(|| state.length().saturating_sub(offset))
    }

    /// Appends as many bytes as fit into the tail. Returns the remaining bytes, and true if the tail is a full frame.
    pub(super) fn append<'a>(&self, bytes: &'a [u8]) -> (&'a [u8], bool) {
        let mut state = self.state();
        let (fitting, remaining) = bytes.split_at(bytes.len().min(FRAME_BYTES.saturating_sub(state.tail.len())));
        state.tail.extend_from_slice(fitting);
        state.wake_readers();
        (remaining, state.tail.len() >= FRAME_BYTES)
    }

    /// Keeps all that follows in memory, within the reservation. The answer has no gap then.
    pub(super) fn add_memory(&self, reservation: DiskReservation) {
        let mut state = self.state();
        match &mut state.memory {
            Some(existing) => existing.merge(reservation),
            none => *none = Some(reservation),
        }
    }

    /// Returns the bytes that the tail may still take within the reserved memory; `None` if none is reserved.
    pub(super) fn free_memory(&self) -> Option<u64> {
        let state = self.state();
        let reserved = state.memory.as_ref()?.bytes();
        Some(reserved.saturating_sub(state.tail.len() as u64))
    }

    /// Appends bytes to the tail in memory.
    pub(super) fn append_in_memory(&self, bytes: &[u8]) {
        let mut state = self.state();
        state.tail.extend_from_slice(bytes);
        state.wake_readers();
    }

    /// Returns a copy of the tail, to be written to the file.
    pub(super) fn tail(&self) -> Vec<u8> {
        let state = self.state();
        // The extra capacity is for the tag that sealing adds.
        let mut frame = Vec::with_capacity(state.tail.len() + 64);
        frame.extend_from_slice(&state.tail);
        frame
    }

    /// Records that the tail was written to the file. A full frame is removed from memory; an incomplete last frame
    /// stays in memory too.
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

    /// Takes the reserved disk space, for the folder that manages the file from now on.
    pub(super) fn take_reservation(&self) -> Option<DiskReservation> {
        self.state().reservation.take()
    }

    /// Drops the tail when all readers have read it, or after `READER_WAIT_MAX`.
    pub(super) async fn discard_tail_when_read(&self) {
        let all_readers = std::future::poll_fn(|cx| self.poll_all_readers(cx));
        if tokio::time::timeout(READER_WAIT_MAX, all_readers).await.is_err() {
            tracing::warn!("an answer that is not on disk continues without its slow readers");
        }
        let mut state = self.state();
        state.tail_offset += state.tail.len() as u64;
        state.tail.clear();
        state.memory = None;
    }

    fn poll_all_readers(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let (has_gap, length) = (state.has_gap(), state.length());
        // A reader whose position is before the gap can never read beyond it.
        let is_cut_off = |offset: u64| has_gap && offset < state.tail_offset;
        if state.readers.values().all(|reader| reader.offset >= length || is_cut_off(reader.offset)) {
            return Poll::Ready(());
        }
        state.writer_waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Adds a reader at the beginning of the answer, and returns its id.
    pub(super) fn add_reader(&self) -> u64 {
        let mut state = self.state();
        let reader_id = state.next_reader_id;
        state.next_reader_id += 1;
        state.readers.insert(reader_id, ReaderPosition::default());
        reader_id
    }

    /// Lets the reader read only bytes that it can read again: those in the file and, after the end of the answer, those
    /// in memory. If the answer cannot be stored, [`StoredAnswer::poll_next`] returns [`AnswerChunk::BrokenOff`] to it, and
    /// the other bytes wait for [`StoredAnswer::restart_reader`].
    pub(super) fn make_restartable(&self, reader_id: u64) {
        if let Some(reader) = self.state().readers.get_mut(&reader_id) {
            reader.is_restartable = true;
        }
    }

    /// Moves the reader to the beginning of the answer. From there it reads like any other reader.
    pub(super) fn restart_reader(&self, reader_id: u64) {
        self.state().readers.insert(reader_id, ReaderPosition::default());
    }

    /// True if the answer broke off.
    pub(super) fn is_broken(&self) -> bool {
        self.state().end == Some(StoredAnswerEnd::Broken)
    }

    /// True if a reader gets the answer as it comes.
    pub(super) fn has_readers(&self) -> bool {
        !self.state().readers.is_empty()
    }

    /// Removes a reader.
    pub(super) fn remove_reader(&self, reader_id: u64) {
        let mut state = self.state();
        state.readers.remove(&reader_id);
        state.wake_writer();
    }

    /// Returns the head, as soon as it is known; `None` if the answer ended without a head.
    pub(super) fn poll_head(&self, cx: &Context<'_>, reader_id: u64) -> Poll<Option<AnswerHead>> {
        let mut state = self.state();
        match (&state.head, state.end) {
            (Some(head), _) => Poll::Ready(Some(head.clone())),
            (None, Some(_)) => Poll::Ready(None),
            (None, None) => state.wait_reader(cx, reader_id),
        }
    }

    /// Returns the next bytes for the reader, as soon as there are any.
    pub(super) fn poll_next(&self, cx: &Context<'_>, reader_id: u64) -> Poll<AnswerChunk> {
        let mut state = self.state();
        let (offset, is_restartable) =
            state.readers.get(&reader_id).map_or((0, false), |reader| (reader.offset, reader.is_restartable));
        if offset < state.bytes_in_file.min(state.tail_offset) {
            let Some(frames) = state.frames.clone() else { return Poll::Ready(AnswerChunk::BrokenOff) };
            let frame_bytes = FRAME_BYTES as u64;
            let number = offset / frame_bytes;
            let length = (state.bytes_in_file - number * frame_bytes).min(frame_bytes);
            let length = usize::try_from(length).unwrap_or(FRAME_BYTES);
            let skip = usize::try_from(offset % frame_bytes).unwrap_or_default();
            return Poll::Ready(AnswerChunk::Frame { frames, number, length, skip });
        }
        if is_restartable && state.end.is_none() {
            return if state.is_unstored {
                Poll::Ready(AnswerChunk::BrokenOff)
            } else {
                state.wait_reader(cx, reader_id)
            };
        }
        let Some(position) = offset.checked_sub(state.tail_offset) else { return Poll::Ready(AnswerChunk::BrokenOff) };
        let unread = usize::try_from(position).ok().and_then(|position| state.tail.get(position..)).unwrap_or_default();
        if !unread.is_empty() {
            let bytes = Bytes::copy_from_slice(&unread[..unread.len().min(PIECE_MAX_BYTES)]);
            state.advance(reader_id, bytes.len());
            return Poll::Ready(AnswerChunk::Bytes(bytes));
        }
        match state.end {
            Some(StoredAnswerEnd::Complete) => Poll::Ready(AnswerChunk::End),
            Some(StoredAnswerEnd::Broken) => Poll::Ready(AnswerChunk::BrokenOff),
            None => state.wait_reader(cx, reader_id),
        }
    }

    /// Records that the reader has read this number of bytes from the file.
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

    fn advance(&mut self, reader_id: u64, by: usize) {
        if let Some(reader) = self.readers.get_mut(&reader_id) {
            reader.offset += by as u64;
        }
        self.wake_writer();
    }

    fn wait_reader<T>(&mut self, cx: &Context<'_>, reader_id: u64) -> Poll<T> {
        if let Some(reader) = self.readers.get_mut(&reader_id) {
            reader.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    fn wake_readers(&mut self) {
        self.readers.values_mut().filter_map(|reader| reader.waker.take()).for_each(Waker::wake);
    }

    fn wake_writer(&mut self) {
        if let Some(waker) = self.writer_waker.take() {
            waker.wake();
        }
    }
}
