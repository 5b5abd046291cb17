//! A response on its way: byte for byte as the upstream says it, while a tap reads the small things.
//!
//! An event goes out when it is whole, unless it is so large that it must hold an image; then its bytes go out as they
//! come. So a break cuts no small event, and of a large one it is known how to end it. What an upstream says of its own
//! failure is judged and not passed on: the caller gets the pair of events that every client understands.
//! It carries the failure sequence and the heartbeats of the contract for this endpoint.

mod notes;

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

pub(crate) use self::notes::Told;
use self::notes::{Meaning, Notes};
use super::events::HEARTBEAT;
use super::frames::{Frames, Stretch};
use super::intake::{Intake, Silence};
use super::lexer::Malformed;
use super::rewrite::Summary;
use super::scan::Scan;
use super::tap::{Broken, IMAGE_MAX, Limits, MalformedAnswer, Step, Without};
use crate::gateway::upstream::ReplyBody;
use crate::image::Facts;
use crate::tables::{HOLD_BEFORE_PROOF_BYTES, IMAGE_CALL_HEARTBEAT_SECONDS};

/// A larger event holds an image.
const EVENT_HOLD: usize = 64 * 1024;
/// How a failure begins that says what it is before its data.
const FAILURES: [&[u8]; 2] = [b"event: response.failed", b"event: error"];
/// White space behind the end of a plain response, as far as it is passed on.
const TAIL_MAX: usize = 1024;
/// A response may hold so many images of the largest kind, each of them twice (ours).
const IMAGES_MAX: u64 = 32;
/// After so long an agent must hear more than comments, whoever they are from.
const SIGN_AFTER: Duration = Duration::from_secs(IMAGE_CALL_HEARTBEAT_SECONDS);

/// A response between the upstream and the caller.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) intake: Intake,
    input: Input,
    notes: Notes,
    /// What can go out.
    ready: Vec<Bytes>,
    /// How much has been held back before proof.
    held: u64,
    proven: bool,
    /// The last bytes: they wait for the record.
    tail: BytesMut,
    complete: bool,
    /// When anything but comments last went out.
    spoke: Instant,
    over: Option<Result<(), Broken>>,
}

/// The shape that comes in, known from its first byte.
#[derive(Debug)]
enum Input {
    Unknown,
    Answer(Scan),
    Events(Box<Current>),
}

/// The event that is being read.
#[derive(Debug)]
struct Current {
    frames: Frames,
    scan: Scan,
    /// Its bytes so far, while it may still be small.
    text: BytesMut,
    /// Its bytes go out as they come.
    flows: bool,
    /// Its bytes go nowhere: it is a failure.
    hushed: bool,
    data: Data,
    progressed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    None,
    Object,
    /// Something else, such as the end mark of other APIs.
    Other,
}

// === impl Pass ===

impl Pass {
    pub(super) fn new(body: ReplyBody, told: Told, limits: Limits) -> Self {
        Self {
            intake: Intake::new(body, limits, IMAGES_MAX * IMAGE_MAX),
            input: Input::Unknown,
            notes: Notes::new(told),
            ready: Vec::new(),
            held: 0,
            proven: false,
            tail: BytesMut::new(),
            complete: false,
            spoke: Instant::now(),
            over: None,
        }
    }

