//! The answer to a request for a stream of response events, as it arrives. It ends with the last event of the response or
//! an error.
//!
//! The service reports a failure with two events, an error and a failed response; the stream returns the failed response
//! as an event, and then ends with one error.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::event::{self, ResponseEvent, ResponseStep};
use super::response::Response;
use crate::client::answer_stream::{AnswerStream, DecodedEvent, EventDecoder};
use crate::client::session::Session;
use crate::client::sse::SseEvent;
use crate::client::{AnswerMetadata, Error};

/// The events of a running task, as [`ResponseCalls::stream`](super::ResponseCalls::stream) returns them.
///
/// The stream ends with a response or an error. Dropping it cancels the task, which may be charged for nevertheless.
///
/// ```no_run
/// # async fn run() -> Result<(), imagate::client::Error> {
/// use imagate::client::{Client, ImageTool, OutputItem, ResponseRequest, ResponseStep};
///
/// let client = Client::from_env()?;
/// let request = ResponseRequest::new("gpt-5.5", "Draw a red fox.").tool(ImageTool::new());
/// let mut stream = client.responses().stream(request).await?;
/// while let Some(event) = stream.next().await {
///     match event?.step() {
///         ResponseStep::TextDelta { delta, .. } => print!("{delta}"),
///         ResponseStep::ItemDone { item: OutputItem::Image(call), .. } => {
///             if let Some(image) = call.image() {
///                 println!("{}", image.write_to("fox").await?.display());
///             }
///         }
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the stream cancels the task"]
pub struct ResponseStream(AnswerStream<ResponseEvents>);

struct ResponseEvents;

// === impl ResponseStream ===

impl ResponseStream {
    pub(super) fn new(response: reqwest::Response, session: Session) -> Self {
        Self(AnswerStream::new(response, session, None, ResponseEvents))
    }

    /// Returns the next event; `None` when the stream is over.
    pub async fn next(&mut self) -> Option<Result<ResponseEvent, Error>> {
        self.0.next().await
    }

    /// Waits for the final response, and skips all events before it.
    ///
    /// # Errors
    ///
    /// Returns an error if the task failed, or if the service sent nothing for too long or broke off.
    pub async fn collect_response(mut self) -> Result<Response, Error> {
        let mut last = None;
        while let Some(event) = self.next().await {
            if let ResponseStep::Completed { response } | ResponseStep::Incomplete { response } = event?.into_step() {
                last = Some(response);
            }
        }
        last.ok_or_else(|| self.0.unfinished_error())
    }

    /// Returns the metadata of the answer: how often the request was sent, and the limits that are left.
    #[must_use]
    pub fn meta(&self) -> &AnswerMetadata {
        self.0.meta()
    }

    /// Returns the id of the request, which lets the operator of the service find it.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.meta().request_id()
    }
}

impl Stream for ResponseStream {
    type Item = Result<ResponseEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next(cx)
    }
}

impl fmt::Debug for ResponseStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseStream")
            .field("request_id", &self.request_id())
            .field("is_over", &self.0.is_closed())
            .finish_non_exhaustive()
    }
}

// === impl ResponseEvents ===

impl EventDecoder for ResponseEvents {
    type Event = ResponseEvent;

    const TOO_LARGE: &'static str = "an event of the stream is too large to be a response";
    const UNFINISHED: &'static str = "the stream ended without a complete response, which may still have been made";

    fn decode(&self, event: SseEvent, session: &Session) -> Result<DecodedEvent<ResponseEvent>, Error> {
        event::read_sse_event(event, session)
    }

    fn decode_json(&self, body: Vec<u8>, session: &Session) -> Result<ResponseEvent, Error> {
        Response::parse(body, session)?.or_failure(session).map(ResponseEvent::from_response)
    }

    fn is_last(event: &ResponseEvent) -> bool {
        event.is_final()
    }

    fn record(&mut self, event: &ResponseEvent, reported: Option<Error>, session: &Session) -> Option<Error> {
        let ResponseStep::Failed { response } = event.step() else { return reported };
        let unknown_failure = || Error::from_stream_event(&serde_json::Value::Null.into(), session);
        Some(reported.or_else(|| response.failure(session)).unwrap_or_else(unknown_failure))
    }
}
