//! The `responses` protocol: an upstream that speaks `/responses` itself. The caller's body goes there to the byte, from
//! where it lies.

use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request};
use tokio::time::Instant;

use super::reply::{Failure, Reply};
use super::transport::{Piece, RequestBody, Transport};
use super::{call, classify};
use crate::gateway::accounts::{Address, Lease};
use crate::gateway::rules::ResponseJob;

/// One response.
pub(super) async fn send(
    transport: &Transport,
    lease: &Lease,
    address: &Address,
    job: &ResponseJob,
    until: Instant,
) -> Result<Reply, Failure> {
    let request = request(address, lease.authorization(), job);
    call::call(transport, request, until, classify::RESPONSE_BLAME).await
}

fn request(
    address: &Address,
    authorization: Option<&HeaderValue>,
    job: &ResponseJob,
) -> Result<Request<RequestBody>, http::Error> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(address.join("/responses"))
        .header(USER_AGENT, concat!("imagate/", env!("CARGO_PKG_VERSION")))
        .body(RequestBody::from(job.pieces().iter().cloned().map(Piece::Kept).collect::<Vec<_>>()))?;
    let headers = request.headers_mut();
    // In this order: what the agent says of itself, what the operator says, and what is ours alone.
    for (name, value) in job.headers().iter().chain(address.headers()) {
        headers.insert(name.clone(), value.clone());
    }
    let accept = if job.stream() { "text/event-stream" } else { "application/json" };
    headers.insert(ACCEPT, HeaderValue::from_static(accept));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(authorization) = authorization {
        headers.insert(AUTHORIZATION, authorization.clone());
    }
    Ok(request)
}
