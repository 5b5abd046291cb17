//! The caller's body: drives the upstream's from the caller's own connection.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::caller_pace::CallerPace;
use super::course::Course;
use super::prove::Proven;
use super::rewrite::Summary;
use super::tap::{Broken, Step};
use crate::tables::HEARTBEAT_SECONDS;

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Complete, and the caller was there to the end.
    Complete,
    /// The caller had left.
    Left,
    /// It broke off.
    Broken(Broken),
}

/// Work to be done before the caller sees the end of the answer.
pub(crate) type Closing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Told once how the answer ended.
pub(crate) type OnEnd = Box<dyn FnOnce(Ending, Summary) -> Closing + Send>;

/// The body of the answer to the caller.
///
/// When the caller of a plain answer leaves, the upstream's answer is read to its end all the same: it is paid for, and
/// it is recorded. A caller of events who leaves cancels the upstream's work.
pub(crate) struct RelayBody {
    state: State,
    queue: VecDeque<Bytes>,
    on_end: Option<OnEnd>,
    /// The error as an event, in the words of the contract.
    error: String,
    heartbeat: Pin<Box<Sleep>>,
    /// Resolves when the answer must end because the process stops.
    cutoff: Option<Cutoff>,
    pace: CallerPace,
}

type Cutoff = Pin<Box<WaitForCancellationFutureOwned>>;

enum State {
    Relaying(Course),
    /// The upstream is done; the last bytes wait for the record.
    Closing(Closing, Result<Bytes, Broken>),
    Ended,
}

const BEAT: Duration = Duration::from_secs(HEARTBEAT_SECONDS);

// === impl RelayBody ===

impl RelayBody {
    /// A body that tells `on_end` how it ended, and lets it finish before the caller sees the end. `error` is the data of
    /// the event that a caller of events gets when the answer breaks off.
    pub(crate) fn new(proven: Proven, error: String, on_end: OnEnd) -> Self {
        Self {
            state: State::Relaying(proven.course),
            queue: VecDeque::new(),
            on_end: Some(on_end),
            error,
            heartbeat: Box::pin(tokio::time::sleep(BEAT)),
            cutoff: None,
            pace: CallerPace::default(),
        }
    }

    /// The same body, ended early when `cutoff` is cancelled: with an event in a stream, otherwise by breaking off.
    pub(crate) fn until(mut self, cutoff: &CancellationToken) -> Self {
        self.cutoff = Some(Box::pin(cutoff.clone().cancelled_owned()));
        self
    }

    fn close(&mut self, ending: Ending, summary: Summary, last: Result<Bytes, Broken>) {
        let closing: Closing = match self.on_end.take() {
            Some(on_end) => on_end(ending, summary),
            None => Box::pin(std::future::ready(())),
        };
        self.state = State::Closing(closing, last);
    }

    /// Notes that the caller asks for more, and gives the upstream the time that it was away. Returns whether the
    /// caller is fast enough.
    fn come_back(&mut self) -> bool {
        let (away, enough) = self.pace.come_back(Instant::now());
        if let State::Relaying(course) = &mut self.state {
            course.postpone(away);
            return enough;
        }
        true
    }

    /// Continues without the caller. If the caller of an image stream was `slow`, the stream is read to its end, where
    /// the tokens are reported.
    fn leave(&mut self, slow: bool) {
        let state = std::mem::replace(&mut self.state, State::Ended);
        match (state, self.on_end.take()) {
            (State::Relaying(course), Some(on_end)) if course.streams() && !(slow && course.draws()) => {
                let summary = course.summary();
                // Dropping it closes the connection to the upstream at once.
                drop(course);
                alone(on_end(Ending::Left, summary));
            }
            (State::Relaying(course), Some(on_end)) => alone(Box::pin(finish(course, self.cutoff.take(), on_end))),
            // The upstream is done. The record is closed even though the caller has left.
            (State::Closing(closing, _), _) => alone(closing),
            (State::Relaying(_) | State::Ended, _) => {}
        }
    }

    /// One look at the upstream: whether there is something new to look at here.
    fn poll_upstream(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let State::Relaying(course) = &mut self.state else { return Poll::Ready(()) };
        if self.cutoff.as_mut().is_some_and(|cutoff| cutoff.as_mut().poll(cx).is_ready()) {
            let (summary, last) = (course.summary(), course.break_off(&self.error).ok_or(Broken::Cutoff));
            self.close(Ending::Broken(Broken::Cutoff), summary, last);
            return Poll::Ready(());
        }
        match course.poll_step(cx) {
            Poll::Ready(Ok(Step::Pieces(pieces))) => {
                if !pieces.is_empty() {
                    self.heartbeat.as_mut().reset(Instant::now() + BEAT);
                }
                self.queue.extend(pieces);
            }
            Poll::Ready(Ok(Step::End(tail, summary))) => self.close(Ending::Complete, *summary, Ok(tail)),
            Poll::Ready(Err(broken)) => {
                let (summary, last) = (course.summary(), course.break_off(&self.error).ok_or(broken));
                self.close(Ending::Broken(broken), summary, last);
            }
            Poll::Pending => {
                ready!(self.heartbeat.as_mut().poll(cx));
                self.heartbeat.as_mut().reset(Instant::now() + BEAT);
                self.queue.extend(course.heartbeat());
            }
        }
        Poll::Ready(())
    }
}

impl Body for RelayBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        if !this.come_back() {
            tracing::warn!("a caller takes its answer too slowly: the rest is read without it");
            this.queue.clear();
            this.leave(true);
            return Poll::Ready(Some(Err(Broken::Slow)));
        }
        loop {
            if let Some(piece) = this.queue.pop_front() {
                this.pace.hand_over(piece.len(), Instant::now());
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            match &mut this.state {
                State::Relaying(_) => ready!(this.poll_upstream(cx)),
                State::Closing(closing, last) => {
                    ready!(closing.as_mut().poll(cx));
                    let last = last.clone();
                    this.state = State::Ended;
                    return Poll::Ready(Some(last.map(Frame::data)));
                }
                State::Ended => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Ended)
    }
}

impl Drop for RelayBody {
    fn drop(&mut self) {
        self.leave(false);
    }
}

/// Reads an answer to its end for nobody, so that its tokens are known.
async fn finish(mut course: Course, cutoff: Option<Cutoff>, on_end: OnEnd) {
    let cutoff = async move {
        match cutoff {
            Some(cutoff) => cutoff.await,
            None => std::future::pending().await,
        }
    };
    let read = async {
        loop {
            match std::future::poll_fn(|cx| course.poll_step(cx)).await {
                Ok(Step::Pieces(_)) => {}
                Ok(Step::End(_, summary)) => break Ok(*summary),
                Err(broken) => break Err(broken),
            }
        }
    };
    let read = tokio::select! {
        read = read => read,
        () = cutoff => Err(Broken::Cutoff),
    };
    let (ending, summary) = match read {
        Ok(summary) => (Ending::Left, summary),
        Err(broken) => (Ending::Broken(broken), course.summary()),
    };
    on_end(ending, summary).await;
}

/// Lets work go on without the connection it belonged to.
///
/// It holds an open record, so shutdown waits for it through the ledger, and the answer's own limits bound it.
fn alone(work: Closing) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(work));
    }
}

#[cfg(test)]
mod tests;
