//! Passes a request to the handler of its route, or refuses the request if there is no route.
//!
//! The API has two kinds of servers: the connections of the gateway, whose acceptance, deadlines and end the gateway
//! decides, and the servers of dropshot, which serve the listener of the metrics and can serve the whole generated API.
//! Both reach the same methods, because a method takes values that either server can make:
//!
//! - A method of a generated trait takes a [`RequestHead`] and the unread [`PathParameters`](super::PathParameters),
//!   [`Query`](super::Query) and body of its operation, and returns a [`TypedResponse`](super::TypedResponse).
//! - The emitter (`xtask/src/server.rs`) writes two callers of each method. One is a function of the same trait with
//!   dropshot's attribute `endpoint`: dropshot registers it, extracts the parameters by the traits `SharedExtractor` and
//!   `ExclusiveExtractor` of the same types, and passes its own `RequestContext`, of which [`RequestHead::from_dropshot`]
//!   makes the head. The other one is an entry of the function `routes`, a [`Route`] of this module, which makes them of
//!   the request itself.
//! - This module makes the head for the connections of the gateway. The admission has begun before, with the head of the
//!   request; on a server of dropshot, it begins with the handler.
//! - The routes that no document has (pages, skills, health checks and others) are written by hand in `endpoints`, as
//!   [`Route`]s. [`register_routes`](super::register_routes) gives those without variables to dropshot.
//! - A limit of a body comes from the document, by the attribute `endpoint` for dropshot and by the route for this module.
//!   Both keep the body unread until the key was checked.
//! - The answer to a request without a route, CORS, the checks of the head and the id in the answer belong to the server:
//!   here they are those of the gateway, and on a server of dropshot they are dropshot's.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use dropshot::{Body, RequestInfo};
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};

use super::cors::{CorsAnswer, CorsSettings};
use super::request::RequestHead;
use super::request_head::{HeadFault, check_head, is_canonical_path};
use super::request_id::new_request_id;
use super::response::{NO_STORE, PanicCatcher, ResponseCounter, error_response, panic_text};
use super::route::{Route, RouteFault, RouteRequest, RouteTable};
use super::server::ServerError;
use crate::error::{Error, MissingResource, Rejection, RejectionReason};
use crate::gateway::admission::{Admission, RequestBudgets};

/// A path segment of at least this length may be a secret: all secrets of the gateway are longer.
const SECRET_MIN_LENGTH: usize = 16;
/// The path prefix of the admin API, whose answers must not be stored in caches.
const ADMIN_PATH_PREFIX: &str = "/admin/";
/// The path prefixes of the APIs, which never answer with a page.
const API_PREFIXES: [&str; 2] = ["/v1/", ADMIN_PATH_PREFIX];
/// A path that the handler of the pages serves.
const ANY_PAGE: &str = "/assets/-";

/// The routes of a server, and the server that their handlers get.
pub(super) struct RequestDispatcher<C> {
    routes: RouteTable<C>,
    server: C,
}

// === impl RequestDispatcher ===

impl<C: CorsSettings> RequestDispatcher<C> {
    /// # Errors
    ///
    /// Returns an error if two routes contradict each other.
    pub(super) fn new(routes: Vec<Route<C>>, server: C) -> Result<Self, ServerError> {
        Ok(Self { routes: RouteTable::new(routes)?, server })
    }

    /// Begins the admission of a request from this peer.
    pub(super) fn begin_admission(&self, remote: SocketAddr, headers: &HeaderMap) -> Admission {
        self.server.begin_admission(remote, headers)
    }

    /// The budgets of all requests.
    pub(super) fn request_budgets(&self) -> Arc<RequestBudgets> {
        self.server.request_budgets()
    }

    /// Answers a request, even if its handler panics.
    pub(super) async fn dispatch(
        &self,
        mut request: Request<Body>,
        remote: SocketAddr,
        admission: Admission,
    ) -> Response<Body> {
        let request_id = new_request_id().to_string();
        let header = HeaderValue::try_from(&request_id);
        let fault = check_head(&mut request).err();
        let cors = CorsAnswer::new(&self.server.cors_origins(), &request);
        let mut response = match (fault, cors.as_ref().and_then(CorsAnswer::preflight_response)) {
            (Some(fault), _) => counted_response(&self.server, head_fault_response(&request, fault)),
            (None, Some(response)) => response,
            (None, None) => self.route(request, request_id, remote, admission).await,
        };
        if let Some(cors) = cors {
            cors.add_headers(response.headers_mut());
        }
        if let Ok(header) = header {
            response.headers_mut().insert(dropshot::HEADER_REQUEST_ID, header);
        }
        response
    }

