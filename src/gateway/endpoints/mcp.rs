//! The endpoint of the Model Context Protocol. It has an API key like the API, and no part in the API document: the
//! protocol defines its messages.

use dropshot::{
    ApiDescription, ApiDescriptionRegisterError, ApiEndpoint, ApiEndpointVersions, Body, HttpError, RequestContext,
};
use http::header::{ACCEPT, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, HeaderName, Method, Request, Response};
use serde_json::Value;

use super::{ApiContext, admit, read_unless_stopped};
use crate::error::Error;
use crate::gateway::front::{HandlerResponse, JsonBody, run_handler};
use crate::gateway::mcp::{MCP_BODY_MAX_BYTES, McpCaller, answer_message};
use crate::gateway::{CurrentGateway, Gateway, flow, rules};

const JSON: &str = "application/json";
const PATH: &str = "/mcp";

/// Adds the route. The other methods of the transport belong to sessions, which the gateway does not have.
///
/// # Errors
///
/// Returns an error if the route is already registered.
pub(super) fn register(api: &mut ApiDescription<CurrentGateway>) -> Result<(), ApiDescriptionRegisterError> {
    let endpoint =
        ApiEndpoint::new("mcp".to_owned(), answer, Method::POST, JSON, PATH, ApiEndpointVersions::All).visible(false);
    api.register(endpoint.request_body_max_bytes(MCP_BODY_MAX_BYTES))
}

async fn answer(context: RequestContext<CurrentGateway>, body: JsonBody<Value>) -> Result<Response<Body>, HttpError> {
    let unread = body.unread();
    run_handler::<Value, _>(&context, unread, answer_caller(&context, body)).await.into()
}

async fn answer_caller(context: &ApiContext, body: JsonBody<Value>) -> Result<HandlerResponse, Error> {
    let gateway = context.context().get();
    let headers = context.request.headers();
    if !is_allowed_origin(&gateway, headers) {
        return Err(Error::Denied);
    }
    let (caller, admission) = admit(&gateway, context).await?;
    let body = read_unless_stopped(&gateway, body.read(&admission)).await;
    let body = flow::count_if_refused(&gateway, &caller, body)?;
    // The library would take the last of two equal members.
    flow::count_if_refused(&gateway, &caller, body.parse_with(rules::check_duplicates).await.map_err(Error::from))?;
    let mut request = Request::new(body.text().clone());
    *request.method_mut() = context.request.method().clone();
    *request.uri_mut() = context.request.uri().clone();
    *request.headers_mut() = protocol_headers(headers);
    let (request_id, host) = (context.request_id.clone(), flow::read_host(headers));
    let answer = Box::pin(answer_message(McpCaller { gateway, caller, admission, request_id, host }, request));
    // The body is held until the call has ended, because the library keeps what it made of it.
    let response = body.run_parsing(answer).await;
    Ok(HandlerResponse::from_http(response))
}

/// Returns the headers that the library needs: those of the protocol, and the host. It shall not have the key.
fn protocol_headers(headers: &HeaderMap) -> HeaderMap {
    let is_defined =
        |name: &HeaderName| [ACCEPT, CONTENT_TYPE, HOST].contains(name) || name.as_str().starts_with("mcp-");
    headers.iter().filter(|(name, _)| is_defined(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// True if no browser sends the request, or if a page of the gateway itself or of a declared origin does.
fn is_allowed_origin(gateway: &Gateway, headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    if gateway.config().cors_origins.contains(origin.as_bytes()) {
        return true;
    }
    let host = flow::read_host(headers);
    gateway.pages().origin(host.as_deref()).is_some_and(|own| own.as_bytes() == origin.as_bytes())
}
