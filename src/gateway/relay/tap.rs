//! One answer between the upstream and the caller: whatever shape comes in becomes the shape that was asked for.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::drawn::Drawn;
use super::events::{Events, HEARTBEAT};
use super::fill::{self, Asked, Usage};
use super::intake::{Intake, Silence};
use super::lexer::{Lexer, Malformed};
use super::rewrite::{Rewrite, Summary};
use super::sse::Sse;
use crate::gateway::upstream::ReplyBody;
use crate::image::Facts;

/// No image is larger in base64 (ours: 3840x2160 pixels of 16-bit RGBA, uncompressed, are 66 MB of bytes).
pub(super) const IMAGE_MAX: u64 = 96 * 1024 * 1024;

/// How long an answer may take, from here on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Silence between two pieces of an answer.
    pub(crate) idle: Duration,
    /// Silence before the first byte and between two events: a model draws meanwhile.
    pub(crate) event_idle: Duration,
    /// The end of all patience.
    pub(crate) until: Instant,
}

/// How an answer broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the upstream's answer is not what was promised: {0}")]
    Malformed(#[from] MalformedAnswer),
    #[error("the upstream's connection broke in the middle of its answer")]
    Connection,
    #[error("the upstream fell silent in the middle of its answer")]
    Timeout,
    #[error("the upstream said in the middle of its answer that it failed")]
    Failed,
    #[error("the upstream's answer is larger than any image")]
    Endless,
    #[error("the upstream's events ended before the final image")]
    Unfinished,
    #[error("the caller takes the answer too slowly")]
    Slow,
    #[error("an image that was kept here cannot be read back")]
    Lost,
    #[error("the gateway stopped before the upstream's answer was complete")]
    Cutoff,
}

/// Keeps the lexer's word private to this room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MalformedAnswer(pub(super) Malformed);

/// A whole answer in which no image was found.
#[derive(Debug)]
pub(crate) struct Without {
    /// Its members, which may say why.
    pub(crate) members: Map<String, Value>,
    /// Where an image should be there was something else, such as an address: it may well have been made and paid for.
    pub(crate) something: bool,
    /// The tokens that were charged all the same.
    pub(crate) usage: Option<Usage>,
}

/// What one look at the upstream gave.
pub(super) enum Step {
    /// Something came; perhaps nothing of it goes out.
    Pieces(Vec<Bytes>),
    /// The answer is complete: its last bytes, and what it held.
    End(Bytes, Box<Summary>),
}

/// The upstream's body with everything behind it.
#[derive(Debug)]
pub(super) struct Tap {
    pub(super) intake: Intake,
    input: Input,
    output: Output,
    /// How the body ended, once it has: it is not asked again.
    over: Option<Result<(), Broken>>,
}

/// The shape that comes in, known from its first byte.
#[derive(Debug)]
enum Input {
    Unknown,
    Answer(Lexer),
    Events(Sse),
    /// A response, whole or in events.
    Response(Box<Drawn>),
}

/// The shape that goes out.
#[derive(Debug)]
enum Output {
    Answer(Rewrite),
    Events(Events),
}

/// Calls the same function of either shape.
macro_rules! either {
    ($output:expr, $name:ident) => {
        match $output {
            Output::Answer(output) => output.$name(),
            Output::Events(output) => output.$name(),
        }
    };
}

// === impl Tap ===

impl Tap {
    /// For an answer of the image endpoints.
    pub(super) fn new(body: ReplyBody, asked: Asked, limits: Limits) -> Self {
        let images = u64::try_from(asked.count).unwrap_or(1) + u64::from(asked.partials);
        Self::reading(Input::Unknown, body, asked, limits, images)
    }

    /// For a response with one image.
    pub(super) fn of_response(body: ReplyBody, asked: Asked, limits: Limits) -> Self {
        // The image comes twice, and some upstreams repeat the mask in their first and last words.
        let images = u64::from(asked.partials) + 5;
        Self::reading(Input::Response(Box::new(Drawn::new())), body, asked, limits, images)
    }

    fn reading(input: Input, body: ReplyBody, asked: Asked, limits: Limits, images: u64) -> Self {
        let output =
            if asked.stream { Output::Events(Events::new(asked)) } else { Output::Answer(Rewrite::new(asked)) };
        let intake = Intake::new(body, limits, images.saturating_mul(IMAGE_MAX));
        Self { intake, input, output, over: None }
    }

    /// The next pieces for the caller.
    pub(super) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Step, Broken>> {
        let waiting = either!(&mut self.output, take);
        if !waiting.is_empty() {
            return Poll::Ready(Ok(Step::Pieces(waiting)));
        }
        if !self.complete() {
            match ready!(self.poll_read(cx)) {
                Ok(Some(_)) => return Poll::Ready(Ok(Step::Pieces(either!(&mut self.output, take)))),
                Ok(None) if self.complete() => {}
                Ok(None) => self.ended()?,
                // What comes after the final image cannot take it back, even in the same piece.
                Err(_) if self.complete() => {}
                Err(broken) => return Poll::Ready(Err(broken)),
            }
        }
        let waiting = either!(&mut self.output, take);
        if !waiting.is_empty() {
            return Poll::Ready(Ok(Step::Pieces(waiting)));
        }
        let summary = self.summary();
        Poll::Ready(Ok(Step::End(either!(&mut self.output, finish), Box::new(summary))))
    }

