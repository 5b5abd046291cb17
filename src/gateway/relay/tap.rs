//! Relays one answer from the upstream to the caller: any incoming shape becomes the requested shape.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::drawn::ImageToolResponse;
use super::events::{HEARTBEAT, SseAnswerWriter};
use super::fill::{self, AnswerUsage, RequestedAnswer};
use super::intake::{UpstreamActivity, UpstreamBodyReader};
use super::lexer::{AnswerLexer, AnswerSyntaxError};
use super::rewrite::{AnswerSummary, JsonAnswerWriter};
use super::sse::SseAnswerReader;
use crate::gateway::upstream::ReplyBody;
use crate::image::ImageProperties;

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
    pub(crate) until: Instant,
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
    Failed,
    #[error("the upstream's answer is too large to be an image")]
    Endless,
    #[error("the upstream's events ended before the final image")]
    Unfinished,
    #[error("the caller reads the answer too slowly")]
    Slow,
    #[error("a stored image cannot be read back")]
    Lost,
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
    pub(crate) something: bool,
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
    pub(super) intake: UpstreamBodyReader,
    input: ImageRelayInput,
    output: ImageRelayOutput,
    /// The end of the body, once reached: the body is not polled again.
    over: Option<Result<(), RelayError>>,
}

/// The incoming shape, known from its first byte.
#[derive(Debug)]
enum ImageRelayInput {
    Unknown,
    Answer(AnswerLexer),
    Events(SseAnswerReader),
    /// A response, whole or in events.
    Response(Box<ImageToolResponse>),
}

/// The outgoing shape.
#[derive(Debug)]
enum ImageRelayOutput {
    Answer(JsonAnswerWriter),
    Events(SseAnswerWriter),
}

/// Calls the same function of either shape.
macro_rules! either {
    ($output:expr, $name:ident) => {
        match $output {
            ImageRelayOutput::Answer(output) => output.$name(),
            ImageRelayOutput::Events(output) => output.$name(),
        }
    };
}

// === impl ImageRelay ===

impl ImageRelay {
    /// Makes a relay for an answer of the image endpoints.
    pub(super) fn new(body: ReplyBody, asked: RequestedAnswer, limits: AnswerTimeouts) -> Self {
        let images = u64::try_from(asked.count).unwrap_or(1) + u64::from(asked.partials);
        Self::reading(ImageRelayInput::Unknown, body, asked, limits, images)
    }

    /// Makes a relay for a response with one image.
    pub(super) fn of_response(body: ReplyBody, asked: RequestedAnswer, limits: AnswerTimeouts) -> Self {
        // The image comes twice, and some upstreams repeat the mask in their first and last events.
        let images = u64::from(asked.partials) + 5;
        Self::reading(ImageRelayInput::Response(Box::new(ImageToolResponse::new())), body, asked, limits, images)
    }

    fn reading(
        input: ImageRelayInput,
        body: ReplyBody,
        asked: RequestedAnswer,
        limits: AnswerTimeouts,
        images: u64,
    ) -> Self {
        let output = if asked.stream {
            ImageRelayOutput::Events(SseAnswerWriter::new(asked))
        } else {
            ImageRelayOutput::Answer(JsonAnswerWriter::new(asked))
        };
        let intake = UpstreamBodyReader::new(body, limits, images.saturating_mul(IMAGE_MAX));
        Self { intake, input, output, over: None }
    }

    /// Returns the next pieces for the caller.
    pub(super) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<RelayStep, RelayError>> {
        let waiting = either!(&mut self.output, take);
        if !waiting.is_empty() {
            return Poll::Ready(Ok(RelayStep::Pieces(waiting)));
        }
        if !self.complete() {
            match ready!(self.poll_read(cx)) {
                Ok(Some(_)) => return Poll::Ready(Ok(RelayStep::Pieces(either!(&mut self.output, take)))),
                Ok(None) if self.complete() => {}
                Ok(None) => self.ended()?,
                // Bytes after the final image cannot take it back, even in the same piece.
                Err(_) if self.complete() => {}
                Err(broken) => return Poll::Ready(Err(broken)),
            }
        }
        let waiting = either!(&mut self.output, take);
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
        let ImageRelayInput::Response(drawn) = &self.input else { return summary };
        AnswerSummary { usage: drawn.usage(), host_model: drawn.host_model(), ..summary }
    }

    /// Returns the members other than the image that the upstream sent, for an answer that is complete.
    pub(super) fn take_members(&mut self) -> Map<String, Value> {
        match &mut self.output {
            ImageRelayOutput::Answer(rewrite) => rewrite.take_members(),
            ImageRelayOutput::Events(events) => events.members(),
        }
    }

    /// True if the bytes before an image are held in memory.
    pub(super) const fn holds_back(&self) -> bool {
        !matches!(self.input, ImageRelayInput::Response(_))
    }

    pub(super) fn proven(&self) -> bool {
        either!(&self.output, proven)
    }

    /// Returns the properties of the first image, and true if more bytes could still show them.
    pub(super) fn first(&self) -> (Option<ImageProperties>, bool) {
        either!(&self.output, first)
    }

    /// Returns the bytes that go out if the answer breaks off: an event, or none, so that the transfer itself breaks.
    pub(super) fn break_off(&mut self, error: &str) -> Option<Bytes> {
        match &mut self.output {
            ImageRelayOutput::Answer(_) => None,
            ImageRelayOutput::Events(events) => Some(events.break_off(error)),
        }
    }

