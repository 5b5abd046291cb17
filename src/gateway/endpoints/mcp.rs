//! The endpoint of the Model Context Protocol. It has an API key like the API, and no part in the API document: the
//! protocol defines its messages.

use std::sync::Arc;

use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, HeaderName, Method, Request};
use serde_json::Value;

use super::caller_admission::{ApiRequest, admit, read_unless_stopped};
use crate::error::Error;
use crate::gateway::front::{
    HandlerResponse, JsonBody, Route, TypedResponse, UnreadRequestBody, boxed_answer, run_handler,
};
use crate::gateway::keys::Caller;
use crate::gateway::mcp::{AcceptedForm, MCP_BODY_MAX_BYTES, McpCaller, MessageFault, answer_message, check_message};
use crate::gateway::{CurrentGateway, Gateway, flow, rules};

const PATH: &str = "/mcp";
/// The longest origin that a refusal repeats, in characters (our choice).
const ORIGIN_MAX_CHARS: usize = 200;

/// Returns the route. The other methods of the transport belong to sessions, which the gateway does not have.
pub(super) fn route() -> Route<CurrentGateway> {
    Route::new("mcp", Method::POST, PATH, |request| {
        boxed_answer(answer(request.head, UnreadRequestBody::new(request.request, MCP_BODY_MAX_BYTES as u64)))
    })
}

async fn answer(head: ApiRequest, body: JsonBody<Value>) -> TypedResponse<Value> {
    run_handler(&head, answer_caller(&head, body)).await
}

async fn answer_caller(head: &ApiRequest, body: JsonBody<Value>) -> Result<HandlerResponse<Value>, Error> {
    let gateway = head.server().get();
    let headers = head.headers();
    check_origin(&gateway, headers)?;
    let (caller, admission) = admit(&gateway, head).await?;
    let Some(accepted) = AcceptedForm::from_headers(headers) else {
        return Ok(refusal(&gateway, &caller, MessageFault::not_acceptable()));
    };
    let body = read_unless_stopped(&gateway, body.read(&admission)).await;
    let body = flow::count_if_refused(&gateway.images.keys, &caller, body)?;
    if let Err(fault) = body.parse_with(check_text).await {
        return Ok(refusal(&gateway, &caller, fault));
    }
    let mut request = Request::new(body.text().clone());
    *request.method_mut() = head.method().clone();
    *request.uri_mut() = head.uri().clone();
    *request.headers_mut() = protocol_headers(headers);
    let (request_id, host) = (head.request_id().to_owned(), flow::read_host(headers));
    let services = Arc::clone(&gateway.images);
    let answer =
        Box::pin(answer_message(McpCaller { services, caller, admission, request_id, accepted, host }, request));
    // The body is held until the call has ended, because the library keeps what it made of it.
    let response = body.run_parsing(answer).await;
    Ok(HandlerResponse::from_http(response))
}

/// Checks that a text is one message without a member that is stated twice, of which the library would take the last.
fn check_text(text: &[u8]) -> Result<(), MessageFault> {
    check_message(text)?;
    rules::check_duplicates(text).map_err(|rejection| MessageFault::ambiguous(&rejection.message))
}

/// The answer to a message that is not served, which counts as a refused request.
fn refusal(gateway: &Gateway, caller: &Caller, fault: MessageFault) -> HandlerResponse<Value> {
    gateway.images.keys.note_refusal(caller);
    HandlerResponse::from_http(fault.into_response())
}

/// Returns the headers that the library needs: those of the protocol, and the host. It shall not have the key.
fn protocol_headers(headers: &HeaderMap) -> HeaderMap {
    let is_defined = |name: &HeaderName| [CONTENT_TYPE, HOST].contains(name) || name.as_str().starts_with("mcp-");
    headers.iter().filter(|(name, _)| is_defined(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Refuses the request of a page that is neither one of the gateway itself nor of a declared origin.
fn check_origin(gateway: &Gateway, headers: &HeaderMap) -> Result<(), Error> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let host = flow::read_host(headers);
    let is_own = || gateway.pages.origin(host.as_deref()).is_some_and(|own| own.as_bytes() == origin.as_bytes());
    if gateway.settings().config.cors_origins.contains(origin.as_bytes()) || is_own() {
        return Ok(());
    }
    let origin: String = String::from_utf8_lossy(origin.as_bytes()).chars().take(ORIGIN_MAX_CHARS).collect();
    Err(Error::ForeignOrigin(origin))
}
