//! Passes a request to the handler that dropshot's router finds for it, or refuses the request if there is no handler.
//!
//! dropshot's server is started for a single request, to obtain the `RequestContext` that every handler needs. It does
//! not serve callers, because it does not let the gateway decide how connections are accepted and how long they last.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dropshot::{
    ApiDescription, ApiEndpoint, ApiEndpointVersions, Body, ConfigDropshot, HttpError, RequestContext, RequestInfo,
    ServerBuilder, ServerContext,
};
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use uuid::Uuid;

use super::cors::{CorsAnswer, CorsSettings};
use super::request_admission::run_admitted;
use super::request_context::build_request_context;
use super::request_head::{HeadFault, check_head, is_canonical_path};
use super::request_id::new_request_id;
use super::response::{NO_STORE, PanicCatcher, ResponseCounter, error_response, panic_text};
use super::server::ServerError;
use crate::error::{Error, MissingResource, Rejection, RejectionReason};
use crate::gateway::admission::{Admission, RequestBudgets};

/// The time limit on the single request to dropshot's server, over loopback (our choice).
const LOOPBACK_TIMEOUT: Duration = Duration::from_secs(10);
/// A path segment of at least this length may be a secret: all secrets of the gateway are longer.
const SECRET_MIN_LENGTH: usize = 16;
/// The path prefix of the admin API, whose answers must not be stored in caches.
const ADMIN_PATH_PREFIX: &str = "/admin/";
/// The path prefixes of the APIs, which never answer with a page.
const API_PREFIXES: [&str; 2] = ["/v1/", ADMIN_PATH_PREFIX];
/// A path that the handler of the pages serves.
const ANY_PAGE: &str = "/assets/-";

/// The routes of a server, with the context that their handlers get.
pub(super) struct RequestDispatcher<C: ServerContext> {
    /// The context of the loopback request; the contexts of all other requests are built from it.
    context: RequestContext<C>,
}

// === impl RequestDispatcher ===

impl<C: CorsSettings> RequestDispatcher<C> {
    /// Lets dropshot build the router and the state of these routes.
    ///
    /// # Errors
    ///
    /// Returns an error if no loopback port can be opened or the request over loopback does not arrive.
    pub(super) async fn new(mut api: ApiDescription<C>, context: C) -> Result<Self, ServerError> {
        let (sender, context_of_request) = oneshot::channel();
        let sender = Mutex::new(Some(sender));
        let take_context = move |context: RequestContext<C>| {
            send_context(context, sender.lock().unwrap_or_else(PoisonError::into_inner).take())
        };
        // The path cannot be guessed, and only the first request to it sends its context.
        let path = format!("/{}", Uuid::new_v4());
        let name = "take the context".to_owned();
        let all = ApiEndpointVersions::All;
        let endpoint = ApiEndpoint::new(name, take_context, Method::GET, "application/json", &path, all);
        api.register(endpoint.visible(false)).map_err(|error| ServerError::Routes(error.to_string()))?;
        let bind_address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let config = ConfigDropshot { bind_address, ..ConfigDropshot::default() };
        // The gateway's own log has a line for every request.
        let log = slog::Logger::root(slog::Discard, slog::o!());
        let server = ServerBuilder::new(api, context, log).config(config).start();
        let server = server.map_err(|error| ServerError::Loopback(std::io::Error::other(error)))?;
        let request = async {
            let mut stream = TcpStream::connect(server.local_addr()).await?;
            let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await?;
            context_of_request.await.map_err(std::io::Error::other)
        };
        let context = timeout(LOOPBACK_TIMEOUT, request).await.map_err(std::io::Error::from).flatten();
        // Dropping the server closes its port.
        Ok(Self { context: context.map_err(ServerError::Loopback)? })
    }

    /// Begins the admission of a request from this peer.
    pub(super) fn begin_admission(&self, remote: SocketAddr, headers: &HeaderMap) -> Admission {
        self.context.server.private.begin_admission(remote, headers)
    }

    /// The budgets of all requests.
    pub(super) fn request_budgets(&self) -> Arc<RequestBudgets> {
        self.context.server.private.request_budgets()
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
        let server = &self.context.server.private;
        let fault = check_head(&mut request).err();
        let cors = CorsAnswer::new(&server.cors_origins(), &request);
        let mut response = match (fault, cors.as_ref().and_then(CorsAnswer::preflight_response)) {
            (Some(fault), _) => counted_response(server, head_fault_response(&request, fault)),
            (None, Some(response)) => response,
            (None, None) => run_admitted(admission, self.route(request, request_id, remote)).await,
        };
        if let Some(cors) = cors {
            cors.add_headers(response.headers_mut());
        }
        if let Ok(header) = header {
            response.headers_mut().insert(dropshot::HEADER_REQUEST_ID, header);
        }
        response
    }

