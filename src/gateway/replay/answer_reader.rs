//! Reads a stored answer, complete or not.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;

use super::answer_head::AnswerHead;
use super::stored_answer::{AnswerChunk, StoredAnswer};
use crate::gateway::admission::{Admission, DeliveryReport};
use crate::gateway::store::{ReplayClaim, RequestId, Timestamp};

/// The answer has no head, or is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored answer is incomplete")]
pub(crate) struct AnswerReaderError;

/// The status of an answer that is no error.
const OK: u16 = 200;

/// The id of a stored answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AnswerId {
    /// The scope, which no other answer has at the same time.
    pub(crate) scope: [u8; 32],
    /// The request that ran the job, and whose record states the outcome. A later request may have the same scope.
    pub(crate) request_id: RequestId,
}

/// A stored answer, as the caller of its request, a page, a tool or a link finds it.
pub(crate) struct AnswerView {
    /// The id, under which [`super::AnswerStore::find_stored_answer`] finds the answer.
    pub(crate) id: AnswerId,
    /// The time from which the answer is not kept.
    pub(crate) stored_until: Timestamp,
    /// True if the answer was not complete when it was looked up. It never is if the process that made it has died.
    pub(crate) is_running: bool,
    /// The answer with its head; `None` if it is not complete, or cannot be read any more.
    pub(crate) answer: Option<(AnswerHead, AnswerReader)>,
}

/// One reader of an answer, from its beginning.
pub(crate) struct AnswerReader {
    answer: Arc<StoredAnswer>,
    reader_id: u64,
    ended: bool,
    /// A frame that is being read on a blocking thread, and the number of its first bytes that were already delivered.
    reading: Option<(JoinHandle<io::Result<Vec<u8>>>, usize)>,
    /// Called when the reader is dropped.
    on_leave: Option<LeaveCallback>,
    /// The request whose connection tells if its caller has received what was read; `None` if the caller has what it reads.
    admission: Option<Admission>,
    /// True if the caller does not get the answer, although the reader may have read all of it.
    is_undelivered: bool,
    /// The id of the answer, if it has one.
    id: Option<AnswerId>,
}

/// Called with true if the reader has read all of the answer.
pub(super) type LeaveCallback = Box<dyn FnOnce(bool) + Send + Sync>;

// === impl AnswerId ===

impl From<&ReplayClaim> for AnswerId {
    fn from(claim: &ReplayClaim) -> Self {
        Self { scope: claim.scope, request_id: claim.request_id.clone() }
    }
}

// === impl AnswerView ===

impl AnswerView {
    /// True if the answer is kept and is no error.
    pub(crate) fn is_successful(&self) -> bool {
        self.answer.as_ref().is_some_and(|(head, _)| head.status == OK)
    }
}

// === impl AnswerReader ===

impl AnswerReader {
    pub(super) fn new(answer: &Arc<StoredAnswer>) -> Self {
        let reader_id = answer.add_reader();
        Self {
            answer: Arc::clone(answer),
            reader_id,
            ended: false,
            reading: None,
            on_leave: None,
            admission: None,
            is_undelivered: false,
            id: None,
        }
    }

    pub(super) fn with_leave_callback(answer: &Arc<StoredAnswer>, on_leave: LeaveCallback) -> Self {
        let mut reader = Self::new(answer);
        reader.on_leave = Some(on_leave);
        reader
    }

    /// Keeps the beginning of the answer readable: if the answer cannot be stored, reading it fails before any of its
    /// bytes are lost, and [`AnswerReader::restart`] reads all of it. Until [`AnswerReader::note_delivered`], the answer
    /// counts as not read, because its caller does not have what is made of it.
    pub(crate) fn make_restartable(&mut self) {
        self.is_undelivered = true;
        self.answer.make_restartable(self.reader_id);
    }

    /// Leaves as a reader that has read all of the answer, if it has.
    pub(crate) fn note_delivered(mut self) {
        self.is_undelivered = false;
    }

