//! Errors: why a call failed, as far as a program or a person can act on it.
//!
//! The type is opaque, so that later versions can add details. It never contains the key or another secret of a request:
//! they are removed from every text of the service before it is kept.

#[cfg(all(feature = "admin", not(target_arch = "wasm32")))]
mod admin;
mod classification;
mod conversions;
mod detail;
mod display;

use std::error::Error as StdError;
#[cfg(not(target_arch = "wasm32"))]
use std::path::Path;
use std::time::Duration;

use progenitor_client::Error as WireError;

use super::metadata::AnswerMetadata;
use super::raw_json::{Json, lossy_text};
use super::retry;
use super::secrets::CallSecrets;
use super::session::{Session, TimeLimit};
use super::transport::TransportError;
use crate::wire::types;
use detail::ServiceErrorDetail;
use display::limit_text;

/// The message of an error without one.
const NO_REASON: &str = "the request failed";

/// The reason why a call failed.
///
/// `Display` describes the problem for a person; programs compare [`Error::kind`] and [`Error::code`], or call one of the
/// `is_…` methods.
///
/// ```no_run
/// # async fn run() -> Result<(), imagate::client::Error> {
/// # let client = imagate::Client::from_env()?;
/// match client.images().generate("A red fox in fresh snow").await {
///     Ok(images) => println!("{} images", images.len()),
///     Err(error) if error.is_usage_limit() => println!("try again in {:?}", error.resets_in()),
///     Err(error) if error.is_invalid_request() => println!("correct {:?}", error.param()),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Error(Box<ClientErrorState>);

