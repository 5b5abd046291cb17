//! Relays one answer from the upstream to the caller: any incoming shape becomes the requested shape.

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

/// The most base64 bytes of an image (ours: 3840x2160 pixels of 16-bit RGBA, uncompressed, are 66 MB of bytes).
pub(super) const IMAGE_MAX: u64 = 96 * 1024 * 1024;

/// The time limits of an answer, from here on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerTimeouts {
    /// The longest silence between two pieces of an answer.
    pub(crate) idle: Duration,
    /// The longest silence before the first byte and between two events, while a model draws.
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
    /// Its members, which may state the reason.
    pub(crate) members: Map<String, Value>,
    /// True if another value, such as an address, was in place of an image, which may well be made and paid for.
    pub(crate) has_image_substitute: bool,
    /// The tokens that were charged all the same.
    pub(crate) usage: Option<AnswerUsage>,
}

/// The result of one poll of the upstream.
pub(super) enum RelayStep {
    /// Bytes have come; possibly none of them go out.
    Pieces(Vec<Bytes>),
    /// The answer is complete: its last bytes and its content.
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

/// The incoming shape, known from its first byte.
#[derive(Debug)]
enum ImageRelayInput {
    Unknown,
    Json(AnswerLexer),
    Events(SseAnswerReader),
    /// A response, whole or in events.
    Response(Box<ImageToolResponse>),
}

/// The outgoing shape.
#[derive(Debug)]
enum ImageRelayOutput {
    Json(JsonAnswerWriter),
    Events(SseAnswerWriter),
}

/// Calls the same function of either shape.
macro_rules! either {
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
    pub(super) fn new(body: ReplyBody, requested: RequestedAnswer, limits: AnswerTimeouts) -> Self {
        let images = u64::try_from(requested.count).unwrap_or(1) + u64::from(requested.partials);
        Self::with_input(ImageRelayInput::Unknown, body, requested, limits, images)
    }

    /// Makes a relay for a response with one image.
    pub(super) fn for_response(body: ReplyBody, requested: RequestedAnswer, limits: AnswerTimeouts) -> Self {
        // The image comes twice, and some upstreams repeat the mask in their first and last events.
        let images = u64::from(requested.partials) + 5;
        Self::with_input(ImageRelayInput::Response(Box::new(ImageToolResponse::new())), body, requested, limits, images)
    }

    fn with_input(
        input: ImageRelayInput,
        body: ReplyBody,
        requested: RequestedAnswer,
        limits: AnswerTimeouts,
        images: u64,
    ) -> Self {
        let output = if requested.stream {
            ImageRelayOutput::Events(SseAnswerWriter::new(requested))
        } else {
            ImageRelayOutput::Json(JsonAnswerWriter::new(requested))
        };
        let upstream = UpstreamBodyReader::new(body, limits, images.saturating_mul(IMAGE_MAX));
        Self { upstream, input, output, body_end: None }
    }

    /// Returns the next pieces for the caller.
    pub(super) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<RelayStep, RelayError>> {
        let waiting = either!(&mut self.output, take_ready);
        if !waiting.is_empty() {
            return Poll::Ready(Ok(RelayStep::Pieces(waiting)));
        }
        if !self.is_complete() {
            match ready!(self.poll_read(cx)) {
                Ok(Some(_)) => return Poll::Ready(Ok(RelayStep::Pieces(either!(&mut self.output, take_ready)))),
                Ok(None) if self.is_complete() => {}
                Ok(None) => self.finish_body()?,
                // Bytes after the final image cannot take it back, even in the same piece.
                Err(_) if self.is_complete() => {}
                Err(broken) => return Poll::Ready(Err(broken)),
            }
        }
        let waiting = either!(&mut self.output, take_ready);
        if !waiting.is_empty() {
            return Poll::Ready(Ok(RelayStep::Pieces(waiting)));
        }
        let summary = self.summary();
        Poll::Ready(Ok(RelayStep::End(either!(&mut self.output, finish), Box::new(summary))))
    }

    /// Returns the content of the answer so far.
    pub(super) fn summary(&self) -> AnswerSummary {
        let summary = either!(&self.output, summary);
        // The caller sees the cost of the image; the text around it was paid for as well.
        let ImageRelayInput::Response(response) = &self.input else { return summary };
        AnswerSummary { usage: response.usage(), host_model: response.host_model(), ..summary }
    }

    /// Returns the members other than the image that the upstream sent, for an answer that is complete.
    pub(super) fn take_members(&mut self) -> Map<String, Value> {
        match &mut self.output {
            ImageRelayOutput::Json(rewrite) => rewrite.take_members(),
            ImageRelayOutput::Events(events) => events.members(),
        }
    }

    /// True if the bytes before an image are held in memory.
    pub(super) const fn is_buffered_before_proof(&self) -> bool {
        !matches!(self.input, ImageRelayInput::Response(_))
    }

    pub(super) fn is_proven(&self) -> bool {
        either!(&self.output, is_proven)
    }

    /// Returns the properties of the first image, and true if more bytes could still show them.
    pub(super) fn first_image(&self) -> (Option<ImageProperties>, bool) {
        either!(&self.output, first_image)
    }

    /// Returns the bytes that go out if the answer breaks off: an event, or none, so that the transfer itself breaks.
    pub(super) fn finish_with_error(&mut self, error: &str) -> Option<Bytes> {
        match &mut self.output {
            ImageRelayOutput::Json(_) => None,
            ImageRelayOutput::Events(events) => Some(events.finish_with_error(error)),
        }
    }

    /// Returns the bytes that keep the connection open, if the caller gets events and a comment may be sent here.
    pub(super) fn heartbeat(&self) -> Option<Bytes> {
        let takes = matches!(&self.output, ImageRelayOutput::Events(events) if events.is_between_frames());
        takes.then_some(Bytes::from_static(HEARTBEAT))
    }

    /// True if the caller gets events.
    pub(super) const fn is_streaming(&self) -> bool {
        matches!(self.output, ImageRelayOutput::Events(_))
    }

    /// Reads one frame: returns its length, or `None` at the end of the body. Each later call returns the end again.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, RelayError>> {
        if let Some(over) = self.body_end {
            return Poll::Ready(over.map(|()| None));
        }
        let read = ready!(self.poll_frame(cx));
        match read {
            Ok(Some(_)) => {}
            Ok(None) => self.body_end = Some(Ok(())),
            Err(broken) => self.body_end = Some(Err(broken)),
        }
        Poll::Ready(read)
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, RelayError>> {
        // A model draws before its first byte and between its events, but not within a plain answer.
        let activity = match &self.input {
            ImageRelayInput::Events(sse) if sse.in_event() => UpstreamActivity::Sending,
            ImageRelayInput::Unknown | ImageRelayInput::Events(_) => UpstreamActivity::Working,
            ImageRelayInput::Json(_) => UpstreamActivity::Sending,
            ImageRelayInput::Response(response) => response.activity(),
        };
        let data = match ready!(self.upstream.poll(cx, activity)) {
            Ok(Some(data)) => data,
            ended => {
                self.finish_image();
                return Poll::Ready(ended.map(|_| None));
            }
        };
        let read = self.push(&data);
        let progressed = match &mut self.input {
            ImageRelayInput::Events(sse) => sse.take_progress(),
            ImageRelayInput::Response(drawn) => drawn.take_progress(),
            ImageRelayInput::Unknown | ImageRelayInput::Json(_) => true,
        };
        if progressed {
            self.upstream.note_progress();
        }
        if read.is_err() {
            self.finish_image();
        }
        read?;
        let failed = match (&self.input, &self.output) {
            (ImageRelayInput::Response(drawn), _) => drawn.is_over() && !self.is_complete(),
            (_, ImageRelayOutput::Events(events)) => events.has_failed(),
            (_, ImageRelayOutput::Json(_)) => false,
        };
        Poll::Ready(if failed { Err(RelayError::UpstreamFailed) } else { Ok(Some(data.len())) })
    }

    /// Ends the answer: a complete image counts, even if more was to follow it.
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
            ImageRelayInput::Json(lexer) => lexer.finish().map_err(|malformed| MalformedAnswer(malformed).into()),
            ImageRelayInput::Events(_) | ImageRelayInput::Response(_) => Err(RelayError::Incomplete),
        }
    }

    /// Returns the members of a complete answer without an image, which may state the reason.
    pub(super) fn without_image(&self) -> Option<AnswerWithoutImage> {
        let is_whole = match &self.input {
            ImageRelayInput::Response(response) => return response.without_image(),
            ImageRelayInput::Unknown => false,
            ImageRelayInput::Json(lexer) => lexer.finish().is_ok(),
            // Events that end without a final image and without an error do not show if an image was made.
            ImageRelayInput::Events(_) => match &self.output {
                ImageRelayOutput::Json(rewrite) => rewrite.has_reported_no_image(),
                ImageRelayOutput::Events(events) => events.has_reported_no_image(),
            },
        };
        is_whole.then(|| {
            let (members, has_image_substitute) = match &self.output {
                ImageRelayOutput::Json(rewrite) => (rewrite.members().clone(), rewrite.has_image_substitute()),
                ImageRelayOutput::Events(events) => (events.members(), events.has_image_substitute()),
            };
            let usage = answer_members::usage_from_answer(&members);
            AnswerWithoutImage { members, has_image_substitute, usage }
        })
    }

    pub(super) fn is_complete(&self) -> bool {
        either!(&self.output, is_complete)
    }

    fn push(&mut self, data: &Bytes) -> Result<(), MalformedAnswer> {
        if let ImageRelayInput::Unknown = self.input {
            let Some(first) = data.iter().find(|byte| !byte.is_ascii_whitespace()) else { return Ok(()) };
            self.input = match first {
                b'{' | b'[' | b'<' => ImageRelayInput::Json(AnswerLexer::new()),
                _ => ImageRelayInput::Events(SseAnswerReader::new()),
            };
        }
        match (&mut self.input, &mut self.output) {
            (ImageRelayInput::Unknown, _) => Ok(()),
            (ImageRelayInput::Response(response), ImageRelayOutput::Json(output)) => response.push(data, output),
            (ImageRelayInput::Response(drawn), ImageRelayOutput::Events(output)) => drawn.push(data, output),
            (ImageRelayInput::Json(lexer), ImageRelayOutput::Json(output)) => lexer.push(data, output),
            (ImageRelayInput::Json(lexer), ImageRelayOutput::Events(output)) => lexer.push(data, output),
            (ImageRelayInput::Events(sse), ImageRelayOutput::Json(output)) => sse.push(data, output),
            (ImageRelayInput::Events(sse), ImageRelayOutput::Events(output)) => sse.push(data, output),
        }
        .map_err(MalformedAnswer)
    }
}
