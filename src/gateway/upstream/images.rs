//! The `images` protocol: an upstream that offers the image endpoints itself.

use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request};
use tokio::time::Instant;

use super::failure_cause::AttemptFailure;
use super::reply::Reply;
use super::transport::{RequestBody, Transport};
use super::{FaultScope, generation_call, multipart_form};
use crate::gateway::accounts::{Lease, UpstreamAddress};
use crate::gateway::rules::Job;

/// Sends one generation or one edit.
pub(super) async fn send(
    transport: &Transport,
    lease: &Lease,
    address: &UpstreamAddress,
    job: &Job,
    until: Instant,
) -> Result<Reply, AttemptFailure> {
    let request = build_request(address, lease.authorization(), job);
    let fault_scope = FaultScope::for_images(job.has_renamed_user(), lease.account().phrases());
    generation_call::send_request(transport, lease.secret_mask(), request, until, fault_scope).await
}

fn build_request(
    address: &UpstreamAddress,
    authorization: Option<&HeaderValue>,
    job: &Job,
) -> Result<Request<RequestBody>, Box<dyn std::error::Error + Send + Sync>> {
    let (path, content_type, body) = match job.edit_input() {
        None => {
            let json = job.upstream_json()?.clone();
            ("/images/generations", HeaderValue::from_static("application/json"), RequestBody::from(json))
        }
        Some(edit_input) => {
            let (content_type, body) = multipart_form::build_form(job.upstream_fields(), edit_input)?;
            ("/images/edits", content_type, body)
        }
    };
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(address.join(path))
        .header(USER_AGENT, concat!("imagate/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, if job.is_stream() { "text/event-stream" } else { "application/json" })
        .header(ACCEPT_ENCODING, "identity")
        .header(CONTENT_TYPE, content_type)
        .body(body)?;
    for (name, value) in address.headers() {
        request.headers_mut().insert(name.clone(), value.clone());
    }
    if let Some(authorization) = authorization {
        request.headers_mut().insert(AUTHORIZATION, authorization.clone());
    }
    Ok(request)
}
