//! The answers of a stub server, as an image API would give them, and their faults.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

use super::png::png;
use super::request::ReceivedRequest;

/// The width and height of the images, in pixels (our choice).
const SIDE: u16 = 16;

/// The answer to a request.
///
/// It is complete unless one of the faults is set: [`close_unanswered`](Self::close_unanswered),
/// [`stall_unanswered`](Self::stall_unanswered), [`break_off`](Self::break_off) or [`stall`](Self::stall).
///
/// ```
/// use std::time::Duration;
/// use imagate::testing::{Answer, StubServer};
///
/// let busy = Answer::rate_limited(Duration::from_secs(2));
/// let lost = Answer::images(1).close_unanswered(); // paid for, but the caller does not get it
/// let server = StubServer::start([busy, lost, Answer::image_events(2)])?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until a server has it"]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: AnswerBody,
    omission: AnswerOmission,
    /// The number of completions that a service would bill for this answer.
    pub(super) completions: usize,
    pub(super) delay: Duration,
    /// The most bytes of the body that are sent at once.
    pub(super) piece_bytes: usize,
    /// The wait between two pieces of the body.
    pub(super) pause: Duration,
    /// True if the connection stays open after the last byte that is sent.
    pub(super) keeps_open: bool,
}

#[derive(Clone, Debug)]
enum AnswerBody {
    Bytes(Bytes),
    /// A stream with an image. Its events have the type of the operation that was called.
    ImageEvents {
        partial_images: u32,
    },
}

/// The part of an answer that is not sent.
#[derive(Clone, Copy, Debug)]
enum AnswerOmission {
    Nothing,
    /// The last bytes of the body.
    BodyEnd(usize),
    /// The head, too.
    Everything,
}

// === impl Answer ===

