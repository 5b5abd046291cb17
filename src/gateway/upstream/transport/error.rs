//! The errors of the transport: of its setup, of requests that got no head, and of bodies that broke off.
//!
//! The module decides how an error is classified, and whether the upstream can have seen any of the request. It must
//! not know how the request flow reacts to an error, or which upstream failed. Rules: the displayed text contains no
//! host, port, address or header (U01). The source chain can contain them, so it is only for the log.

use std::error::Error as StdError;
use std::{fmt, io};

use tokio_rustls::rustls;

use super::answer_head::HeadError;

/// A cause for the log.
pub(crate) type ErrorSource = Box<dyn StdError + Send + Sync>;

/// The error of a request that got no response head.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub(crate) struct SendError {
    /// The part of the request that the upstream can have seen.
    pub(crate) sent: SendProgress,
    /// The kind of the error.
    pub(crate) kind: SendErrorKind,
    /// The cause, for the log.
    #[source]
    pub(crate) source: Option<ErrorSource>,
}

/// The part of a request that can have left this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendProgress {
    /// No byte, so the request may be sent again, to any account.
    Nothing,
    /// At least one byte, so the upstream may be processing the request.
    Maybe,
}

/// The step at which a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendErrorKind {
    /// The URI is invalid, or its host name cannot be resolved.
    Resolve,
    /// No address accepted the connection.
    Connect,
    /// No trusted TLS session was established.
    Tls,
    /// The deadline, or the time limit of one step, has passed.
    Timeout,
    /// The connection ended or failed before the head was complete, or the body of the request could not be read.
    Closed,
    /// The received bytes are not HTTP.
    Protocol,
    /// The head has too many headers or bytes.
    HeadTooLarge,
}

/// The failure of an exchange that received no head.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error("the connection failed")]
    Io(#[from] io::Error),
    #[error("the connection ended before the head of the answer")]
    Ended,
    #[error("the head of the answer is invalid")]
    Head(#[from] HeadError),
}

/// The error of an answer that broke off inside its body.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub(crate) struct BodyError {
    /// The way in which the body broke off.
    pub(crate) kind: BodyErrorKind,
    /// The cause, for the log.
    #[source]
    pub(crate) source: Option<ErrorSource>,
}

/// The way in which a body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyErrorKind {
    /// The connection ended before the announced length or the last chunk.
    Truncated,
    /// The connection failed in another way, such as a reset.
    Reset,
    /// The framing of the body is invalid.
    Malformed,
    /// The content coding is not known, or the coded data are damaged or incomplete.
    Undecodable,
}

/// The transport cannot be built, or cannot set up TLS.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    /// A read size in the settings is below the minimum of the HTTP reader.
    #[error("{0}")]
    Setting(&'static str),
    /// TLS cannot be set up with the certificates of this machine and of the settings.
    #[error("the trusted certificates of this machine cannot be used")]
    Roots(#[source] rustls::Error),
}

// === impl SendError ===

impl SendError {
    /// Returns an error that occurred before the first byte of the request was written.
    pub(super) fn before_first_byte(kind: SendErrorKind, source: impl Into<ErrorSource>) -> Self {
        Self { sent: SendProgress::Nothing, kind, source: Some(source.into()) }
    }

    /// Returns the error for a deadline or time limit that has passed.
    pub(super) fn timeout(sent: SendProgress) -> Self {
        Self { sent, kind: SendErrorKind::Timeout, source: None }
    }

    /// Returns the error for a failure while the request was written and the head was read.
    pub(super) fn during_exchange(sent: SendProgress, error: ExchangeError) -> Self {
        Self { sent, kind: SendErrorKind::of_exchange(&error), source: Some(error.into()) }
    }
}

// === impl BodyError ===

impl BodyError {
    /// Returns an error for a connection that ended before the end of the body.
    pub(super) fn truncated() -> Self {
        Self { kind: BodyErrorKind::Truncated, source: None }
    }

    /// Returns an error for a body that cannot be decoded.
    pub(super) fn undecodable(source: impl Into<ErrorSource>) -> Self {
        Self { kind: BodyErrorKind::Undecodable, source: Some(source.into()) }
    }

    /// Returns an error for a body that does not follow its framing.
    pub(super) fn malformed(source: impl Into<ErrorSource>) -> Self {
        Self { kind: BodyErrorKind::Malformed, source: Some(source.into()) }
    }

    pub(super) fn from_io(error: io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::UnexpectedEof => BodyErrorKind::Truncated,
            io::ErrorKind::InvalidData => BodyErrorKind::Malformed,
            _ => BodyErrorKind::Reset,
        };
        Self { kind, source: Some(error.into()) }
    }
}

// === impl SendErrorKind ===

impl SendErrorKind {
    fn of_exchange(error: &ExchangeError) -> Self {
        match error {
            ExchangeError::Io(error) => match error.kind() {
                io::ErrorKind::TimedOut => Self::Timeout,
                io::ErrorKind::InvalidData => Self::Protocol,
                _ => Self::Closed,
            },
            ExchangeError::Ended => Self::Closed,
            ExchangeError::Head(HeadError::TooLarge) => Self::HeadTooLarge,
            ExchangeError::Head(HeadError::Syntax(_) | HeadError::Invalid(_)) => Self::Protocol,
        }
    }
}

impl fmt::Display for SendErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolve => "the host name of the upstream cannot be resolved",
            Self::Connect => "the upstream accepts no connection",
            Self::Tls => "no trusted TLS session with the upstream can be established",
            Self::Timeout => "the upstream did not answer in time",
            Self::Closed => "the upstream closed the connection before it answered",
            Self::Protocol => "the upstream's answer is not HTTP",
            Self::HeadTooLarge => "the header section of the upstream's answer is too large",
        })
    }
}

impl fmt::Display for BodyErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the upstream's answer ended too early",
            Self::Reset => "the upstream's connection broke during the answer",
            Self::Malformed => "the framing of the upstream's answer is broken",
            Self::Undecodable => "the upstream's answer cannot be decoded",
        })
    }
}
