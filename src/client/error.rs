//! Why a call failed, as far as a program or a person can act on it.
//!
//! Opaque, so that it can say more one day. It never holds the key, and never the headers of a request.

mod detail;

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use progenitor_client::Error as WireError;
use serde_json::Value;

use super::retry;
use super::session::{Credentials, Head, Limit, Session};
use crate::wire::types;
use detail::Detail;

/// Codes that are recognised also where a stream has begun, so that no status says the same.
const RATE_LIMIT_EXCEEDED: &str = "rate_limit_exceeded";
const INVALID_REQUEST_ERROR: &str = "invalid_request_error";

/// Why a call failed.
///
/// `Display` says what is wrong for a person; programs compare [`Error::code`], or ask one of the questions.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = imagate::Client::from_env()?;
/// match client.images().generate("A red fox in fresh snow").await {
///     Ok(images) => println!("{} images", images.len()),
///     Err(error) if error.is_usage_limit() => println!("try again in {:?}", error.resets_in()),
///     Err(error) if error.is_invalid_request() => println!("correct {:?}", error.param()),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    message: String,
    head: Option<Head>,
    detail: Detail,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The address, the key, or the HTTP library.
    Settings,
    /// A value that the service would refuse; nothing was sent.
    Request,
    /// Nobody was reached; nothing was sent.
    Connect,
    /// The time was up.
    Timeout,
    /// The connection broke.
    Broken,
    /// The service answered that it failed.
    Answer,
    /// The service answered something that is not understood.
    Unintelligible,
    /// A file could not be read or written.
    File,
    /// An image could not be resized.
    #[cfg(all(feature = "resize", not(target_arch = "wasm32")))]
    Image,
}

// === impl Error ===

impl Error {
    pub(super) fn settings(message: impl Into<String>) -> Self {
        Self::new(Kind::Settings, message)
    }

    pub(super) fn settings_from(message: &str, source: reqwest::Error) -> Self {
        Self::new(Kind::Settings, message).because(source)
    }

    pub(super) fn request(param: &str, message: impl Into<String>) -> Self {
        let mut error = Self::new(Kind::Request, message);
        error.0.detail.param = Some(param.to_owned());
        error
    }

    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn file(message: impl Into<String>, source: std::io::Error) -> Self {
        Self::new(Kind::File, message).because(source)
    }

    #[cfg(all(feature = "resize", not(target_arch = "wasm32")))]
    pub(super) fn image(message: &str) -> Self {
        Self::new(Kind::Image, message)
    }

    /// A stream whose head said success, and that ended with an error.
    pub(super) fn in_stream(frame: &Value, session: &Session) -> Self {
        let mut error = Self::answered(Detail::of_frame(frame), session.credentials());
        error.0.head = session.head().cloned();
        error
    }

    /// A stream that ended without its image.
    pub(super) fn broken(message: &str, session: &Session) -> Self {
        let mut error = Self::new(Kind::Broken, message);
        error.0.head = session.head().cloned();
        error
    }

    /// The limit of the session is over.
    pub(super) fn late(session: &Session) -> Self {
        let limit = session.limit();
        let seconds = limit.duration().as_secs();
        let what = match (limit, session.head()) {
            (Limit::Silence(_), Some(_)) => "nothing more",
            (Limit::Silence(_), None) => "no answer",
            (Limit::Whole(_), _) => "no complete answer",
        };
        let message = format!("{what} within {seconds} s; the image may have been made nevertheless");
        let mut error = Self::new(Kind::Timeout, message);
        error.0.head = session.head().cloned();
        error
    }

    /// What broke off a stream, or kept it from coming about.
    pub(super) fn of_stream(source: reqwest::Error, session: &Session) -> Self {
        let mut error = Self::of_transport(source, session);
        error.0.head = session.head().cloned();
        error
    }

    /// An answer whose status says success, and whose content does not.
    pub(super) fn unintelligible(message: &str, head: Option<&Head>) -> Self {
        let mut error = Self::new(Kind::Unintelligible, message);
        error.0.head = head.cloned();
        error
    }

    /// The error for an image that is not in the answer but at this address.
    pub(super) fn elsewhere(url: &str, head: Option<&Head>) -> Self {
        Self::unintelligible(&format!("the image came as an address, not as bytes: {url}"), head)
    }

    /// What the generated client says of a call that failed.
    pub(super) fn of_call(error: WireError<types::ErrorResponse>, session: &Session) -> Self {
        let head = session.head();
        let mut error = match error {
            WireError::InvalidRequest(message) | WireError::Custom(message) => Self::new(Kind::Request, message),
            WireError::CommunicationError(source)
            | WireError::InvalidUpgrade(source)
            | WireError::ResponseBodyError(source) => Self::of_transport(source, session),
            WireError::ErrorResponse(value) => Self::answered(value.into_inner().error.into(), session.credentials()),
            WireError::InvalidResponsePayload(_, source) if head.is_none_or(Head::is_success) => {
                Self::new(Kind::Unintelligible, "the answer is not what this version understands").because(source)
            }
            WireError::InvalidResponsePayload(body, _) => Self::answered(Detail::read(&body), session.credentials()),
            WireError::UnexpectedResponse(_) => {
                Self::new(Kind::Unintelligible, "the service answered with an unexpected status")
            }
        };
        error.0.head = head.cloned();
        error
    }