    async fn route(&self, mut request: Request<Body>, request_id: String, remote: SocketAddr) -> Response<Body> {
        let server = &self.context.server;
        let is_canonical = is_canonical_path(request.uri().path());
        if !is_canonical && wants_page(&request) {
            // The page that says that there is none at this path.
            *request.uri_mut() = Uri::from_static(ANY_PAGE);
        }
        let path = request.uri().path();
        let route = if is_canonical || path == ANY_PAGE {
            server.router.lookup_route(request.method(), path.into(), None)
        } else {
            Err(HttpError::for_not_found(None, String::new()))
        };
        // Every route of GET answers HEAD (RFC 9110, section 9.3.2); the connection leaves out the body.
        let route = match route {
            Err(error) if request.method() == Method::HEAD => {
                server.router.lookup_route(&Method::GET, path.into(), None).map_err(|_| error)
            }
            route => route,
        };
        let route = route.or_else(|error| {
            // The pages answer a browser with a page, whatever the path is.
            let is_missing_page = error.status_code.as_status() == StatusCode::NOT_FOUND && wants_page(&request);
            if is_missing_page {
                server.router.lookup_route(request.method(), ANY_PAGE.into(), None)
            } else {
                Err(error)
            }
        });
        let route = match route {
            Ok(route) => route,
            Err(error) => return counted_response(&server.private, route_error_response(&request, &error)),
        };
        let info = RequestInfo::new(&request, remote);
        let context = build_request_context(&self.context, route.endpoint, request_id, info);
        match PanicCatcher(route.handler.handle_request(context, request)).await {
            Ok(Ok(response)) => return response,
            // The gateway's handlers and extractors return their errors as answers, so this does not happen.
            Ok(Err(_)) => tracing::error!("a handler returned no answer"),
            Err(panic) => tracing::error!(panic = panic_text(panic.as_ref()), "a handler panicked"),
        }
        counted_response(&server.private, error_response(&Error::Internal))
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

/// Handles the loopback request: sends its context to [`RequestDispatcher::new`].
async fn send_context<C: ResponseCounter>(
    context: RequestContext<C>,
    sender: Option<oneshot::Sender<RequestContext<C>>>,
) -> Result<Response<Body>, HttpError> {
    let Some(sender) = sender else { return not_found(context).await };
    drop(sender.send(context));
    Ok(Response::new(Body::empty()))
}

/// Answers 404 for an unknown path.
///
/// # Errors
///
/// Never fails; dropshot requires the `Result`.
pub(crate) async fn not_found<C: ResponseCounter>(context: RequestContext<C>) -> Result<Response<Body>, HttpError> {
    let request = &context.request;
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let is_admin_path = path.starts_with(ADMIN_PATH_PREFIX);
    let mut response = error_response(&Error::NotFound(MissingResource::Url { method, path }));
    if is_admin_path {
        response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    }
    Ok(counted_response(context.context(), response))
}

/// The error answer to a request for which the router returned `error`.
fn route_error_response(request: &Request<Body>, error: &HttpError) -> Response<Bytes> {
    let path = request.uri().path();
    let allowed = error.headers.iter().flat_map(|headers| headers.get_all(ALLOW));
    let mut allowed: Vec<&str> = allowed.filter_map(|method| method.to_str().ok()).collect();
    if allowed.contains(&"GET") && !allowed.contains(&"HEAD") {
        allowed.push("HEAD");
    }
    allowed.sort_unstable();
    let (method, full_path) = (request.method().to_string(), path.to_owned());
    let gateway_error = match error.status_code {
        status if !status.is_client_error() => Error::Internal,
        // A request for `/` comes from a person or from a client with a wrong base URL, so it is reported as an unknown
        // URL and not as a wrong method.
        _ if path != "/" && !allowed.is_empty() => Error::NotFound(MissingResource::Method { method, path: full_path }),
        status if status.as_status() == StatusCode::BAD_REQUEST => {
            Rejection::for_body(RejectionReason::InvalidValue, error.external_message.clone()).into()
        }
        _ => Error::NotFound(MissingResource::Url { method, path: full_path }),
    };
    let mut response = error_response(&gateway_error);
    if path.starts_with(ADMIN_PATH_PREFIX) {
        response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    }
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        if let Ok(allowed) = HeaderValue::try_from(allowed.join(", ")) {
            response.headers_mut().insert(ALLOW, allowed);
        }
        if wants_websocket(request.headers()) {
            // A coding agent that tries WebSocket first falls back to plain HTTP only after this status.
            *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
        }
    }
    let status = response.status().as_u16();
    tracing::info!(method = %request.method(), path = without_secrets(path), status, "no route");
    response
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
