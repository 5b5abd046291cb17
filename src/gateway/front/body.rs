//! Bodies that are read only against a `Caller` or an `Operator`, under a limit and a deadline.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use dropshot::{
    ApiEndpointBodyContentType, Body, ExclusiveExtractor, ExtractorMetadata, HttpError, RequestContext, ServerContext,
    TypedBody,
};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body::Body as _;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, Sleep, sleep_until};

use super::unread::Unread;
use crate::error::{Error, Reason, Rejection};
use crate::gateway::console::Operator;
use crate::gateway::keys::Caller;
use crate::tables::{CLIENT_BODY_BYTES_PER_SECOND, CLIENT_BODY_WINDOW_SECONDS};

/// A body must come at this rate, averaged over this window, from its first byte on.
const RATE: u64 = CLIENT_BODY_BYTES_PER_SECOND;
const WINDOW: Duration = Duration::from_secs(CLIENT_BODY_WINDOW_SECONDS);

/// The proof that somebody was let in, without which no body is read.
pub(crate) trait Ticket {}

impl Ticket for Caller {}

impl Ticket for Operator {}

/// A JSON body, unread. It is described as a `T`.
pub(crate) struct JsonBody<T> {
    request: hyper::Request<Body>,
    unread: Unread,
    most: usize,
    described: PhantomData<fn() -> T>,
}

/// A body on its way: counted, and held to its rate.
pub(super) struct Arriving {
    body: Body,
    most: u64,
    received: u64,
    begun: Instant,
    alarm: Pin<Box<Sleep>>,
    /// The word for a body that does not arrive.
    broken: Reason,
}

// === impl JsonBody ===

impl<T> JsonBody<T> {
    /// The place where what is not read comes back to.
    pub(crate) fn unread(&self) -> Unread {
        self.unread.clone()
    }

    /// Reads the body.
    ///
    /// # Errors
    ///
    /// 415 for what is no JSON or is compressed, 413 above the limit, 400 when it does not arrive.
    pub(crate) async fn read(self, _ticket: &impl Ticket) -> Result<Bytes, Error> {
        if !is_json(content_type(&self.request)) {
            return Err(Error::UnsupportedMedia("Expected the header 'Content-Type: application/json'.".to_owned()));
        }
        let mut arriving = Arriving::new(self.request, self.most as u64, Reason::InvalidJson)?;
        let mut read = BytesMut::new();
        while let Some(data) = arriving.data().await? {
            read.extend_from_slice(&data);
        }
        Ok(read.freeze())
    }
}

// === impl Arriving ===

impl Arriving {
    /// Looks at what the head announces; nothing is read yet.
    ///
    /// # Errors
    ///
    /// 415 for what is compressed, 413 for what is announced above the limit.
    pub(super) fn new(request: hyper::Request<Body>, most: u64, broken: Reason) -> Result<Self, Error> {
        let headers = request.headers();
        if headers.get_all(CONTENT_ENCODING).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(Error::UnsupportedMedia(
                "Compressed request bodies are not read here; send the body without 'Content-Encoding'.".to_owned(),
            ));
        }
        let announced =
            headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()).and_then(|value| value.parse().ok());
        if announced.is_some_and(|length: u64| length > most) {
            return Err(too_large(most));
        }
        let begun = Instant::now();
        let alarm = Box::pin(sleep_until(begun + WINDOW));
        Ok(Self { body: request.into_body(), most, received: 0, begun, alarm, broken })
    }

    /// The next bytes; nothing at the end.
    ///
    /// # Errors
    ///
    /// 413 above the limit, 400 when the body breaks off or comes too slowly.
    pub(super) async fn data(&mut self) -> Result<Option<Bytes>, Error> {
        poll_fn(|cx| self.poll_data(cx)).await.transpose()
    }

    /// As [`Arriving::data`].
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Some(Err(self.broke_off("whole")))),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => return Poll::Ready(Some(self.count(data))),
                    Err(_trailers) => {}
                },
                Poll::Pending => match ready!(self.poll_late(cx)) {
                    Ok(()) => {}
                    Err(late) => return Poll::Ready(Some(Err(late))),
                },
            }
        }
    }

    /// Ready when the alarm has rung: an error if the body is late, and nothing if it has earned more time meanwhile.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        ready!(self.alarm.as_mut().poll(cx));
        // What has come so far pays for so much time; the first window is free.
        let until = self.begun + WINDOW + Duration::from_secs(self.received / RATE);
        if until <= Instant::now() {
            return Poll::Ready(Err(self.broke_off("in time")));
        }
        self.alarm.as_mut().reset(until);
        Poll::Ready(Ok(()))
    }

    fn count(&mut self, data: Bytes) -> Result<Bytes, Error> {
        self.received += data.len() as u64;
        if self.received > self.most { Err(too_large(self.most)) } else { Ok(data) }
    }

    fn broke_off(&self, how: &str) -> Error {
        Rejection::whole(self.broken, format!("The request body did not arrive {how}.")).into()
    }
}

/// What the head says the body is.
pub(super) fn content_type(request: &hyper::Request<Body>) -> &str {
    request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// `application/json`, whatever parameters follow.
pub(super) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn too_large(most: u64) -> Error {
    Error::TooLarge(Rejection {
        param: None,
        reason: None,
        message: format!("The request body is larger than {most} bytes."),
    })
}

#[async_trait]
impl<T: DeserializeOwned + JsonSchema + Send + Sync + 'static> ExclusiveExtractor for JsonBody<T> {
    async fn from_request<C: ServerContext>(
        context: &RequestContext<C>,
        request: hyper::Request<Body>,
    ) -> Result<Self, HttpError> {
        let (request, unread) = Unread::watch(request);
        Ok(Self { request, unread, most: context.request_body_max_bytes(), described: PhantomData })
    }

    fn metadata(content_type: ApiEndpointBodyContentType) -> ExtractorMetadata {
        <TypedBody<T> as ExclusiveExtractor>::metadata(content_type)
    }
}
