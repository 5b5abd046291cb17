//! The result of an attempt: an answer that may contain an image, or a failure with its class.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};

use super::fetched_answer::FetchedAnswer;
use super::masked_body::MaskedBody;
use super::simulated_upstream::{SimulatedBody, SimulatedResponse};
use super::transport::{BodyErrorKind, ResponseBody};
use crate::gateway::store::AttemptClass;

/// An answer that states success. The relay checks whether it contains an image.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The body, as it arrives.
    pub(crate) body: ReplyBody,
    /// True if the simulator drew the image.
    pub(crate) is_simulated: bool,
    /// True if a text model drew the image with its tool: the image is in a response.
    pub(crate) is_from_image_tool: bool,
    /// The upstream's id of this call.
    pub(crate) request_id: Option<String>,
    /// The status of the answer: 2xx.
    pub(crate) status: u16,
}

/// The body of a reply, from any source.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// Bytes from a socket.
    Network(Box<MaskedBody<ResponseBody>>),
    /// An answer whose images were fetched from their addresses.
    Fetched(Box<FetchedAnswer>),
    /// Bytes from the simulator.
    Simulated(SimulatedBody),
    /// Bytes of a response from the simulator.
    SimulatedResponse(Box<SimulatedResponse>),
    /// Bytes from a test.
    #[cfg(test)]
    Scripted(std::collections::VecDeque<Result<Bytes, ReplyError>>),
    /// Bytes from a test, at the times that the test chooses.
    #[cfg(test)]
    Channel(tokio::sync::mpsc::Receiver<Bytes>),
}

/// The error of a body that broke off. The reason is logged at its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the upstream's answer broke off")]
pub(crate) struct ReplyError {
    /// True if the bytes have come, but cannot be decoded.
    pub(crate) is_undecodable: bool,
}

/// An attempt that gave no image.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttemptFailure {
    /// The class, which decides whether another account may be tried.
    pub(crate) class: AttemptClass,
    /// The cause, as far as callers may know it.
    pub(crate) cause: FailureCause,
    /// The upstream's status, if it sent one.
    pub(crate) status: Option<u16>,
    /// The upstream's id of the call that failed.
    pub(crate) request_id: Option<String>,
    /// The upstream's message about the failure, as far as it is safe to show.
    pub(crate) upstream_message: Option<String>,
    /// The first words that a model has written in place of an image, as far as they are safe to show.
    pub(crate) model_text: Option<String>,
}

/// The reason why an attempt gave no image.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FailureCause {
    /// No connection could be made, or the credentials were refused.
    NoConnection,
    /// The connection broke, or the answer could not be used.
    Broken,
    /// No answer came in time.
    Timeout,
    /// The answer contains no image.
    NoImage,
    /// The answer names a task in place of an image: the image is made later, and never received.
    AsyncTask,
    /// The answer has the address of an image in place of the image, and the image was not fetched from there.
    ImageByAddress,
    /// The answer has a content coding that cannot be decoded.
    UnknownCoding,
    /// The answer has the text of a model in place of an image, such as a question. In class N, the model states that it
    /// cannot draw here or now.
    TextInsteadOfImage,
    /// The upstream states that it failed.
    Failed,
    /// The content policy refused the request.
    ContentRefused,
    /// The upstream rejects the request as invalid, so that every account would reject it.
    InvalidRequest {
        /// The parameter that the upstream names, if any.
        param: Option<String>,
        /// The message for the caller: that of the upstream, if it is safe to show.
        message: String,
    },
    /// The account's usage window is exhausted.
    Exhausted {
        /// The time until the window opens again, if stated.
        wait: Option<Duration>,
    },
    /// The account is not paid for: waiting does not help.
    AccountUnpaid,
    /// The upstream does not offer something that every caller of the image endpoints may request, or does not offer it
    /// to this account.
    NotOffered,
    /// The upstream does not know the model that the caller chose, or does not offer it to this account.
    UnknownModel,
    /// The upstream does not allow the account to do this, or does not allow this request.
    ForbiddenToAccount,
    /// A system in front of the upstream, such as a firewall, has refused the request with a page.
    BlockedByFirewall,
    /// The upstream rejects the request, but another account may accept it: the error is no clear fault of the caller.
    RejectedByAccount {
        /// The message for the caller: that of the upstream, if it is safe to show.
        message: String,
    },
    /// The account cannot read context of the request, because another account has made it.
    BoundElsewhere {
        /// The kind of the context.
        kind: BoundContext,
        /// The parameter that the upstream names, if any.
        param: Option<String>,
        /// The message for the caller: that of the upstream, if it is safe to show.
        message: String,
    },
    /// Too many requests for this account right now.
    Throttled {
        /// The wait that the upstream advises.
        wait: Option<Duration>,
    },
    /// The local disk cannot hold the image; the account is not the cause.
    SpoolFailed,
    /// The gateway is stopping and no longer waits for the answer.
    Cutoff,
}

/// A kind of context that belongs to one account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundContext {
    /// Encrypted content of an item, which only the account that made it can read.
    Ciphertext,
    /// An earlier response that the account stores.
    Stored,
}

// === impl AttemptFailure ===

impl AttemptFailure {
    /// Returns a failure without a status.
    pub(crate) const fn new(class: AttemptClass, cause: FailureCause) -> Self {
        Self { class, cause, status: None, request_id: None, upstream_message: None, model_text: None }
    }

    /// Returns the same failure with a status.
    pub(crate) fn with_status(self, status: u16) -> Self {
        Self { status: Some(status), ..self }
    }
}

// === impl ReplyError ===

impl ReplyError {
    /// The error of a connection that broke, or of another source that ended early.
    pub(crate) const BROKEN: Self = Self { is_undecodable: false };
}

// === impl ReplyBody ===

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = ReplyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ReplyError>>> {
        match &mut *self {
            Self::Network(body) => Pin::new(body).poll_frame(cx).map_err(|error| {
                tracing::warn!(error = %error, "the upstream's answer broke off");
                ReplyError { is_undecodable: error.kind == BodyErrorKind::Undecodable }
            }),
            Self::Fetched(body) => Pin::new(body).poll_frame(cx),
            Self::Simulated(body) => Pin::new(body).poll_frame(cx),
            Self::SimulatedResponse(body) => Pin::new(body).poll_frame(cx),
            #[cfg(test)]
            Self::Channel(chunks) => chunks.poll_recv(cx).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk)))),
            #[cfg(test)]
            Self::Scripted(chunks) => Poll::Ready(chunks.pop_front().map(|chunk| chunk.map(Frame::data))),
        }
    }
}
