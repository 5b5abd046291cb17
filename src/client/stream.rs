//! The answer to a request for a stream, as it comes.
//!
//! Decides when it is over: after the final image, after an error, or when nothing has come for too long. A stream that
//! just stops is an error, because its image is paid for and not there.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use reqwest::Response;

use super::flow::{Flow, Next, is_whole};
use super::session::Session;
use super::sse::{EVENT_MAX_BYTES, Reader, TooLarge};
use super::{Error, Image, ImageEvent, event, images};

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
    flow: Flow,
    /// What has come and was not yet read.
    bytes: Bytes,
    reading: Reading,
    partials: u32,
}

enum Reading {
    Events(Reader),
    /// The service answered as if no stream had been asked for.
    Whole(Vec<u8>),
    /// The final image was there; what is left is the end of the answer.
    End,
}

// === impl ImageStream ===

impl ImageStream {
    pub(super) fn new(response: Response, session: Session) -> Self {
        let reading = if is_whole(&response) { Reading::Whole(Vec::new()) } else { Reading::Events(Reader::default()) };
        let flow = Flow::new(response, &session);
        Self { session, flow, bytes: Bytes::new(), reading, partials: 0 }
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
        self.flow.close();
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
                self.flow.end_soon();
            }
            Ok(ImageEvent::Other { .. }) => {}
            Err(_) => {
                self.reading = Reading::End;
                self.flow.close();
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
            let this = &mut *self;
            match ready!(this.flow.poll(cx, &this.session)) {
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
            .field("is_over", &self.flow.is_over())
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
