//! The server: dropshot with our routes, started and stopped within bounds.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use dropshot::{
    ApiDescription, ApiDescriptionRegisterError, ApiEndpoint, ApiEndpointVersions, Body, ConfigDropshot,
    HandlerTaskMode, HttpError, HttpServer, Path, RequestContext, ServerBuilder, ServerContext, VersionPolicy,
};
use http::header::{ALLOW, CACHE_CONTROL, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::answer::{Counts, NO_STORE, refusal};
use super::listener::Listener;
use super::routes::Routes;
use crate::error::{Error, Missing};
use crate::tables::{ADMIN_OPERATIONS, OPERATIONS, Operation};

/// A running server.
pub(crate) struct Server<C: ServerContext> {
    http: HttpServer<C>,
    listener: Option<Listener>,
}

/// The server could not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    /// The routes contradict each other: a fault of ours.
    #[error("the routes do not fit together: {0}")]
    Routes(String),
    /// The address is taken or not ours.
    #[error("cannot listen: {0}")]
    Listen(#[source] dropshot::BuildError),
}

/// Starts to serve what `describe` says, which is asked twice: dropshot keeps its router to itself.
///
/// # Errors
///
/// Where the address cannot be listened on.
pub(crate) fn start<C: Counts + Clone>(
    describe: impl Fn() -> Result<ApiDescription<C>, ApiDescriptionRegisterError>,
    context: C,
    listen: SocketAddr,
) -> Result<Server<C>, ServerError> {
    let api = || describe().map_err(|error| ServerError::Routes(error.to_string()));
    let routes = VersionPolicy::Dynamic(Box::new(Routes::of(api()?, context.clone())));
    let config = ConfigDropshot {
        bind_address: listen,
        // What must go on when its caller has left runs in a task of its own, which the corridor begins.
        default_handler_task_mode: HandlerTaskMode::CancelOnDisconnect,
        ..ConfigDropshot::default()
    };
    // dropshot writes a line for every connection and has no hook; our own log has one for every request.
    let log = slog::Logger::root(slog::Discard, slog::o!());
    let http = ServerBuilder::new(api()?, context, log).version_policy(routes).config(config).start();
    let http = http.map_err(ServerError::Listen)?;
    let listener = Listener::find(http.local_addr());
    if listener.is_none() {
        tracing::warn!("the listening socket was not found: answers in several pieces are slower");
    }
    Ok(Server { http, listener })
}

// === impl Server ===

impl<C: ServerContext> Server<C> {
    /// Where it really listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.http.local_addr()
    }

    /// Refuses new connections at once and waits for running requests, but not for ever: a connection that never finishes its headers
    /// would hold dropshot's own shutdown as long as it likes. `false` where the time ran out.
    pub(crate) async fn stop(self, patience: Duration) -> bool {
        if let Some(listener) = &self.listener {
            listener.close_port();
        }
        tokio::time::timeout(patience, self.http.close()).await.is_ok()
    }
}

const METHODS: [Method; 7] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS];

/// Where clients of the field knock although nothing is there: operations of the original that are not ours, and ours
/// without the version. dropshot answers every other unknown address in its own shape, and cannot be told not to.
const NOTHING_HERE: &[&str] = &[
    "/",
    "/admin",
    "/admin/v1",
    "/chat/completions",
    "/images/edits",
    "/images/generations",
    "/models",
    "/responses",
    "/v1",
    "/v1/audio/speech",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/batches",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/conversations",
    "/v1/embeddings",
    "/v1/files",
    "/v1/images",
    "/v1/images/variations",
    "/v1/moderations",
    "/v1/uploads",
    "/v1/v1/images/edits",
    "/v1/v1/images/generations",
    "/v1/v1/models",
    "/v1/v1/responses",
    "/v1/videos",
];

/// Methods that a known address does not take get our 405 instead of dropshot's, and what clients look for elsewhere
/// our 404.
///
/// # Errors
///
/// Where a route is taken.
pub(crate) fn refuse_the_rest<C: Counts>(api: &mut ApiDescription<C>) -> Result<(), ApiDescriptionRegisterError> {
    let mut paths: Vec<&str> = known().map(|operation| operation.path).collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let served =
            |method: &Method| known().any(|operation| operation.path == path && operation.method == method.as_str());
        for method in METHODS.into_iter().filter(|method| !served(method)) {
            refuse_method(api, path, method)?;
        }
    }
    for (path, method) in NOTHING_HERE.iter().flat_map(|path| METHODS.map(|method| (*path, method))) {
        // Whoever looks at the root is a person; what is sent there comes from a client with a wrong address.
        if path == "/" && matches!(method, Method::GET | Method::HEAD) {
            continue;
        }
        let name = format!("nothing at {method} {path}");
        let endpoint = ApiEndpoint::new(name, nothing_here, method, "application/json", path, ApiEndpointVersions::All);
        api.register(endpoint.visible(false))?;
    }
    Ok(())
}

