//! Bodies that are read only against a `Caller`, under a limit and a deadline.

use std::marker::PhantomData;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use dropshot::{
    ApiEndpointBodyContentType, Body, ExclusiveExtractor, ExtractorMetadata, HttpError, MultipartBody, RequestContext,
    ServerContext, TypedBody,
};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body_util::BodyExt as _;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, Reason, Rejection};
use crate::gateway::keys::Caller;
use crate::tables::{CLIENT_BODY_BYTES_PER_SECOND, CLIENT_BODY_WINDOW_SECONDS};

/// A body must come at this rate, averaged over this window, from its first byte on.
const RATE: u64 = CLIENT_BODY_BYTES_PER_SECOND;
const WINDOW: Duration = Duration::from_secs(CLIENT_BODY_WINDOW_SECONDS);

/// A JSON body, unread. It is described as a `T`.
pub(crate) struct JsonBody<T> {
    request: hyper::Request<Body>,
    most: usize,
    described: PhantomData<fn() -> T>,
}

/// The body of an edit, unread: multipart form data, or JSON.
pub(crate) struct EditBody {
    _request: hyper::Request<Body>,
}

// === impl JsonBody ===

impl<T> JsonBody<T> {
    /// Reads the body.
    ///
    /// # Errors
    ///
    /// 415 for what is no JSON or is compressed, 413 above the limit, 400 when it does not arrive.
    pub(crate) async fn read(self, _ticket: &Caller) -> Result<Bytes, Error> {
        let headers = self.request.headers();
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !is_json(content_type) {
            return Err(Error::UnsupportedMedia("Expected the header 'Content-Type: application/json'.".to_owned()));
        }
        if headers.get(CONTENT_ENCODING).is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(Error::UnsupportedMedia(
                "Compressed request bodies are not read here; send the body without 'Content-Encoding'.".to_owned(),
            ));
        }
        let announced =
            headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()).and_then(|value| value.parse().ok());
        if announced.is_some_and(|length: u64| length > self.most as u64) {
            return Err(too_large(self.most));
        }
        read(self.request.into_body(), self.most).await
    }
}

/// `application/json`, whatever parameters follow.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

async fn read(mut body: Body, most: usize) -> Result<Bytes, Error> {
    let begun = Instant::now();
    let mut read = BytesMut::new();
    loop {
        // What has come so far pays for so much time; the first window is free.
        let paid = Duration::from_secs(read.len() as u64 / RATE);
        let Some(frame) = timeout_at(begun + WINDOW + paid, body.frame()).await.map_err(|_| late())? else { break };
        let frame = frame.map_err(|_| {
            Error::from(Rejection::whole(Reason::InvalidJson, "The request body did not arrive whole."))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if read.len() + data.len() > most {
            return Err(too_large(most));
        }
        read.extend_from_slice(&data);
    }
    Ok(read.freeze())
}

fn late() -> Error {
    Rejection::whole(Reason::InvalidJson, "The request body did not arrive in time.").into()
}

fn too_large(most: usize) -> Error {
    Error::TooLarge(Rejection {
        param: None,
        reason: None,
        message: format!("The request body is larger than {most} bytes."),
    })
}

#[async_trait]
impl<T: DeserializeOwned + JsonSchema + Send + Sync + 'static> ExclusiveExtractor for JsonBody<T> {
    async fn from_request<Context: ServerContext>(
        context: &RequestContext<Context>,
        request: hyper::Request<Body>,
    ) -> Result<Self, HttpError> {
        Ok(Self { request, most: context.request_body_max_bytes(), described: PhantomData })
    }

    fn metadata(content_type: ApiEndpointBodyContentType) -> ExtractorMetadata {
        <TypedBody<T> as ExclusiveExtractor>::metadata(content_type)
    }
}

#[async_trait]
impl ExclusiveExtractor for EditBody {
    async fn from_request<Context: ServerContext>(
        _context: &RequestContext<Context>,
        request: hyper::Request<Body>,
    ) -> Result<Self, HttpError> {
        Ok(Self { _request: request })
    }

    fn metadata(content_type: ApiEndpointBodyContentType) -> ExtractorMetadata {
        <MultipartBody as ExclusiveExtractor>::metadata(content_type)
    }
}
