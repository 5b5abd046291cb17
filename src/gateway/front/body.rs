//! Request bodies. They are read within the admission of their request, under a size limit and a deadline.

use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dropshot::{
    ApiEndpointBodyContentType, Body, ExclusiveExtractor, ExtractorMetadata, HttpError, RequestContext, ServerContext,
    TypedBody,
};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http_body::Body as _;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tokio::task::consume_budget;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::admission::{
    Admission, BudgetExceeded, ByteShare, CountedJson, EXPANSION_MAX, JSON_VALUES_MAX, JsonTextBuilder, JsonTextError,
};
use crate::gateway::content_coding::{BodyDecoder, ContentCoding, WindowTooLarge, coding_names};
use crate::gateway::spool::{Spool, SpooledBytes};
use crate::gateway::work::Work;
use crate::tables::{CLIENT_BODY_BYTES_PER_SECOND, CLIENT_BODY_WINDOW_SECONDS};

/// The minimum rate of a body in bytes per second, averaged over [`RATE_WINDOW`].
const MIN_BYTES_PER_SECOND: u64 = CLIENT_BODY_BYTES_PER_SECOND;
/// The window over which the rate is averaged, from the first byte on.
const RATE_WINDOW: Duration = Duration::from_secs(CLIENT_BODY_WINDOW_SECONDS);

/// The decoded size in bytes that is allowed for every compressed body, however small it is (our choice).
const ALWAYS_ALLOWED_BYTES: u64 = 64 * 1024;
/// The decoded size of a body may be this multiple of its compressed size (our choice). Legitimate bodies stay far
/// below this ratio: compression reduces long, repetitive conversations to a thirtieth of their size, and images hardly
/// at all. The bytes beyond it count as expansion, which all bodies of a sender share: otherwise a few kilobytes, sent
/// many times at once, could fill the disk.
const EXPANSION_RATIO: u64 = 200;

/// The read bytes whose work is charged at once (our choice): a body may arrive in very small pieces.
const CHARGED_BYTES_MIN: u64 = 64 * 1024;

/// An unread body. The API description describes it as that of `E`.
pub(crate) struct UnreadRequestBody<E> {
    pub(super) request: hyper::Request<Body>,
    /// The limit of the operation, in bytes.
    max_bytes: u64,
    has_large_windows: bool,
    described: PhantomData<fn() -> E>,
}

/// An unread JSON body with the schema of `T`.
pub(crate) type JsonBody<T> = UnreadRequestBody<TypedBody<T>>;

/// A request body while it is read: decoded, counted, and held to a minimum rate.
pub(super) struct IncomingBody {
    body: Body,
    admission: Admission,
    decoder: Option<BodyDecoder>,
    /// The limit on the received bytes, and also on the decoded bytes.
    max_bytes: u64,
    received: u64,
    decoded: u64,
    /// The read bytes whose work was charged.
    charged: u64,
    /// The work of reading these bytes.
    cost: fn(u64) -> Work,
    /// The share for the decoded bytes that count as expansion.
    expansion: Option<ByteShare>,
    /// The moment until which further bytes are awaited. Every byte extends it, to at most one window from now.
    deadline: Instant,
    timer: Pin<Box<Sleep>>,
    /// The reason in the error if the body does not arrive completely or cannot be decoded.
    error_reason: RejectionReason,
}

// === impl UnreadRequestBody ===

impl<E> UnreadRequestBody<E> {
    /// The body of a request, which may have at most this many bytes.
    pub(crate) fn new(request: hyper::Request<Body>, max_bytes: u64) -> Self {
        Self { request, max_bytes, has_large_windows: false, described: PhantomData }
    }

    /// Allows a compressed body the windows that ordinary encoders and agents use, up to the maximum of HTTP.
    pub(crate) fn with_large_windows(self) -> Self {
        Self { has_large_windows: true, ..self }
    }

    /// Allows a body of at most this many bytes, in place of the limit of its operation.
    pub(crate) fn with_limit(self, max_bytes: u64) -> Self {
        Self { max_bytes, ..self }
    }

    /// Returns the length that the client has announced for the body, if it has.
    pub(crate) fn announced_bytes(&self) -> Option<u64> {
        announced_bytes(self.request.headers())
    }
}

