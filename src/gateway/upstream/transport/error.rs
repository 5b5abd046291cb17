//! What can go wrong between the first connect and the last byte of an answer.
//!
//! Decides: how a fault is classed, and whether the upstream can have seen any of the request.
//! Refuses to know: what to do about it, which the corridor decides, and who the upstream was.
//! Rules: what is displayed names no host, port, address or header (U01); the source chain may, so it is for the log alone.

use std::error::Error as StdError;
use std::{fmt, io};

/// A cause for the log.
pub(crate) type Source = Box<dyn StdError + Send + Sync>;

/// No response head came.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub(crate) struct SendError {
    /// Whether the upstream can have seen any of the request.
    pub(crate) sent: Sent,
    /// What went wrong.
    pub(crate) kind: Kind,
    /// For the log.
    #[source]
    pub(crate) source: Option<Source>,
}

/// How much of a request can have left this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Not one byte, so the request may be made again anywhere.
    Nothing,
    /// At least one byte, so the upstream may be at work on it.
    Maybe,
}

/// Where a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The address is none, or its name has no answer.
    Resolve,
    /// No address took the connection.
    Connect,
    /// No trusted TLS session.
    Tls,
    /// The deadline, or one of the limits within it, passed.
    Timeout,
    /// The connection ended before the head.
    Closed,
    /// What came is not HTTP.
    Protocol,
    /// The head has too many headers or bytes.
    HeadTooLarge,
}

/// An answer broke off inside its body.
#[derive(Debug, thiserror::Error)]
#[error("{cut}")]
pub(crate) struct BodyError {
    /// How it broke off.
    pub(crate) cut: Cut,
    /// For the log.
    #[source]
    pub(crate) source: Option<Source>,
}

/// How a body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The connection ended before the announced length or the last chunk.
    Truncated,
    /// The connection was reset.
    Reset,
    /// The framing is not HTTP.
    Malformed,
}

/// The transport cannot be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    /// A setting is outside what the reader can do.
    #[error("{0}")]
    Setting(&'static str),
    /// The certificates of this machine cannot be used.
    #[error("the trusted certificates of this machine cannot be used")]
    Roots(#[source] tokio_rustls::rustls::Error),
}

// === impl SendError ===

impl SendError {
    /// A fault before the first byte of the request.
    pub(super) fn before(kind: Kind, source: impl Into<Source>) -> Self {
        Self { sent: Sent::Nothing, kind, source: Some(source.into()) }
    }

    /// A limit passed.
    pub(super) fn timeout(sent: Sent) -> Self {
        Self { sent, kind: Kind::Timeout, source: None }
    }

    /// A fault of the exchange itself.
    pub(super) fn during(sent: Sent, error: hyper::Error) -> Self {
        Self { sent, kind: Kind::of(&error), source: Some(error.into()) }
    }
}

// === impl BodyError ===

impl BodyError {
    /// The end came before the body's.
    pub(super) fn truncated() -> Self {
        Self { cut: Cut::Truncated, source: None }
    }

    pub(super) fn of(error: hyper::Error) -> Self {
        let cut = match io_cause(&error).map(io::Error::kind) {
            Some(io::ErrorKind::UnexpectedEof) => Cut::Truncated,
            Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => Cut::Malformed,
            None if error.is_incomplete_message() => Cut::Truncated,
            Some(_) | None => Cut::Reset,
        };
        Self { cut, source: Some(error.into()) }
    }
}

// === impl Kind ===

impl Kind {
    fn of(error: &hyper::Error) -> Self {
        match io_cause(error).map(io::Error::kind) {
            Some(io::ErrorKind::TimedOut) => Self::Timeout,
            Some(io::ErrorKind::InvalidData) => Self::Protocol,
            Some(_) => Self::Closed,
            None if error.is_parse_too_large() => Self::HeadTooLarge,
            None if error.is_incomplete_message() || error.is_canceled() || error.is_closed() => Self::Closed,
            None => Self::Protocol,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolve => "the upstream's name has no address",
            Self::Connect => "the upstream takes no connection",
            Self::Tls => "the upstream has no trusted TLS session to offer",
            Self::Timeout => "the upstream did not answer in time",
            Self::Closed => "the upstream closed the connection before it answered",
            Self::Protocol => "the upstream's answer is not HTTP",
            Self::HeadTooLarge => "the head of the upstream's answer is too large",
        })
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the upstream's answer ended too early",
            Self::Reset => "the upstream's connection broke inside the answer",
            Self::Malformed => "the framing of the upstream's answer is broken",
        })
    }
}

/// The first input or output fault below an error.
fn io_cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(found) = cause.downcast_ref() {
            return Some(found);
        }
        next = cause.source();
    }
    None
}