    /// What the answer held so far.
    pub(super) fn summary(&self) -> Summary {
        let summary = either!(&self.output, summary);
        // The caller reads what the image cost; what the text around it cost was paid as well.
        let Input::Response(drawn) = &self.input else { return summary };
        Summary { usage: drawn.usage(), host_model: drawn.host_model(), ..summary }
    }

    /// What the upstream said beside its image, of an answer that is whole.
    pub(super) fn take_members(&mut self) -> Map<String, Value> {
        match &mut self.output {
            Output::Answer(rewrite) => rewrite.take_members(),
            Output::Events(events) => events.members(),
        }
    }

    /// Whether anything is kept of what comes before an image.
    pub(super) const fn holds_back(&self) -> bool {
        !matches!(self.input, Input::Response(_))
    }

    pub(super) fn proven(&self) -> bool {
        either!(&self.output, proven)
    }

    /// What the first image is, and whether more bytes could still tell.
    pub(super) fn first(&self) -> (Option<Facts>, bool) {
        either!(&self.output, first)
    }

    /// What goes out when it breaks off: an event, or nothing, so that the transfer itself breaks.
    pub(super) fn break_off(&mut self, error: &str) -> Option<Bytes> {
        match &mut self.output {
            Output::Answer(_) => None,
            Output::Events(events) => Some(events.break_off(error)),
        }
    }

    /// What keeps the connection awake, where the caller gets events and a comment may stand here.
    pub(super) fn heartbeat(&self) -> Option<Bytes> {
        let takes = matches!(&self.output, Output::Events(events) if events.between_frames());
        takes.then_some(Bytes::from_static(HEARTBEAT))
    }

    /// Whether the caller gets events.
    pub(super) const fn streams(&self) -> bool {
        matches!(self.output, Output::Events(_))
    }

    /// Reads one frame: its length, or `None` at the end of the body. The end is told again whenever it is asked for.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, Broken>> {
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

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, Broken>> {
        // A model draws before its first byte and between its events; within a plain answer it does not.
        let silence = match &self.input {
            Input::Events(sse) if sse.in_event() => Silence::Sending,
            Input::Unknown | Input::Events(_) => Silence::Working,
            Input::Answer(_) => Silence::Sending,
            Input::Response(drawn) => drawn.silence(),
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
            Input::Events(sse) => sse.take_progress(),
            Input::Response(drawn) => drawn.take_progress(),
            Input::Unknown | Input::Answer(_) => true,
        };
        if progressed {
            self.intake.progressed();
        }
        if read.is_err() {
            self.settle();
        }
        read?;
        let failed = match (&self.input, &self.output) {
            (Input::Response(drawn), _) => drawn.is_over() && !self.complete(),
            (_, Output::Events(events)) => events.failed(),
            (_, Output::Answer(_)) => false,
        };
        Poll::Ready(if failed { Err(Broken::Failed) } else { Ok(Some(data.len())) })
    }

    /// Nothing more comes: an image that is whole counts, whatever was to follow it.
    fn settle(&mut self) {
        if let Input::Response(drawn) = &mut self.input {
            match &mut self.output {
                Output::Answer(output) => drawn.settle(output),
                Output::Events(output) => drawn.settle(output),
            }
        }
    }

    /// The body has ended: whether the answer is whole.
    fn ended(&self) -> Result<(), Broken> {
        match &self.input {
            Input::Unknown => Err(MalformedAnswer(Malformed::Truncated).into()),
            Input::Answer(lexer) => lexer.finish().map_err(|malformed| MalformedAnswer(malformed).into()),
            Input::Events(_) | Input::Response(_) => Err(Broken::Unfinished),
        }
    }

    /// An answer that is whole and has no image in it: its members, which may say why.
    pub(super) fn without_image(&self) -> Option<Without> {
        let whole = match &self.input {
            Input::Response(drawn) => return drawn.without_image(),
            Input::Unknown => false,
            Input::Answer(lexer) => lexer.finish().is_ok(),
            // Events that end without a final image and without an error say nothing of what was made.
            Input::Events(_) => match &self.output {
                Output::Answer(rewrite) => rewrite.said(),
                Output::Events(events) => events.said(),
            },
        };
        whole.then(|| {
            let (members, something) = match &self.output {
                Output::Answer(rewrite) => (rewrite.members().clone(), rewrite.something()),
                Output::Events(events) => (events.members(), events.something()),
            };
            let usage = fill::of_answer(&members);
            Without { members, something, usage }
        })
    }

    pub(super) fn complete(&self) -> bool {
        either!(&self.output, complete)
    }

    fn push(&mut self, data: &Bytes) -> Result<(), MalformedAnswer> {
        if let Input::Unknown = self.input {
            let Some(first) = data.iter().find(|byte| !byte.is_ascii_whitespace()) else { return Ok(()) };
            self.input = match first {
                b'{' | b'[' | b'<' => Input::Answer(Lexer::new()),
                _ => Input::Events(Sse::new()),
            };
        }
        match (&mut self.input, &mut self.output) {
            (Input::Unknown, _) => Ok(()),
            (Input::Response(drawn), Output::Answer(output)) => drawn.push(data, output),
            (Input::Response(drawn), Output::Events(output)) => drawn.push(data, output),
            (Input::Answer(lexer), Output::Answer(output)) => lexer.push(data, output),
            (Input::Answer(lexer), Output::Events(output)) => lexer.push(data, output),
            (Input::Events(sse), Output::Answer(output)) => sse.push(data, output),
            (Input::Events(sse), Output::Events(output)) => sse.push(data, output),
        }
        .map_err(MalformedAnswer)
    }
}
