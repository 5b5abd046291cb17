//! Passes a response on byte for byte as the upstream sends it, except for the status of an image call that has its image
//! and is not said to be complete, and for absent padding of base64, while an observer reads the values for its record.
//!
//! An event is passed on when it is complete. Only the bytes of a large event, which has an image, are passed on as
//! they come. If the upstream breaks off, the caller has therefore no incomplete small event, and an incomplete large
//! event can be completed. A failure that the upstream states is not passed on: the caller gets two events, `error` and
//! `response.failed`, because some clients read only one of them.

mod held_bytes;
mod response_observer;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use self::held_bytes::HeldBytes;
pub(crate) use self::response_observer::RequestedResponse;
use self::response_observer::{ResponseEventKind, ResponseObserver};
use super::event::{
    AnswerEncoder, AnswerForm, AnswerSummary, AnswerWithoutImage, FrameContent, ImagePlace, MemberScope, RelayEvent,
    RelayEventSink,
};
use super::image_encoder::HEARTBEAT;
use super::image_item::spoil_base64;
use super::relay_error::RelayError;
use crate::image::ImageProperties;
use crate::stream::json::{JsonSyntaxError, ValueInterest};
use crate::tables::{HOLD_BEFORE_PROOF_BYTES, IMAGE_CALL_HEARTBEAT_SECONDS};

/// The number of bytes up to which an event is held until it is complete (our choice). A larger event has an image, or
/// repeats a long request.
const EVENT_HOLD: usize = 64 * 1024;
/// The `event:` lines of failures, for an event whose data does not state the type at its beginning.
const FAILURE_PREFIXES: [&[u8]; 2] = [b"event: response.failed", b"event: error"];
/// The `event:` lines of events that repeat the request before the model has begun to work.
const PREFACE_PREFIXES: [&[u8]; 3] =
    [b"event: response.created", b"event: response.in_progress", b"event: response.queued"];
/// The most bytes of the end of a plain response that are passed on: of its last brace and the white space after it (our
/// choice).
const TAIL_MAX: usize = 1024;
/// The longest time in which the caller may get only comments, from the upstream or from the gateway.
const PROGRESS_EVENT_INTERVAL: Duration = Duration::from_secs(IMAGE_CALL_HEARTBEAT_SECONDS);

/// The encoder of one response.
#[derive(Debug)]
pub(super) struct ResponsePassthrough {
    observer: ResponseObserver,
    /// The pieces that can be sent to the caller.
    ready: VecDeque<Bytes>,
    /// The number of bytes that have been held back before proof.
    held_bytes: u64,
    is_proven: bool,
    /// The bytes of the current event, while it is held until it is complete, or until the status of an item is known.
    held: HeldBytes,
    delivery: EventDelivery,
    /// The content of the frame that ends with the next bytes.
    ended_frame: Option<FrameContent>,
    /// True if a plain response ends with the next bytes, or has ended.
    has_ended: bool,
    /// The last bytes, which are sent after the record is closed.
    tail: BytesMut,
    is_complete: bool,
    has_failed: bool,
    /// The time at which something other than a comment was last sent.
    last_sent_at: Instant,
}

/// The use of the bytes of an event that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventDelivery {
    /// They are held until the event is complete.
    Held,
    /// They are passed on as they come.
    Live,
    /// They are dropped, because the event is a failure.
    Suppressed,
}

// === impl ResponsePassthrough ===

