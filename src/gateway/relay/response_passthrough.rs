//! Relays a response byte for byte as the upstream sends it, while an observer reads the small values.
//!
//! An event goes out when it is complete, unless it is so large that it must hold an image; then its bytes go out as
//! they come. So a break cuts no small event, and a large one can be completed. A failure that the upstream states is
//! judged and not passed on: the caller gets the pair of events that every client understands. This module carries the
//! failure sequence and the heartbeats of the contract for this endpoint.

mod response_observer;

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

pub(crate) use self::response_observer::RequestedResponse;
use self::response_observer::{ResponseEventKind, ResponseObserver};
use super::event_data::EventData;
use super::image_relay::{AnswerTimeouts, AnswerWithoutImage, IMAGE_MAX, MalformedAnswer, RelayError, RelayStep};
use super::json_writer::AnswerSummary;
use super::lexer::RESPONSE_CAPTURE_LIMITS;
use super::sse_frames::{SseFrameScanner, SseFrameSpan};
use super::sse_writer::HEARTBEAT;
use super::upstream_body::{UpstreamActivity, UpstreamBodyReader};
use crate::gateway::upstream::ReplyBody;
use crate::image::ImageProperties;
use crate::stream::json::{JsonReader, JsonSyntaxError};
use crate::tables::{HOLD_BEFORE_PROOF_BYTES, IMAGE_CALL_HEARTBEAT_SECONDS};

/// The size above which an event holds an image.
const EVENT_HOLD: usize = 64 * 1024;
/// The beginnings of failures that state their kind before their data.
const FAILURE_PREFIXES: [&[u8]; 2] = [b"event: response.failed", b"event: error"];
/// The most bytes of white space after a plain response that are passed on.
const TAIL_MAX: usize = 1024;
/// The most images of the largest kind in a response, each of them sent twice (our choice).
const IMAGES_MAX: u64 = 32;
/// The longest time in which an agent may get only comments, from any sender.
const PROGRESS_EVENT_INTERVAL: Duration = Duration::from_secs(IMAGE_CALL_HEARTBEAT_SECONDS);

/// A response between the upstream and the caller.
#[derive(Debug)]
pub(super) struct ResponsePassthrough {
    pub(super) upstream: UpstreamBodyReader,
    input: PassthroughInput,
    observer: ResponseObserver,
    /// The pieces that can go out.
    ready: Vec<Bytes>,
    /// The number of bytes that have been held back before proof.
    held: u64,
    proven: bool,
    /// The last bytes, which wait for the record.
    tail: BytesMut,
    complete: bool,
    /// The time at which anything but comments last went out.
    last_sent_at: Instant,
    body_end: Option<Result<(), RelayError>>,
}

/// The incoming shape, known from its first byte.
#[derive(Debug)]
enum PassthroughInput {
    Unknown,
    Json(JsonReader),
    Events(Box<PassthroughEvent>),
}

/// The event that is being read.
#[derive(Debug)]
struct PassthroughEvent {
    frames: SseFrameScanner,
    data: EventData,
    /// Its bytes so far, while it may still be small.
    text: BytesMut,
    /// True if its bytes go out as they come.
    is_relayed_live: bool,
    /// True if its bytes are dropped, because it is a failure.
    is_suppressed: bool,
    progressed: bool,
}

// === impl ResponsePassthrough ===

impl ResponsePassthrough {
    pub(super) fn new(body: ReplyBody, requested: RequestedResponse, limits: AnswerTimeouts) -> Self {
        Self {
            upstream: UpstreamBodyReader::new(body, limits, IMAGES_MAX * IMAGE_MAX),
            input: PassthroughInput::Unknown,
            observer: ResponseObserver::new(requested),
            ready: Vec::new(),
            held: 0,
            proven: false,
            tail: BytesMut::new(),
            complete: false,
            last_sent_at: Instant::now(),
            body_end: None,
        }
    }

