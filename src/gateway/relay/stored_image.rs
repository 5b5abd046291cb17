//! Reads one image out of a stored answer of the image endpoints, whether that answer is JSON or events.
//!
//! The image is decoded while it is read, so its size does not matter.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::decoder::{AnswerDecoder, AnswerSchema};
use super::event::{ImagePlace, RelayEvent, RelayEventSink};
use crate::image::{Base64Decoder, Format, probe};

/// The ending of the name of an event with a final image.
const COMPLETED: &str = "completed";
/// The number of first bytes in which the format of an image is looked for (our choice). A JPEG can have kilobytes of
/// other segments before its size.
const HEAD_BYTES: usize = 16 * 1024;

/// One image of an answer, as the bytes of its file.
pub(crate) struct StoredImage<B>(StoredAnswerReader<B, ImageBytes>);

/// Reads a stored answer of the image endpoints.
pub(super) struct StoredAnswerReader<B, S> {
    body: B,
    decoder: AnswerDecoder,
    sink: S,
}

/// The reason why an image cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoredImageError {
    /// The answer is incomplete or cannot be read.
    #[error("the answer cannot be read")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The text of the image is not base64, or the answer is not an answer of the image endpoints.
    #[error("the image cannot be decoded")]
    Malformed,
}

/// Decodes the image with this index.
#[derive(Default)]
struct ImageBytes {
    index: usize,
    /// The number of final images that have ended.
    ended: usize,
    is_final: bool,
    decoder: Base64Decoder,
    /// The bytes of the image that have not been passed on.
    decoded: Vec<u8>,
    is_malformed: bool,
}

// === impl StoredAnswerReader ===

impl<B, S> StoredAnswerReader<B, S>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S: RelayEventSink,
{
    pub(super) fn new(body: B, sink: S) -> Self {
        Self { body, decoder: AnswerDecoder::new(AnswerSchema::Images), sink }
    }

    /// Reads and decodes the next piece. Returns false at the end of the body.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, StoredImageError>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else { return Poll::Ready(Ok(false)) };
        let frame = frame.map_err(|error| StoredImageError::Answer(error.into()))?;
        let mut piece = frame.into_data().unwrap_or_default();
        while !piece.is_empty() {
            let length = self.decoder.read(&piece, &mut self.sink).map_err(|_| StoredImageError::Malformed)?;
            piece = piece.split_off(length);
        }
        Poll::Ready(Ok(true))
    }

    /// Returns the sink of an answer that was read to its end.
    pub(super) fn finish(self) -> Result<S, StoredImageError> {
        self.decoder.finish().map_err(|_| StoredImageError::Malformed)?;
        Ok(self.sink)
    }
}

// === impl StoredImage ===

impl<B> StoredImage<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Begins to read the image with this index, from 0. Returns it with its format; `None` if the answer has no such
    /// image, or one whose format is not known.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer is incomplete, cannot be read or cannot be decoded.
    pub(crate) async fn open(answer: B, index: usize) -> Result<Option<(Format, Self)>, StoredImageError> {
        let image = ImageBytes { index, ..ImageBytes::default() };
        let mut opened = Self(StoredAnswerReader::new(answer, image));
        while opened.0.sink.decoded.len() < HEAD_BYTES && std::future::poll_fn(|cx| opened.poll_image(cx)).await? {
            if let Some(properties) = probe(&opened.0.sink.decoded) {
                return Ok(Some((properties.format, opened)));
            }
        }
        Ok(None)
    }

    /// Decodes the next piece. Returns false at the end of the image.
    fn poll_image(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, StoredImageError>> {
        let has_more = !self.0.sink.has_ended() && ready!(self.0.poll_piece(cx))?;
        Poll::Ready(if self.0.sink.is_malformed { Err(StoredImageError::Malformed) } else { Ok(has_more) })
    }
}

impl<B> Body for StoredImage<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = StoredImageError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StoredImageError>>> {
        while self.0.sink.decoded.is_empty() {
            if !ready!(self.poll_image(cx))? {
                return Poll::Ready(None);
            }
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.0.sink.decoded).into()))))
    }
}

// === impl ImageBytes ===

impl ImageBytes {
    /// True if the whole image was decoded.
    const fn has_ended(&self) -> bool {
        self.ended > self.index
    }
}

impl RelayEventSink for ImageBytes {
    fn push(&mut self, event: RelayEvent<'_>) {
        match event {
            RelayEvent::ItemBegun { event } => self.is_final = event.is_none_or(|name| name.ends_with(COMPLETED)),
            RelayEvent::ImageBytes { place: ImagePlace::Item, base64 } if self.is_final && self.ended == self.index => {
                self.is_malformed |= self.decoder.push(&base64, &mut self.decoded).is_err();
            }
            RelayEvent::ImageEnded { place: ImagePlace::Item } if self.is_final => self.ended += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use http_body_util::BodyExt as _;

    use super::*;

    fn png(shade: u8) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x04\0\0\0\x04\0\x08\x02\0\0\0".to_vec();
        bytes.extend(std::iter::repeat_n(shade, 50_000));
        bytes
    }

    /// An answer in pieces.
    #[derive(Debug)]
    struct PiecewiseBody(VecDeque<Bytes>);

    impl Body for PiecewiseBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
        }
    }

    fn body(answer: &str, piece: usize) -> PiecewiseBody {
        PiecewiseBody(answer.as_bytes().chunks(piece).map(Bytes::copy_from_slice).collect())
    }

    async fn read(answer: &str, piece: usize, index: usize) -> Option<(Format, Vec<u8>)> {
        let (format, image) = StoredImage::open(body(answer, piece), index).await.unwrap()?;
        Some((format, image.collect().await.unwrap().to_bytes().to_vec()))
    }

    #[tokio::test]
    async fn the_image_with_an_index_is_read_from_json_and_from_events() {
        let [first, second, partial] = [1, 2, 3].map(png);
        let [a, b, c] = [&first, &second, &partial].map(|bytes| STANDARD.encode(bytes));
        let json = format!(r#"{{"created":1,"data":[{{"b64_json":"{a}"}},{{"b64_json":"{b}"}}],"usage":{{}}}}"#);
        let events = format!(
            "event: image_generation.partial_image\ndata: {{\"type\":\"image_generation.partial_image\",\"b64_json\":\"{c}\"}}\n\n\
             : ping\n\nevent: image_generation.completed\ndata: {{\"type\":\"image_generation.completed\",\"b64_json\":\"{a}\"}}\n\n\
             event: image_generation.completed\ndata: {{\"type\":\"image_generation.completed\",\"b64_json\":\"{b}\"}}\n\n"
        );
        let cases =
            [json, events].into_iter().flat_map(|answer| [7, 1000, usize::MAX].map(|piece| (answer.clone(), piece)));
        for (answer, piece) in cases {
            assert_eq!(read(&answer, piece, 0).await, Some((Format::Png, first.clone())), "{piece}");
            assert_eq!(read(&answer, piece, 1).await, Some((Format::Png, second.clone())), "{piece}");
            assert_eq!(read(&answer, piece, 2).await, None, "{piece}");
        }
    }

    #[tokio::test]
    async fn text_that_is_no_image_is_not_served() {
        let html = STANDARD.encode("<script>alert(1)</script>".repeat(2000));
        let answer = format!(r#"{{"data":[{{"b64_json":"{html}"}}]}}"#);
        assert!(read(&answer, 512, 0).await.is_none());
        let broken = StoredImage::open(body(r#"{"data":[{"b64_json":"%%%%"}]}"#, 512), 0).await;
        assert!(matches!(broken, Err(StoredImageError::Malformed)));
    }
}