    /// Returns a reader of the same answer from its beginning, which is not restartable. It gets the whole answer if this
    /// reader was made restartable before it was read, even if the answer is not stored.
    pub(crate) fn restart(mut self) -> Self {
        self.answer.restart_reader(self.reader_id);
        self.is_undelivered = false;
        self.ended = false;
        self.reading = None;
        self
    }

    /// True if the answer broke off, so that nobody can read all of it.
    pub(crate) fn is_broken(&self) -> bool {
        self.answer.is_broken()
    }

    /// Leaves the report of the delivery to the connection of this request.
    pub(crate) fn for_request(mut self, admission: &Admission) -> Self {
        self.admission = Some(admission.clone());
        self
    }

    /// Sets the id of the answer.
    pub(super) fn with_id(mut self, id: AnswerId) -> Self {
        self.id = Some(id);
        self
    }

    /// Returns the id of the answer; `None` if it is an error that is only remembered.
    pub(crate) const fn id(&self) -> Option<&AnswerId> {
        self.id.as_ref()
    }

    /// Returns a reader of a small, complete answer.
    #[cfg(test)]
    pub(crate) fn from_bytes(head: &AnswerHead, bytes: Bytes) -> Self {
        Self::new(&Arc::new(StoredAnswer::from_bytes(head.clone(), bytes)))
    }

    fn take_frame(&mut self, frame: io::Result<Vec<u8>>, skip: usize) -> Result<Frame<Bytes>, AnswerReaderError> {
        let frame = frame.map_err(|error| {
            tracing::error!(%error, "a stored answer cannot be read");
            self.ended = true;
            AnswerReaderError
        })?;
        let bytes = Bytes::from(frame).split_off(skip);
        self.answer.advance(self.reader_id, bytes.len());
        Ok(Frame::data(bytes))
    }

    /// Waits for the head.
    ///
    /// # Errors
    ///
    /// Returns an error if the job ended without a head, so that its outcome is unknown: it may have been charged.
    pub(crate) async fn head(&self) -> Result<AnswerHead, AnswerReaderError> {
        std::future::poll_fn(|cx| self.answer.poll_head(cx, self.reader_id)).await.ok_or(AnswerReaderError)
    }
}

impl Body for AnswerReader {
    type Data = Bytes;
    type Error = AnswerReaderError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerReaderError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        loop {
            if let Some((reading, skip)) = &mut self.reading {
                let (frame, skip) = (ready!(Pin::new(reading).poll(cx)), *skip);
                self.reading = None;
                return Poll::Ready(Some(self.take_frame(frame.map_err(io::Error::other).flatten(), skip)));
            }
            match ready!(self.answer.poll_next(cx, self.reader_id)) {
                AnswerChunk::Bytes(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                AnswerChunk::Frame { frames, number, length, skip } => {
                    let reading = tokio::task::spawn_blocking(move || frames.read(number, length));
                    self.reading = Some((reading, skip));
                }
                AnswerChunk::End => {
                    self.ended = true;
                    return Poll::Ready(None);
                }
                AnswerChunk::Lost => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(AnswerReaderError)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    /// The size is exact if the answer is complete, so that the response has a `content-length`.
    fn size_hint(&self) -> SizeHint {
        match self.answer.remaining_bytes(self.reader_id) {
            Some(remaining) => SizeHint::with_exact(remaining),
            None => SizeHint::default(),
        }
    }
}

impl Drop for AnswerReader {
    fn drop(&mut self) {
        let has_read_all = !self.is_undelivered && self.answer.remaining_bytes(self.reader_id) == Some(0);
        self.answer.remove_reader(self.reader_id);
        if let Some(on_leave) = self.on_leave.take() {
            match self.admission.take().filter(|_| has_read_all) {
                Some(admission) => admission.defer_delivery(DeliveryReport::new(on_leave)),
                None => on_leave(has_read_all),
            }
        }
    }
}
