//! Moves an answer from the upstream to the caller: reads pieces, decodes them, and hands on what the encoder writes.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;

use super::answer_members::RequestedAnswer;
use super::decoder::{AnswerDecoder, AnswerSchema};
use super::event::{AnswerEncoder, AnswerForm, AnswerSummary, AnswerWithoutImage};
use super::image_encoder::ImageEncoder;
use super::relay_error::RelayError;
use super::response_passthrough::{RequestedResponse, ResponsePassthrough};
use super::upstream_body::{AnswerTimeouts, UpstreamActivity, UpstreamBodyReader};
use crate::gateway::upstream::ReplyBody;
use crate::image::{ImageProperties, OtherContent};

/// The most base64 bytes of an image (our choice: 3840x2160 pixels of 16-bit RGBA, uncompressed, are 66 MB, and
/// 88 MB in base64).
const IMAGE_MAX: u64 = 96 * 1024 * 1024;
/// The size limit of a response that is passed on, in images of the largest size (our choice). In events, each image
/// comes twice.
const RESPONSE_IMAGES_MAX: u64 = 32;
/// The size limit of a response with one image, in images besides the intermediate ones: the image comes twice, and some
/// upstreams repeat the mask in their first and last events.
const IMAGE_TOOL_IMAGES_MAX: u64 = 5;

/// An answer on its way to the caller.
pub(super) trait AnswerSource: std::fmt::Debug + Send {
    /// Returns the next piece for the caller.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<RelayStep, RelayError>>;

    /// Moves the deadlines of the upstream by the time during which the caller did not read.
    fn extend_deadlines(&mut self, by: Duration) {
        let _ = by;
    }

    /// Returns the content of the answer so far.
    fn summary(&self) -> AnswerSummary;

    /// Returns the properties of the first image, if they are known.
    fn first_image(&self) -> Option<ImageProperties>;

    /// Returns the content of the first image, if it is in none of the formats that a request can name.
    fn other_content(&self) -> Option<OtherContent> {
        None
    }

    /// Returns the error event that ends a stream whose upstream broke off. `None` if the caller gets no events: its
    /// transfer then breaks off too.
    fn finish_with_error(&mut self, error: &str) -> Option<Bytes> {
        let _ = error;
        None
    }

    /// Returns a heartbeat for the caller, if the caller gets events and a heartbeat may be sent at this point.
    fn heartbeat(&mut self) -> Option<Bytes> {
        None
    }

    /// True if the answer is not read to its end without its caller, who may have been too slow.
    fn stops_when_caller_leaves(&self, is_too_slow: bool) -> bool {
        let _ = is_too_slow;
        false
    }
}

/// The result of one poll of an answer.
#[derive(Debug)]
pub(super) enum RelayStep {
    /// The next bytes for the caller.
    Piece(Bytes),
    /// The answer is complete: its last bytes and a summary of its content.
    End(Bytes, Box<AnswerSummary>),
}

/// An answer that is arriving from its upstream, proven or not.
#[derive(Debug)]
pub(crate) struct UpstreamRelay {
    upstream: UpstreamBodyReader,
    decoder: AnswerDecoder,
    encoder: Box<dyn AnswerEncoder>,
    /// True if the caller gets events.
    is_stream: bool,
    /// True for an answer of images. It ends soon, so that even its stream can be read to the end without a caller; the
    /// stream of a response may go on for long.
    is_image_answer: bool,
    /// The end of the body, once reached: the body is not polled again.
    body_end: Option<Result<(), RelayError>>,
}

// === impl UpstreamRelay ===

impl UpstreamRelay {
    /// Makes a relay for an answer of the image endpoints.
    pub(crate) fn for_images(body: ReplyBody, requested: RequestedAnswer, timeouts: AnswerTimeouts) -> Self {
        let images_max = u64::try_from(requested.count).unwrap_or(1) + u64::from(requested.partials);
        let upstream = UpstreamBodyReader::new(body, timeouts, images_max.saturating_mul(IMAGE_MAX));
        Self::new(upstream, AnswerSchema::Images, requested.stream, Box::new(ImageEncoder::new(requested)))
    }

