//! Relays one answer of images from the upstream to the caller. The upstream may send a JSON answer, events, or a
//! response; the caller gets a JSON answer or events, as requested.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::answer_members::{self, AnswerUsage, RequestedAnswer};
use super::image_tool_response::ImageToolResponse;
use super::json_writer::{AnswerSummary, JsonAnswerWriter};
use super::lexer::{AnswerLexer, AnswerSyntaxError};
use super::sse_reader::SseAnswerReader;
use super::sse_writer::{HEARTBEAT, SseAnswerWriter};
use super::upstream_body::{UpstreamActivity, UpstreamBodyReader};
use crate::gateway::upstream::ReplyBody;
use crate::image::ImageProperties;
use crate::stream::json::JsonSyntaxError;

/// The most base64 bytes of an image (our choice: 3840x2160 pixels of 16-bit RGBA, uncompressed, are 66 MB, and
/// 88 MB in base64).
pub(super) const IMAGE_MAX: u64 = 96 * 1024 * 1024;

/// The time limits of the part of an answer that has not arrived yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerTimeouts {
    /// The longest silence between two pieces of an answer.
    pub(crate) idle: Duration,
    /// The longest silence before the first byte and between two events, when the upstream's model works.
    pub(crate) event_idle: Duration,
    /// The moment at which all waiting ends.
    pub(crate) deadline: Instant,
}

/// The reason why an answer broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RelayError {
    #[error("the upstream's answer is malformed: {0}")]
    Malformed(#[from] MalformedAnswer),
    #[error("the upstream's connection broke during its answer")]
    Connection,
    #[error("the upstream stopped sending during its answer")]
    Timeout,
    #[error("the upstream reported an error during its answer")]
    UpstreamFailed,
    #[error("the upstream's answer is too large to be an image")]
    TooLarge,
    #[error("the upstream's events ended before the final image")]
    Incomplete,
    #[error("the caller reads the answer too slowly")]
    CallerTooSlow,
    #[error("a stored image cannot be read back")]
    SpoolUnreadable,
    #[error("the gateway stopped before the upstream's answer was complete")]
    Cutoff,
}

/// Keeps the error of the lexer private to the module `relay`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MalformedAnswer(pub(super) AnswerSyntaxError);

/// A complete answer in which no image was found.
#[derive(Debug)]
pub(crate) struct AnswerWithoutImage {
    /// The members of the answer, which may state the reason.
    pub(crate) members: Map<String, Value>,
    /// True if a sign suggests that an image was made and charged, such as a URL in its place.
    pub(crate) has_image_substitute: bool,
    /// The tokens that were charged nevertheless.
    pub(crate) usage: Option<AnswerUsage>,
}

/// The result of one poll of the upstream.
pub(super) enum RelayStep {
    /// Bytes have arrived. The list of bytes for the caller may be empty.
    Pieces(Vec<Bytes>),
    /// The answer is complete: its last bytes and a summary of its content.
    End(Bytes, Box<AnswerSummary>),
}

/// The upstream's body, with its reader and writer.
#[derive(Debug)]
pub(super) struct ImageRelay {
    pub(super) upstream: UpstreamBodyReader,
    input: ImageRelayInput,
    output: ImageRelayOutput,
    /// The end of the body, once reached: the body is not polled again.
    body_end: Option<Result<(), RelayError>>,
}

/// The form of the upstream's answer, which its first byte shows.
#[derive(Debug)]
enum ImageRelayInput {
    Unknown,
    Json(AnswerLexer),
    Events(SseAnswerReader),
    /// A response, whole or in events.
    Response(Box<ImageToolResponse>),
}

/// The form of the answer to the caller.
#[derive(Debug)]
enum ImageRelayOutput {
    Json(JsonAnswerWriter),
    Events(SseAnswerWriter),
}

/// Calls the method of this name on the writer.
macro_rules! delegate {
    ($output:expr, $name:ident) => {
        match $output {
            ImageRelayOutput::Json(output) => output.$name(),
            ImageRelayOutput::Events(output) => output.$name(),
        }
    };
}

// === impl ImageRelay ===

impl ImageRelay {
    /// Makes a relay for an answer of the image endpoints.
    pub(super) fn new(body: ReplyBody, requested: RequestedAnswer, timeouts: AnswerTimeouts) -> Self {
        let max_images = u64::try_from(requested.count).unwrap_or(1) + u64::from(requested.partials);
        Self::with_input(ImageRelayInput::Unknown, body, requested, timeouts, max_images)
    }

