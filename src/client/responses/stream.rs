//! The answer to a request for a stream of response events, as it arrives.
//!
//! This module decides when the stream is over: after the last event of the response, after an error, or if nothing has
//! come for too long. The service reports a failure with two events, an error and a failed response; the stream returns
//! the failed response as an event, and then ends with one error.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;

use super::event::{self, ResponseEvent, ResponseStep, SseEventContent};
use super::response::Response;
use crate::client::body_reader::{HttpBodyEvent, HttpBodyReader, is_json_response};
use crate::client::session::Session;
use crate::client::sse::{EVENT_MAX_BYTES, SseEvent, SseEventReader, SseEventTooLarge};
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
pub struct ResponseStream {
    session: Session,
    body: HttpBodyReader,
    /// The bytes that have been received and not yet parsed.
    unparsed_bytes: Bytes,
    state: ResponseStreamState,
    /// The error that the stream will end with, if one was reported.
    failure: Option<Error>,
}

enum ResponseStreamState {
    Events(SseEventReader),
    /// The service answered with plain JSON, as if no stream had been requested: the bytes so far.
    PlainJson(Vec<u8>),
    /// The last event has come; only the end of the answer is left.
    Ended,
}

// === impl ResponseStream ===

impl ResponseStream {
    pub(super) fn new(response: reqwest::Response, session: Session) -> Self {
        let state = if is_json_response(&response) {
            ResponseStreamState::PlainJson(Vec::new())
        } else {
            ResponseStreamState::Events(SseEventReader::default())
        };
        let body = HttpBodyReader::new(response, &session);
        Self { session, body, unparsed_bytes: Bytes::new(), state, failure: None }
    }

    /// Returns the next event; `None` when the stream is over.
    pub async fn next(&mut self) -> Option<Result<ResponseEvent, Error>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
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
        last.ok_or_else(|| self.unfinished_error())
    }

    /// Returns the metadata of the answer: how often the request was sent, and the limits that are left.
    #[must_use]
    pub fn meta(&self) -> &AnswerMetadata {
        self.session.recorded_head()
    }

    /// Returns the id of the request, which lets the operator of the service find it.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.meta().request_id()
    }

    /// Returns the next event in the received bytes; `None` if there is no complete event in them.
    fn next_buffered_event(&mut self) -> Result<Option<ResponseEvent>, Error> {
        while let Some(sse_event) = self.next_sse_event()? {
            match event::read_sse_event(sse_event, &self.session)? {
                SseEventContent::Event(event) => return Ok(Some(*event)),
                // The error is returned at the end: the service may still send the failed response.
                SseEventContent::Failure(error) => {
                    self.failure.get_or_insert(error);
                    self.body.expect_end();
                }
                SseEventContent::Nothing => {}
            }
        }
        Ok(None)
    }

    /// Returns the next server-sent event in the received bytes. An answer of plain JSON has none; its bytes are kept
    /// until its end.
    fn next_sse_event(&mut self) -> Result<Option<SseEvent>, Error> {
        match &mut self.state {
            ResponseStreamState::Events(reader) => {
                reader.next(&mut self.unparsed_bytes).map_err(|SseEventTooLarge| too_large_error(&self.session))
            }
            ResponseStreamState::PlainJson(body) if body.len() + self.unparsed_bytes.len() > EVENT_MAX_BYTES => {
                Err(too_large_error(&self.session))
            }
            ResponseStreamState::PlainJson(body) => {
                body.extend_from_slice(&std::mem::take(&mut self.unparsed_bytes));
                Ok(None)
            }
            ResponseStreamState::Ended => {
                self.unparsed_bytes.clear();
                Ok(None)
            }
        }
    }

    /// Closes the body at its end, and returns the last item of the stream: an event, or an error if the response
    /// failed or is not complete. Returns `None` if the last event was returned before.
    fn finish(&mut self) -> Option<Result<ResponseEvent, Error>> {
        self.body.close();
        let state = std::mem::replace(&mut self.state, ResponseStreamState::Ended);
        if let Some(failure) = self.failure.take() {
            return Some(Err(failure));
        }
        match state {
            ResponseStreamState::Events(mut reader) => {
                // An event that was cut off cannot be parsed; the error then says that the stream ended too early.
                let last = reader.finish().and_then(|sse_event| event::read_sse_event(sse_event, &self.session).ok());
                match last {
                    Some(SseEventContent::Event(event)) if event.final_response().is_some() => {
                        Some(Ok(self.update_state_for(*event)))
                    }
                    Some(SseEventContent::Failure(error)) => Some(Err(error)),
                    _ => Some(Err(self.unfinished_error())),
                }
            }
            ResponseStreamState::PlainJson(body) => {
                let response = Response::parse(body, &self.session);
                let response = response.and_then(|response| response.or_failure(&self.session));
                Some(response.map(ResponseEvent::from_response))
            }
            ResponseStreamState::Ended => None,
        }
    }

    /// Updates the state for an event that is about to be returned: a final one ends the stream, and a failure becomes
    /// its error.
    fn update_state_for(&mut self, event: ResponseEvent) -> ResponseEvent {
        if event.final_response().is_some() {
            self.state = ResponseStreamState::Ended;
            self.body.expect_end();
        }
        if let ResponseStep::Failed { response } = event.step() {
            let unknown_failure = || Error::from_stream_event(&serde_json::Value::Null.into(), &self.session);
            let failure =
                self.failure.take().or_else(|| response.failure(&self.session)).unwrap_or_else(unknown_failure);
            self.failure = Some(failure);
        }
        event
    }

    fn fail(&mut self, error: Error) -> Error {
        self.state = ResponseStreamState::Ended;
        self.body.close();
        self.failure.take().unwrap_or(error).of_call(&self.session)
    }

    fn unfinished_error(&self) -> Error {
        Error::broken("the stream ended without a complete response, which may still have been made", &self.session)
    }
}

impl Stream for ResponseStream {
    type Item = Result<ResponseEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            match this.next_buffered_event() {
                Ok(Some(event)) => return Poll::Ready(Some(Ok(this.update_state_for(event)))),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(this.fail(error)))),
            }
            match ready!(this.body.poll(cx, &this.session)) {
                HttpBodyEvent::Bytes(bytes) => this.unparsed_bytes = bytes,
                HttpBodyEvent::Failure(error) if !matches!(this.state, ResponseStreamState::Ended) => {
                    return Poll::Ready(Some(Err(this.fail(error))));
                }
                HttpBodyEvent::Failure(_) | HttpBodyEvent::End => {
                    let last = this.finish();
                    return Poll::Ready(last.map(|event| event.map_err(|error| error.of_call(&this.session))));
                }
            }
        }
    }
}

impl fmt::Debug for ResponseStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseStream")
            .field("request_id", &self.request_id())
            .field("is_over", &self.body.is_closed())
            .finish_non_exhaustive()
    }
}

fn too_large_error(session: &Session) -> Error {
    Error::unintelligible("an event of the stream is too large to be a response", session.head())
}
