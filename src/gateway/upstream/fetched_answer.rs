//! Fetches the images whose addresses an answer states in place of the images, and gives them the form of an answer that
//! contains them.
//!
//! An upstream must not be able to make the gateway read what only this machine can reach: the guarded fetcher for the
//! addresses of callers ([`ImageDownloader`]) is used, except for addresses at the upstream's own origin, which the operator
//! has chosen. No credentials are sent. The images are not held: they are passed on as they arrive.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::UpstreamClient;
use super::image_download::ImageDownloader;
use super::reply::{ReplyBody, ReplyError};
use super::service_calls::ServiceCall;
use super::transport::{BodyError, ResponseBody};
use crate::gateway::accounts::Lease;
use crate::gateway::config::RemoteImageConfig;
use crate::image::{Base64Encoder, FORMAT_BYTES, has_known_format};

/// The members of an answer that do not describe the fetched images.
const REPLACED_MEMBERS: [&str; 5] = ["choices", "data", "error", "images", "output"];

/// The answer that the images and its other members make.
#[derive(Debug)]
pub(crate) struct FetchedAnswer {
    parts: VecDeque<AnswerPart>,
    /// The encoder of the current image.
    encoder: Base64Encoder,
}

#[derive(Debug)]
enum AnswerPart {
    Text(Bytes),
    /// The first bytes of an image.
    Head(Bytes),
    /// The rest of the image.
    Image(Box<ResponseBody>),
}

/// An answer without its images.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressedAnswer<'a> {
    /// The addresses of the images.
    pub(crate) addresses: &'a [String],
    /// The members of the answer.
    pub(crate) members: &'a Map<String, Value>,
    /// True if it is a response that was requested for one image.
    pub(crate) is_from_image_tool: bool,
}

/// An image could not be fetched. The reason is logged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FetchFailed;

// === impl UpstreamClient ===

impl UpstreamClient {
    /// Fetches the images of an answer, until this time for their first bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if an address may not be fetched, or does not lead to an image in time.
    pub(crate) async fn fetch_images(
        &self,
        lease: &Lease,
        answer: AddressedAnswer<'_>,
        remote: Option<&RemoteImageConfig>,
        until: Instant,
    ) -> Result<ReplyBody, FetchFailed> {
        let config = RemoteImageConfig::for_answers(remote);
        let until = until.min(Instant::now() + config.timeout);
        let mut images = Vec::new();
        for address in answer.addresses {
            let body = match self.open_own_address(lease, address, until).await {
                Some(body) => body?,
                None => open_foreign_address(&config, address, until).await?,
            };
            let image = timeout_at(until, read_magic(body)).await.unwrap_or(Err(FetchFailed));
            images.push(image.inspect_err(|_| tracing::warn!("the address of an image leads to no image"))?);
        }
        let parts = answer.parts(images).ok_or(FetchFailed)?;
        Ok(ReplyBody::Fetched(Box::new(FetchedAnswer { parts, encoder: Base64Encoder::default() })))
    }

    /// Opens an address at the origin of the account's upstream; `None` for any other.
    async fn open_own_address(
        &self,
        lease: &Lease,
        address: &str,
        until: Instant,
    ) -> Option<Result<ResponseBody, FetchFailed>> {
        let own = Url::parse(&lease.endpoint().address()?.join("")).ok()?;
        let url = Url::parse(address).ok().filter(|url| url.origin() == own.origin())?;
        let response = image_request().send(&self.transport, url.as_str(), until).await;
        let response = response.ok().filter(|response| response.status() == 200);
        Some(response.map(http::Response::into_body).ok_or(FetchFailed))
    }
}

/// The request for an image, without any credentials.
fn image_request() -> ServiceCall {
    ServiceCall {
        log_name: "image of an answer",
        method: Method::GET,
        headers: HeaderMap::new(),
        body: String::new(),
        max_bytes: 0,
    }
}

async fn open_foreign_address(
    config: &RemoteImageConfig,
    address: &str,
    until: Instant,
) -> Result<ResponseBody, FetchFailed> {
    let downloader = ImageDownloader::new(config).map_err(|error| {
        tracing::error!(%error, "images of answers cannot be fetched");
        FetchFailed
    })?;
    let opened = downloader.open(address, until).await;
    let opened = opened.inspect_err(|error| tracing::warn!(%error, "an image of an answer could not be fetched"));
    opened.map(|(response, _)| response.into_body()).map_err(|_| FetchFailed)
}

/// Reads the first bytes, which must be those of an image.
async fn read_magic(mut body: ResponseBody) -> Result<(Bytes, ResponseBody), FetchFailed> {
    let mut head = BytesMut::new();
    while head.len() < FORMAT_BYTES {
        let frame = body.frame().await.and_then(Result::ok).ok_or(FetchFailed)?;
        head.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    if has_known_format(&head) { Ok((head.freeze(), body)) } else { Err(FetchFailed) }
}

// === impl AddressedAnswer ===

impl AddressedAnswer<'_> {
    /// Returns the parts of the answer with these images; `None` if its members cannot be written.
    fn parts(self, images: Vec<(Bytes, ResponseBody)>) -> Option<VecDeque<AnswerPart>> {
        let (opening, name) = if self.is_from_image_tool {
            (r#"{"output":["#, r#"{"type":"image_generation_call","status":"completed","result":""#)
        } else {
            (r#"{"data":["#, r#"{"b64_json":""#)
        };
        let mut parts = VecDeque::from([AnswerPart::Text(Bytes::from_static(opening.as_bytes()))]);
        for (index, (head, body)) in images.into_iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            parts.push_back(AnswerPart::Text(format!("{separator}{name}").into()));
            parts.push_back(AnswerPart::Head(head));
            parts.push_back(AnswerPart::Image(Box::new(body)));
            parts.push_back(AnswerPart::Text(Bytes::from_static(br#""}"#)));
        }
        let mut members = self.members.clone();
        members.retain(|name, _| !REPLACED_MEMBERS.contains(&name.as_str()));
        let members = serde_json::to_string(&members).ok()?;
        let rest = members.strip_prefix('{').filter(|rest| *rest != "}");
        parts.push_back(AnswerPart::Text(rest.map_or_else(|| "]}".into(), |rest| format!("],{rest}").into())));
        Some(parts)
    }
}

// === impl FetchedAnswer ===

impl FetchedAnswer {
    /// Encodes the next frame of an image. Trailers have no data.
    fn encode_frame(&mut self, frame: Result<Frame<Bytes>, BodyError>) -> Result<Frame<Bytes>, ReplyError> {
        match frame {
            Ok(frame) => Ok(Frame::data(self.encoder.push(&frame.into_data().unwrap_or_default()).into())),
            Err(error) => {
                tracing::warn!(%error, "an image of an answer broke off");
                self.parts.clear();
                Err(ReplyError::BROKEN)
            }
        }
    }
}

impl Body for FetchedAnswer {
    type Data = Bytes;
    type Error = ReplyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ReplyError>>> {
        loop {
            let data = match self.parts.front_mut() {
                None => return Poll::Ready(None),
                Some(AnswerPart::Text(text)) => std::mem::take(text),
                Some(AnswerPart::Head(head)) => {
                    let head = std::mem::take(head);
                    self.encoder.push(&head).into()
                }
                Some(AnswerPart::Image(body)) => match ready!(Pin::new(body).poll_frame(cx)) {
                    Some(frame) => return Poll::Ready(Some(self.encode_frame(frame))),
                    None => self.encoder.finish().into(),
                },
            };
            self.parts.pop_front();
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }
}
