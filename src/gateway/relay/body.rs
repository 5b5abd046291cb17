//! The body of the answer to the caller. The upstream's body is read only when the caller's connection polls this body.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::answer_relay::{AnswerSource, RelayStep};
use super::event::AnswerSummary;
use super::pace::Pace;
use super::proof::ProvenAnswer;
use super::relay_error::RelayError;
use crate::tables::HEARTBEAT_SECONDS;

/// The way in which an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelayOutcome {
    /// The answer is complete, and the caller stayed to the end.
    Complete,
    /// The caller left before the end, or was disconnected because it read too slowly.
    CallerLeft,
    /// The answer broke off.
    Broken(RelayError),
}

/// Work that is completed before the caller sees the end of the answer.
pub(crate) type ClosingFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Called once with the outcome of the answer.
pub(crate) type EndCallback = Box<dyn FnOnce(RelayOutcome, AnswerSummary) -> ClosingFuture + Send>;

/// The body of the answer to the caller.
///
/// If the caller of a plain answer leaves, the upstream's answer is still read to its end: it is paid for, and it is
/// recorded. If the caller of a stream leaves, the connection to the upstream is closed. Of the streams, only an image
/// stream whose caller was too slow is read to its end.
pub(crate) struct RelayBody {
    state: RelayBodyState,
    on_end: Option<EndCallback>,
    /// Makes the data of the error event that ends a stream whose answer breaks off.
    error_event: fn() -> String,
    heartbeat: Pin<Box<Sleep>>,
    /// The time at which the last piece was handed over. The timer of the heartbeat is set again only when it fires.
    silent_since: Instant,
    /// Resolves when the answer must end because the process stops.
    cutoff: Option<CutoffFuture>,
    pace: Pace,
}

type CutoffFuture = Pin<Box<WaitForCancellationFutureOwned>>;

enum RelayBodyState {
    Relaying(Box<dyn AnswerSource>),
    /// Nothing more is read from the upstream; the last bytes wait until the record is closed.
    Closing(ClosingFuture, Result<Bytes, RelayError>),
    Ended,
}

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(HEARTBEAT_SECONDS);

// === impl RelayBody ===

impl RelayBody {
    /// Makes a body that calls `on_end` with its outcome, and completes the future that `on_end` returns before the
    /// caller sees the end. `error_event` makes the data of the error event that ends a stream whose answer breaks off.
    pub(crate) fn new(proven: ProvenAnswer, error_event: fn() -> String, on_end: EndCallback) -> Self {
        Self {
            state: RelayBodyState::Relaying(proven.source),
            on_end: Some(on_end),
            error_event,
            heartbeat: Box::pin(tokio::time::sleep(HEARTBEAT_INTERVAL)),
            silent_since: Instant::now(),
            cutoff: None,
            pace: Pace::default(),
        }
    }

    /// Ends the body early if `cutoff` is cancelled: with an event in a stream, otherwise by breaking off.
    pub(crate) fn with_cutoff(mut self, cutoff: &CancellationToken) -> Self {
        self.cutoff = Some(Box::pin(cutoff.clone().cancelled_owned()));
        self
    }

    /// True if all bytes have arrived, and the body only waits until its record is closed.
    pub(crate) const fn is_closing(&self) -> bool {
        matches!(self.state, RelayBodyState::Closing(..))
    }

    fn start_closing(&mut self, outcome: RelayOutcome, summary: AnswerSummary, last_piece: Result<Bytes, RelayError>) {
        let closing: ClosingFuture = match self.on_end.take() {
            Some(on_end) => on_end(outcome, summary),
            None => Box::pin(std::future::ready(())),
        };
        self.state = RelayBodyState::Closing(closing, last_piece);
    }

    /// Records that the caller polls again, and extends the deadlines of the upstream by the time during which the
    /// caller did not read. Returns true if the caller is fast enough, or if nothing more is read from the upstream.
    fn note_caller_return(&mut self) -> bool {
        let absence = self.pace.end_wait(Instant::now(), Duration::MAX);
        let RelayBodyState::Relaying(relay) = &mut self.state else { return true };
        relay.extend_deadlines(absence);
        !self.pace.is_too_slow()
    }

    fn note_piece(&mut self, piece: &Bytes) {
        self.silent_since = Instant::now();
        self.pace.add_bytes(piece.len());
        self.pace.begin_wait(self.silent_since);
    }