impl ResponsePassthrough {
    pub(super) fn new(requested: RequestedResponse) -> Self {
        Self {
            observer: ResponseObserver::new(requested),
            ready: VecDeque::new(),
            held_bytes: 0,
            is_proven: false,
            held: HeldBytes::default(),
            delivery: EventDelivery::Held,
            ended_frame: None,
            has_ended: false,
            tail: BytesMut::new(),
            is_complete: false,
            has_failed: false,
            last_sent_at: Instant::now(),
        }
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

    /// Passes on the bytes of a plain response, except for its last bytes.
    fn pass_on_answer(&mut self, mut bytes: Bytes) {
        if self.has_ended {
            // The closing brace is the first of the last bytes.
            let brace = if self.tail.is_empty() { bytes.len().saturating_sub(1) } else { 0 };
            let last = bytes.split_off(brace);
            self.tail.extend_from_slice(&last[..last.len().min(TAIL_MAX.saturating_sub(self.tail.len()))]);
        }
        // If events were requested, nothing of a plain response is passed on.
        if !self.observer.is_streaming() {
            let bytes = self.held.pass(bytes);
            self.queue_slice(bytes);
            self.is_proven |= self.observer.has_image() || self.held_bytes > HOLD_BEFORE_PROOF_BYTES;
        }
    }

    fn pass_on_event(&mut self, bytes: Bytes) -> Result<(), RelayError> {
        if self.delivery == EventDelivery::Held {
            self.held.push(&bytes);
        }
        match (self.ended_frame.take(), self.delivery) {
            (Some(content), EventDelivery::Live) => {
                let bytes = self.held.pass(bytes);
                self.end_frame(content, bytes)
            }
            (Some(content), _) => {
                let event = self.held.take_all();
                self.end_frame(content, event)
            }
            (None, EventDelivery::Held) if self.held.len() > EVENT_HOLD => {
                self.begin_large_event();
                Ok(())
            }
            (None, EventDelivery::Live) => {
                let bytes = self.held.pass(bytes);
                self.queue_live(bytes);
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    /// Begins to pass on an event that is too large to be held, unless it is a failure. The event before the proof that
    /// repeats the request proves nothing, so it is held as long as all bytes before the proof may be.
    fn begin_large_event(&mut self) {
        let kind = self.observer.event_kind();
        let is_of = |kinds: ResponseEventKind, prefixes: &[&[u8]]| match kind {
            ResponseEventKind::Unknown => prefixes.iter().any(|prefix| self.held.starts_with(prefix)),
            kind => kind == kinds,
        };
        let fits_before_proof = self.held_bytes + self.held.len() as u64 <= HOLD_BEFORE_PROOF_BYTES;
        if !self.is_proven && fits_before_proof && is_of(ResponseEventKind::Preface, &PREFACE_PREFIXES) {
            return;
        }
        let is_failure = is_of(ResponseEventKind::Failure, &FAILURE_PREFIXES);
        if is_failure {
            self.delivery = EventDelivery::Suppressed;
            drop(self.held.take_all());
        } else {
            (self.delivery, self.is_proven) = (EventDelivery::Live, true);
            let bytes = self.held.take_ready();
            self.queue_live(bytes);
        }
    }

    /// Ends a frame. `text` has those of its bytes that have not been passed on.
    fn end_frame(&mut self, content: FrameContent, text: Bytes) -> Result<(), RelayError> {
        let is_event = content != FrameContent::Comments;
        let kind = match content {
            FrameContent::Object => self.observer.end_event(),
            FrameContent::Fields | FrameContent::Comments => ResponseEventKind::Preface,
        };
        if is_event {
            self.last_sent_at = Instant::now();
        }
        self.delivery = EventDelivery::Held;
        match kind {
            // Agents recognize this failure only in a stream, so the stream begins and states it.
            ResponseEventKind::Failure if self.observer.is_agent_recoverable() => {
                (self.is_proven, self.has_failed) = (true, true);
            }
            ResponseEventKind::Failure => return Err(RelayError::UpstreamFailed),
            ResponseEventKind::End => {
                self.tail.extend_from_slice(&text);
                (self.is_complete, self.is_proven) = (true, true);
            }
            ResponseEventKind::Work | ResponseEventKind::Unknown => {
                self.is_proven = true;
                self.queue(text);
            }
            ResponseEventKind::Preface => {
                self.is_proven |= is_event && self.held_bytes > HOLD_BEFORE_PROOF_BYTES;
                self.queue(text);
                let progress_event = if self.is_proven { self.progress_event() } else { None };
                self.ready.extend(progress_event);
            }
        }
        Ok(())
    }

    /// Queues bytes of an event that is passed on as it comes.
    fn queue_live(&mut self, bytes: Bytes) {
        self.last_sent_at = Instant::now();
        if !bytes.is_empty() {
            self.ready.push_back(bytes);
        }
    }

    /// Queues bytes that the relay owns. They are sent now, or after the proof.
    fn queue(&mut self, bytes: Bytes) {
        if !self.is_proven {
            self.held_bytes += bytes.len() as u64;
        }
        if !bytes.is_empty() {
            self.ready.push_back(bytes);
        }
    }

    /// Queues a slice of an upstream piece. It is copied if it must wait for the proof.
    fn queue_slice(&mut self, bytes: Bytes) {
        let bytes = if self.is_proven { bytes } else { Bytes::copy_from_slice(&bytes) };
        self.queue(bytes);
    }
}

impl RelayEventSink for ResponsePassthrough {
    fn interest(&self, scope: MemberScope, name: &str) -> ValueInterest {
        ResponseObserver::interest(scope, name)
    }

    fn push(&mut self, event: RelayEvent<'_>) {
        match &event {
            RelayEvent::UnfinishedStatus { offset } => self.held.note_unfinished(*offset),
            RelayEvent::PaddingAbsent { offset, padding } => self.held.note_padding(*offset, padding),
            RelayEvent::ImageBytes { place: ImagePlace::Item | ImagePlace::Repeated, .. } => self.held.note_result(),
            RelayEvent::Ended { scope: MemberScope::Item }
            | RelayEvent::FrameEnded { .. }
            | RelayEvent::AnswerEnded => {
                self.held.end_item();
            }
            _ => {}
        }
        match event {
            RelayEvent::FrameEnded { content, .. } => self.ended_frame = Some(content),
            RelayEvent::AnswerEnded => self.has_ended = true,
            event => self.observer.push(event),
        }
    }
}

impl AnswerEncoder for ResponsePassthrough {
    fn pass_on(&mut self, bytes: Bytes, form: AnswerForm) -> Result<(), RelayError> {
        match form {
            AnswerForm::Unknown => self.queue_slice(bytes),
            AnswerForm::Json => self.pass_on_answer(bytes),
            AnswerForm::Events if self.observer.is_streaming() => return self.pass_on_event(bytes),
            AnswerForm::Events => {
                tracing::warn!(
                    "the upstream answered with events, or without JSON, although one response was requested"
                );
                return Err(JsonSyntaxError::NotAnObject.into());
            }
        }
        Ok(())
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    /// An answer is also proven if it is complete, if too many bytes are held back, or if it is a failure that agents
    /// recognize only in a stream.
    fn is_proven(&self) -> bool {
        self.is_proven
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn has_failed(&self) -> bool {
        self.has_failed
    }

    fn is_receiving(&self, _: bool) -> bool {
        self.delivery == EventDelivery::Live
    }

    fn finish_body(&mut self, form: AnswerForm) -> Result<(), RelayError> {
        if form != AnswerForm::Json {
            return Err(RelayError::Incomplete);
        }
        // A proven answer is passed on to its end; its own members state the failure.
        if self.observer.end_response() && !self.is_proven {
            return Err(RelayError::UpstreamFailed);
        }
        if self.observer.is_streaming() {
            tracing::warn!("the upstream answered with one response although events were requested");
            return Err(JsonSyntaxError::NotAnObject.into());
        }
        (self.is_complete, self.is_proven) = (true, true);
        Ok(())
    }

    fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.tail).freeze()
    }

    /// An event that has begun becomes an error. The two events of a failure follow.
    fn finish_with_error(&mut self, error: &str, closing: Option<String>) -> Option<Bytes> {
        if !self.observer.is_streaming() {
            return None;
        }
        let (held, mut text) = (self.held.take_all(), String::new());
        if self.delivery == EventDelivery::Live {
            text.push_str(&String::from_utf8_lossy(&held));
            // Of two members `type` in one object, and of two `event:` lines of one event, most clients use the last.
            // Those that use the first get no image either, because its text is no base64.
            let error = self.observer.error_event(error);
            let spoiled = self.observer.begun_image_length().map_or("", spoil_base64);
            let closing = closing.map(|closing| format!("{spoiled}{closing},{}", &error[1..]));
            text.push_str(&closing.unwrap_or_default());
            text.push_str("\nevent: error\n\n");
        }
        let (error, failed) = (self.observer.error_event(error), self.observer.failed_event(error));
        text.push_str(&format!("event: error\ndata: {error}\n\nevent: response.failed\ndata: {failed}\n\n"));
        Some(Bytes::from(text))
    }

    /// Returns a comment, or a progress event if one is due.
    fn heartbeat(&mut self, form: AnswerForm) -> Option<Bytes> {
        if !self.observer.is_streaming() || form == AnswerForm::Json || self.delivery == EventDelivery::Live {
            return None;
        }
        Some(self.progress_event().unwrap_or(Bytes::from_static(HEARTBEAT)))
    }

    /// Nothing is known of a stream, which does not wait for the properties of its images.
    fn first_image(&self) -> (Option<ImageProperties>, bool) {
        if self.observer.is_streaming() { (None, false) } else { self.observer.first_image() }
    }

    fn summary(&self) -> AnswerSummary {
        self.observer.summary()
    }

    fn without_image(&self, _: AnswerForm) -> Option<AnswerWithoutImage> {
        let (has_image_substitute, usage) = (self.observer.has_image(), self.observer.usage());
        self.observer.failure().map(|members| AnswerWithoutImage {
            members,
            has_image_substitute,
            usage,
            addresses: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests;
