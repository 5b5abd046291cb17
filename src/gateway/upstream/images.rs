//! The `images` protocol: an upstream that speaks the image endpoints itself.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout};

use super::classify;
use super::edits;
use super::reply::{Cause, Class, Failure, Reply, ReplyBody};
use super::transport::{Kind, RequestBody, ResponseBody, SendError, Sent, Transport};
use crate::gateway::accounts::Address;
use crate::gateway::rules::Job;
use crate::tables::{UPSTREAM_ERROR_BODY_BYTES, UPSTREAM_ERROR_BODY_SECONDS};

/// So much of an error's body is read, for so long: an error is acted on even if its body never ends.
#[expect(clippy::cast_possible_truncation, reason = "64 KiB")]
const ERROR_BODY_MAX: usize = UPSTREAM_ERROR_BODY_BYTES as usize;
const ERROR_BODY_TIME: Duration = Duration::from_secs(UPSTREAM_ERROR_BODY_SECONDS);

/// One generation, or one edit.
pub(super) async fn send(
    transport: &Transport,
    address: &Address,
    job: &Job,
    until: Instant,
) -> Result<Reply, Failure> {
    let request = request(address, job).map_err(|error| {
        tracing::error!(%error, "an upstream request could not be made");
        Failure::new(Class::N, Cause::Unreachable)
    })?;
    let response = transport.send(request, until).await.map_err(|error| not_sent(&error))?;
    if response.status() != StatusCode::OK {
        return Err(refused(response).await);
    }
    if let Some(coding) = response.headers().get(CONTENT_ENCODING).filter(|coding| *coding != "identity") {
        // An upstream's header can hold anything: only a word that is known goes into the log.
        let coding = ["gzip", "deflate", "br", "zstd"].into_iter().find(|known| *coding == known).unwrap_or("unknown");
        tracing::warn!(coding, "the upstream compressed an answer although it was asked not to");
        return Err(Failure { class: Class::X, cause: Cause::Broken, status: Some(200) });
    }
    Ok(Reply { body: ReplyBody::Wire(Box::new(response.into_body())), simulated: false })
}

fn request(address: &Address, job: &Job) -> Result<Request<RequestBody>, http::Error> {
    let (path, content_type, body) = match job.material() {
        None => {
            let json = serde_json::Value::Object(job.fields().clone()).to_string();
            ("/images/generations", HeaderValue::from_static("application/json"), RequestBody::from(Bytes::from(json)))
        }
        Some(material) => {
            let (content_type, body) = edits::form(job.fields(), &material.images, material.mask.as_ref())?;
            ("/images/edits", content_type, body)
        }
    };
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(address.join(path))
        .header(USER_AGENT, concat!("imagate/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, if job.stream() { "text/event-stream" } else { "application/json" })
        .header(ACCEPT_ENCODING, "identity")
        .header(CONTENT_TYPE, content_type)
        .body(body)?;
    for (name, value) in address.headers() {
        request.headers_mut().insert(name.clone(), value.clone());
    }
    request.headers_mut().insert(AUTHORIZATION, address.authorization().clone());
    Ok(request)
}

/// No answer at all.
fn not_sent(error: &SendError) -> Failure {
    tracing::warn!(error = error as &dyn std::error::Error, sent = ?error.sent, "an upstream attempt failed");
    let cause = if error.kind == Kind::Timeout { Cause::Timeout } else { Cause::Broken };
    match error.sent {
        Sent::Nothing => Failure::new(Class::N, Cause::Unreachable),
        Sent::Maybe => Failure::new(Class::X, cause),
    }
}

/// An answer that is no success.
async fn refused(response: Response<ResponseBody>) -> Failure {
    let (head, body) = response.into_parts();
    let body = read_error(body).await;
    let failure = classify::status(head.status, &head.headers, &body);
    tracing::warn!(
        status = head.status.as_u16(),
        class = failure.class.as_str(),
        "the upstream answered with an error"
    );
    failure
}

/// As much of the body as comes within the limits.
async fn read_error(mut body: ResponseBody) -> Bytes {
    let mut read = BytesMut::new();
    // Running out of time or of body is no failure here: the status alone is enough to act on.
    let _ = timeout(ERROR_BODY_TIME, async {
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            let room = ERROR_BODY_MAX - read.len();
            read.extend_from_slice(&data[..data.len().min(room)]);
            if read.len() == ERROR_BODY_MAX {
                break;
            }
        }
    })
    .await;
    read.freeze()
}
