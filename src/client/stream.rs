//! The answer to a request for a stream of image events, as it arrives.
//!
//! This module decides when the stream is over: after the final image, after an error, or if no data has arrived for
//! too long. A stream that ends without its image is an error, because the image may have been paid for.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use reqwest::Response;

use super::body_reader::{HttpBodyEvent, HttpBodyReader, is_json_response};
use super::session::Session;
use super::sse::{EVENT_MAX_BYTES, SseEventReader, SseEventTooLarge};
use super::unfinished_calls::AutomaticKey;
use super::{AnswerMetadata, Error, Image, ImageEvent, Images, event};

/// The events in the making of an image; from [`ImageCalls::generate_stream`](super::ImageCalls::generate_stream) and
/// [`ImageCalls::edit_stream`](super::ImageCalls::edit_stream).
///
/// The stream has intermediate images if they were requested, then the final image or an error, then nothing more.
/// Dropping the stream ends the request; the image may be made and charged for nevertheless. A gateway completes it, and
/// sends it for the next equal call of the same client: see [`Builder::idempotency_keys`](super::Builder::idempotency_keys).
///
/// ```no_run
/// # async fn run() -> Result<(), imagate::client::Error> {
/// use imagate::client::{Client, GenerateRequest, ImageEvent, PartialImages};
///
/// let client = Client::from_env()?;
/// let request = GenerateRequest::new("A red fox in fresh snow").partial_images(PartialImages::MAX);
/// let mut stream = client.images().generate_stream(request).await?;
/// while let Some(event) = stream.next().await {
///     match event? {
///         ImageEvent::PartialImage { index, .. } => println!("{} of 3", index + 1),
///         ImageEvent::Completed { image, .. } => println!("{}", image.write_to("fox").await?.display()),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the stream ends the request"]
pub struct ImageStream {
    session: Session,
    /// The key that the client has given to the call. It is dropped with a stream that is not read to its end.
    automatic_key: Option<AutomaticKey>,
    body: HttpBodyReader,
    /// The bytes that have been received and not yet parsed.
    unparsed_bytes: Bytes,
    state: ImageStreamState,
    partials: u32,
}

enum ImageStreamState {
    Events(SseEventReader),
    /// The service answered with plain JSON, as if no stream had been requested: the bytes so far.
    PlainJson(Vec<u8>),
    /// The final image has arrived; only the end of the answer is left.
    Ended,
}

// === impl ImageStream ===

impl ImageStream {
    pub(super) fn new((response, session, automatic_key): (Response, Session, Option<AutomaticKey>)) -> Self {
        let state = if is_json_response(&response) {
            ImageStreamState::PlainJson(Vec::new())
        } else {
            ImageStreamState::Events(SseEventReader::default())
        };
        let body = HttpBodyReader::new(response, &session);
        Self { session, automatic_key, body, unparsed_bytes: Bytes::new(), state, partials: 0 }
    }

