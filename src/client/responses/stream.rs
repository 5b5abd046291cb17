//! The answer to a request for a stream of response events, as it arrives.
//!
//! This module decides when the stream is over: after the last event of the response, after an error, or if nothing has
//! come for too long. A failure comes twice on the wire, as an error and as a failed response; here the failed response
//! comes first, then one error.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;

use super::answer::Response;
use super::event::{self, FrameContent, ResponseEvent, ResponseStep};
use crate::client::Error;
use crate::client::flow::{HttpBodyEvent, HttpBodyReader, is_whole};
use crate::client::session::Session;
use crate::client::sse::{EVENT_MAX_BYTES, SseEvent, SseEventReader, SseEventTooLarge};

/// The events of a task that runs; from [`ResponseCalls::stream`](super::ResponseCalls::stream).
///
/// The stream ends with a response or an error. Dropping it gives the task up, which may be charged for nevertheless.
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
#[must_use = "the task is only run while somebody listens"]
pub struct ResponseStream {
    session: Session,
    flow: HttpBodyReader,
    /// The bytes that have come and were not read yet.
    bytes: Bytes,
    reading: ResponseStreamState,
    /// The error that the stream ends with.
    failure: Option<Error>,
}

enum ResponseStreamState {
    Events(SseEventReader),
    /// The service answered as if no stream had been requested.
    Whole(Vec<u8>),
    /// The last event has come; only the end of the answer is left.
    End,
}

// === impl ResponseStream ===

impl ResponseStream {
    pub(super) fn new(response: reqwest::Response, session: Session) -> Self {
        let reading = if is_whole(&response) {
            ResponseStreamState::Whole(Vec::new())
        } else {
            ResponseStreamState::Events(SseEventReader::default())
        };
        let flow = HttpBodyReader::new(response, &session);
        Self { session, flow, bytes: Bytes::new(), reading, failure: None }
    }

    /// Returns the next event; `None` when the stream is over.
    pub async fn next(&mut self) -> Option<Result<ResponseEvent, Error>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Waits for the final response, and skips all events before it.
    ///
    /// # Errors
    ///
    /// Returns an error if the task failed, or if the service was silent for too long or broke off.
    pub async fn collect_response(mut self) -> Result<Response, Error> {
        let mut last = None;
        while let Some(event) = self.next().await {
            if let ResponseStep::Completed { response } | ResponseStep::Incomplete { response } = event?.into_step() {
                last = Some(response);
            }
        }
        last.ok_or_else(|| self.unfinished())
    }

    /// Returns the id of the request, which lets the operator of the service find it.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.session.head()?.request_id.as_deref()
    }

    /// Returns the next event of the bytes that have come.
    fn read(&mut self) -> Result<Option<ResponseEvent>, Error> {
        while let Some(frame) = self.frame()? {
            match event::read(frame, &self.session)? {
                FrameContent::Event(event) => return Ok(Some(*event)),
                // The failed response comes next, if the service sends it.
                FrameContent::Failure(error) => {
                    self.failure.get_or_insert(error);
                    self.flow.end_soon();
                }
                FrameContent::Nothing => {}
            }
        }
        Ok(None)
    }

    /// Returns the next frame of the bytes that have come. An answer that is no stream has none; its bytes are kept
    /// until its end.
    fn frame(&mut self) -> Result<Option<SseEvent>, Error> {
        match &mut self.reading {
            ResponseStreamState::Events(reader) => {
                reader.next(&mut self.bytes).map_err(|SseEventTooLarge| too_large(&self.session))
            }
            ResponseStreamState::Whole(body) if body.len() + self.bytes.len() > EVENT_MAX_BYTES => {
                Err(too_large(&self.session))
            }
            ResponseStreamState::Whole(body) => {
                body.extend_from_slice(&std::mem::take(&mut self.bytes));
                Ok(None)
            }
            ResponseStreamState::End => {
                self.bytes.clear();
                Ok(None)
            }
        }
    }

    /// Returns the last event, or the error that the end of the answer amounts to.
    fn finish(&mut self) -> Option<Result<ResponseEvent, Error>> {
        self.flow.close();
        let reading = std::mem::replace(&mut self.reading, ResponseStreamState::End);
        if let Some(failure) = self.failure.take() {
            return Some(Err(failure));
        }
        match reading {
            ResponseStreamState::Events(mut reader) => {
                // If the last event is cut off, the broken stream is reported and not the event that cannot be read.
                let last = reader.rest().and_then(|frame| event::read(frame, &self.session).ok());
                match last {
                    Some(FrameContent::Event(event)) if event.last().is_some() => Some(Ok(self.hand_out(*event))),
                    Some(FrameContent::Failure(error)) => Some(Err(error)),
                    _ => Some(Err(self.unfinished())),
                }
            }
            ResponseStreamState::Whole(body) => {
                let response = Response::read(body, &self.session);
                let told = response.and_then(|response| match response.failure(&self.session) {
                    Some(error) => Err(error),
                    None => Ok(ResponseEvent::of_response(response)),
                });
                Some(told)
            }
            ResponseStreamState::End => None,
        }
    }

    /// Notes the effect of an event that is about to be returned.
    fn hand_out(&mut self, event: ResponseEvent) -> ResponseEvent {
        if event.last().is_some() {
            self.reading = ResponseStreamState::End;
            self.flow.end_soon();
        }
        if let ResponseStep::Failed { response } = event.step() {
            let told = || Error::in_stream(&serde_json::Value::Null, &self.session);
            let failure = self.failure.take().or_else(|| response.failure(&self.session)).unwrap_or_else(told);
            self.failure = Some(failure);
        }
        event
    }

    fn give_up(&mut self, error: Error) -> Error {
        self.reading = ResponseStreamState::End;
        self.flow.close();
        self.failure.take().unwrap_or(error)
    }

    fn unfinished(&self) -> Error {
        Error::broken("the stream ended without a complete response, which may still have been made", &self.session)
    }
}

impl Stream for ResponseStream {
    type Item = Result<ResponseEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            match this.read() {
                Ok(Some(event)) => return Poll::Ready(Some(Ok(this.hand_out(event)))),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(this.give_up(error)))),
            }
            match ready!(this.flow.poll(cx, &this.session)) {
                HttpBodyEvent::Bytes(bytes) => this.bytes = bytes,
                HttpBodyEvent::Failure(error) if !matches!(this.reading, ResponseStreamState::End) => {
                    return Poll::Ready(Some(Err(this.give_up(error))));
                }
                HttpBodyEvent::Failure(_) | HttpBodyEvent::End => return Poll::Ready(this.finish()),
            }
        }
    }
}

impl fmt::Debug for ResponseStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseStream")
            .field("request_id", &self.request_id())
            .field("is_over", &self.flow.is_over())
            .finish_non_exhaustive()
    }
}

fn too_large(session: &Session) -> Error {
    Error::unintelligible("an event of the stream is too large to be a response", session.head())
}