    /// Makes a relay for a response that was requested for one image and becomes an answer of the image endpoints.
    pub(crate) fn for_image_tool(body: ReplyBody, requested: RequestedAnswer, timeouts: AnswerTimeouts) -> Self {
        let images_max = u64::from(requested.partials) + IMAGE_TOOL_IMAGES_MAX;
        let upstream = UpstreamBodyReader::new(body, timeouts, images_max.saturating_mul(IMAGE_MAX));
        let schema = AnswerSchema::ImageTool(Box::default());
        Self::new(upstream, schema, requested.stream, Box::new(ImageEncoder::new(requested)))
    }

    /// Makes a relay for a response that is passed on byte for byte. Until it is proven, it can still become an error.
    pub(crate) fn for_response(body: ReplyBody, requested: RequestedResponse, timeouts: AnswerTimeouts) -> Self {
        let upstream = UpstreamBodyReader::new(body, timeouts, RESPONSE_IMAGES_MAX * IMAGE_MAX);
        let (schema, stream) = (AnswerSchema::Response, requested.stream);
        let relay = Self::new(upstream, schema, stream, Box::new(ResponsePassthrough::new(requested)));
        Self { is_image_answer: false, ..relay }
    }

    fn new(
        upstream: UpstreamBodyReader,
        schema: AnswerSchema,
        is_stream: bool,
        encoder: Box<dyn AnswerEncoder>,
    ) -> Self {
        let decoder = AnswerDecoder::for_upstream(schema);
        Self { upstream, decoder, encoder, is_stream, is_image_answer: true, body_end: None }
    }

    /// Reads one frame: returns its length, or `None` at the end of the answer. Each later call returns the end again.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, RelayError>> {
        let end = match self.body_end {
            Some(end) => end,
            None if self.encoder.has_failed() => Err(RelayError::UpstreamFailed),
            None if self.encoder.is_complete() => {
                self.upstream.discard_rest(cx);
                Ok(())
            }
            None => {
                let activity = self.upstream_activity();
                match ready!(self.upstream.poll(cx, activity)) {
                    Ok(Some(data)) => match self.push(&data) {
                        Ok(()) => return Poll::Ready(Ok(Some(data.len()))),
                        Err(error) => self.end_body(Err(error)),
                    },
                    Ok(None) => {
                        self.decoder.end_body(&mut *self.encoder);
                        let form = self.decoder.form();
                        let end = self.decoder.finish().map_err(RelayError::from);
                        let end = end.and_then(|()| self.encoder.finish_body(form));
                        self.end_body(end)
                    }
                    Err(error) => self.end_body(Err(error)),
                }
            }
        };
        self.body_end = Some(end);
        Poll::Ready(end.map(|()| None))
    }

    /// True if the answer cannot be refused any more: an image has begun, or a response has begun.
    pub(crate) fn is_proven(&self) -> bool {
        self.encoder.is_proven()
    }

    /// Returns the properties of the first image, if they are known, and true if more bytes may still state them.
    pub(super) fn image_properties(&self) -> (Option<ImageProperties>, bool) {
        self.encoder.first_image()
    }

    /// True if the bytes before the proof are held in memory, so that their number must be limited.
    pub(super) fn is_buffered_before_proof(&self) -> bool {
        self.decoder.image_tool().is_none()
    }

    /// Returns the content of a complete answer in which no image was found.
    pub(super) fn without_image(&self) -> Option<AnswerWithoutImage> {
        let answer = match self.decoder.image_tool() {
            Some(tool) => tool.without_image(),
            None => self.encoder.without_image(self.decoder.form()),
        };
        let addresses = self.decoder.image_addresses().to_vec();
        answer.map(|answer| AnswerWithoutImage { addresses, ..answer })
    }

    /// The upstream's model works before the first byte, and between events. Otherwise the upstream only has to send what
    /// it has made.
    fn upstream_activity(&self) -> UpstreamActivity {
        let is_sending = match (self.decoder.form(), self.decoder.image_tool()) {
            (AnswerForm::Unknown, _) => false,
            (AnswerForm::Json, _) => true,
            (AnswerForm::Events, Some(tool)) => tool.is_in_image(),
            (AnswerForm::Events, None) => self.encoder.is_receiving(self.decoder.is_in_event()),
        };
        if is_sending { UpstreamActivity::Sending } else { UpstreamActivity::Working }
    }

    fn push(&mut self, data: &Bytes) -> Result<(), RelayError> {
        let mut rest = data.clone();
        let mut result = Ok(());
        while result.is_ok() && !rest.is_empty() && !self.is_over() {
            result = self.push_part(&mut rest);
        }
        if self.decoder.take_progress() {
            self.upstream.note_progress();
        }
        result
    }

    fn push_part(&mut self, rest: &mut Bytes) -> Result<(), RelayError> {
        let length = self.decoder.read(rest, &mut *self.encoder)?;
        self.encoder.pass_on(rest.split_to(length), self.decoder.form())?;
        let is_over_without_image = self.is_over() && !self.encoder.is_complete() && !self.encoder.has_failed();
        if is_over_without_image { Err(RelayError::UpstreamFailed) } else { Ok(()) }
    }

    /// True if the rest of the upstream's answer is not needed.
    fn is_over(&self) -> bool {
        let is_response_over = self.decoder.image_tool().is_some_and(|tool| tool.is_over());
        is_response_over || self.encoder.is_complete() || self.encoder.has_failed()
    }

    /// Returns the end of the body. A complete answer stays valid, even if the bytes after the final image are malformed
    /// or missing.
    fn end_body(&mut self, end: Result<(), RelayError>) -> Result<(), RelayError> {
        self.decoder.finish_image(&mut *self.encoder);
        if self.encoder.is_complete() { Ok(()) } else { end }
    }
}

