//! Relays a response byte for byte as the upstream sends it, and lets an observer read the values for the record.
//!
//! An event is passed on when it is complete. Only the bytes of a large event, which has an image, are passed on as
//! they come. If the upstream breaks off, the caller has therefore no incomplete small event, and an incomplete large
//! event can be completed. A failure that the upstream states is not passed on: the caller gets two events, `error` and
//! `response.failed`, because some clients read only one of them.

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

/// The number of bytes up to which an event is held until it is complete (our choice). A larger event has an image.
const EVENT_HOLD: usize = 64 * 1024;
/// The `event:` lines of failures, for an event whose data does not state the type at its beginning.
const FAILURE_PREFIXES: [&[u8]; 2] = [b"event: response.failed", b"event: error"];
/// The most bytes of the end of a plain response that are passed on: of its last brace and the white space after it (our
/// choice).
const TAIL_MAX: usize = 1024;
/// The size limit of a response, in images of the largest size (our choice). In events, each image comes twice.
const IMAGES_MAX: u64 = 32;
/// The longest time in which the caller may get only comments, from the upstream or from the gateway.
const PROGRESS_EVENT_INTERVAL: Duration = Duration::from_secs(IMAGE_CALL_HEARTBEAT_SECONDS);

/// A response on its way from the upstream to the caller.
#[derive(Debug)]
pub(super) struct ResponsePassthrough {
    pub(super) upstream: UpstreamBodyReader,
    input: PassthroughInput,
    observer: ResponseObserver,
    /// The pieces that can be sent to the caller.
    ready: Vec<Bytes>,
    /// The number of bytes that have been held back before proof.
    held_bytes: u64,
    proven: bool,
    /// The last bytes, which are sent after the record is closed.
    tail: BytesMut,
    complete: bool,
    /// The time at which something other than a comment was last sent.
    last_sent_at: Instant,
    body_end: Option<Result<(), RelayError>>,
}

/// The form of the upstream's answer, which its first byte shows.
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
    /// The bytes of the event, while it is held until it is complete.
    text: BytesMut,
    /// True if the bytes of the event are passed on as they come.
    is_relayed_live: bool,
    /// True if the bytes of the event are dropped, because it is a failure.
    is_suppressed: bool,
    progressed: bool,
}

// === impl ResponsePassthrough ===