#[async_trait]
impl<E: ExclusiveExtractor + 'static> ExclusiveExtractor for UnreadRequestBody<E> {
    async fn from_request<C: ServerContext>(
        context: &RequestContext<C>,
        request: hyper::Request<Body>,
    ) -> Result<Self, HttpError> {
        Ok(Self::new(request, context.request_body_max_bytes() as u64))
    }

    fn metadata(content_type: ApiEndpointBodyContentType) -> ExtractorMetadata {
        E::metadata(content_type)
    }
}

impl<T: DeserializeOwned + JsonSchema + Send + Sync + 'static> JsonBody<T> {
    /// Reads the body, of which a tree is made.
    ///
    /// # Errors
    ///
    /// Returns 415 for a content type other than JSON or an unsupported content encoding, 413 if the body is too large,
    /// expands too much or has too many values, 400 if it breaks off, arrives too slowly or cannot be decoded, and 429
    /// or 503 if the memory for arriving bodies is used up: 429 for those of its sender, 503 for those of all requests.
    pub(crate) async fn read(self, admission: &Admission) -> Result<CountedJson, Error> {
        let mut incoming = self.into_incoming(admission)?;
        let mut json = JsonTextBuilder::new(admission);
        while let Some(data) = incoming.next_data().await? {
            json.push(&data).map_err(|error| json_text_error(&error))?;
        }
        json.finish().map_err(|error| json_text_error(&error))
    }

    /// Reads a body that may be large: all but its beginning is written to the spool as it arrives.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`JsonBody::read`], and 503 if the body cannot be written to disk.
    pub(crate) async fn read_to_spool(self, admission: &Admission, spool: &Spool) -> Result<SpooledBytes, Error> {
        let mut incoming = self.into_incoming(admission)?.charging(Work::ScannedBytes);
        let mut writer = spool.bytes_writer(admission);
        while let Some(data) = incoming.next_data().await? {
            writer.write(data).await.map_err(|error| spool_error(&error))?;
        }
        writer.finish().await.map_err(|error| spool_error(&error))
    }

    fn into_incoming(self, admission: &Admission) -> Result<IncomingBody, Error> {
        if !is_json(content_type(&self.request)) {
            return Err(Error::UnsupportedMedia("Expected the header 'Content-Type: application/json'.".to_owned()));
        }
        let reason = RejectionReason::InvalidJson;
        let mut incoming = IncomingBody::new(self.request, admission, self.max_bytes, reason)?;
        if self.has_large_windows {
            incoming.allow_large_windows();
        }
        Ok(incoming)
    }
}

// === impl IncomingBody ===

impl IncomingBody {
    /// Checks the headers of the request; the body is not read yet.
    ///
    /// # Errors
    ///
    /// Returns 415 for an unknown content encoding, and 413 if the announced length is above the limit.
    pub(super) fn new(
        request: hyper::Request<Body>,
        admission: &Admission,
        max_bytes: u64,
        error_reason: RejectionReason,
    ) -> Result<Self, Error> {
        let headers = request.headers();
        let decoder = body_decoder(headers, admission)?;
        if announced_bytes(headers).is_some_and(|length| length > max_bytes) {
            return Err(too_large(max_bytes));
        }
        let deadline = Instant::now() + RATE_WINDOW;
        let timer = Box::pin(sleep_until(deadline));
        Ok(Self {
            body: request.into_body(),
            admission: admission.clone(),
            decoder,
            max_bytes,
            received: 0,
            decoded: 0,
            charged: 0,
            cost: Work::ParsedBytes,
            expansion: None,
            deadline,
            timer,
            error_reason,
        })
    }

    /// Charges this work for what is read, which is less than a tree costs.
    pub(super) fn charging(mut self, cost: fn(u64) -> Work) -> Self {
        self.cost = cost;
        self
    }

    /// Charges the bytes that were read since the last charge, if they are at least this many.
    fn charge(&mut self, min_bytes: u64) {
        let read = self.received.max(self.decoded);
        let bytes = read - self.charged;
        if bytes < min_bytes {
            return;
        }
        self.charged = read;
        self.admission.charge((self.cost)(bytes));
        if self.decoded > 0 {
            self.admission.charge(Work::DecodedBytes(bytes));
        }
    }