struct ClientErrorState {
    kind: ErrorKind,
    message: String,
    head: Option<AnswerMetadata>,
    detail: ServiceErrorDetail,
    body: Option<String>,
    /// The key with which the call was sent.
    idempotency_key: Option<String>,
    /// True if an image may be paid for again unless a new call has the same idempotency key as this one.
    needs_same_key: bool,
    /// True if an attempt before the last one may have been paid for.
    has_unknown_attempt: bool,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kinds of failures; from [`Error::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The address, the key, or the HTTP library cannot be used.
    Settings,
    /// The service would refuse a value of the request; nothing was sent.
    Request,
    /// No service was reached; nothing was sent.
    Connect,
    /// The time limit of an attempt was exceeded. An image may have been made and paid for.
    Timeout,
    /// The limit of the whole call was exceeded: see [`GenerateRequest::deadline`](super::GenerateRequest::deadline). An
    /// image may have been made and paid for.
    Deadline,
    /// The connection broke, or a stream ended early. An image may have been made and paid for.
    Broken,
    /// The service answered that the request failed; [`Error::code`] and [`Error::status`] say how.
    Answer,
    /// The service sent an answer that the client does not understand. An image may have been made and paid for.
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
        Self::new(ErrorKind::Settings, message)
    }

    pub(super) fn settings_from(message: &str, source: reqwest::Error) -> Self {
        Self::new(ErrorKind::Settings, message).with_source(source)
    }

    pub(super) fn request(param: &str, message: impl Into<String>) -> Self {
        let mut error = Self::new(ErrorKind::Request, message);
        error.0.detail.param = Some(param.to_owned());
        error
    }

    pub(super) fn file(message: impl Into<String>, source: std::io::Error) -> Self {
        Self::new(ErrorKind::File, message).with_source(source)
    }

    #[cfg(all(feature = "resize", not(target_arch = "wasm32")))]
    pub(super) fn image(message: &str) -> Self {
        Self::new(ErrorKind::Image, message)
    }

    /// Creates the error that an error event of a stream or a failed response reports, after a status of success.
    pub(super) fn from_stream_event(event: &Json, session: &Session) -> Self {
        let mut error = Self::from_detail(ServiceErrorDetail::from_event(event), &session.secrets());
        error.0.head = session.head().cloned();
        error
    }

    /// Creates the error of a stream that ended without its image or its final response.
    pub(super) fn broken(message: &str, session: &Session) -> Self {
        let mut error = Self::new(ErrorKind::Broken, message);
        error.0.head = session.head().cloned();
        error
    }

    /// Creates the error of a call that exceeded the time limit of its session.
    pub(super) fn timed_out(session: &Session) -> Self {
        let limit = session.limit();
        let missing = match (limit, session.head()) {
            (TimeLimit::Idle(_), Some(_)) => "no more data",
            (TimeLimit::Idle(_), None) => "no answer",
            (TimeLimit::Total(_), _) => "no complete answer",
        };
        let limit = limit_text(limit.duration());
        let message = format!("{missing} within {limit}; the image may still have been made");
        let mut error = Self::new(ErrorKind::Timeout, message);
        error.0.head = session.head().cloned();
        error
    }

    /// Creates the error of a call that exceeded the limit of the whole call.
    pub(super) fn deadline_exceeded(session: &Session) -> Self {
        let limit = session.deadline().map(|deadline| limit_text(deadline.limit())).unwrap_or_default();
        let message = format!("the call had no complete answer within {limit}; the image may still have been made");
        let mut error = Self::new(ErrorKind::Deadline, message);
        error.0.head = session.head().cloned();
        error
    }

    /// Creates the error of a request that could not be built or sent, or whose answer broke off.
    pub(super) fn from_stream(source: reqwest::Error, session: &Session) -> Self {
        let mut error = Self::from_transport(source, session);
        error.0.head = session.head().cloned();
        error
    }

    /// Creates the error of an attempt without an answer.
    pub(super) fn from_attempt(error: TransportError, session: &Session) -> Self {
        match error.into_http() {
            Ok(source) => Self::from_stream(source, session),
            Err(failure) if failure.was_never_sent() => {
                Self::new(ErrorKind::Connect, "the transport did not send the request").with_source(failure)
            }
            Err(failure) => {
                let message = "the transport failed; the image may still have been made";
                Self::new(ErrorKind::Broken, message).with_source(failure)
            }
        }
    }

    /// Creates the error of an answer whose content cannot be used.
    pub(super) fn unintelligible(message: &str, head: Option<&AnswerMetadata>) -> Self {
        let mut error = Self::new(ErrorKind::Unintelligible, message);
        error.0.head = head.cloned();
        error
    }

    /// Creates the error of an answer with a status of success that holds neither an image nor an error.
    pub(super) fn no_image(answer: &Json, session: &Session) -> Self {
        let error = Self::unintelligible("the answer holds no image", session.head());
        error.with_body(answer.text().to_owned(), &session.secrets())
    }

    /// Creates the error of an image that is not in the answer but at this address.
    pub(super) fn remote_image(url: &str, head: Option<&AnswerMetadata>) -> Self {
        Self::unintelligible(&format!("the answer contains the URL of the image instead of its data: {url}"), head)
    }

    /// Converts an error of the generated client.
    pub(super) fn from_call(error: WireError<types::ErrorResponse>, session: &Session) -> Self {
        if let Some(failure) = session.take_failure() {
            return Self::from_attempt(failure, session);
        }
        let head = session.head();
        let mut error = match error {
            WireError::InvalidRequest(message) | WireError::Custom(message) => Self::new(ErrorKind::Request, message),
            WireError::CommunicationError(source)
            | WireError::InvalidUpgrade(source)
            | WireError::ResponseBodyError(source) => Self::from_transport(source, session),
            WireError::ErrorResponse(value) => Self::from_detail(value.into_inner().error.into(), &session.secrets()),
            WireError::InvalidResponsePayload(body, source) if head.is_none_or(AnswerMetadata::is_success) => {
                let error = Self::new(ErrorKind::Unintelligible, "this version does not understand the answer");
                error.with_source(source).with_body(lossy_text(&body), &session.secrets())
            }
            WireError::InvalidResponsePayload(body, _) => Self::from_refusal(&body, head, &session.secrets()),
            WireError::UnexpectedResponse(_) => {
                Self::new(ErrorKind::Unintelligible, "the service answered with an unexpected status")
            }
        };
        error.0.head = head.cloned();
        error
    }

    fn from_transport(source: reqwest::Error, session: &Session) -> Self {
        if let Some(message) = conversions::file_error_message(&source) {
            return Self::new(ErrorKind::File, message);
        }
        let error = if retry::was_never_sent(&source) {
            let address = source.url().map(|url| url.origin().ascii_serialization());
            let place = address.map(|address| format!(" at {address}")).unwrap_or_default();
            Self::new(ErrorKind::Connect, format!("the service{place} cannot be reached"))
        } else if source.is_timeout() {
            Self::timed_out(session)
        } else {
            Self::new(
                ErrorKind::Broken,
                "the connection broke before the answer was complete; the image may still have been made",
            )
        };
        error.with_source(source)
    }

    /// Creates the error of an answer that is not as the API document describes errors.
    fn from_refusal(body: &[u8], head: Option<&AnswerMetadata>, secrets: &CallSecrets<'_>) -> Self {
        // The whole text is redacted, because the part that is shown could end within a secret.
        let text = secrets.redact(lossy_text(body));
        let mut detail = ServiceErrorDetail::parse(&text);
        if let Some(target) = head.and_then(AnswerMetadata::redirect_target) {
            detail.message = Some(format!("the service redirects to {target}, and redirects are not followed"));
        }
        detail.message = detail.message.or_else(|| Some(format!("{NO_REASON}: {}", detail::excerpt(&text)?)));
        Self::from_detail(detail, secrets).with_body(text, secrets)
    }

    /// Creates the error that an answer with a status of success reports in place of its images.
    pub(super) fn from_answer(answer: &Json, session: &Session) -> Self {
        Self::from_stream_event(answer, session).with_body(answer.text().to_owned(), &session.secrets())
    }

    fn from_detail(detail: ServiceErrorDetail, secrets: &CallSecrets<'_>) -> Self {
        let detail = detail.redacted(secrets);
        let reported = detail.message.clone().filter(|message| !message.is_empty());
        let message = reported.unwrap_or_else(|| NO_REASON.to_owned());
        let mut error = Self::new(ErrorKind::Answer, message);
        error.0.detail = detail;
        error
    }

    fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(ClientErrorState {
            kind,
            message: message.into(),
            head: None,
            detail: ServiceErrorDetail::default(),
            body: None,
            idempotency_key: None,
            needs_same_key: false,
            has_unknown_attempt: false,
            source: None,
        }))
    }

    pub(super) fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Box::new(source));
        self
    }

    /// Adds to the message which files hold the images that were whole before the failure.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn with_saved_files<'a>(mut self, files: impl Iterator<Item = &'a Path>) -> Self {
        let files: Vec<String> = files.map(|path| path.display().to_string()).collect();
        if !files.is_empty() {
            self.0.message = format!("{}; saved before: {}", self.0.message, files.join(", "));
        }
        self
    }

    /// Keeps the answer that is not understood: it may have been paid for. A source that repeats a secret is left out.
    pub(super) fn with_body(mut self, body: String, secrets: &CallSecrets<'_>) -> Self {
        self.0.source.take_if(|source| secrets.are_in(&source.to_string()));
        self.0.body = Some(secrets.redact(body));
        self
    }

    /// Adds what a program needs to know about the whole call: its idempotency key, and whether an attempt before the one
    /// of this error may have been paid for.
    pub(super) fn of_call(mut self, session: &Session) -> Self {
        self.0.idempotency_key = session.idempotency_key().map(str::to_owned);
        self.0.has_unknown_attempt = session.may_be_paid();
        if session.may_be_paid() {
            // Nothing was sent in the last attempt, but the call as a whole is not one that never reached the service.
            if self.0.kind == ErrorKind::Connect {
                self.0.kind = ErrorKind::Broken;
            }
            let message = self.0.message.trim_end_matches('.');
            self.0.message = format!("{message}; an earlier attempt of the call may have been paid for");
        }
        self
    }

    /// Records that an image may be paid for again unless a new call has the idempotency key of this one.
    pub(super) fn needing_same_key(mut self) -> Self {
        self.0.needs_same_key = true;
        self
    }

    /// Returns true if the service itself reported the failure.
    pub(super) fn is_answer(&self) -> bool {
        self.0.kind == ErrorKind::Answer
    }

    /// Returns the whole message alone, without status, code and ids. It may be long, and have several lines, if it is
    /// that of a service; `Display` shows it on one line, and at most 2,000 characters of it.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the kind of failure, for a program that treats each of them differently.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the metadata of the answer, if there was one.
    #[must_use]
    pub fn meta(&self) -> Option<&AnswerMetadata> {
        self.0.head.as_ref()
    }

    /// Returns the whole answer of an error of the kind [`ErrorKind::Unintelligible`]: it may hold an image in a form
    /// that this version does not know. For the kind [`ErrorKind::Answer`], returns an answer that does not have the form
    /// of the API document. Of a stream, only a final event that is not understood is kept. Returns `None` if there was
    /// no such answer or event.
    #[must_use]
    pub fn body(&self) -> Option<&str> {
        self.0.body.as_deref()
    }

    /// Returns the idempotency key with which the call was sent, also if the client itself has given it one. If the service
    /// pays for a key once, as a gateway does, the same request with this key gets the image that may have been paid for:
    /// see [`GenerateRequest::idempotency_key`](super::GenerateRequest::idempotency_key). `None` if nothing was sent, or
    /// if the call had no key.
    #[must_use]
    pub fn idempotency_key(&self) -> Option<&str> {
        self.0.idempotency_key.as_deref()
    }

    /// Returns the HTTP status, if there was an answer.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.meta().map(AnswerMetadata::status)
    }

    /// Returns the stable code for the kind of error, such as `usage_limit_reached`; see [`types::ErrorCode`].
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.0.detail.code.as_deref()
    }

    /// Returns the code as a word of the API document; `None` if it is a word of another service, or if there is none.
    ///
    /// ```
    /// use imagate::types::ErrorCode;
    /// # fn check(error: &imagate::client::Error) -> bool {
    /// error.known_code() == Some(ErrorCode::UsageLimitReached)
    /// # }
    /// ```
    #[must_use]
    pub fn known_code(&self) -> Option<types::ErrorCode> {
        self.code()?.parse().ok()
    }

    /// Returns a more specific word than the code, if there is one, such as `content_refused`; see
    /// [`types::ErrorReason`].
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.0.detail.reason.as_deref()
    }

