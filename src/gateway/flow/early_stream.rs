//! A stream that begins before its answer: it sends heartbeats until the answer has begun or failed.
//!
//! A proxy between the gateway and its caller closes a connection that is silent for too long, so a stream begins at
//! the latest when its first heartbeat is due. A failure before that moment is answered with its own status; a later
//! failure is sent as an event.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use serde_json::Value;
use tokio::time::{Instant, Sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::gateway_answer::{AnswerBodyError, GatewayAnswer, GatewayAnswerBody};
use crate::error::{Error, UpstreamFault, error_event};
use crate::gateway::relay::HEARTBEAT;
use crate::tables::HEARTBEAT_SECONDS;

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(HEARTBEAT_SECONDS);
const STATUS_OK: u16 = 200;

/// The future of a job whose answer has not begun.
type PendingAnswer = Pin<Box<dyn Future<Output = Result<GatewayAnswer, Error>> + Send>>;

/// The body of a stream that begins before its answer. Dropping it drops the job as well.
pub(super) struct EarlyStream {
    state: EarlyStreamState,
    heartbeat: Pin<Box<Sleep>>,
    /// Tells the job that the caller of a stream that had begun has left.
    _departure: DropGuard,
}

enum EarlyStreamState {
    PendingAnswer(PendingAnswer),
    Answer(Box<GatewayAnswerBody>),
    /// The stored answer to an earlier request with the same idempotency key is an error. It is read completely before
    /// it is sent as an event; the bytes are those read so far.
    StoredError(Box<GatewayAnswerBody>, Vec<u8>),
    Ended,
}

/// Returns the answer to a request for a stream, or a stream that waits for the answer. If the caller of such a stream
/// leaves, `departure` is cancelled.
///
/// # Errors
///
/// Returns the error of the job if it fails before the first heartbeat is due.
pub(super) async fn begin_stream(
    answer: impl Future<Output = Result<GatewayAnswer, Error>> + Send + 'static,
    departure: CancellationToken,
) -> Result<GatewayAnswer, Error> {
    let mut answer: PendingAnswer = Box::pin(answer);
    match timeout(HEARTBEAT_INTERVAL, &mut answer).await {
        Ok(result) => result,
        Err(_) => Ok(GatewayAnswer::from_early_stream(EarlyStream {
            state: EarlyStreamState::PendingAnswer(answer),
            heartbeat: Box::pin(tokio::time::sleep(Duration::ZERO)),
            _departure: departure.drop_guard(),
        })),
    }
}

// === impl EarlyStream ===

impl EarlyStream {
    /// Returns the next frame; `None` if only the state has changed, or if the stream has ended.
    fn poll_next_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerBodyError>>> {
        match &mut self.state {
            EarlyStreamState::PendingAnswer(answer) => match answer.as_mut().poll(cx) {
                Poll::Ready(Ok(answer)) => {
                    let body = Box::new(answer.body);
                    self.state = if answer.head.status == STATUS_OK {
                        EarlyStreamState::Answer(body)
                    } else {
                        EarlyStreamState::StoredError(body, Vec::new())
                    };
                    Poll::Ready(None)
                }
                Poll::Ready(Err(error)) => Poll::Ready(Some(Ok(self.end_with_error(&error.event())))),
                Poll::Pending => {
                    ready!(self.heartbeat.as_mut().poll(cx));
                    self.heartbeat.as_mut().reset(Instant::now() + HEARTBEAT_INTERVAL);
                    Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(HEARTBEAT)))))
                }
            },
            EarlyStreamState::Answer(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                if frame.is_none() {
                    self.state = EarlyStreamState::Ended;
                }
                Poll::Ready(frame)
            }
            EarlyStreamState::StoredError(body, bytes) => {
                match ready!(Pin::new(body).poll_frame(cx)) {
                    Some(Ok(frame)) => bytes.extend_from_slice(frame.data_ref().map_or(&[], AsRef::as_ref)),
                    Some(Err(error)) => {
                        tracing::warn!(%error, "the error of a request could not be read for its event stream");
                        let unknown = Error::Upstream(UpstreamFault::Unknown).event();
                        return Poll::Ready(Some(Ok(self.end_with_error(&unknown))));
                    }
                    None => {
                        let event = stored_error_event(bytes);
                        return Poll::Ready(Some(Ok(self.end_with_error(&event))));
                    }
                }
                Poll::Ready(None)
            }
            EarlyStreamState::Ended => Poll::Ready(None),
        }
    }

    /// Ends the stream and returns its last event.
    fn end_with_error(&mut self, error: &str) -> Frame<Bytes> {
        self.state = EarlyStreamState::Ended;
        Frame::data(Bytes::from(format!("event: error\ndata: {error}\n\n")))
    }
}

/// Returns the error event for a stored error answer. If the answer cannot be parsed, the event reports an unknown
/// outcome, because the job may have been paid for.
fn stored_error_event(body: &[u8]) -> String {
    let parsed = serde_json::from_slice::<Value>(body);
    match parsed.as_ref().map(|parsed| &parsed["error"]) {
        Ok(detail) if detail.is_object() => error_event(detail),
        other => {
            tracing::warn!(error = ?other.err(), "the error of a request does not have the format of the API");
            Error::Upstream(UpstreamFault::Unknown).event()
        }
    }
}

impl Body for EarlyStream {
    type Data = Bytes;
    type Error = AnswerBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerBodyError>>> {
        loop {
            match ready!(self.poll_next_frame(cx)) {
                Some(frame) => return Poll::Ready(Some(frame)),
                None if matches!(self.state, EarlyStreamState::Ended) => return Poll::Ready(None),
                None => {}
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, EarlyStreamState::Ended)
    }
}

#[cfg(test)]
mod tests;
