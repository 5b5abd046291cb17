//! The gateway as a server of the Model Context Protocol (MCP), for agents that have no image tool of their own.
//!
//! An agent gets a small preview and a link of each image, and never the file: [`result`] bounds every answer. The tools
//! call the same functions of the request flow as the API, with the caller's own key; so rules, limits and records are
//! the same. Equal calls of one key are one request, because the idempotency key is made from the arguments
//! ([`image_id`]): a client whose time limit is shorter than the image takes repeats its call, and gets the first image.
//! An agent that wants another image gives another `variation`.
//!
//! Each POST is served by itself, without sessions, so any node can serve it. The SDK of the protocol parses the
//! messages and negotiates versions; it knows neither keys nor images.

mod arguments;
mod edit_input;
mod image_id;
mod image_tools;
mod preview;
mod result;
mod tool_list;

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use http_body_util::combinators::BoxBody;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use super::Gateway;
use super::admission::Admission;
use super::keys::Caller;
use image_tools::ImageTools;

/// The largest body of a request in bytes (our choice). Images in it are small; larger ones are named by their id.
pub(crate) const MCP_BODY_MAX_BYTES: usize = 4 * 1024 * 1024;

/// A request of an MCP client, whose key was checked.
#[derive(Clone)]
pub(crate) struct McpCaller {
    /// The gateway that answers.
    pub(crate) gateway: Arc<Gateway>,
    /// The owner of the key.
    pub(crate) caller: Caller,
    /// The admission of the request.
    pub(crate) admission: Admission,
    /// The id of the request, under which a tool call is recorded.
    pub(crate) request_id: String,
    /// The host under which the client has reached the gateway.
    pub(crate) host: Option<String>,
}

/// Answers one message of a client.
pub(crate) async fn answer_message(
    caller: McpCaller,
    request: Request<Bytes>,
) -> Response<BoxBody<Bytes, std::convert::Infallible>> {
    let config = StreamableHttpServerConfig::default()
        // The key protects against DNS rebinding, and the endpoint checks the origin.
        .disable_allowed_hosts()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        // At the end of a stop, the request flow ends each call with a result, and the library would drop it.
        .with_max_request_body_bytes(MCP_BODY_MAX_BYTES);
    let tools = move || Ok(ImageTools::new(caller.clone()));
    let service = StreamableHttpService::new(tools, Arc::new(NeverSessionManager::default()), config);
    service.handle(request.map(Full::new)).await
}