    /// Returns the next pieces for the caller.
    pub(super) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<RelayStep, RelayError>> {
        if self.ready.is_empty() && !self.complete {
            match ready!(self.poll_read(cx)) {
                Ok(Some(_)) => {}
                Ok(None) => self.complete = true,
                Err(broken) => return Poll::Ready(Err(broken)),
            }
        }
        if self.ready.is_empty() && self.complete {
            let tail = std::mem::take(&mut self.tail).freeze();
            return Poll::Ready(Ok(RelayStep::End(tail, Box::new(self.summary()))));
        }
        Poll::Ready(Ok(RelayStep::Pieces(std::mem::take(&mut self.ready))))
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, RelayError>> {
        if let Some(over) = self.body_end {
            return Poll::Ready(over.map(|()| None));
        }
        let activity = match &self.input {
            PassthroughInput::Json(_) => UpstreamActivity::Sending,
            PassthroughInput::Events(current) if current.is_relayed_live => UpstreamActivity::Sending,
            PassthroughInput::Unknown | PassthroughInput::Events(_) => UpstreamActivity::Working,
        };
        let read = match ready!(self.upstream.poll(cx, activity)) {
            Ok(Some(data)) => self.push(&data).map(|()| Some(data.len())),
            Ok(None) => self.finish_body().map(|()| None),
            Err(broken) => Err(broken),
        };
        match read {
            Ok(Some(_)) => {}
            Ok(None) => self.body_end = Some(Ok(())),
            Err(broken) => self.body_end = Some(Err(broken)),
        }
        Poll::Ready(read)
    }

    /// True if everything that was requested is there.
    pub(super) const fn is_complete(&self) -> bool {
        self.complete
    }

    pub(super) fn summary(&self) -> AnswerSummary {
        self.observer.summary()
    }

    /// True if the answer has really begun: an image in it, work on it, or its end.
    pub(super) const fn is_proven(&self) -> bool {
        self.proven
    }

    /// Returns the properties of the first image, and true if more bytes could show them: never in a stream.
    pub(super) fn first_image(&self) -> (Option<ImageProperties>, bool) {
        if self.is_streaming() { (None, false) } else { self.observer.first_image() }
    }

    pub(super) const fn is_streaming(&self) -> bool {
        self.observer.is_streaming()
    }

    /// Returns a comment; while an image is made also the event that agents take for a sign of life.
    pub(super) fn heartbeat(&mut self) -> Option<Bytes> {
        let between = matches!(&self.input, PassthroughInput::Events(current) if !current.is_relayed_live);
        if !self.is_streaming() || !(between || matches!(self.input, PassthroughInput::Unknown)) {
            return None;
        }
        Some(self.progress_event().unwrap_or(Bytes::from_static(HEARTBEAT)))
    }

    /// Returns the event that repeats that an image is being made, if only comments have gone out for long.
    fn progress_event(&mut self) -> Option<Bytes> {
        if self.last_sent_at.elapsed() < PROGRESS_EVENT_INTERVAL {
            return None;
        }
        let event = self.observer.generating_event()?;
        self.last_sent_at = Instant::now();
        Some(Bytes::from(event))
    }

    /// Returns the bytes that go out if the answer breaks off: the end that makes a begun event an error, and the pair
    /// of events that every client understands; nothing for a plain response, so that the transfer itself breaks.
    pub(super) fn finish_with_error(&mut self, error: &str) -> Option<Bytes> {
        if !self.is_streaming() {
            return None;
        }
        let mut text = String::new();
        if let PassthroughInput::Events(current) = &self.input
            && current.is_relayed_live
        {
            // Of two types in one object the last one counts, and of two names of one event too.
            let error = self.observer.error_event(error);
            let closing = current.data.closing_text().map(|closing| format!("{closing},{}\nevent: error", &error[1..]));
            text.push_str(&closing.unwrap_or_default());
            text.push_str("\n\n");
        }
        let (error, failed) = (self.observer.error_event(error), self.observer.failed_event(error));
        text.push_str(&format!("event: error\ndata: {error}\n\nevent: response.failed\ndata: {failed}\n\n"));
        Some(Bytes::from(text))
    }

    /// Returns the content of an answer that failed before anything began.
    pub(super) fn without_image(&self) -> Option<AnswerWithoutImage> {
        let (has_image_substitute, usage) = (self.observer.has_image(), self.observer.usage());
        self.observer.failure().map(|members| AnswerWithoutImage { members, has_image_substitute, usage })
    }

    fn push(&mut self, data: &Bytes) -> Result<(), RelayError> {
        if let PassthroughInput::Unknown = self.input {
            let Some(first) = data.iter().find(|byte| !byte.is_ascii_whitespace()) else {
                self.queue(Bytes::copy_from_slice(data));
                return Ok(());
            };
            self.input = match first {
                b'{' | b'[' | b'<' => PassthroughInput::Json(JsonReader::new("response", RESPONSE_CAPTURE_LIMITS)),
                _ if self.is_streaming() => {
                    self.observer.expect_events();
                    PassthroughInput::Events(Box::new(PassthroughEvent::new()))
                }
                // Events that were not requested.
                byte @ (b'e' | b'd' | b':') => {
                    tracing::warn!("the upstream answered with events although one response was requested");
                    return Err(malformed(JsonSyntaxError::Unexpected(*byte)));
                }
                byte => return Err(malformed(JsonSyntaxError::Unexpected(*byte))),
            };
        }
        match self.input {
            PassthroughInput::Unknown => Ok(()),
            PassthroughInput::Json(_) => self.push_answer(data),
            PassthroughInput::Events(_) => self.push_events(data),
        }
    }

    /// Reads a plain response: it goes out as it comes, except for its last bytes.
    fn push_answer(&mut self, data: &Bytes) -> Result<(), RelayError> {
        let PassthroughInput::Json(reader) = &mut self.input else { return Ok(()) };
        self.upstream.note_progress();
        let read = reader.push(data, &mut self.observer).map_err(MalformedAnswer)?;
        // The closing brace is the first of the last bytes.
        let out = if reader.is_done() { read.saturating_sub(1) } else { read };
        if data[read..].iter().any(|byte| !byte.is_ascii_whitespace()) {
            return Err(malformed(JsonSyntaxError::Surplus));
        }
        let last = &data[out..];
        self.tail.extend_from_slice(&last[..last.len().min(TAIL_MAX.saturating_sub(self.tail.len()))]);
        // If events were requested, nothing of this goes out.
        let wanted = !self.is_streaming();
        if out > 0 && wanted {
            self.queue_slice(data.slice(..out));
        }
        self.proven |= wanted && (self.observer.has_image() || self.held > HOLD_BEFORE_PROOF_BYTES);
        Ok(())
    }

    fn push_events(&mut self, data: &Bytes) -> Result<(), RelayError> {
        let mut at = 0;
        // The start of the bytes of this piece that have not gone out, for an event that is passed on as it comes.
        let mut from = 0;
        while at < data.len() && !self.complete && self.body_end.is_none() {
            let PassthroughInput::Events(current) = &mut self.input else { return Ok(()) };
            let (length, span) = current.frames.next(&data[at..]);
            let end = at + length;
            if span == SseFrameSpan::Data {
                current.progressed = true;
                current.data.push(&data[at..end], &mut self.observer).map_err(MalformedAnswer)?;
            }
            if !current.is_relayed_live && !current.is_suppressed {
                current.text.extend_from_slice(&data[at..end]);
                from = end;
            }
            if current.is_suppressed {
                from = end;
            }
            match span {
                SseFrameSpan::End { event } => {
                    let rest = data.slice(from..end);
                    self.end_frame(event, rest)?;
                    from = end;
                }
                _ => self.relay_large_event(),
            }
            at = end;
        }
        if from < at {
            self.queue_slice(data.slice(from..at));
        }
        if let PassthroughInput::Events(current) = &mut self.input {
            if current.is_relayed_live {
                self.last_sent_at = Instant::now();
            }
            if std::mem::take(&mut current.progressed) {
                self.upstream.note_progress();
            }
        }
        Ok(())
    }

    /// Begins to pass on an event that is too large to be held, unless it is a failure.
    fn relay_large_event(&mut self) {
        let PassthroughInput::Events(current) = &mut self.input else { return };
        if current.is_relayed_live || current.is_suppressed || current.text.len() <= EVENT_HOLD {
            return;
        }
        let text = current.text.split().freeze();
        current.is_suppressed = match self.observer.event_kind() {
            ResponseEventKind::Unknown => FAILURE_PREFIXES.iter().any(|name| text.starts_with(name)),
            kind => kind == ResponseEventKind::Failure,
        };
        if !current.is_suppressed {
            current.is_relayed_live = true;
            self.proven = true;
            self.ready.push(text);
        }
    }

    /// Ends a frame. `rest` holds the bytes of a flowing event that have not gone out.
    fn end_frame(&mut self, event: bool, rest: Bytes) -> Result<(), RelayError> {
        let PassthroughInput::Events(current) = &mut self.input else { return Ok(()) };
        let is_object = current.data.finish().map_err(malformed)?;
        let kind = if is_object { self.observer.end_event() } else { ResponseEventKind::Preface };
        let text = if current.is_relayed_live { rest } else { current.text.split().freeze() };
        if event || current.is_relayed_live {
            self.last_sent_at = Instant::now();
        }
        (current.is_relayed_live, current.is_suppressed) = (false, false);
        match kind {
            // Agents would not see the failure as a status, so the stream begins in order to state it.
            ResponseEventKind::Failure if self.observer.is_agent_recoverable() => {
                self.proven = true;
                self.body_end = Some(Err(RelayError::UpstreamFailed));
            }
            ResponseEventKind::Failure => return Err(RelayError::UpstreamFailed),
            ResponseEventKind::End => {
                self.tail.extend_from_slice(&text);
                (self.complete, self.proven) = (true, true);
            }
            ResponseEventKind::Work | ResponseEventKind::Unknown => {
                self.proven = true;
                self.queue(text);
            }
            ResponseEventKind::Preface => {
                self.proven |= event && self.held > HOLD_BEFORE_PROOF_BYTES;
                self.queue(text);
                let progress_event = if self.proven { self.progress_event() } else { None };
                self.ready.extend(progress_event);
            }
        }
        Ok(())
    }

    /// Queues bytes that the relay owns, to go out now or when the answer has begun.
    fn queue(&mut self, bytes: Bytes) {
        if !self.proven {
            self.held += bytes.len() as u64;
        }
        if !bytes.is_empty() {
            self.ready.push(bytes);
        }
    }

    /// Queues a slice of an upstream piece. It is copied if it must wait for the proof.
    fn queue_slice(&mut self, bytes: Bytes) {
        let bytes = if self.proven { bytes } else { Bytes::copy_from_slice(&bytes) };
        self.queue(bytes);
    }

    /// Ends the body. Returns an error unless the answer is complete.
    fn finish_body(&mut self) -> Result<(), RelayError> {
        match &mut self.input {
            PassthroughInput::Unknown => Err(malformed(JsonSyntaxError::Truncated)),
            PassthroughInput::Events(_) => {
                if self.complete {
                    Ok(())
                } else {
                    Err(RelayError::Incomplete)
                }
            }
            PassthroughInput::Json(reader) if !reader.is_done() => Err(malformed(JsonSyntaxError::Truncated)),
            PassthroughInput::Json(_) => {
                let failed = self.observer.end_response();
                // An answer that has begun is passed on to its end, and states itself that it failed.
                if failed && !self.proven {
                    return Err(RelayError::UpstreamFailed);
                }
                if self.is_streaming() {
                    tracing::warn!("the upstream answered with one response although events were requested");
                    return Err(malformed(JsonSyntaxError::NotAnObject));
                }
                self.proven = true;
                Ok(())
            }
        }
    }
}

// === impl PassthroughEvent ===

impl PassthroughEvent {
    fn new() -> Self {
        Self {
            frames: SseFrameScanner::new(),
            data: EventData::new(RESPONSE_CAPTURE_LIMITS),
            text: BytesMut::new(),
            is_relayed_live: false,
            is_suppressed: false,
            progressed: false,
        }
    }
}

fn malformed(error: JsonSyntaxError) -> RelayError {
    MalformedAnswer(error.into()).into()
}

#[cfg(test)]
mod tests;