    async fn route(
        &self,
        mut request: Request<Body>,
        request_id: String,
        remote: SocketAddr,
        admission: Admission,
    ) -> Response<Body> {
        let is_canonical = is_canonical_path(request.uri().path());
        let find = |path: &str| self.routes.find(request.method(), path);
        let mut found = if is_canonical { find(request.uri().path()) } else { Err(RouteFault::Path) };
        if found.as_ref().err() == Some(&RouteFault::Path) && wants_page(&request) {
            // The pages answer a browser with a page, whatever the path is.
            found = find(ANY_PAGE);
            if !is_canonical {
                // The page that says that there is none at this path.
                *request.uri_mut() = Uri::from_static(ANY_PAGE);
            }
        }
        let (route, variables) = match found {
            Ok(found) => found,
            Err(fault) => return counted_response(&self.server, route_fault_response(&request, fault)),
        };
        let info = RequestInfo::new(&request, remote);
        let head = RequestHead { server: self.server.clone(), operation: route.operation, request_id, admission, info };
        match PanicCatcher((route.handler)(RouteRequest { head, request, variables })).await {
            Ok(response) => response,
            Err(panic) => {
                tracing::error!(panic = panic_text(panic.as_ref()), "a handler panicked");
                counted_response(&self.server, error_response(&Error::Internal))
            }
        }
    }
}

/// The answer to a request whose head is refused. The connection ends, because the body may end elsewhere for its sender.
fn head_fault_response(request: &Request<Body>, fault: HeadFault) -> Response<Bytes> {
    let (status, error) = fault.error();
    let mut response = error_response(&error);
    *response.status_mut() = status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    tracing::info!(method = %request.method(), status = status.as_u16(), ?fault, "the head of a request was refused");
    response
}

/// Answers 404 for an unknown path.
pub(crate) fn not_found<C: ResponseCounter>(head: &RequestHead<C>) -> Response<Body> {
    counted_response(head.server(), missing_path_response(head.method(), head.uri().path()))
}

fn missing_path_response(method: &Method, path: &str) -> Response<Bytes> {
    let (method, full_path) = (method.to_string(), path.to_owned());
    without_store(path, error_response(&Error::NotFound(MissingResource::Url { method, path: full_path })))
}

/// Forbids caches to store the answer to a request of the admin API.
fn without_store(path: &str, mut response: Response<Bytes>) -> Response<Bytes> {
    if path.starts_with(ADMIN_PATH_PREFIX) {
        response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    }
    response
}

/// The error answer to a request that has no route.
fn route_fault_response(request: &Request<Body>, fault: RouteFault) -> Response<Bytes> {
    let (method, path) = (request.method(), request.uri().path());
    let response = match fault {
        // A request for `/` comes from a person or from a client with a wrong base URL, so it is reported as an unknown
        // URL and not as a wrong method.
        RouteFault::Method(allowed) if path != "/" => wrong_method_response(request, &allowed),
        RouteFault::Method(_) | RouteFault::Path => missing_path_response(method, path),
        RouteFault::Encoding => {
            let error = Rejection::for_body(RejectionReason::InvalidValue, "invalid path encoding");
            without_store(path, error_response(&error.into()))
        }
    };
    let status = response.status().as_u16();
    tracing::info!(%method, path = without_secrets(path), status, "no route");
    response
}

fn wrong_method_response(request: &Request<Body>, allowed: &str) -> Response<Bytes> {
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let mut response = error_response(&Error::NotFound(MissingResource::Method { method, path }));
    if let Ok(allowed) = HeaderValue::try_from(allowed) {
        response.headers_mut().insert(ALLOW, allowed);
    }
    if wants_websocket(request.headers()) {
        // A coding agent that tries WebSocket first falls back to plain HTTP only after this status.
        *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
    }
    without_store(request.uri().path(), response)
}

/// True if a browser asks for a page, and not for an answer of the API.
fn wants_page(request: &Request<Body>) -> bool {
    let is_api = API_PREFIXES.iter().any(|prefix| request.uri().path().starts_with(prefix));
    let accepts_html = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
    [Method::GET, Method::HEAD].contains(request.method())
        && !is_api
        && accepts_html.is_some_and(|types| types.starts_with("text/html"))
}

/// True if WebSocket is among the protocols that the client asks to switch to.
fn wants_websocket(headers: &HeaderMap) -> bool {
    let protocols = headers.get_all(UPGRADE).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    protocols.into_iter().any(|protocol| protocol.trim_ascii().eq_ignore_ascii_case(b"websocket"))
}

fn counted_response<C: ResponseCounter>(server: &C, response: Response<Bytes>) -> Response<Body> {
    server.count_response("none", response.status().as_u16());
    response.map(Body::from)
}

/// Replaces the long segments of a path for the log: a segment may be the secret of a one-time link, or an API key that
/// a client put in the wrong place.
fn without_secrets(path: &str) -> String {
    let segments = path.split('/').map(|segment| if segment.len() < SECRET_MIN_LENGTH { segment } else { "…" });
    segments.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_paths_hide_segments_that_may_be_secrets() {
        assert_eq!(without_secrets("/v1/images/generation"), "/v1/images/generation");
        assert_eq!(without_secrets("/setup/0123456789abcdef/more"), "/setup/…/more");
    }
}