impl Answer {
    /// Creates an answer with this status and body, and without a content type.
    pub fn new(status: u16, body: impl AsRef<[u8]>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: AnswerBody::Bytes(Bytes::copy_from_slice(body.as_ref())),
            omission: AnswerOmission::Nothing,
            completions: 0,
            delay: Duration::ZERO,
            piece_bytes: usize::MAX,
            pause: Duration::ZERO,
            keeps_open: false,
        }
    }

    /// Creates an answer of JSON.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, body.to_string()).header("content-type", "application/json")
    }

    /// Creates a stream of events with status 200; `text` is its whole body, such as `data: {}\n\n`.
    pub fn events(text: impl AsRef<[u8]>) -> Self {
        Self::new(200, text).header("content-type", "text/event-stream")
    }

    /// Creates the answer of a successful call with this many images, each one a small PNG that differs from the others.
    /// It counts as one completion.
    pub fn images(count: u8) -> Self {
        let data: Vec<Value> = (0..count).map(|index| json!({ "b64_json": base64_png(index) })).collect();
        let body = json!({
            "created": 1, "data": data, "size": size(), "quality": "low", "background": "opaque",
            "output_format": "png", "usage": usage(),
        });
        Self::json(200, &body).completions(1)
    }

    /// Creates the stream of a successful call with this many intermediate images before the final one. The types of its
    /// events begin with `image_edit` if the path of the request ends with `/edits`, and with `image_generation`
    /// otherwise. It counts as one completion.
    pub fn image_events(partial_images: u8) -> Self {
        let body = AnswerBody::ImageEvents { partial_images: partial_images.into() };
        Self { body, ..Self::events("") }.completions(1)
    }

    /// Creates the answer of a failed call.
    pub fn error(status: u16, code: &str, message: &str) -> Self {
        let kind = if status < 500 { "invalid_request_error" } else { "server_error" };
        Self::json(status, &json!({"error": {"message": message, "type": kind, "param": null, "code": code}}))
    }

    /// Creates an answer with status 429, which asks for this wait in whole seconds.
    pub fn rate_limited(retry_after: Duration) -> Self {
        let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
        Self::error(429, "rate_limit_exceeded", "Too many requests.").header("retry-after", &seconds.to_string())
    }

    /// Sets a header of the answer. The names of those that frame the message, `content-length` and `connection`, are
    /// the server's.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(existing, _)| !existing.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets how many completions a service would bill for this answer: for example 1 for images of your own
    /// [`json`](Self::json), and 0 for images that were paid for before.
    pub fn completions(mut self, count: usize) -> Self {
        self.completions = count;
        self
    }

    /// Waits this long before the answer begins.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sends the body slowly: in pieces of at most this many bytes, with a pause between two of them.
    pub fn pace(mut self, piece_bytes: usize, pause: Duration) -> Self {
        (self.piece_bytes, self.pause) = (piece_bytes.max(1), pause);
        self
    }

    /// Closes the connection when the request has arrived, and sends nothing.
    pub fn close_unanswered(self) -> Self {
        self.omit(AnswerOmission::Everything, false)
    }

    /// Sends nothing, and keeps the connection open.
    pub fn stall_unanswered(self) -> Self {
        self.omit(AnswerOmission::Everything, true)
    }

    /// Closes the connection this many bytes before the end of the body.
    pub fn break_off(self, missing_bytes: usize) -> Self {
        self.omit(AnswerOmission::BodyEnd(missing_bytes), false)
    }

    /// Sends nothing more this many bytes before the end of the body, and keeps the connection open.
    pub fn stall(self, missing_bytes: usize) -> Self {
        self.omit(AnswerOmission::BodyEnd(missing_bytes), true)
    }

    fn omit(self, omission: AnswerOmission, keeps_open: bool) -> Self {
        Self { omission, keeps_open, ..self }
    }

    /// Returns the whole body for this request.
    pub(super) fn body_for(&self, request: &ReceivedRequest) -> Bytes {
        match &self.body {
            AnswerBody::Bytes(body) => body.clone(),
            AnswerBody::ImageEvents { partial_images } => image_events(*partial_images, request.path()).into(),
        }
    }

    /// Returns the part of the body that is sent; `None` if the head is not sent either.
    pub(super) fn part_to_send<'a>(&self, body: &'a [u8]) -> Option<&'a [u8]> {
        let missing_bytes = match self.omission {
            AnswerOmission::Nothing => 0,
            AnswerOmission::BodyEnd(missing_bytes) => missing_bytes,
            AnswerOmission::Everything => return None,
        };
        body.get(..body.len().saturating_sub(missing_bytes))
    }

    /// Returns the head of the answer, for a body of this many bytes.
    pub(super) fn head(&self, length: usize) -> String {
        let headers: String = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!("HTTP/1.1 {} \r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n", self.status)
    }
}

/// The answer to a request for which nobody has planned.
impl Default for Answer {
    fn default() -> Self {
        Self::error(500, "stub_script_ended", "The script of the stub server has no answer for this request.")
            .header("x-should-retry", "false")
    }
}

/// Returns the text of a stream with this many intermediate images and the final one.
fn image_events(partial_images: u32, path: &str) -> String {
    let family = if path.ends_with("/edits") { "image_edit" } else { "image_generation" };
    let event = |kind: &str, index: u32| {
        let mut data = json!({
            "type": format!("{family}.{kind}"), "b64_json": base64_png(u8::try_from(index).unwrap_or(u8::MAX)),
            "created_at": 1, "size": size(), "quality": "low", "background": "opaque", "output_format": "png",
        });
        if kind == "completed" {
            data["usage"] = usage();
        } else {
            data["partial_image_index"] = index.into();
        }
        format!("event: {family}.{kind}\ndata: {data}\n\n")
    };
    let partials: String = (0..partial_images).map(|index| event("partial_image", index)).collect();
    partials + &event("completed", partial_images)
}

fn base64_png(shade: u8) -> String {
    BASE64_STANDARD.encode(png(SIDE, SIDE, shade))
}

fn size() -> String {
    format!("{SIDE}x{SIDE}")
}

/// Returns the usage of an answer; its numbers have no meaning.
fn usage() -> Value {
    json!({
        "input_tokens": 8, "input_tokens_details": {"image_tokens": 0, "text_tokens": 8},
        "output_tokens": 16, "total_tokens": 24,
    })
}
