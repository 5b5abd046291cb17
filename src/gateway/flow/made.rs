//! An answer that has begun, wherever its bytes come from.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio_util::sync::CancellationToken;

use super::early::EarlyStream;
use crate::gateway::relay::{PacedBody, RelayBody};
use crate::gateway::replay::{Follower, Head, Recordable};

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";
const REPLAYED: &str = "x-imagate-replayed";

/// An answer that has begun.
pub(crate) struct Made {
    /// Its status, its type, and the headers that belong to it.
    pub(crate) head: Head,
    /// Its body, still coming.
    pub(crate) body: MadeBody,
}

/// Where the bytes of an answer come from.
pub(crate) enum MadeBody {
    /// From the upstream.
    Live(Box<RelayBody>),
    /// From an answer that is written down, or is being. Its reader is held to the least rate wherever it is read.
    Followed(PacedBody<Follower>),
    /// Heartbeats, and then from either of these.
    Early(EarlyStream),
}

/// The answer broke off; why is logged where it is known.
#[derive(Debug)]
pub(crate) struct BrokeOff(Box<dyn std::error::Error + Send + Sync>);

// === impl Made ===

impl Made {
    /// An answer from the upstream, with what is known of it.
    pub(super) fn live(stream: bool, headers: BTreeMap<String, String>, body: RelayBody) -> Self {
        let content_type = if stream { EVENTS } else { JSON }.to_owned();
        Self { head: Head { status: 200, content_type, headers }, body: MadeBody::Live(Box::new(body)) }
    }

    /// The answer to the first of several requests, for any of them, until shortly after `cutoff` is cancelled.
    pub(super) fn followed(head: Head, follower: Follower, cutoff: &CancellationToken) -> Self {
        Self { head, body: MadeBody::Followed(PacedBody::new(follower, cutoff)) }
    }

    /// A stream that begins before its answer.
    pub(super) fn early(stream: EarlyStream) -> Self {
        let head = Head { status: 200, content_type: EVENTS.to_owned(), headers: BTreeMap::new() };
        Self { head, body: MadeBody::Early(stream) }
    }

    /// Says that nothing was paid for it again.
    pub(super) fn replayed(mut self) -> Self {
        self.head.headers.insert(REPLAYED.to_owned(), "true".to_owned());
        self
    }

    /// Whether it is a stream of events.
    pub(crate) fn is_stream(&self) -> bool {
        self.head.content_type == EVENTS
    }
}

impl Recordable for Made {
    type Body = MadeBody;

    fn into_parts(self) -> (Head, MadeBody) {
        (self.head, self.body)
    }
}

// === impl MadeBody ===

impl Body for MadeBody {
    type Data = Bytes;
    type Error = BrokeOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokeOff>>> {
        match &mut *self {
            Self::Live(body) => Pin::new(body).poll_frame(cx).map_err(|error| BrokeOff(error.into())),
            Self::Followed(body) => Pin::new(body).poll_frame(cx).map_err(BrokeOff),
            Self::Early(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Live(body) => body.is_end_stream(),
            Self::Followed(body) => body.is_end_stream(),
            Self::Early(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Live(body) => body.size_hint(),
            Self::Followed(body) => body.size_hint(),
            Self::Early(body) => body.size_hint(),
        }
    }
}

impl fmt::Display for BrokeOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for BrokeOff {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
