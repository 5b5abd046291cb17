//! An answer that has begun, whatever the source of its bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use tokio_util::sync::CancellationToken;

use super::request_failure::RequestFailure;
use crate::error::Error;
use crate::gateway::front::SchemaMarker;
use crate::gateway::limits::LimitStatus;
use crate::gateway::relay::{PacedBody, RelayBody};
use crate::gateway::replay::{AnswerHead, AnswerReader, RecordableAnswer};

const JSON_CONTENT_TYPE: &str = "application/json";
const EVENTS_CONTENT_TYPE: &str = "text/event-stream; charset=utf-8";
/// The header with the changes that were made to the request.
pub(crate) const ADAPTED_HEADER: &str = "x-imagate-adapted";
const REPLAYED_HEADER: &str = "x-imagate-replayed";
/// The header of RFC 7240 with the preferences of the caller that were applied.
const APPLIED_PREFERENCE_HEADER: &str = "preference-applied";

/// An answer that has begun.
pub(crate) struct GatewayAnswer {
    /// The status, content type, and headers.
    pub(crate) head: AnswerHead,
    /// The body, which may still be incomplete.
    pub(crate) body: GatewayAnswerBody,
}

/// The answer of an operation. Its body has the schema of `T`, or is an error.
pub(crate) struct OperationAnswer<T> {
    pub(crate) answer: GatewayAnswer,
    pub(crate) schema: SchemaMarker<T>,
}

/// The source of the bytes of an answer.
pub(crate) enum GatewayAnswerBody {
    /// The upstream.
    Live(Box<RelayBody>),
    /// A stored answer, complete or still being written. The client must read it at the minimum rate.
    Stored(PacedBody<AnswerReader>),
    /// Heartbeats, followed by a body of one of the first two kinds or an error event.
    Early(UnsyncBoxBody<Bytes, AnswerBodyError>),
    /// The whole body, in memory.
    Whole(Bytes),
}

/// The error of an answer that broke off. The module that detects the cause logs it.
#[derive(Debug)]
pub(crate) struct AnswerBodyError(Box<dyn std::error::Error + Send + Sync>);

// === impl GatewayAnswer ===

impl GatewayAnswer {
    /// Returns an answer from the upstream, with its headers.
    pub(super) fn from_upstream(stream: bool, headers: BTreeMap<String, String>, body: RelayBody) -> Self {
        let content_type = if stream { EVENTS_CONTENT_TYPE } else { JSON_CONTENT_TYPE }.to_owned();
        Self { head: AnswerHead { status: 200, content_type, headers }, body: GatewayAnswerBody::Live(Box::new(body)) }
    }

    /// Returns a stored answer, which several requests may read. The body ends shortly after `cutoff` is cancelled.
    pub(super) fn from_stored_answer(head: AnswerHead, reader: AnswerReader, cutoff: &CancellationToken) -> Self {
        Self { head, body: GatewayAnswerBody::Stored(PacedBody::new(reader, cutoff)) }
    }

    /// Returns a stream that begins before its answer.
    pub(super) fn from_early_stream(stream: impl Body<Data = Bytes, Error = AnswerBodyError> + Send + 'static) -> Self {
        let head = AnswerHead { status: 200, content_type: EVENTS_CONTENT_TYPE.to_owned(), headers: BTreeMap::new() };
        Self { head, body: GatewayAnswerBody::Early(stream.boxed_unsync()) }
    }

    /// Marks the answer as a replay, which was not paid for again.
    pub(super) fn into_replayed(self) -> Self {
        let mut answer = self.with_replay_mark(true);
        // The limit headers state what was left when the job began.
        answer.head.headers.retain(|name, _| !LimitStatus::is_header(name));
        answer
    }

    /// Adds the header with which a caller learns that the answer is stored under its idempotency key.
    pub(super) fn with_replay_mark(mut self, is_replayed: bool) -> Self {
        self.head.headers.insert(REPLAYED_HEADER.to_owned(), is_replayed.to_string());
        self
    }

    /// Adds the header with the changes that dialects made to the request, if there are any. It belongs to the request:
    /// a stored answer has none, and a stream that begins before its answer has it too.
    fn with_adapted_mark(mut self, adapted: Option<String>) -> Self {
        self.head.headers.extend(adapted.map(|text| (ADAPTED_HEADER.to_owned(), text)));
        self
    }

    /// Adds the header with the time for which the request was ready to wait, if its caller stated one. It belongs to the
    /// request: a stored answer has none.
    pub(super) fn with_applied_wait(mut self, wait: Option<Duration>) -> Self {
        let text = wait.map(|wait| format!("wait={}", wait.as_secs()));
        self.head.headers.extend(text.map(|text| (APPLIED_PREFERENCE_HEADER.to_owned(), text)));
        self
    }

    /// True if the answer is a stream of events.
    pub(crate) fn is_stream(&self) -> bool {
        self.head.content_type == EVENTS_CONTENT_TYPE
    }
}

impl RecordableAnswer for GatewayAnswer {
    type Body = GatewayAnswerBody;

    fn into_parts(self) -> (AnswerHead, GatewayAnswerBody) {
        (self.head, self.body)
    }
}

// === impl OperationAnswer ===

impl<T> OperationAnswer<T> {
    /// The answer of a job, which relays or replays the body as its operation has it, or the error of the job; either
    /// states how dialects have adapted the request.
    pub(super) fn from_result(
        result: Result<GatewayAnswer, Error>,
        adapted: Option<String>,
    ) -> Result<Self, RequestFailure> {
        match result {
            Ok(answer) => {
                Ok(Self { answer: answer.with_adapted_mark(adapted), schema: SchemaMarker::of_relayed_answer() })
            }
            Err(error) => Err(RequestFailure::new(error, adapted)),
        }
    }
}

// === impl GatewayAnswerBody ===

impl Body for GatewayAnswerBody {
    type Data = Bytes;
    type Error = AnswerBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerBodyError>>> {
        match &mut *self {
            Self::Live(body) => Pin::new(body).poll_frame(cx).map_err(|error| AnswerBodyError(error.into())),
            Self::Stored(body) => Pin::new(body).poll_frame(cx).map_err(AnswerBodyError),
            Self::Early(body) => Pin::new(body).poll_frame(cx),
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Live(body) => body.is_end_stream(),
            Self::Stored(body) => body.is_end_stream(),
            Self::Early(body) => body.is_end_stream(),
            Self::Whole(bytes) => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Live(body) => body.size_hint(),
            Self::Stored(body) => body.size_hint(),
            Self::Early(body) => body.size_hint(),
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

impl fmt::Display for AnswerBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for AnswerBodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
