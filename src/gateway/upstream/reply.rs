//! The answer to an attempt, which may contain an image.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::fetched_answer::FetchedAnswer;
use super::masked_body::MaskedBody;
use super::simulated_upstream::{SimulatedBody, SimulatedResponse};
use super::transport::{BodyErrorKind, ResponseBody};

/// An answer that states success. The relay checks whether it contains an image.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The body, as it arrives.
    pub(crate) body: ReplyBody,
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
