//! The caller's body: drives the upstream's from the caller's own connection.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::prove::{Broken, Proven, Step, Tap};
use super::rewrite::Summary;

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Complete, and the caller was there to the end.
    Complete,
    /// Complete, but the caller had left.
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
/// When the caller leaves, the upstream's answer is read to its end all the same: it is paid for, and it is recorded.
pub(crate) struct RelayBody {
    state: State,
    queue: VecDeque<Bytes>,
    on_end: Option<OnEnd>,
}

enum State {
    Relaying(Box<Tap>),
    /// The upstream is done; the last bytes wait for the record.
    Closing(Closing, Result<Bytes, Broken>),
    Ended,
}

// === impl RelayBody ===

impl RelayBody {
    /// A body that tells `on_end` how it ended, and lets it finish before the caller sees the end.
    pub(crate) fn new(proven: Proven, on_end: OnEnd) -> Self {
        Self { state: State::Relaying(Box::new(proven.0)), queue: VecDeque::new(), on_end: Some(on_end) }
    }

    fn close(&mut self, ending: Ending, summary: Summary, last: Result<Bytes, Broken>) {
        let closing: Closing = match self.on_end.take() {
            Some(on_end) => on_end(ending, summary),
            None => Box::pin(std::future::ready(())),
        };
        self.state = State::Closing(closing, last);
    }
}

impl Body for RelayBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        loop {
            if let Some(piece) = this.queue.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            match &mut this.state {
                State::Relaying(tap) => match ready!(tap.poll_step(cx)) {
                    Ok(Step::Pieces(pieces)) => this.queue.extend(pieces),
                    Ok(Step::End(tail, summary)) => this.close(Ending::Complete, summary, Ok(tail)),
                    Err(broken) => {
                        let summary = tap.summary();
                        this.close(Ending::Broken(broken), summary, Err(broken));
                    }
                },
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
        let Some(on_end) = self.on_end.take() else {
            // The upstream is done. A record that is still being closed must not be cut short with the caller's leaving.
            if let State::Closing(closing, _) = std::mem::replace(&mut self.state, State::Ended) {
                alone(closing);
            }
            return;
        };
        if let State::Relaying(tap) = std::mem::replace(&mut self.state, State::Ended) {
            alone(Box::pin(finish(tap, on_end)));
        }
    }
}

/// Reads an answer to its end for nobody, so that its tokens are known.
async fn finish(mut tap: Box<Tap>, on_end: OnEnd) {
    let (ending, summary) = loop {
        match std::future::poll_fn(|cx| tap.poll_step(cx)).await {
            Ok(Step::Pieces(_)) => {}
            Ok(Step::End(_, summary)) => break (Ending::Left, summary),
            Err(broken) => break (Ending::Broken(broken), tap.summary()),
        }
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
