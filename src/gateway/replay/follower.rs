//! Reads an answer: one that is being written, or one that was.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;

use super::head::Head;
use super::tape::{Found, Tape};

/// The answer will not come, or not to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer that was followed broke off")]
pub(crate) struct Broken;

/// One reader of an answer, from its beginning.
pub(crate) struct Follower {
    tape: Arc<Tape>,
    seat: u64,
    ended: bool,
    /// A frame that is being read on a thread that may block, and the number of its bytes that were delivered before.
    reading: Option<(JoinHandle<io::Result<Vec<u8>>>, usize)>,
    /// Told at the end whether everything was read.
    on_leave: Option<OnLeave>,
}

/// Told whether everything was read.
pub(super) type OnLeave = Box<dyn FnOnce(bool) + Send + Sync>;

// === impl Follower ===

impl Follower {
    pub(super) fn of(tape: &Arc<Tape>) -> Self {
        Self { tape: Arc::clone(tape), seat: tape.sit(), ended: false, reading: None, on_leave: None }
    }

    pub(super) fn told(tape: &Arc<Tape>, on_leave: OnLeave) -> Self {
        let mut follower = Self::of(tape);
        follower.on_leave = Some(on_leave);
        follower
    }

    /// A reader of a small answer that is whole.
    #[cfg(test)]
    pub(crate) fn of_whole(head: &Head, bytes: Bytes) -> Self {
        Self::of(&Arc::new(Tape::from_bytes(head.clone(), bytes)))
    }

    fn take_frame(&mut self, frame: io::Result<Vec<u8>>, skip: usize) -> Result<Frame<Bytes>, Broken> {
        let frame = frame.map_err(|error| {
            tracing::error!(%error, "a kept answer cannot be read");
            self.ended = true;
            Broken
        })?;
        let bytes = Bytes::from(frame).split_off(skip);
        self.tape.advance(self.seat, bytes.len());
        Ok(Frame::data(bytes))
    }

    /// Waits for the head.
    ///
    /// # Errors
    ///
    /// Where nobody will say what became of the job: it may have been paid for.
    pub(crate) async fn head(&self) -> Result<Head, Broken> {
        std::future::poll_fn(|cx| self.tape.poll_head(cx, self.seat)).await.ok_or(Broken)
    }
}

impl Body for Follower {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        loop {
            if let Some((reading, skip)) = &mut self.reading {
                let (frame, skip) = (ready!(Pin::new(reading).poll(cx)), *skip);
                self.reading = None;
                return Poll::Ready(Some(self.take_frame(frame.map_err(io::Error::other).flatten(), skip)));
            }
            match ready!(self.tape.poll_next(cx, self.seat)) {
                Found::Bytes(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Found::Frame { frames, number, length, skip } => {
                    let reading = tokio::task::spawn_blocking(move || frames.read(number, length));
                    self.reading = Some((reading, skip));
                }
                Found::End => {
                    self.ended = true;
                    return Poll::Ready(None);
                }
                Found::Gone => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(Broken)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    /// Exact where the answer is whole, so that it has a length on the wire.
    fn size_hint(&self) -> SizeHint {
        match self.tape.left(self.seat) {
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let whole = self.tape.left(self.seat) == Some(0);
        self.tape.leave(self.seat);
        if let Some(on_leave) = self.on_leave.take() {
            on_leave(whole);
        }
    }
}
