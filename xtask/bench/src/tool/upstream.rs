//! The fake upstream: it answers at once, as fast as it can, and checks the key that it is sent.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::Result;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::time::Sleep;

use super::answers::{AnswerRequest, Base64Cache, BodyPart};

/// The key that the upstream accepts.
pub(crate) const UPSTREAM_KEY: &str = "upstream-key";
/// The number of bytes of a request's body that can contain its order.
const ORDER_BYTES: usize = 4096;
/// The refusal of any other key.
const REFUSAL: &str = r#"{"error":{"message":"Incorrect API key provided.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#;
const MODELS: &str =
    r#"{"object":"list","data":[{"id":"gpt-5.5","object":"model","created":1790000000,"owned_by":"b"}]}"#;

/// The body of an answer.
struct PieceBody {
    pieces: VecDeque<BodyPart>,
    pause: Option<Pin<Box<Sleep>>>,
    /// The length, unless it is sent in chunks.
    left: Option<u64>,
}

/// Answers requests until the process is ended.
pub(crate) async fn serve(listener: TcpListener) -> Result<()> {
    let pictures = Arc::new(Base64Cache::default());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let pictures = Arc::clone(&pictures);
        let service = service_fn(move |request| answer(request, Arc::clone(&pictures)));
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        // The connection ends with its client, and all of them with the process.
        tokio::runtime::Handle::current().spawn(async {
            let _ = connection.await;
        });
    }
}

async fn answer(request: Request<Incoming>, pictures: Arc<Base64Cache>) -> Result<Response<PieceBody>, hyper::Error> {
    let (parts, mut body) = request.into_parts();
    let mut start = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        start.extend_from_slice(&data[..data.len().min(ORDER_BYTES - start.len())]);
    }
    let authorization = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    if authorization.and_then(|value| value.strip_prefix("Bearer ")) != Some(UPSTREAM_KEY) {
        return Ok(plain(401, vec![BodyPart::Data(Bytes::from_static(REFUSAL.as_bytes()))]));
    }
    let order = AnswerRequest::parse(&start);
    Ok(match (&parts.method, parts.uri.path()) {
        (&Method::POST, "/v1/images/generations") if order.is_stream => {
            events(pictures.image_events(&order, "image_generation"))
        }
        (&Method::POST, "/v1/images/generations" | "/v1/images/edits") => plain(200, pictures.image_answer(&order)),
        (&Method::POST, "/v1/responses") => plain(200, pictures.response(&order)),
        (&Method::GET, "/v1/models") => plain(200, vec![BodyPart::Data(Bytes::from_static(MODELS.as_bytes()))]),
        _ => plain(404, vec![BodyPart::Data(Bytes::from_static(b"{}"))]),
    })
}

fn plain(status: u16, pieces: Vec<BodyPart>) -> Response<PieceBody> {
    let length = |piece: &BodyPart| if let BodyPart::Data(data) = piece { data.len() as u64 } else { 0 };
    let left = Some(pieces.iter().map(length).sum());
    response(status, "application/json", PieceBody { pieces: pieces.into(), pause: None, left })
}

fn events(pieces: Vec<BodyPart>) -> Response<PieceBody> {
    response(200, "text/event-stream", PieceBody { pieces: pieces.into(), pause: None, left: None })
}

fn response(status: u16, content_type: &'static str, body: PieceBody) -> Response<PieceBody> {
    let mut response = Response::new(body);
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    response.headers_mut().insert("x-request-id", hyper::header::HeaderValue::from_static("req_bench"));
    response
}

impl Body for PieceBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if self.pause.as_mut().is_some_and(|pause| pause.as_mut().poll(context).is_pending()) {
                return Poll::Pending;
            }
            self.pause = None;
            match self.pieces.pop_front() {
                None => return Poll::Ready(None),
                Some(BodyPart::Pause(time)) => self.pause = Some(Box::pin(tokio::time::sleep(time))),
                Some(BodyPart::Data(data)) => {
                    self.left = self.left.map(|left| left - data.len() as u64);
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