fn refuse_method<C: Counts>(
    api: &mut ApiDescription<C>,
    path: &'static str,
    method: Method,
) -> Result<(), ApiDescriptionRegisterError> {
    let name = format!("refuse {method} {path}");
    let all = ApiEndpointVersions::All;
    let endpoint = match variable(path) {
        None => ApiEndpoint::new(name, not_allowed, method, "application/json", path, all),
        Some("model") => {
            ApiEndpoint::new(name, not_allowed_below::<C, BelowModels>, method, "application/json", path, all)
        }
        Some("id") => ApiEndpoint::new(name, not_allowed_below::<C, BelowIds>, method, "application/json", path, all),
        Some("request_id") => {
            ApiEndpoint::new(name, not_allowed_below::<C, BelowRequests>, method, "application/json", path, all)
        }
        // dropshot itself says at the start where the name is yet another one.
        Some(_) => ApiEndpoint::new(name, not_allowed_below::<C, BelowNames>, method, "application/json", path, all),
    };
    api.register(endpoint.visible(false))
}

/// Every operation of either document.
fn known() -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.iter().chain(ADMIN_OPERATIONS)
}

/// The variable segment of an address of the callers.
#[derive(Deserialize, JsonSchema)]
struct BelowModels {
    #[serde(rename = "model")]
    _model: String,
}

/// The variable segment of an address of the operators, where it is an id.
#[derive(Deserialize, JsonSchema)]
struct BelowIds {
    #[serde(rename = "id")]
    _id: String,
}

/// The same where it is a name.
#[derive(Deserialize, JsonSchema)]
struct BelowNames {
    #[serde(rename = "name")]
    _name: String,
}

/// The same where it is the id of a request.
#[derive(Deserialize, JsonSchema)]
struct BelowRequests {
    #[serde(rename = "request_id")]
    _request_id: String,
}

async fn not_allowed_below<C: Counts, P: DeserializeOwned + JsonSchema + Send + Sync + 'static>(
    context: RequestContext<C>,
    _path: Path<P>,
) -> Result<Response<Body>, HttpError> {
    not_allowed(context).await
}

async fn not_allowed<C: Counts>(context: RequestContext<C>) -> Result<Response<Body>, HttpError> {
    let (method, path) = sought(&context);
    let here = || known().filter(|operation| fits(operation.path, &path));
    let allowed: Vec<&str> = here().map(|operation| operation.method).collect();
    let of_operators = here().any(|operation| ADMIN_OPERATIONS.contains(operation));
    let mut response = refusal(&Error::NotFound(Missing::Method { method, path }));
    if let Ok(allowed) = HeaderValue::try_from(allowed.join(", ")) {
        response.headers_mut().insert(ALLOW, allowed);
    }
    if of_operators {
        response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    }
    if wants_websocket(context.request.headers()) {
        // A coding agent that tries WebSocket first takes this status, and no other, as a hint to go on without it.
        *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
    }
    Ok(counted(&context, response))
}

/// Whether one of the protocols that a client would rather speak is WebSocket.
fn wants_websocket(headers: &HeaderMap) -> bool {
    let protocols = headers.get_all(UPGRADE).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    protocols.into_iter().any(|protocol| protocol.trim_ascii().eq_ignore_ascii_case(b"websocket"))
}

/// The name of the variable segment of an address, if it has one.
fn variable(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once('{')?;
    Some(rest.split_once('}')?.0)
}

/// Whether an address as sent is one of this form.
fn fits(form: &str, path: &str) -> bool {
    let (mut form, mut path) = (form.split('/'), path.split('/'));
    loop {
        match (form.next(), path.next()) {
            (None, None) => return true,
            (Some(form), Some(path)) if form == path || (form.starts_with('{') && !path.is_empty()) => {}
            _ => return false,
        }
    }
}

/// Our 404.
///
/// # Errors
///
/// None: dropshot wants the word.
pub(crate) async fn nothing_here<C: Counts>(context: RequestContext<C>) -> Result<Response<Body>, HttpError> {
    let (method, path) = sought(&context);
    Ok(counted(&context, refusal(&Error::NotFound(Missing::Url { method, path }))))
}

fn counted<C: Counts>(context: &RequestContext<C>, response: Response<Bytes>) -> Response<Body> {
    context.context().answered("none", response.status().as_u16());
    response.map(Body::from)
}

fn sought<C: ServerContext>(context: &RequestContext<C>) -> (String, String) {
    (context.request.method().to_string(), context.request.uri().path().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_fits_its_form_segment_by_segment() {
        assert!(fits("/admin/v1/keys", "/admin/v1/keys"));
        assert!(fits("/admin/v1/keys/{id}", "/admin/v1/keys/a%2Fb"));
        assert!(fits("/admin/v1/keys/{id}/rotate", "/admin/v1/keys/x/rotate"));
        for other in ["/admin/v1/keys/", "/admin/v1/keys/x/rotate", "/admin/v1/users/x", "/admin/v1/keys"] {
            assert!(!fits("/admin/v1/keys/{id}", other), "{other}");
        }
    }

    #[test]
    fn every_variable_segment_has_a_name_that_a_refusal_can_take() {
        let names: Vec<&str> = known().filter_map(|operation| variable(operation.path)).collect();
        assert!(names.iter().all(|name| ["model", "id", "name", "request_id"].contains(name)), "{names:?}");
        assert!(names.contains(&"model") && names.contains(&"request_id"));
    }
}