    /// Like [`UnreadRequestBody::with_large_windows`].
    pub(super) fn allow_large_windows(&mut self) {
        if let Some(decoder) = &mut self.decoder {
            decoder.allow_large_windows();
        }
    }

    /// The request to which the body belongs.
    pub(super) const fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Returns the next decoded bytes; `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns 413 if the body is too large or expands too much, and 400 if it breaks off, arrives too slowly or cannot
    /// be decoded.
    pub(super) async fn next_data(&mut self) -> Result<Option<Bytes>, Error> {
        poll_fn(|cx| self.poll_data(cx)).await.transpose()
    }

    /// Returns the next decoded bytes, like [`IncomingBody::next_data`].
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        loop {
            if let Some(data) = ready!(self.poll_decode(cx)) {
                return Poll::Ready(Some(data));
            }
            let data = match ready!(self.poll_receive(cx)) {
                Some(Ok(data)) => data,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    let last_data = self.decoder.take().map_or(Ok(None), BodyDecoder::finish);
                    return Poll::Ready(self.check_decoded(last_data).transpose());
                }
            };
            match &mut self.decoder {
                None => return Poll::Ready(Some(Ok(data))),
                Some(decoder) => decoder.feed(data),
            }
        }
    }

    /// Returns the next decoded bytes; `None` if more bytes must arrive first.
    fn poll_decode(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        loop {
            let Some(decoder) = &mut self.decoder else { return Poll::Ready(None) };
            // A few received bytes may decode to many, so the task yields to other tasks in between.
            ready!(pin!(consume_budget()).poll(cx));
            let decoded = decoder.next();
            match self.check_decoded(decoded) {
                Ok(Some(decoded)) if decoded.is_empty() => {}
                checked => return Poll::Ready(checked.transpose()),
            }
        }
    }

    /// Returns the next bytes as they arrive; `None` at the end.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Some(Err(self.incomplete_body_error("completely")))),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => return Poll::Ready(Some(self.count_received(data))),
                    Err(_trailers) => {}
                },
                Poll::Pending => match ready!(self.poll_deadline(cx)) {
                    Ok(()) => {}
                    Err(error) => return Poll::Ready(Some(Err(error))),
                },
            }
        }
    }

    /// Counts decoded bytes, and checks the limits.
    fn check_decoded(&mut self, decoded: io::Result<Option<Bytes>>) -> Result<Option<Bytes>, Error> {
        let decoded = decoded.map_err(|error| {
            let cause = error.get_ref();
            if cause.is_some_and(|cause| cause.is::<BudgetExceeded>()) {
                return spool_error(&error);
            }
            if let Some(window) = cause.and_then(|cause| cause.downcast_ref::<WindowTooLarge>()) {
                let message = format!("The request body cannot be decoded: {window}. Compress it with a smaller window.");
                return Error::TooLarge(Rejection { param: None, reason: None, message });
            }
            let message = "The request body does not match its header 'Content-Encoding', is damaged, or consists of thousands of parts.";
            Error::from(Rejection::for_body(self.error_reason, message))
        })?;
        self.decoded += decoded.as_ref().map_or(0, |decoded| decoded.len() as u64);
        self.charge(CHARGED_BYTES_MIN);
        if self.decoded > self.max_bytes {
            return Err(too_large(self.max_bytes));
        }
        self.charge_expansion()?;
        Ok(decoded)
    }

    /// Charges the decoded bytes that the received ones do not justify.
    fn charge_expansion(&mut self) -> Result<(), Error> {
        let allowed = ALWAYS_ALLOWED_BYTES.max(self.received.saturating_mul(EXPANSION_RATIO));
        match self.decoded.saturating_sub(allowed) {
            0 => Ok(()),
            expansion if expansion > EXPANSION_MAX => Err(expands_too_much()),
            expansion => {
                let share = self.expansion.get_or_insert_with(|| self.admission.expansion());
                share.set_bytes(expansion.max(share.bytes())).map_err(|error| spool_error(&error))
            }
        }
    }

    /// Is ready when the timer fires: with an error if the deadline has passed, and with `Ok` if received bytes have
    /// extended it.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        ready!(self.timer.as_mut().poll(cx));
        if self.deadline <= Instant::now() {
            return Poll::Ready(Err(self.incomplete_body_error("in time")));
        }
        self.timer.as_mut().reset(self.deadline);
        Poll::Ready(Ok(()))
    }

    fn count_received(&mut self, data: Bytes) -> Result<Bytes, Error> {
        let (now, length) = (Instant::now(), data.len() as u64);
        self.received += length;
        self.charge(CHARGED_BYTES_MIN);
        // Each byte extends the deadline by the time that it takes at the minimum rate. Time in which no reader asked
        // for bytes does not count against the sender. The deadline is at most one window ahead, so a body that began
        // quickly cannot stall for hours.
        let gained_time = Duration::from_nanos(length.saturating_mul(1_000_000_000) / MIN_BYTES_PER_SECOND);
        self.deadline = (self.deadline.max(now) + gained_time).min(now + RATE_WINDOW);
        if self.received > self.max_bytes { Err(too_large(self.max_bytes)) } else { Ok(data) }
    }

    fn incomplete_body_error(&self, manner: &str) -> Error {
        Rejection::for_body(self.error_reason, format!("The request body did not arrive {manner}.")).into()
    }
}

impl Drop for IncomingBody {
    fn drop(&mut self) {
        self.charge(1);
        // The decoded bytes may be held until the request ends.
        if let Some(share) = self.expansion.take() {
            self.admission.hold(share);
        }
    }
}

/// Returns the decoder for a body with these headers; `None` if the body has no coding. Coding agents send `zstd`, other
/// clients `gzip`. No known client applies two codings, and a body with two is refused.
///
/// # Errors
///
/// Returns 415 for an unsupported coding, and for more than one, and 429 or 503 if a budget does not allow the memory of
/// the decoder.
fn body_decoder(headers: &HeaderMap, admission: &Admission) -> Result<Option<BodyDecoder>, Error> {
    let mut names = coding_names(headers);
    let Some(name) = names.next() else { return Ok(None) };
    let coding = ContentCoding::from_name(name)
        .filter(|coding| matches!(coding, ContentCoding::Gzip | ContentCoding::Zstd))
        .filter(|_| names.next().is_none());
    let decoder = BodyDecoder::new(coding.ok_or(Error::UnsupportedEncoding)?, admission.memory());
    decoder.map(Some).map_err(|error| spool_error(&error))
}

/// Returns the length that the client has announced for the body, if it has.
fn announced_bytes(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()).and_then(|value| value.parse().ok())
}

/// Returns the content type of the request; empty if it has none.
pub(super) fn content_type(request: &hyper::Request<Body>) -> &str {
    request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// True for `application/json` with any parameters.
pub(super) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Returns the error for a body that cannot be written to disk or exceeds a budget. A retry may succeed.
pub(crate) fn spool_error(error: &io::Error) -> Error {
    let exceeded = error.get_ref().and_then(|inner| inner.downcast_ref::<BudgetExceeded>());
    if let Some(exceeded) = exceeded {
        tracing::debug!(%exceeded, "a request body was refused");
        return (*exceeded).into();
    }
    tracing::error!(%error, "an upload could not be written to the spool");
    Error::Unavailable
}

/// Returns the error for a JSON text that is refused.
pub(crate) fn json_text_error(error: &JsonTextError) -> Error {
    match error {
        JsonTextError::Budget(error) => spool_error(error),
        JsonTextError::TooManyValues => too_many_values(),
    }
}

/// Returns the error for a JSON text, or several in one form, with too many values.
pub(super) fn too_many_values() -> Error {
    let message = format!("The request body has more than {JSON_VALUES_MAX} JSON values.");
    Error::TooLarge(Rejection { param: None, reason: None, message })
}

fn too_large(max_bytes: u64) -> Error {
    Error::TooLarge(Rejection {
        param: None,
        reason: None,
        message: format!("The request body is larger than the limit of {max_bytes} bytes."),
    })
}

fn expands_too_much() -> Error {
    Error::TooLarge(Rejection {
        param: None,
        reason: None,
        message: format!(
            "The request body decompresses to more than {EXPANSION_RATIO} times its size. Send it uncompressed, without the header 'Content-Encoding'."
        ),
    })
}

#[cfg(test)]
mod tests;
