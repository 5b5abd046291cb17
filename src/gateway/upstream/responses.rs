//! The `responses` protocol: an upstream that offers `/responses` itself. The caller's body is sent unchanged, from
//! memory or from disk.

use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request};
use tokio::time::Instant;

use super::failure_cause::AttemptFailure;
use super::reply::Reply;
use super::transport::{RequestBody, Transport};
use super::{FaultScope, generation_call};
use crate::gateway::accounts::{Lease, UpstreamAddress};
use crate::gateway::rules::ResponseJob;
use crate::gateway::spool::BodyPart;

/// Sends one response request.
pub(super) async fn send(
    transport: &Transport,
    lease: &Lease,
    address: &UpstreamAddress,
    job: &ResponseJob,
    until: Instant,
) -> Result<Reply, AttemptFailure> {
    let request = build_request(address, lease.authorization(), job);
    let fault_scope = FaultScope::for_response(lease.account().phrases());
    generation_call::send_request(transport, lease.secret_mask(), request, until, fault_scope).await
}

fn build_request(
    address: &UpstreamAddress,
    authorization: Option<&HeaderValue>,
    job: &ResponseJob,
) -> Result<Request<RequestBody>, http::Error> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(address.join("/responses"))
        .header(USER_AGENT, concat!("imagate/", env!("CARGO_PKG_VERSION")))
        .body(RequestBody::from(job.body_pieces().iter().cloned().map(BodyPart::Spooled).collect::<Vec<_>>()))?;
    let headers = request.headers_mut();
    // A later header replaces an earlier one: first the caller's headers, then the operator's, then the gateway's.
    for (name, value) in job.headers().iter().chain(address.headers()) {
        headers.insert(name.clone(), value.clone());
    }
    let accept = if job.is_stream() { "text/event-stream" } else { "application/json" };
    headers.insert(ACCEPT, HeaderValue::from_static(accept));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(authorization) = authorization {
        headers.insert(AUTHORIZATION, authorization.clone());
    }
    Ok(request)
}