    fn of_transport(source: reqwest::Error, session: &Session) -> Self {
        if let Some(broken) = unreadable(&source) {
            return Self::new(Kind::File, broken);
        }
        let error = if retry::never_sent(&source) {
            Self::new(Kind::Connect, "the service cannot be reached")
        } else if source.is_timeout() {
            Self::late(session)
        } else {
            Self::new(
                Kind::Broken,
                "the connection broke before the answer was complete; the image may have been made nevertheless",
            )
        };
        error.because(source)
    }

    fn answered(detail: Detail, credentials: &Credentials) -> Self {
        let said = detail.message.clone().filter(|message| !message.is_empty());
        let message = said.map_or_else(|| "the request failed".to_owned(), |message| credentials.redact(message));
        let mut error = Self::new(Kind::Answer, message);
        error.0.detail = detail;
        error
    }

    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), head: None, detail: Detail::default(), source: None }))
    }

    pub(super) fn because(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Box::new(source));
        self
    }

    /// Whether the service itself said that it failed.
    pub(super) fn is_answer(&self) -> bool {
        self.0.kind == Kind::Answer
    }

    /// The message alone, without status, code and ids.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The HTTP status, where there was an answer.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.0.head.as_ref().map(|head| head.status)
    }

    /// The stable word for the kind of error, such as `usage_limit_reached`; see [`types::ErrorCode`].
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.0.detail.code.as_deref()
    }

    /// A finer word than the code, where there is one, such as `content_refused`; see [`types::ErrorReason`].
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.0.detail.reason.as_deref()
    }

    /// The parameter at fault, such as `size`.
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        self.0.detail.param.as_deref()
    }

    /// The id of the request, by which the operator of the service finds it.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.0.head.as_ref()?.request_id.as_deref()
    }

    /// How long the service asks to wait, never long.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.head.as_ref()?.retry_after
    }

    /// How long until an exhausted usage window opens again, where that is known.
    #[must_use]
    pub fn resets_in(&self) -> Option<Duration> {
        self.0.detail.resets_in_seconds.map(Duration::from_secs)
    }

    /// Whether the same request, sent again later, can succeed without an image being paid for twice.
    ///
    /// The client has then already tried again, as often as it may.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match (self.0.kind, &self.0.head) {
            (Kind::Connect, _) => true,
            (Kind::Answer, Some(head)) => {
                // Of a 5xx that says nothing it is not known whether an image was made.
                head.should_retry.unwrap_or(head.status == 429 && !self.is_usage_limit())
            }
            _ => false,
        }
    }

    /// Whether there were too many requests; waiting a little helps.
    #[must_use]
    pub fn is_rate_limited(&self) -> bool {
        let is_said = self.status() == Some(429) || self.code() == Some(RATE_LIMIT_EXCEEDED);
        is_said && !self.is_usage_limit()
    }

    /// Whether the usage window of the service is exhausted; see [`Error::resets_in`].
    #[must_use]
    pub fn is_usage_limit(&self) -> bool {
        self.code() == Some("usage_limit_reached")
    }

    /// Whether a parameter is at fault; see [`Error::param`]. Also said before anything is sent, where the client knows.
    #[must_use]
    pub fn is_invalid_request(&self) -> bool {
        let is_said =
            matches!(self.status(), Some(400 | 413 | 415 | 422)) || self.code() == Some(INVALID_REQUEST_ERROR);
        self.0.kind == Kind::Request || is_said
    }

    /// Whether the service refuses the key.
    #[must_use]
    pub fn is_invalid_key(&self) -> bool {
        self.status() == Some(401)
    }

    /// Whether the content was refused; the same prompt will be refused again.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.reason() == Some("content_refused")
    }

    /// Whether the time was up before the answer was complete.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.0.kind == Kind::Timeout
    }

    /// Whether nobody was reached, so that nothing can have been paid for.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        self.0.kind == Kind::Connect
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        let status = self.status().map(|status| format!("status {status}"));
        let word = |name: &str, word: Option<&str>| word.map(|word| format!("{name} {word}"));
        let facts = [
            status,
            word("code", self.code()),
            word("reason", self.reason()),
            word("parameter", self.param()),
            word("request", self.request_id()),
        ];
        let facts: Vec<String> = facts.into_iter().flatten().collect();
        if facts.is_empty() { Ok(()) } else { write!(f, " ({})", facts.join(", ")) }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Error");
        shown.field("kind", &self.0.kind).field("message", &self.to_string());
        if let Some(source) = &self.0.source {
            shown.field("source", source);
        }
        shown.finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}

/// A file of our own that could not be read to its end, where that is what stopped the request.
#[cfg(not(target_arch = "wasm32"))]
fn unreadable(error: &reqwest::Error) -> Option<String> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(broken) = error.downcast_ref::<super::input::Broken>() {
            return Some(broken.to_string());
        }
        cause = error.source();
    }
    None
}

#[cfg(target_arch = "wasm32")]
fn unreadable(_: &reqwest::Error) -> Option<String> {
    None
}
