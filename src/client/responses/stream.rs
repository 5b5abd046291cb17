//! The answer to a request for a stream, as it comes.
//!
//! Decides when it is over: after the whole response, after an error, or when nothing has come for too long. A failure is
//! told twice on the wire, as an error and as a failed response; here it is the failed response, then one error.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;

use super::answer::Response;
use super::event::{self, ResponseEvent, ResponseStep, Said};
use crate::client::Error;
use crate::client::flow::{Flow, Next, is_whole};
use crate::client::session::Session;
use crate::client::sse::{EVENT_MAX_BYTES, Event, Reader, TooLarge};

/// What happens while a task is run; from [`ResponseCalls::stream`](super::ResponseCalls::stream).
///
/// Ends with a whole response or an error. To drop it is to give the task up, though it may be charged for nevertheless.
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
    flow: Flow,
    /// What has come and was not yet read.
    bytes: Bytes,
    reading: Reading,
    /// What the stream ends with.
    failure: Option<Error>,
}

enum Reading {
    Events(Reader),
    /// The service answered as if no stream had been asked for.
    Whole(Vec<u8>),
    /// The last event was there; what is left is the end of the answer.
    End,
}

// === impl ResponseStream ===

impl ResponseStream {
    pub(super) fn new(response: reqwest::Response, session: Session) -> Self {
        let reading = if is_whole(&response) { Reading::Whole(Vec::new()) } else { Reading::Events(Reader::default()) };
        let flow = Flow::new(response, &session);
        Self { session, flow, bytes: Bytes::new(), reading, failure: None }
    }

    /// The next event; nothing when it is over.
    pub async fn next(&mut self) -> Option<Result<ResponseEvent, Error>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Waits for the whole response, and passes over everything before it.
    ///
    /// # Errors
    ///
    /// The task failed, or the service was silent for too long or broke off.
    pub async fn collect_response(mut self) -> Result<Response, Error> {
        let mut last = None;
        while let Some(event) = self.next().await {
            if let ResponseStep::Completed { response } | ResponseStep::Incomplete { response } = event?.into_step() {
                last = Some(response);
            }
        }
        last.ok_or_else(|| self.unfinished())
    }

    /// The id of the request, by which the operator of the service finds it.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.session.head()?.request_id.as_deref()
    }

    /// What the bytes that are there say.
    fn read(&mut self) -> Result<Option<ResponseEvent>, Error> {
        while let Some(frame) = self.frame()? {
            match event::read(frame, &self.session)? {
                Said::Event(event) => return Ok(Some(*event)),
                // The failed response comes next, if it comes.
                Said::Failure(error) => {
                    self.failure.get_or_insert(error);
                    self.flow.end_soon();
                }
                Said::Nothing => {}
            }
        }
        Ok(None)
    }

    /// The next frame of the bytes that are there. Of what is no stream there are none; it is kept for its end.
    fn frame(&mut self) -> Result<Option<Event>, Error> {
        match &mut self.reading {
            Reading::Events(reader) => reader.next(&mut self.bytes).map_err(|TooLarge| too_large(&self.session)),
            Reading::Whole(body) if body.len() + self.bytes.len() > EVENT_MAX_BYTES => Err(too_large(&self.session)),
            Reading::Whole(body) => {
                body.extend_from_slice(&std::mem::take(&mut self.bytes));
                Ok(None)
            }
            Reading::End => {
                self.bytes.clear();
                Ok(None)
            }
        }
    }

    /// What the end of the answer says.
    fn finish(&mut self) -> Option<Result<ResponseEvent, Error>> {
        self.flow.close();
        let reading = std::mem::replace(&mut self.reading, Reading::End);
        if let Some(failure) = self.failure.take() {
            return Some(Err(failure));
        }
        match reading {
            Reading::Events(mut reader) => {
                // A last event that is cut off is not understood, and that is not the news.
                let last = reader.rest().and_then(|frame| event::read(frame, &self.session).ok());
                match last {
                    Some(Said::Event(event)) if event.last().is_some() => Some(Ok(self.hand_out(*event))),
                    Some(Said::Failure(error)) => Some(Err(error)),
                    _ => Some(Err(self.unfinished())),
                }
            }
            Reading::Whole(body) => {
                let response = Response::read(body, &self.session);
                let told = response.and_then(|response| match response.failure(&self.session) {
                    Some(error) => Err(error),
                    None => Ok(ResponseEvent::of_response(response)),
                });
                Some(told)
            }
            Reading::End => None,
        }
    }

    /// Takes note of what is handed out.
    fn hand_out(&mut self, event: ResponseEvent) -> ResponseEvent {
        if event.last().is_some() {
            self.reading = Reading::End;
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
        self.reading = Reading::End;
        self.flow.close();
        self.failure.take().unwrap_or(error)
    }

    fn unfinished(&self) -> Error {
        Error::broken("the stream ended without a whole response, which may have been made nevertheless", &self.session)
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
                Next::Bytes(bytes) => this.bytes = bytes,
                Next::Failure(error) if !matches!(this.reading, Reading::End) => {
                    return Poll::Ready(Some(Err(this.give_up(error))));
                }
                Next::Failure(_) | Next::End => return Poll::Ready(this.finish()),
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
