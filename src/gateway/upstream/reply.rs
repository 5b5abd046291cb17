//! What an attempt gave: an answer that may hold an image, or a failure with its class.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};

use super::simulated::{SimulatedBody, SimulatedResponse};
use super::transport::ResponseBody;

/// An upstream that answered 200. Whether an image is in it is the relay's to prove.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The answer as it comes.
    pub(crate) body: ReplyBody,
    /// The simulator drew it.
    pub(crate) simulated: bool,
    /// A text model drew it with its tool: the image stands in a response.
    pub(crate) by_tool: bool,
    /// The upstream's id of this call.
    pub(crate) request_id: Option<String>,
}

/// The body of a reply, whoever makes it.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// Bytes from a socket.
    Wire(Box<ResponseBody>),
    /// Bytes from the simulator.
    Simulated(SimulatedBody),
    /// Bytes from the simulator, of a response.
    SimulatedResponse(Box<SimulatedResponse>),
    /// Bytes from a test.
    #[cfg(test)]
    Scripted(std::collections::VecDeque<Result<Bytes, ReplyError>>),
    /// Bytes from a test, when it pleases.
    #[cfg(test)]
    Channel(tokio::sync::mpsc::Receiver<Bytes>),
}

/// The body broke off. Why is logged where it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the upstream's answer broke off")]
pub(crate) struct ReplyError;

/// What may be tried again depends only on whether an image can already have been made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Nothing was done.
    N,
    /// The upstream says that it failed.
    F,
    /// Ambiguous: an image may have been made and paid for.
    X,
    /// The request itself was refused.
    R,
}

/// An attempt that gave no image.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    /// Whether another account may be tried.
    pub(crate) class: Class,
    /// Why, as far as anybody outside may know.
    pub(crate) cause: Cause,
    /// The upstream's status, where it sent one.
    pub(crate) status: Option<u16>,
    /// The upstream's id of the call that failed.
    pub(crate) request_id: Option<String>,
    /// The upstream's words about the failure, as far as they are safe to show.
    pub(crate) words: Option<String>,
}

/// Why an attempt gave no image.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cause {
    /// No connection, or the account is not let in.
    Unreachable,
    /// The connection broke.
    Broken,
    /// Nothing came in time.
    Timeout,
    /// An answer without an image.
    NoImage,
    /// The upstream says that it failed.
    Failed,
    /// Refused by content policy.
    Refused,
    /// The upstream rejects a parameter.
    Rejected {
        /// The parameter it names.
        param: Option<String>,
        /// What it says of it.
        message: String,
    },
    /// The account's usage window is exhausted.
    Exhausted {
        /// Until the window opens again, where stated.
        wait: Option<Duration>,
    },
    /// The account has not been paid for; that does not pass by itself.
    Unfit,
    /// The upstream does not offer, or not to this account, something that every caller of the image endpoints may ask
    /// for.
    Missing,
    /// The upstream does not know the model that the caller chose, or does not offer it to this account.
    UnknownModel,
    /// The upstream does not allow the account to do this, or does not allow this request.
    Forbidden,
    /// Something in front of the upstream has refused the request with a page.
    Blocked,
    /// The upstream rejects the request and names no part of it.
    Declined {
        /// The upstream's message, as far as a caller may read it.
        message: String,
    },
    /// Too many requests for this account right now.
    Throttled {
        /// As the upstream advises.
        wait: Option<Duration>,
    },
    /// Our own disk does not keep the image: nothing that the account could help.
    Unkept,
    /// The gateway stops and no longer waits for the answer.
    Cutoff,
}

// === impl Class ===

impl Class {
    /// The letter in records and documents.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::N => "N",
            Self::F => "F",
            Self::X => "X",
            Self::R => "R",
        }
    }
}

// === impl Failure ===

impl Failure {
    /// A failure without a status.
    pub(crate) const fn new(class: Class, cause: Cause) -> Self {
        Self { class, cause, status: None, request_id: None, words: None }
    }

    /// The same failure with a status.
    pub(crate) fn with_status(self, status: u16) -> Self {
        Self { status: Some(status), ..self }
    }
}

// === impl ReplyBody ===

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = ReplyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ReplyError>>> {
        match &mut *self {
            Self::Wire(body) => Pin::new(body).poll_frame(cx).map_err(|error| {
                tracing::warn!(error = %error, "the upstream's answer broke off");
                ReplyError
            }),
            Self::Simulated(body) => Pin::new(body).poll_frame(cx),
            Self::SimulatedResponse(body) => Pin::new(body).poll_frame(cx),
            #[cfg(test)]
            Self::Channel(pieces) => pieces.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece)))),
            #[cfg(test)]
            Self::Scripted(pieces) => Poll::Ready(pieces.pop_front().map(|piece| piece.map(Frame::data))),
        }
    }
}
