//! The answer to a request for a stream of image events, as it arrives. It ends with the final image or an error.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use reqwest::Response;

use super::answer_stream::{AnswerStream, DecodedEvent, EventDecoder};
use super::session::Session;
use super::sse::SseEvent;
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
pub struct ImageStream(AnswerStream<ImageEvents>);

#[derive(Default)]
struct ImageEvents {
    /// The number of intermediate images so far.
    partials: u32,
}

// === impl ImageStream ===

impl ImageStream {
    pub(super) fn new((response, session, automatic_key): (Response, Session, Option<AutomaticKey>)) -> Self {
        Self(AnswerStream::new(response, session, automatic_key, ImageEvents::default()))
    }

    /// Returns the next event; `None` when the stream is over.
    pub async fn next(&mut self) -> Option<Result<ImageEvent, Error>> {
        self.0.next().await
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
        completed.ok_or_else(|| self.0.unfinished_error())
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

impl Stream for ImageStream {
    type Item = Result<ImageEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next(cx)
    }
}

impl fmt::Debug for ImageStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageStream")
            .field("request_id", &self.request_id())
            .field("partials", &self.0.decoder.partials)
            .field("is_over", &self.0.is_closed())
            .finish_non_exhaustive()
    }
}

// === impl ImageEvents ===

impl EventDecoder for ImageEvents {
    type Event = ImageEvent;

    const TOO_LARGE: &'static str = "an event of the stream is too large to be an image";
    const UNFINISHED: &'static str = "the stream ended without its image, which may still have been made";

    fn decode(&self, event: SseEvent, session: &Session) -> Result<DecodedEvent<ImageEvent>, Error> {
        Ok(event::read_event(event, self.partials, session)?.map_or(DecodedEvent::Nothing, DecodedEvent::Event))
    }

    fn decode_json(&self, body: Vec<u8>, session: &Session) -> Result<ImageEvent, Error> {
        Images::parse(body, 1, session).map(|images| ImageEvent::completed(&images))
    }

    fn is_last(event: &ImageEvent) -> bool {
        matches!(event, ImageEvent::Completed { .. })
    }

    fn record(&mut self, event: &ImageEvent, reported: Option<Error>, _: &Session) -> Option<Error> {
        if let ImageEvent::PartialImage { .. } = event {
            self.partials = self.partials.saturating_add(1);
        }
        reported
    }
}