    /// Continues without the caller. If the caller of an image stream was too slow, the stream is read to its end,
    /// where the upstream reports the tokens.
    fn detach_caller(&mut self, is_too_slow: bool) {
        let state = std::mem::replace(&mut self.state, RelayBodyState::Ended);
        match (state, self.on_end.take()) {
            (RelayBodyState::Relaying(relay), Some(on_end)) if relay.stops_when_caller_leaves(is_too_slow) => {
                let summary = relay.summary();
                // The drop closes the connection to the upstream at once.
                drop(relay);
                spawn_detached(on_end(RelayOutcome::CallerLeft, summary));
            }
            (RelayBodyState::Relaying(relay), Some(on_end)) => {
                spawn_detached(Box::pin(read_to_end(relay, self.cutoff.take(), on_end)));
            }
            // Nothing more is read. The record is closed even though the caller has left.
            (RelayBodyState::Closing(closing, _), _) => spawn_detached(closing),
            (RelayBodyState::Relaying(_) | RelayBodyState::Ended, _) => {}
        }
    }

    /// Returns the next piece; `None` if only the state has changed.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let RelayBodyState::Relaying(relay) = &mut self.state else { return Poll::Ready(None) };
        let is_cut_off = self.cutoff.as_mut().is_some_and(|cutoff| cutoff.as_mut().poll(cx).is_ready());
        let step = if is_cut_off { Poll::Ready(Err(RelayError::Cutoff)) } else { relay.poll_step(cx) };
        match step {
            Poll::Ready(Ok(RelayStep::Piece(piece))) => return Poll::Ready(Some(piece)),
            Poll::Ready(Ok(RelayStep::End(tail, summary))) => {
                self.start_closing(RelayOutcome::Complete, *summary, Ok(tail));
            }
            Poll::Ready(Err(error)) => {
                let (summary, last_piece) =
                    (relay.summary(), relay.finish_with_error(&(self.error_event)()).ok_or(error));
                self.start_closing(RelayOutcome::Broken(error), summary, last_piece);
            }
            Poll::Pending => {
                ready!(self.heartbeat.as_mut().poll(cx));
                let (now, due) = (Instant::now(), self.silent_since + HEARTBEAT_INTERVAL);
                let is_due = now >= due;
                self.heartbeat.as_mut().reset(if is_due { now + HEARTBEAT_INTERVAL } else { due });
                return Poll::Ready(relay.heartbeat().filter(|_| is_due));
            }
        }
        Poll::Ready(None)
    }
}

impl Body for RelayBody {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let this = &mut *self;
        if !this.note_caller_return() {
            tracing::warn!(
                "a caller reads its answer too slowly and is disconnected; only a streamed response is not read to its end"
            );
            this.detach_caller(true);
            return Poll::Ready(Some(Err(RelayError::CallerTooSlow)));
        }
        while let RelayBodyState::Relaying(_) = this.state {
            if let Some(piece) = ready!(this.poll_piece(cx)) {
                this.note_piece(&piece);
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
        }
        let RelayBodyState::Closing(closing, last_piece) = &mut this.state else { return Poll::Ready(None) };
        ready!(closing.as_mut().poll(cx));
        let last_piece = last_piece.clone();
        this.state = RelayBodyState::Ended;
        Poll::Ready(Some(last_piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, RelayBodyState::Ended)
    }
}

impl Drop for RelayBody {
    fn drop(&mut self) {
        self.detach_caller(false);
    }
}

/// Reads an answer to its end without a caller, so that its tokens are known.
async fn read_to_end(mut relay: Box<dyn AnswerSource>, cutoff: Option<CutoffFuture>, on_end: EndCallback) {
    let cutoff = async move {
        match cutoff {
            Some(cutoff) => cutoff.await,
            None => std::future::pending().await,
        }
    };
    let reading = async {
        loop {
            match std::future::poll_fn(|cx| relay.poll_step(cx)).await {
                Ok(RelayStep::Piece(_)) => {}
                Ok(RelayStep::End(_, summary)) => break Ok(*summary),
                Err(error) => break Err(error),
            }
        }
    };
    let result = tokio::select! {
        result = reading => result,
        () = cutoff => Err(RelayError::Cutoff),
    };
    let (outcome, summary) = match result {
        Ok(summary) => (RelayOutcome::CallerLeft, summary),
        Err(error) => (RelayOutcome::Broken(error), relay.summary()),
    };
    on_end(outcome, summary).await;
}

/// Runs `work` in a task of its own, because its connection is gone.
///
/// The work holds an open record, so a shutdown waits for it through the ledger. The timeouts of the answer limit its
/// duration.
fn spawn_detached(work: ClosingFuture) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(work));
    }
}

#[cfg(test)]
mod tests;