    /// Returns the parameter at fault, such as `size`.
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        self.0.detail.param.as_deref()
    }

    /// Returns the id of the request, which lets the operator of the service find it.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.meta()?.request_id()
    }

    /// Returns the wait that the service asks for with `retry-after`.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.meta()?.retry_after()
    }

    /// Returns the time until an exhausted usage window opens again or a limit allows more, in whole seconds, if it is
    /// known.
    #[must_use]
    pub fn resets_in(&self) -> Option<Duration> {
        self.0.detail.resets_in_seconds.map(Duration::from_secs)
    }

    /// Returns the time at which an exhausted usage window opens again or a limit allows more, in seconds since 1970-01-01
    /// UTC, if it is known.
    #[must_use]
    pub fn resets_at(&self) -> Option<i64> {
        self.0.detail.resets_at
    }

    /// Returns the name of the limit of the gateway that refuses the request, such as `images_per_day`. An exhausted usage
    /// window of an upstream account has no name.
    #[must_use]
    pub fn limit(&self) -> Option<&str> {
        self.0.detail.limit.as_deref()
    }

    /// Returns the owner of the limit: `key`, `user` or `group`.
    #[must_use]
    pub fn limit_scope(&self) -> Option<&str> {
        self.0.detail.limit_scope.as_deref()
    }

    /// Returns the value of the limit as text, such as `50`.
    #[must_use]
    pub fn limit_value(&self) -> Option<&str> {
        self.0.detail.limit_value.as_deref()
    }
}
