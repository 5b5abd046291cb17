//! The gateway as a server of the Model Context Protocol (MCP), for agents that have no image tool of their own.
//!
//! An agent gets a small preview and a link of each image, and never the file: [`result`] bounds every answer. The tools
//! call the same functions of the request flow as the API, with the caller's own key; so rules, limits and records are
//! the same. Equal calls of one key are one request, because the idempotency key is made from the arguments
//! ([`image_id`]): a client whose time limit is shorter than the image takes repeats its call, and gets the first image.
//! An agent that wants another image gives another `variation`.
//!
//! Each POST is served by itself, without sessions, so any node can serve it. [`json_rpc`] refuses what is no
//! message; the SDK of the protocol parses the messages and negotiates versions. It knows neither keys nor images.

mod accepted_form;
mod arguments;
mod edit_input;
mod image_id;
mod image_tools;
mod json_rpc;
mod preview;
mod result;
mod tool_list;

use std::sync::Arc;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use super::admission::Admission;
use super::flow::ImageServices;
use super::keys::Caller;
pub(crate) use accepted_form::AcceptedForm;
use image_tools::ImageTools;
use json_rpc::{McpBody, with_json_error};
pub(crate) use json_rpc::{MessageFault, check_message};

/// The largest body of a request in bytes (our choice). Images in it are small; larger ones are named by their id.
pub(crate) const MCP_BODY_MAX_BYTES: usize = 4 * 1024 * 1024;

/// A request of an MCP client, whose key was checked.
#[derive(Clone)]
pub(crate) struct McpCaller {
    /// The services that make its images.
    pub(crate) services: Arc<ImageServices>,
    /// The owner of the key.
    pub(crate) caller: Caller,
    /// The admission of the request.
    pub(crate) admission: Admission,
    /// The id of the request, under which a tool call is recorded.
    pub(crate) request_id: String,
    /// The forms of an answer that the client accepts.
    pub(crate) accepted: AcceptedForm,
    /// The host under which the client has reached the gateway.
    pub(crate) host: Option<String>,
}

/// Answers one message of a client.
pub(crate) async fn answer_message(caller: McpCaller, mut request: Request<Bytes>) -> Response<McpBody> {
    // The library demands both forms of every client.
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    let config = StreamableHttpServerConfig::default()
        // The key protects against DNS rebinding, and the endpoint checks the origin.
        .disable_allowed_hosts()
        .with_legacy_session_mode(false)
        .with_json_response(caller.accepted.json)
        // At the end of a stop, the request flow ends each call with a result, and the library would drop it.
        .with_max_request_body_bytes(MCP_BODY_MAX_BYTES);
    let tools = move || Ok(ImageTools::new(caller.clone()));
    let service = StreamableHttpService::new(tools, Arc::new(NeverSessionManager::default()), config);
    with_json_error(service.handle(request.map(Full::new)).await).await
}