    /// Makes a relay for a response with one image.
    pub(super) fn for_response(body: ReplyBody, requested: RequestedAnswer, timeouts: AnswerTimeouts) -> Self {
        // The size limit of the body allows for five copies besides the intermediate images: the image comes twice, and
        // some upstreams repeat the mask in their first and last events.
        let max_images = u64::from(requested.partials) + 5;
        let input = ImageRelayInput::Response(Box::new(ImageToolResponse::new()));
        Self::with_input(input, body, requested, timeouts, max_images)
    }

    fn with_input(
        input: ImageRelayInput,
        body: ReplyBody,
        requested: RequestedAnswer,
        timeouts: AnswerTimeouts,
        max_images: u64,
    ) -> Self {
        let output = if requested.stream {
            ImageRelayOutput::Events(SseAnswerWriter::new(requested))
        } else {
            ImageRelayOutput::Json(JsonAnswerWriter::new(requested))
        };
        let upstream = UpstreamBodyReader::new(body, timeouts, max_images.saturating_mul(IMAGE_MAX));
        Self { upstream, input, output, body_end: None }
    }

    /// Returns the next pieces for the caller.
    pub(super) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<RelayStep, RelayError>> {
        let pieces = delegate!(&mut self.output, take_ready);
        if !pieces.is_empty() {
            return Poll::Ready(Ok(RelayStep::Pieces(pieces)));
        }
        if !self.is_complete() {
            match ready!(self.poll_read(cx)) {
                Ok(Some(_)) => return Poll::Ready(Ok(RelayStep::Pieces(delegate!(&mut self.output, take_ready)))),
                Ok(None) if self.is_complete() => {}
                Ok(None) => self.finish_body()?,
                // A complete answer stays valid, even if the bytes after the final image are malformed.
                Err(_) if self.is_complete() => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let pieces = delegate!(&mut self.output, take_ready);
        if !pieces.is_empty() {
            return Poll::Ready(Ok(RelayStep::Pieces(pieces)));
        }
        let summary = self.summary();
        Poll::Ready(Ok(RelayStep::End(delegate!(&mut self.output, finish), Box::new(summary))))
    }

    /// Returns the content of the answer so far.
    pub(super) fn summary(&self) -> AnswerSummary {
        let summary = delegate!(&self.output, summary);
        // The caller sees only the tokens of the image. The record also has those of the text model.
        let ImageRelayInput::Response(response) = &self.input else { return summary };
        AnswerSummary { usage: response.usage(), host_model: response.host_model(), ..summary }
    }

    /// Returns the members other than the image that the upstream sent, for an answer that is complete.
    pub(super) fn take_members(&mut self) -> Map<String, Value> {
        match &mut self.output {
            ImageRelayOutput::Json(writer) => writer.take_members(),
            ImageRelayOutput::Events(writer) => writer.members(),
        }
    }

    /// True if the bytes before the first image are held in memory.
    pub(super) const fn is_buffered_before_proof(&self) -> bool {
        !matches!(self.input, ImageRelayInput::Response(_))
    }

    pub(super) fn is_proven(&self) -> bool {
        delegate!(&self.output, is_proven)
    }

    /// Returns the properties of the first image, and true if more bytes may still state them.
    pub(super) fn first_image(&self) -> (Option<ImageProperties>, bool) {
        delegate!(&self.output, first_image)
    }

    /// Returns the error event that ends a stream whose upstream broke off; `None` for a JSON answer, whose transfer
    /// then breaks off too.
    pub(super) fn finish_with_error(&mut self, error: &str) -> Option<Bytes> {
        match &mut self.output {
            ImageRelayOutput::Json(_) => None,
            ImageRelayOutput::Events(writer) => Some(writer.finish_with_error(error)),
        }
    }

    /// Returns a heartbeat, if the caller gets events and a comment may be sent at this point.
    pub(super) fn heartbeat(&self) -> Option<Bytes> {
        let may_send = matches!(&self.output, ImageRelayOutput::Events(writer) if writer.is_between_frames());
        may_send.then_some(Bytes::from_static(HEARTBEAT))
    }

    /// True if the caller gets events.
    pub(super) const fn is_streaming(&self) -> bool {
        matches!(self.output, ImageRelayOutput::Events(_))
    }

    /// Reads one frame: returns its length, or `None` at the end of the body. Each later call returns the end again.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, RelayError>> {
        if let Some(end) = self.body_end {
            return Poll::Ready(end.map(|()| None));
        }
        let result = ready!(self.poll_frame(cx));
        match result {
            Ok(Some(_)) => {}
            Ok(None) => self.body_end = Some(Ok(())),
            Err(error) => self.body_end = Some(Err(error)),
        }
        Poll::Ready(result)
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, RelayError>> {
        // A model works before the first byte and between events, but not during a JSON answer.
        let activity = match &self.input {
            ImageRelayInput::Events(reader) if reader.in_event() => UpstreamActivity::Sending,
            ImageRelayInput::Unknown | ImageRelayInput::Events(_) => UpstreamActivity::Working,
            ImageRelayInput::Json(_) => UpstreamActivity::Sending,
            ImageRelayInput::Response(response) => response.activity(),
        };
        let data = match ready!(self.upstream.poll(cx, activity)) {
            Ok(Some(data)) => data,
            end_or_error => {
                self.finish_image();
                return Poll::Ready(end_or_error.map(|_| None));
            }
        };
        let result = self.push(&data);
        let has_progressed = match &mut self.input {
            ImageRelayInput::Events(reader) => reader.take_progress(),
            ImageRelayInput::Response(response) => response.take_progress(),
            ImageRelayInput::Unknown | ImageRelayInput::Json(_) => true,
        };
        if has_progressed {
            self.upstream.note_progress();
        }
        if result.is_err() {
            self.finish_image();
        }
        result?;
        let has_failed = match (&self.input, &self.output) {
            (ImageRelayInput::Response(response), _) => response.is_over() && !self.is_complete(),
            (_, ImageRelayOutput::Events(writer)) => writer.has_failed(),
            (_, ImageRelayOutput::Json(_)) => false,
        };
        Poll::Ready(if has_failed { Err(RelayError::UpstreamFailed) } else { Ok(Some(data.len())) })
    }

    /// Reports a complete image of a response to the writer, even if the rest of the response is missing.
    fn finish_image(&mut self) {
        if let ImageRelayInput::Response(response) = &mut self.input {
            match &mut self.output {
                ImageRelayOutput::Json(output) => response.finish_image(output),
                ImageRelayOutput::Events(output) => response.finish_image(output),
            }
        }
    }

    /// Ends the body. Returns an error unless the answer is complete.
    fn finish_body(&self) -> Result<(), RelayError> {
        match &self.input {
            ImageRelayInput::Unknown => Err(MalformedAnswer(JsonSyntaxError::Truncated.into()).into()),
            ImageRelayInput::Json(lexer) => lexer.finish().map_err(|error| MalformedAnswer(error).into()),
            ImageRelayInput::Events(_) | ImageRelayInput::Response(_) => Err(RelayError::Incomplete),
        }
    }

    /// Returns the members of a complete answer without an image, which may state the reason.
    pub(super) fn without_image(&self) -> Option<AnswerWithoutImage> {
        let is_complete = match &self.input {
            ImageRelayInput::Response(response) => return response.without_image(),
            ImageRelayInput::Unknown => false,
            ImageRelayInput::Json(lexer) => lexer.finish().is_ok(),
            // If events end without a final image and without a reason, an image may have been made.
            ImageRelayInput::Events(_) => match &self.output {
                ImageRelayOutput::Json(writer) => writer.has_reported_no_image(),
                ImageRelayOutput::Events(writer) => writer.has_reported_no_image(),
            },
        };
        is_complete.then(|| {
            let (members, has_image_substitute) = match &self.output {
                ImageRelayOutput::Json(writer) => (writer.members().clone(), writer.has_image_substitute()),
                ImageRelayOutput::Events(writer) => (writer.members(), writer.has_image_substitute()),
            };
            let usage = answer_members::usage_from_answer(&members);
            AnswerWithoutImage { members, has_image_substitute, usage }
        })
    }

    pub(super) fn is_complete(&self) -> bool {
        delegate!(&self.output, is_complete)
    }

    fn push(&mut self, data: &Bytes) -> Result<(), MalformedAnswer> {
        if let ImageRelayInput::Unknown = self.input {
            let Some(first) = data.iter().find(|byte| !byte.is_ascii_whitespace()) else { return Ok(()) };
            self.input = match first {
                // The lexer refuses a list (`[`) and HTML (`<`), which are not answers.
                b'{' | b'[' | b'<' => ImageRelayInput::Json(AnswerLexer::new()),
                _ => ImageRelayInput::Events(SseAnswerReader::new()),
            };
        }
        match (&mut self.input, &mut self.output) {
            (ImageRelayInput::Unknown, _) => Ok(()),
            (ImageRelayInput::Response(response), ImageRelayOutput::Json(output)) => response.push(data, output),
            (ImageRelayInput::Response(response), ImageRelayOutput::Events(output)) => response.push(data, output),
            (ImageRelayInput::Json(lexer), ImageRelayOutput::Json(output)) => lexer.push(data, output),
            (ImageRelayInput::Json(lexer), ImageRelayOutput::Events(output)) => lexer.push(data, output),
            (ImageRelayInput::Events(reader), ImageRelayOutput::Json(output)) => reader.push(data, output),
            (ImageRelayInput::Events(reader), ImageRelayOutput::Events(output)) => reader.push(data, output),
        }
        .map_err(MalformedAnswer)
    }
}