    /// Returns the bytes that keep the connection open, if the caller gets events and a comment may be sent here.
    pub(super) fn heartbeat(&self) -> Option<Bytes> {
        let takes = matches!(&self.output, ImageRelayOutput::Events(events) if events.between_frames());
        takes.then_some(Bytes::from_static(HEARTBEAT))
    }

    /// True if the caller gets events.
    pub(super) const fn streams(&self) -> bool {
        matches!(self.output, ImageRelayOutput::Events(_))
    }

    /// Reads one frame: returns its length, or `None` at the end of the body. Each later call returns the end again.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, RelayError>> {
        if let Some(over) = self.over {
            return Poll::Ready(over.map(|()| None));
        }
        let read = ready!(self.poll_frame(cx));
        match read {
            Ok(Some(_)) => {}
            Ok(None) => self.over = Some(Ok(())),
            Err(broken) => self.over = Some(Err(broken)),
        }
        Poll::Ready(read)
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, RelayError>> {
        // A model draws before its first byte and between its events, but not within a plain answer.
        let silence = match &self.input {
            ImageRelayInput::Events(sse) if sse.in_event() => UpstreamActivity::Sending,
            ImageRelayInput::Unknown | ImageRelayInput::Events(_) => UpstreamActivity::Working,
            ImageRelayInput::Answer(_) => UpstreamActivity::Sending,
            ImageRelayInput::Response(drawn) => drawn.silence(),
        };
        let data = match ready!(self.intake.poll(cx, silence)) {
            Ok(Some(data)) => data,
            ended => {
                self.settle();
                return Poll::Ready(ended.map(|_| None));
            }
        };
        let read = self.push(&data);
        let progressed = match &mut self.input {
            ImageRelayInput::Events(sse) => sse.take_progress(),
            ImageRelayInput::Response(drawn) => drawn.take_progress(),
            ImageRelayInput::Unknown | ImageRelayInput::Answer(_) => true,
        };
        if progressed {
            self.intake.progressed();
        }
        if read.is_err() {
            self.settle();
        }
        read?;
        let failed = match (&self.input, &self.output) {
            (ImageRelayInput::Response(drawn), _) => drawn.is_over() && !self.complete(),
            (_, ImageRelayOutput::Events(events)) => events.failed(),
            (_, ImageRelayOutput::Answer(_)) => false,
        };
        Poll::Ready(if failed { Err(RelayError::Failed) } else { Ok(Some(data.len())) })
    }

    /// Ends the answer: a complete image counts, even if more was to follow it.
    fn settle(&mut self) {
        if let ImageRelayInput::Response(drawn) = &mut self.input {
            match &mut self.output {
                ImageRelayOutput::Answer(output) => drawn.settle(output),
                ImageRelayOutput::Events(output) => drawn.settle(output),
            }
        }
    }

    /// Ends the body. Returns an error unless the answer is complete.
    fn ended(&self) -> Result<(), RelayError> {
        match &self.input {
            ImageRelayInput::Unknown => Err(MalformedAnswer(AnswerSyntaxError::Truncated).into()),
            ImageRelayInput::Answer(lexer) => lexer.finish().map_err(|malformed| MalformedAnswer(malformed).into()),
            ImageRelayInput::Events(_) | ImageRelayInput::Response(_) => Err(RelayError::Unfinished),
        }
    }

    /// Returns the members of a complete answer without an image, which may state the reason.
    pub(super) fn without_image(&self) -> Option<AnswerWithoutImage> {
        let whole = match &self.input {
            ImageRelayInput::Response(drawn) => return drawn.without_image(),
            ImageRelayInput::Unknown => false,
            ImageRelayInput::Answer(lexer) => lexer.finish().is_ok(),
            // Events that end without a final image and without an error do not show if an image was made.
            ImageRelayInput::Events(_) => match &self.output {
                ImageRelayOutput::Answer(rewrite) => rewrite.said(),
                ImageRelayOutput::Events(events) => events.said(),
            },
        };
        whole.then(|| {
            let (members, something) = match &self.output {
                ImageRelayOutput::Answer(rewrite) => (rewrite.members().clone(), rewrite.something()),
                ImageRelayOutput::Events(events) => (events.members(), events.something()),
            };
            let usage = fill::of_answer(&members);
            AnswerWithoutImage { members, something, usage }
        })
    }

    pub(super) fn complete(&self) -> bool {
        either!(&self.output, complete)
    }

    fn push(&mut self, data: &Bytes) -> Result<(), MalformedAnswer> {
        if let ImageRelayInput::Unknown = self.input {
            let Some(first) = data.iter().find(|byte| !byte.is_ascii_whitespace()) else { return Ok(()) };
            self.input = match first {
                b'{' | b'[' | b'<' => ImageRelayInput::Answer(AnswerLexer::new()),
                _ => ImageRelayInput::Events(SseAnswerReader::new()),
            };
        }
        match (&mut self.input, &mut self.output) {
            (ImageRelayInput::Unknown, _) => Ok(()),
            (ImageRelayInput::Response(drawn), ImageRelayOutput::Answer(output)) => drawn.push(data, output),
            (ImageRelayInput::Response(drawn), ImageRelayOutput::Events(output)) => drawn.push(data, output),
            (ImageRelayInput::Answer(lexer), ImageRelayOutput::Answer(output)) => lexer.push(data, output),
            (ImageRelayInput::Answer(lexer), ImageRelayOutput::Events(output)) => lexer.push(data, output),
            (ImageRelayInput::Events(sse), ImageRelayOutput::Answer(output)) => sse.push(data, output),
            (ImageRelayInput::Events(sse), ImageRelayOutput::Events(output)) => sse.push(data, output),
        }
        .map_err(MalformedAnswer)
    }
}
