//! A stream that begins before its answer: heartbeats, until the answer has begun or failed.
//!
//! A proxy between the gateway and its caller cuts a connection that is silent for long, so a stream begins at the latest
//! when its first heartbeat is due. Until then a failure keeps its own status; after that it is an event.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use serde_json::Value;
use tokio::time::{Instant, Sleep, timeout};

use super::made::{BrokeOff, Made, MadeBody};
use crate::error::{Error, Fault, event_of};
use crate::gateway::relay::HEARTBEAT;
use crate::tables::HEARTBEAT_SECONDS;

const BEAT: Duration = Duration::from_secs(HEARTBEAT_SECONDS);
const OK: u16 = 200;

/// The work on an answer that has not begun.
type PendingAnswer = Pin<Box<dyn Future<Output = Result<Made, Error>> + Send>>;

/// The body of a stream that begins before its answer. If it is dropped, so is the work.
pub(crate) struct EarlyStream {
    state: State,
    heartbeat: Pin<Box<Sleep>>,
}

enum State {
    PendingAnswer(PendingAnswer),
    Answer(Box<MadeBody>),
    /// An earlier request with the same idempotency key was refused: the refusal, as far as it is read.
    Refusal(Box<MadeBody>, Vec<u8>),
    Ended,
}

/// The answer to a request for a stream, or a stream that waits for it.
///
/// # Errors
///
/// Returns the error of the work if it fails before the first heartbeat is due.
pub(super) async fn begin(making: impl Future<Output = Result<Made, Error>> + Send + 'static) -> Result<Made, Error> {
    let mut making: PendingAnswer = Box::pin(making);
    match timeout(BEAT, &mut making).await {
        Ok(made) => made,
        Err(_) => Ok(Made::early(EarlyStream {
            state: State::PendingAnswer(making),
            heartbeat: Box::pin(tokio::time::sleep(Duration::ZERO)),
        })),
    }
}

// === impl EarlyStream ===

impl EarlyStream {
    /// The next piece; `None` if only the state has changed.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokeOff>>> {
        match &mut self.state {
            State::PendingAnswer(making) => match making.as_mut().poll(cx) {
                Poll::Ready(Ok(made)) => {
                    let body = Box::new(made.body);
                    self.state =
                        if made.head.status == OK { State::Answer(body) } else { State::Refusal(body, Vec::new()) };
                    Poll::Ready(None)
                }
                Poll::Ready(Err(error)) => Poll::Ready(Some(Ok(self.fail(&error.event())))),
                Poll::Pending => {
                    ready!(self.heartbeat.as_mut().poll(cx));
                    self.heartbeat.as_mut().reset(Instant::now() + BEAT);
                    Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(HEARTBEAT)))))
                }
            },
            State::Answer(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                if frame.is_none() {
                    self.state = State::Ended;
                }
                Poll::Ready(frame)
            }
            State::Refusal(body, read) => {
                match ready!(Pin::new(body).poll_frame(cx)) {
                    Some(Ok(frame)) => read.extend_from_slice(frame.data_ref().map_or(&[], AsRef::as_ref)),
                    Some(Err(error)) => {
                        tracing::warn!(%error, "an earlier refusal cannot be read");
                        let unknown = Error::Upstream(Fault::Unknown).event();
                        return Poll::Ready(Some(Ok(self.fail(&unknown))));
                    }
                    None => {
                        let refusal: Value = serde_json::from_slice(read).unwrap_or_default();
                        return Poll::Ready(Some(Ok(self.fail(&event_of(&refusal["error"])))));
                    }
                }
                Poll::Ready(None)
            }
            State::Ended => Poll::Ready(None),
        }
    }

    /// The last event of the stream.
    fn fail(&mut self, error: &str) -> Frame<Bytes> {
        self.state = State::Ended;
        Frame::data(Bytes::from(format!("event: error\ndata: {error}\n\n")))
    }
}

impl Body for EarlyStream {
    type Data = Bytes;
    type Error = BrokeOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokeOff>>> {
        loop {
            match ready!(self.poll_piece(cx)) {
                Some(frame) => return Poll::Ready(Some(frame)),
                None if matches!(self.state, State::Ended) => return Poll::Ready(None),
                None => {}
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Ended)
    }
}

#[cfg(test)]
mod tests;