impl ResponsePassthrough {
    pub(super) fn new(body: ReplyBody, requested: RequestedResponse, timeouts: AnswerTimeouts) -> Self {
        Self {
            upstream: UpstreamBodyReader::new(body, timeouts, IMAGES_MAX * IMAGE_MAX),
            input: PassthroughInput::Unknown,
            observer: ResponseObserver::new(requested),
            ready: Vec::new(),
            held_bytes: 0,
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
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        if self.ready.is_empty() && self.complete {
            let tail = std::mem::take(&mut self.tail).freeze();
            return Poll::Ready(Ok(RelayStep::End(tail, Box::new(self.summary()))));
        }
        Poll::Ready(Ok(RelayStep::Pieces(std::mem::take(&mut self.ready))))
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, RelayError>> {
        if let Some(end) = self.body_end {
            return Poll::Ready(end.map(|()| None));
        }
        let activity = match &self.input {
            PassthroughInput::Json(_) => UpstreamActivity::Sending,
            PassthroughInput::Events(current) if current.is_relayed_live => UpstreamActivity::Sending,
            PassthroughInput::Unknown | PassthroughInput::Events(_) => UpstreamActivity::Working,
        };
        let result = match ready!(self.upstream.poll(cx, activity)) {
            Ok(Some(data)) => self.push(&data).map(|()| Some(data.len())),
            Ok(None) => self.finish_body().map(|()| None),
            Err(error) => Err(error),
        };
        match result {
            Ok(Some(_)) => {}
            Ok(None) => self.body_end = Some(Ok(())),
            Err(error) => self.body_end = Some(Err(error)),
        }
        Poll::Ready(result)
    }

    /// True if everything that was requested is there.
    pub(super) const fn is_complete(&self) -> bool {
        self.complete
    }

    pub(super) fn summary(&self) -> AnswerSummary {
        self.observer.summary()
    }

    /// True if the answer is proven: an image or other output has begun, the response is complete, too many bytes are
    /// held back, or it is a failure that agents recognize only in a stream.
    pub(super) const fn is_proven(&self) -> bool {
        self.proven
    }

    /// Returns the properties of the first image, and true if more bytes may still state them; nothing for a stream.
    pub(super) fn first_image(&self) -> (Option<ImageProperties>, bool) {
        if self.is_streaming() { (None, false) } else { self.observer.first_image() }
    }

    pub(super) const fn is_streaming(&self) -> bool {
        self.observer.is_streaming()
    }

    /// Returns a heartbeat: a comment, or a progress event if one is due.
    pub(super) fn heartbeat(&mut self) -> Option<Bytes> {
        let is_between_frames = matches!(&self.input, PassthroughInput::Events(current) if !current.is_relayed_live);
        if !self.is_streaming() || !(is_between_frames || matches!(self.input, PassthroughInput::Unknown)) {
            return None;
        }
        Some(self.progress_event().unwrap_or(Bytes::from_static(HEARTBEAT)))
    }

    /// Returns the event that reports an image in progress, if only comments were sent for a long time: agents
    /// do not count comments as progress.
    fn progress_event(&mut self) -> Option<Bytes> {
        if self.last_sent_at.elapsed() < PROGRESS_EVENT_INTERVAL {
            return None;
        }
        let event = self.observer.generating_event()?;
        self.last_sent_at = Instant::now();
        Some(Bytes::from(event))
    }

    /// Returns the bytes that end the stream if the answer breaks off: the rest of an event that has begun, which
    /// becomes an error, and the two events of a failure. `None` for a plain response, whose transfer breaks off too.
    pub(super) fn finish_with_error(&mut self, error: &str) -> Option<Bytes> {
        if !self.is_streaming() {
            return None;
        }
        let mut text = String::new();
        if let PassthroughInput::Events(current) = &self.input
            && current.is_relayed_live
        {
            // Of two members `type` in one object, and of two `event:` lines of one event, clients use the last.
            let error = self.observer.error_event(error);
            let closing = current.data.closing_text().map(|closing| format!("{closing},{}\nevent: error", &error[1..]));
            text.push_str(&closing.unwrap_or_default());
            text.push_str("\n\n");
        }
        let (error, failed) = (self.observer.error_event(error), self.observer.failed_event(error));
        text.push_str(&format!("event: error\ndata: {error}\n\nevent: response.failed\ndata: {failed}\n\n"));
        Some(Bytes::from(text))
    }

    /// Returns the content of an answer that failed before it was proven.
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

    /// Reads a plain response, which is passed on as it comes, except for its last bytes.
    fn push_answer(&mut self, data: &Bytes) -> Result<(), RelayError> {
        let PassthroughInput::Json(reader) = &mut self.input else { return Ok(()) };
        self.upstream.note_progress();
        let read = reader.push(data, &mut self.observer).map_err(MalformedAnswer)?;
        // The closing brace is the first of the last bytes.
        let ready = if reader.is_done() { read.saturating_sub(1) } else { read };
        if data[read..].iter().any(|byte| !byte.is_ascii_whitespace()) {
            return Err(malformed(JsonSyntaxError::Surplus));
        }
        let last = &data[ready..];
        self.tail.extend_from_slice(&last[..last.len().min(TAIL_MAX.saturating_sub(self.tail.len()))]);
        // If events were requested, nothing of a plain response is passed on.
        let is_wanted = !self.is_streaming();
        if ready > 0 && is_wanted {
            self.queue_slice(data.slice(..ready));
        }
        self.proven |= is_wanted && (self.observer.has_image() || self.held_bytes > HOLD_BEFORE_PROOF_BYTES);
        Ok(())
    }

    fn push_events(&mut self, data: &Bytes) -> Result<(), RelayError> {
        let mut offset = 0;
        // The offset of the bytes of this piece that are not queued yet, for an event that is passed on as it comes.
        let mut unsent = 0;
        while offset < data.len() && !self.complete && self.body_end.is_none() {
            let PassthroughInput::Events(current) = &mut self.input else { return Ok(()) };
            let (length, span) = current.frames.next(&data[offset..]);
            let end = offset + length;
            if span == SseFrameSpan::Data {
                current.progressed = true;
                current.data.push(&data[offset..end], &mut self.observer).map_err(MalformedAnswer)?;
            }
            if !current.is_relayed_live && !current.is_suppressed {
                current.text.extend_from_slice(&data[offset..end]);
                unsent = end;
            }
            if current.is_suppressed {
                unsent = end;
            }
            match span {
                SseFrameSpan::End { is_event } => {
                    self.end_frame(is_event, data.slice(unsent..end))?;
                    unsent = end;
                }
                _ => self.relay_large_event(),
            }
            offset = end;
        }
        if unsent < offset {
            self.queue_slice(data.slice(unsent..offset));
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
            ResponseEventKind::Unknown => FAILURE_PREFIXES.iter().any(|prefix| text.starts_with(prefix)),
            kind => kind == ResponseEventKind::Failure,
        };
        if !current.is_suppressed {
            current.is_relayed_live = true;
            self.proven = true;
            self.ready.push(text);
        }
    }

    /// Ends a frame. `unsent` has the last bytes of an event that is passed on as it comes.
    fn end_frame(&mut self, event: bool, unsent: Bytes) -> Result<(), RelayError> {
        let PassthroughInput::Events(current) = &mut self.input else { return Ok(()) };
        let is_object = current.data.finish().map_err(malformed)?;
        let kind = if is_object { self.observer.end_event() } else { ResponseEventKind::Preface };
        let text = if current.is_relayed_live { unsent } else { current.text.split().freeze() };
        if event || current.is_relayed_live {
            self.last_sent_at = Instant::now();
        }
        (current.is_relayed_live, current.is_suppressed) = (false, false);
        match kind {
            // Agents recognize this failure only in a stream, so the stream begins and states it.
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
                self.proven |= event && self.held_bytes > HOLD_BEFORE_PROOF_BYTES;
                self.queue(text);
                let progress_event = if self.proven { self.progress_event() } else { None };
                self.ready.extend(progress_event);
            }
        }
        Ok(())
    }

    /// Queues bytes that the relay owns. They are sent now, or after the proof.
    fn queue(&mut self, bytes: Bytes) {
        if !self.proven {
            self.held_bytes += bytes.len() as u64;
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

    /// Ends the body. Returns an error if the answer is incomplete, or failed before it was proven.
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
                let has_failed = self.observer.end_response();
                // A proven answer is passed on to its end; its own members state the failure.
                if has_failed && !self.proven {
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