    /// Returns the next event; `None` when the stream is over.
    pub async fn next(&mut self) -> Option<Result<ImageEvent, Error>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Waits for the final image, and skips all events before it.
    ///
    /// # Errors
    ///
    /// Returns an error if the service failed, or if it sent nothing for too long or broke off.
    pub async fn collect_image(mut self) -> Result<Image, Error> {
        let mut completed = None;
        while let Some(event) = self.next().await {
            if let ImageEvent::Completed { image, .. } = event? {
                completed = Some(image);
            }
        }
        completed.ok_or_else(|| self.unfinished_error())
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

    /// Returns the next event in the received bytes; `None` if they hold no complete event.
    fn next_buffered_event(&mut self) -> Result<Option<ImageEvent>, Error> {
        match &mut self.state {
            ImageStreamState::Events(reader) => {
                return next_event(reader, &mut self.unparsed_bytes, self.partials, &self.session);
            }
            ImageStreamState::PlainJson(body) if body.len() + self.unparsed_bytes.len() > EVENT_MAX_BYTES => {
                return Err(too_large_error(&self.session));
            }
            ImageStreamState::PlainJson(body) => body.extend_from_slice(&std::mem::take(&mut self.unparsed_bytes)),
            ImageStreamState::Ended => self.unparsed_bytes.clear(),
        }
        Ok(None)
    }

    /// Closes the body at its end, and returns the last item of the stream: an event, or an error if there is no final
    /// image. Returns `None` if the last item was returned before.
    fn finish(&mut self) -> Option<Result<ImageEvent, Error>> {
        self.body.close();
        match std::mem::replace(&mut self.state, ImageStreamState::Ended) {
            ImageStreamState::Events(mut reader) => {
                // An event that was cut off cannot be parsed; the error then says that the stream ended too early.
                let last = reader.finish().map(|event| event::read_event(event, self.partials, &self.session));
                match last {
                    Some(Ok(Some(event @ ImageEvent::Completed { .. }))) => Some(Ok(event)),
                    Some(Err(error)) if error.is_answer() => Some(Err(error)),
                    _ => Some(Err(self.unfinished_error())),
                }
            }
            ImageStreamState::PlainJson(body) => {
                Some(Images::parse(body, 1, &self.session).map(|images| ImageEvent::completed(&images)))
            }
            ImageStreamState::Ended => None,
        }
    }

    /// Updates the state for an event that is about to be returned: the final image and an error end the stream. An error
    /// is completed.
    fn update_state_for(&mut self, event: Result<ImageEvent, Error>) -> Result<ImageEvent, Error> {
        match &event {
            Ok(ImageEvent::PartialImage { .. }) => self.partials = self.partials.saturating_add(1),
            Ok(ImageEvent::Completed { .. }) => {
                self.state = ImageStreamState::Ended;
                self.body.expect_end();
                self.record_end(None);
            }
            Ok(ImageEvent::Other { .. }) => {}
            Err(_) => {
                self.state = ImageStreamState::Ended;
                self.body.close();
            }
        }
        event.map_err(|error| error.of_call(&self.session)).inspect_err(|error| self.record_end(Some(error)))
    }

    fn record_end(&mut self, error: Option<&Error>) {
        if let Some(key) = &mut self.automatic_key {
            key.record_end(error);
        }
    }

    fn unfinished_error(&self) -> Error {
        Error::broken("the stream ended without its image, which may still have been made", &self.session)
    }
}

impl Stream for ImageStream {
    type Item = Result<ImageEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match self.next_buffered_event() {
                Ok(Some(event)) => return Poll::Ready(Some(self.update_state_for(Ok(event)))),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(self.update_state_for(Err(error)))),
            }
            let this = &mut *self;
            match ready!(this.body.poll(cx, &this.session)) {
                HttpBodyEvent::Bytes(bytes) => self.unparsed_bytes = bytes,
                HttpBodyEvent::Failure(error) if !matches!(self.state, ImageStreamState::Ended) => {
                    return Poll::Ready(Some(self.update_state_for(Err(error))));
                }
                HttpBodyEvent::Failure(_) | HttpBodyEvent::End => {
                    let last = self.finish();
                    return Poll::Ready(last.map(|event| self.update_state_for(event)));
                }
            }
        }
    }
}

impl fmt::Debug for ImageStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageStream")
            .field("request_id", &self.request_id())
            .field("partials", &self.partials)
            .field("is_over", &self.body.is_closed())
            .finish_non_exhaustive()
    }
}

/// Returns the next event that the caller receives, from the received bytes.
fn next_event(
    reader: &mut SseEventReader,
    bytes: &mut Bytes,
    partials: u32,
    session: &Session,
) -> Result<Option<ImageEvent>, Error> {
    while let Some(event) = reader.next(bytes).map_err(|SseEventTooLarge| too_large_error(session))? {
        let event = event::read_event(event, partials, session)?;
        if event.is_some() {
            return Ok(event);
        }
    }
    Ok(None)
}

fn too_large_error(session: &Session) -> Error {
    Error::unintelligible("an event of the stream is too large to be an image", session.head())
}
