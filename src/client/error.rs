//! Why a call failed, as far as a program or a person can act on it.
//!
//! Opaque, so that it can say more one day. It never holds the key, and never the headers of a request.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use progenitor_client::Error as WireError;
use serde::Deserialize;

use super::retry;
use super::session::{Credentials, Head, Session};
use crate::tables::MAX_JSON_BODY_BYTES;
use crate::wire::types;

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
    /// The image could not be written.
    File,
}

/// The members of an error body. All words are open: a service may know more of them than this version.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Detail {
    message: Option<String>,
    code: Option<String>,
    param: Option<String>,
    reason: Option<String>,
    resets_in_seconds: Option<u64>,
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

    /// An answer whose status says success, and whose content does not.
    pub(super) fn unintelligible(message: &str, head: Option<&Head>) -> Self {
        let mut error = Self::new(Kind::Unintelligible, message);
        error.0.head = head.cloned();
        error
    }

    /// What the generated client says of a call that failed.
    pub(super) fn of_call(error: WireError<types::ErrorResponse>, session: &Session) -> Self {
        let head = session.head();
        let mut error = match error {
            WireError::InvalidRequest(message) | WireError::Custom(message) => Self::new(Kind::Request, message),
            WireError::CommunicationError(source)
            | WireError::InvalidUpgrade(source)
            | WireError::ResponseBodyError(source) => Self::of_transport(source, session.limit()),
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

    fn of_transport(source: reqwest::Error, limit: Duration) -> Self {
        let error = if retry::never_sent(&source) {
            Self::new(Kind::Connect, "the service cannot be reached")
        } else if source.is_timeout() {
            let seconds = limit.as_secs();
            Self::new(
                Kind::Timeout,
                format!("no complete answer within {seconds} s; the image may have been made nevertheless"),
            )
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

    fn because(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Box::new(source));
        self
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
                let unsaid = retry::allows(head) || (head.status == 429 && !self.is_usage_limit());
                head.should_retry.unwrap_or(unsaid)
            }
            _ => false,
        }
    }

    /// Whether there were too many requests; waiting a little helps.
    #[must_use]
    pub fn is_rate_limited(&self) -> bool {
        self.status() == Some(429) && !self.is_usage_limit()
    }

    /// Whether the usage window of the service is exhausted; see [`Error::resets_in`].
    #[must_use]
    pub fn is_usage_limit(&self) -> bool {
        self.code() == Some("usage_limit_reached")
    }

    /// Whether a parameter is at fault; see [`Error::param`]. Also said before anything is sent, where the client knows.
    #[must_use]
    pub fn is_invalid_request(&self) -> bool {
        self.0.kind == Kind::Request || matches!(self.status(), Some(400 | 413 | 415 | 422))
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

// === impl Detail ===

impl Detail {
    /// Reads what it can from a body that is not in our shape: another service, or a proxy on the way.
    fn read(body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Body {
            error: Detail,
        }
        // A page of that length is no error body.
        let body = body.get(..usize::try_from(MAX_JSON_BODY_BYTES).unwrap_or(usize::MAX)).unwrap_or(body);
        serde_json::from_slice::<Body>(body).map_or_else(|_| Self::default(), |body| body.error)
    }
}

impl From<types::ErrorDetail> for Detail {
    fn from(detail: types::ErrorDetail) -> Self {
        Self {
            message: Some(detail.message),
            code: detail.code.map(|code| code.to_string()),
            param: detail.param,
            reason: detail.reason.map(|reason| reason.to_string()),
            resets_in_seconds: detail.resets_in_seconds,
        }
    }
}