impl AnswerSource for UpstreamRelay {
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<RelayStep, RelayError>> {
        loop {
            if let Some(piece) = self.encoder.next_piece() {
                return Poll::Ready(Ok(RelayStep::Piece(piece)));
            }
            let read = ready!(self.poll_read(cx));
            if let Ok(Some(_)) = read {
                continue;
            }
            // The bytes read before the end are sent first; the next call returns the end again.
            if let Some(piece) = self.encoder.next_piece() {
                return Poll::Ready(Ok(RelayStep::Piece(piece)));
            }
            return Poll::Ready(read.map(|_| {
                let summary = Box::new(self.summary());
                RelayStep::End(self.encoder.finish(), summary)
            }));
        }
    }

    fn extend_deadlines(&mut self, by: Duration) {
        self.upstream.extend_deadline(by);
    }

    fn summary(&self) -> AnswerSummary {
        let summary = self.encoder.summary();
        // The caller sees only the tokens of the image. The record also has those of the text model.
        let Some(tool) = self.decoder.image_tool() else { return summary };
        AnswerSummary { usage: tool.usage(), host_model: tool.host_model(), ..summary }
    }

    fn first_image(&self) -> Option<ImageProperties> {
        self.encoder.first_image().0
    }

    fn other_content(&self) -> Option<OtherContent> {
        self.encoder.other_content()
    }

    fn finish_with_error(&mut self, error: &str) -> Option<Bytes> {
        self.encoder.finish_with_error(error, self.decoder.closing_text())
    }

    fn heartbeat(&mut self) -> Option<Bytes> {
        self.encoder.heartbeat(self.decoder.form())
    }

    fn stops_when_caller_leaves(&self, is_too_slow: bool) -> bool {
        self.is_stream && !(is_too_slow && self.is_image_answer)
    }
}
