//! The answer to a request for a stream, as it comes.
//!
//! Decides when it is over: after the final image, after an error, or when nothing has come for too long. A stream that
//! just stops is an error, because its image is paid for and not there.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;

use super::clock::Silence;
use super::session::Session;
use super::sse::{EVENT_MAX_BYTES, Reader, TooLarge};
use super::{Error, Image, ImageEvent, event, images};

/// Ours: how long the end of the answer may lag behind its last event. Who leaves before it looks like one who gave up.
const END_LIMIT: Duration = Duration::from_secs(1);

#[cfg(not(target_arch = "wasm32"))]
type Body = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>;
#[cfg(target_arch = "wasm32")]
type Body = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>>>>;

/// What happens while an image is made; from [`ImageCalls::generate_stream`](super::ImageCalls::generate_stream) and
/// [`ImageCalls::edit_stream`](super::ImageCalls::edit_stream).
///
/// Some intermediate images, then the final one, or an error; then nothing more. To drop it is to give the image up,
/// though it may be made and charged for nevertheless.
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
#[must_use = "the image is only made while somebody listens"]
pub struct ImageStream {
    session: Session,
    /// Dropped at the end, because that is what ends the request.
    body: Option<Body>,
    /// What has come and was not yet read.
    bytes: Bytes,
    reading: Reading,
    silence: Silence,
    partials: u32,
}

enum Reading {
    Events(Reader),
    /// The service answered as if no stream had been asked for.
    Whole(Vec<u8>),
    /// The final image was there; what is left is the end of the answer.
    End,
}

/// What happens to the body next.
enum Next {
    Bytes(Bytes),
    End,
    Failure(Error),
}

// === impl ImageStream ===

impl ImageStream {
    pub(super) fn new(response: Response, session: Session) -> Self {
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        // Everything else is read as events: it can only be those, or an error.
        let is_json = kind.trim_start().to_ascii_lowercase().starts_with("application/json");
        let reading = if is_json { Reading::Whole(Vec::new()) } else { Reading::Events(Reader::default()) };
        let silence = Silence::new(session.limit().duration());
        let body: Option<Body> = Some(Box::pin(response.bytes_stream()));
        Self { session, body, bytes: Bytes::new(), reading, silence, partials: 0 }
    }

    /// The next event; nothing when it is over.
    pub async fn next(&mut self) -> Option<Result<ImageEvent, Error>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Waits for the final image, and passes over everything before it.
    ///
    /// # Errors
    ///
    /// The service failed, was silent for too long, or broke off.
    pub async fn collect_image(mut self) -> Result<Image, Error> {
        let mut completed = None;
        while let Some(event) = self.next().await {
            if let ImageEvent::Completed { image, .. } = event? {
                completed = Some(image);
            }
        }
        completed.ok_or_else(|| self.unfinished())
    }

    /// The id of the request, by which the operator of the service finds it.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.session.head()?.request_id.as_deref()
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        let Some(body) = &mut self.body else { return Poll::Ready(Next::End) };
        match body.as_mut().poll_next(cx) {
            Poll::Ready(Some(Ok(bytes))) => {
                // A heartbeat says that somebody is still at work.
                if !matches!(self.reading, Reading::End) {
                    self.silence.broken();
                }
                Poll::Ready(Next::Bytes(bytes))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Next::Failure(Error::of_stream(error, &self.session))),
            Poll::Ready(None) => Poll::Ready(Next::End),
            Poll::Pending => self.silence.poll(cx).map(|()| Next::Failure(Error::late(&self.session))),
        }
    }

    /// What the bytes that are there say.
    fn read(&mut self) -> Result<Option<ImageEvent>, Error> {
        match &mut self.reading {
            Reading::Events(reader) => return next_event(reader, &mut self.bytes, self.partials, &self.session),
            Reading::Whole(body) if body.len() + self.bytes.len() > EVENT_MAX_BYTES => {
                return Err(too_large(&self.session));
            }
            Reading::Whole(body) => body.extend_from_slice(&std::mem::take(&mut self.bytes)),
            Reading::End => self.bytes.clear(),
        }
        Ok(None)
    }

    /// What the end of the answer says.
    fn finish(&mut self) -> Option<Result<ImageEvent, Error>> {
        self.body = None;
        match std::mem::replace(&mut self.reading, Reading::End) {
            Reading::Events(mut reader) => {
                // A last event that is cut off is not understood, and that is not the news.
                let last = reader.rest().map(|event| event::read(&event, self.partials, &self.session));
                match last {
                    Some(Ok(Some(event @ ImageEvent::Completed { .. }))) => Some(Ok(event)),
                    Some(Err(error)) if error.is_answer() => Some(Err(error)),
                    _ => Some(Err(self.unfinished())),
                }
            }
            Reading::Whole(body) => {
                Some(images::read(body, &self.session).map(|images| ImageEvent::completed(&images)))
            }
            Reading::End => None,
        }
    }

    /// Takes note of what is handed out.
    fn hand_out(&mut self, event: Result<ImageEvent, Error>) -> Result<ImageEvent, Error> {
        match &event {
            Ok(ImageEvent::PartialImage { .. }) => self.partials = self.partials.saturating_add(1),
            Ok(ImageEvent::Completed { .. }) => {
                self.reading = Reading::End;
                self.silence = Silence::new(END_LIMIT);
            }
            Err(_) => {
                self.reading = Reading::End;
                self.body = None;
            }
        }
        event
    }

    fn unfinished(&self) -> Error {
        Error::broken("the stream ended without its image, which may have been made nevertheless", &self.session)
    }
}

impl Stream for ImageStream {
    type Item = Result<ImageEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match self.read() {
                Ok(Some(event)) => return Poll::Ready(Some(self.hand_out(Ok(event)))),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(self.hand_out(Err(error)))),
            }
            match ready!(self.poll_body(cx)) {
                Next::Bytes(bytes) => self.bytes = bytes,
                Next::Failure(error) if !matches!(self.reading, Reading::End) => {
                    return Poll::Ready(Some(self.hand_out(Err(error))));
                }
                Next::Failure(_) | Next::End => {
                    let last = self.finish();
                    return Poll::Ready(last.map(|event| self.hand_out(event)));
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
            .field("is_over", &self.body.is_none())
            .finish_non_exhaustive()
    }
}

/// The next event that means something, from the bytes that are there.
fn next_event(
    reader: &mut Reader,
    bytes: &mut Bytes,
    partials: u32,
    session: &Session,
) -> Result<Option<ImageEvent>, Error> {
    while let Some(event) = reader.next(bytes).map_err(|TooLarge| too_large(session))? {
        let event = event::read(&event, partials, session)?;
        if event.is_some() {
            return Ok(event);
        }
    }
    Ok(None)
}

fn too_large(session: &Session) -> Error {
    Error::unintelligible("an event of the stream is too large to be an image", session.head())
}