    /// The next pieces for the caller.
    pub(super) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Step, Broken>> {
        if self.ready.is_empty() && !self.complete {
            match ready!(self.poll_read(cx)) {
                Ok(Some(_)) => {}
                Ok(None) => self.complete = true,
                Err(broken) => return Poll::Ready(Err(broken)),
            }
        }
        if self.ready.is_empty() && self.complete {
            let tail = std::mem::take(&mut self.tail).freeze();
            return Poll::Ready(Ok(Step::End(tail, Box::new(self.summary()))));
        }
        Poll::Ready(Ok(Step::Pieces(std::mem::take(&mut self.ready))))
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, Broken>> {
        if let Some(over) = self.over {
            return Poll::Ready(over.map(|()| None));
        }
        let silence = match &self.input {
            Input::Answer(_) => Silence::Sending,
            Input::Events(current) if current.flows => Silence::Sending,
            Input::Unknown | Input::Events(_) => Silence::Working,
        };
        let read = match ready!(self.intake.poll(cx, silence)) {
            Ok(Some(data)) => self.push(&data).map(|()| Some(data.len())),
            Ok(None) => self.ended().map(|()| None),
            Err(broken) => Err(broken),
        };
        match read {
            Ok(Some(_)) => {}
            Ok(None) => self.over = Some(Ok(())),
            Err(broken) => self.over = Some(Err(broken)),
        }
        Poll::Ready(read)
    }

    /// Whether everything that was asked for is there.
    pub(super) const fn complete(&self) -> bool {
        self.complete
    }

    pub(super) fn summary(&self) -> Summary {
        self.notes.summary()
    }

    /// Whether the answer has really begun: an image in it, work on it, or its end.
    pub(super) const fn proven(&self) -> bool {
        self.proven
    }

    /// What the first image is, and whether more bytes could still tell. In a stream nobody waits for that.
    pub(super) fn first(&self) -> (Option<Facts>, bool) {
        if self.streams() { (None, false) } else { self.notes.first() }
    }

    pub(super) const fn streams(&self) -> bool {
        self.notes.stream()
    }

    /// A comment; while an image is made also the event that agents take for a sign of life.
    pub(super) fn heartbeat(&mut self) -> Option<Bytes> {
        let between = matches!(&self.input, Input::Events(current) if !current.flows);
        if !self.streams() || !(between || matches!(self.input, Input::Unknown)) {
            return None;
        }
        Some(self.sign_of_life().unwrap_or(Bytes::from_static(HEARTBEAT)))
    }

    /// While an image is made, the event that tells so once more, where nothing but comments has gone out for long.
    fn sign_of_life(&mut self) -> Option<Bytes> {
        if self.spoke.elapsed() < SIGN_AFTER {
            return None;
        }
        let sign = self.notes.still_generating()?;
        self.spoke = Instant::now();
        Some(Bytes::from(sign))
    }

    /// What goes out when it breaks off: what makes a begun event an error, and the pair of events that every client
    /// understands; nothing for a plain response, so that the transfer itself breaks.
    pub(super) fn break_off(&mut self, error: &str) -> Option<Bytes> {
        if !self.streams() {
            return None;
        }
        let mut text = String::new();
        if let Input::Events(current) = &self.input
            && current.flows
        {
            // Of two types in one object the last one counts, and of two names of one event too.
            let error = self.notes.error_event(error);
            let closing = current.scan.closing().map(|closing| format!("{closing},{}\nevent: error", &error[1..]));
            text.push_str(&closing.unwrap_or_default());
            text.push_str("\n\n");
        }
        let (error, failed) = (self.notes.error_event(error), self.notes.failed_event(error));
        text.push_str(&format!("event: error\ndata: {error}\n\nevent: response.failed\ndata: {failed}\n\n"));
        Some(Bytes::from(text))
    }

    /// The upstream has said that it failed, before anything began.
    pub(super) fn without_image(&self) -> Option<Without> {
        let (something, usage) = (self.notes.has_image(), self.notes.usage());
        self.notes.failure().map(|members| Without { members, something, usage })
    }

    fn push(&mut self, data: &Bytes) -> Result<(), Broken> {
        if let Input::Unknown = self.input {
            let Some(first) = data.iter().find(|byte| !byte.is_ascii_whitespace()) else {
                self.hold(Bytes::copy_from_slice(data));
                return Ok(());
            };
            self.input = match first {
                b'{' | b'[' | b'<' => Input::Answer(Scan::within("response")),
                _ if self.streams() => {
                    self.notes.expect_events();
                    Input::Events(Box::new(Current::new()))
                }
                // Events that nobody asked for.
                byte @ (b'e' | b'd' | b':') => {
                    tracing::warn!("the upstream answered with events although one response was asked for");
                    return Err(MalformedAnswer(Malformed::Unexpected(*byte)).into());
                }
                byte => return Err(MalformedAnswer(Malformed::Unexpected(*byte)).into()),
            };
        }
        match self.input {
            Input::Unknown => Ok(()),
            Input::Answer(_) => self.push_answer(data),
            Input::Events(_) => self.push_events(data),
        }
    }

    /// A plain response: it goes out as it comes, but for its last bytes.
    fn push_answer(&mut self, data: &Bytes) -> Result<(), Broken> {
        let Input::Answer(scan) = &mut self.input else { return Ok(()) };
        self.intake.progressed();
        let read = if scan.is_done() { 0 } else { scan.push(data, &mut self.notes).map_err(MalformedAnswer)? };
        // The closing brace is the first of the last bytes.
        let out = if scan.is_done() { read.saturating_sub(1) } else { read };
        if data[read..].iter().any(|byte| !byte.is_ascii_whitespace()) {
            return Err(MalformedAnswer(Malformed::Surplus).into());
        }
        let last = &data[out..];
        self.tail.extend_from_slice(&last[..last.len().min(TAIL_MAX.saturating_sub(self.tail.len()))]);
        // Where events were asked for nothing of this goes out, whatever it is.
        let wanted = !self.streams();
        if out > 0 && wanted {
            self.hold_slice(data.slice(..out));
        }
        self.proven |= wanted && (self.notes.has_image() || self.held > HOLD_BEFORE_PROOF_BYTES);
        Ok(())
    }

    fn push_events(&mut self, data: &Bytes) -> Result<(), Broken> {
        let mut at = 0;
        // Where what has not gone out of this piece begins, of an event that flows.
        let mut from = 0;
        while at < data.len() && !self.complete && self.over.is_none() {
            let Input::Events(current) = &mut self.input else { return Ok(()) };
            let (length, stretch) = current.frames.next(&data[at..]);
            let end = at + length;
            if stretch == Stretch::Data {
                current.data(&data[at..end], &mut self.notes).map_err(MalformedAnswer)?;
            }
            if !current.flows && !current.hushed {
                current.text.extend_from_slice(&data[at..end]);
                from = end;
            }
            if current.hushed {
                from = end;
            }
            match stretch {
                Stretch::End { event } => {
                    let rest = data.slice(from..end);
                    self.end_frame(event, rest)?;
                    from = end;
                }
                _ => self.look_at_size(),
            }
            at = end;
        }
        if from < at {
            self.hold_slice(data.slice(from..at));
        }
        if let Input::Events(current) = &mut self.input {
            if current.flows {
                self.spoke = Instant::now();
            }
            if std::mem::take(&mut current.progressed) {
                self.intake.progressed();
            }
        }
        Ok(())
    }

    /// An event that is too large to be held begins to flow, unless it is a failure.
    fn look_at_size(&mut self) {
        let Input::Events(current) = &mut self.input else { return };
        if current.flows || current.hushed || current.text.len() <= EVENT_HOLD {
            return;
        }
        let text = current.text.split().freeze();
        current.hushed = match self.notes.meaning() {
            Meaning::Unknown => FAILURES.iter().any(|name| text.starts_with(name)),
            meaning => meaning == Meaning::Failure,
        };
        if !current.hushed {
            current.flows = true;
            self.proven = true;
            self.ready.push(text);
        }
    }

    /// A frame is whole. `rest` is what has not gone out of one that flows.
    fn end_frame(&mut self, event: bool, rest: Bytes) -> Result<(), Broken> {
        let Input::Events(current) = &mut self.input else { return Ok(()) };
        let meaning = match current.end() {
            Ok(true) => self.notes.end_event(),
            Ok(false) => Meaning::Preface,
            Err(malformed) => return Err(MalformedAnswer(malformed).into()),
        };
        let text = if current.flows { rest } else { current.text.split().freeze() };
        if event || current.flows {
            self.spoke = Instant::now();
        }
        (current.flows, current.hushed) = (false, false);
        match meaning {
            // As a status it would be lost on agents, so the stream begins in order to say it.
            Meaning::Failure if self.notes.is_for_the_agent() => {
                self.proven = true;
                self.over = Some(Err(Broken::Failed));
            }
            Meaning::Failure => return Err(Broken::Failed),
            Meaning::End => {
                self.tail.extend_from_slice(&text);
                (self.complete, self.proven) = (true, true);
            }
            Meaning::Work | Meaning::Unknown => {
                self.proven = true;
                self.hold(text);
            }
            Meaning::Preface => {
                self.proven |= event && self.held > HOLD_BEFORE_PROOF_BYTES;
                self.hold(text);
                let sign = if self.proven { self.sign_of_life() } else { None };
                self.ready.extend(sign);
            }
        }
        Ok(())
    }

    /// Bytes that go out, now or when the answer has begun; they are ours.
    fn hold(&mut self, bytes: Bytes) {
        if !self.proven {
            self.held += bytes.len() as u64;
        }
        if !bytes.is_empty() {
            self.ready.push(bytes);
        }
    }

    /// The same with bytes that are the upstream's: what waits for more of them must be a copy.
    fn hold_slice(&mut self, bytes: Bytes) {
        let bytes = if self.proven { bytes } else { Bytes::copy_from_slice(&bytes) };
        self.hold(bytes);
    }

    /// The body has ended: whether the answer is whole.
    fn ended(&mut self) -> Result<(), Broken> {
        match &mut self.input {
            Input::Unknown => Err(MalformedAnswer(Malformed::Truncated).into()),
            Input::Events(_) => {
                if self.complete {
                    Ok(())
                } else {
                    Err(Broken::Unfinished)
                }
            }
            Input::Answer(scan) if !scan.is_done() => Err(MalformedAnswer(Malformed::Truncated).into()),
            Input::Answer(_) => {
                let failed = self.notes.end_response();
                // What has begun is passed on to its end, and says itself that it failed.
                if failed && !self.proven {
                    return Err(Broken::Failed);
                }
                if self.streams() {
                    tracing::warn!("the upstream answered with one response although events were asked for");
                    return Err(MalformedAnswer(Malformed::NotAnObject).into());
                }
                self.proven = true;
                Ok(())
            }
        }
    }
}

// === impl Current ===

impl Current {
    fn new() -> Self {
        Self {
            frames: Frames::new(),
            scan: Scan::new(),
            text: BytesMut::new(),
            flows: false,
            hushed: false,
            data: Data::None,
            progressed: false,
        }
    }

    fn data(&mut self, data: &[u8], notes: &mut Notes) -> Result<(), Malformed> {
        self.progressed = true;
        if self.data == Data::None {
            let Some(first) = data.iter().find(|byte| !byte.is_ascii_whitespace()) else { return Ok(()) };
            self.data = if *first == b'{' { Data::Object } else { Data::Other };
        }
        if self.data != Data::Object {
            return Ok(());
        }
        let read = self.scan.push(data, notes)?;
        let surplus = data[read..].iter().any(|byte| !byte.is_ascii_whitespace());
        if surplus { Err(Malformed::Surplus) } else { Ok(()) }
    }

    /// The frame is over: whether it held an object, which must be whole.
    fn end(&mut self) -> Result<bool, Malformed> {
        let data = std::mem::replace(&mut self.data, Data::None);
        let scan = std::mem::replace(&mut self.scan, Scan::new());
        match data {
            Data::Object if !scan.is_done() => Err(Malformed::Truncated),
            data => Ok(data == Data::Object),
        }
    }
}

#[cfg(test)]
mod tests;
