//! A server of dropshot as it comes, for the listener of the metrics. `dispatch` says what it has in common with the
//! connections of the gateway.

use std::net::SocketAddr;
use std::time::Duration;

use dropshot::{
    ApiDescription, ApiDescriptionRegisterError, ApiEndpoint, ApiEndpointVersions, BuildError, ConfigDropshot,
    HandlerTaskMode, HttpError, RawRequest, RequestContext, ServerBuilder,
};
use http::Method;
use tokio::time::timeout;

use super::request::{AdmittingServer, RequestHead};
use super::route::{Route, RouteRequest};
use super::server::ServerError;

/// The content type of request bodies, which a registration requires also of requests without a body.
const JSON: &str = "application/json";

/// A running server of dropshot. After it is dropped, it accepts no more connections.
pub(crate) struct DropshotServer<C: AdmittingServer>(dropshot::HttpServer<C>);

/// Starts a server of dropshot for an API, whose handlers get `server`.
///
/// # Errors
///
/// Returns an error if dropshot cannot listen on the address.
pub(crate) fn start_dropshot_server<C: AdmittingServer>(
    api: ApiDescription<C>,
    server: C,
    listen: SocketAddr,
) -> Result<DropshotServer<C>, ServerError> {
    let config = ConfigDropshot {
        bind_address: listen,
        // The gateway decides which work goes on without its caller.
        default_handler_task_mode: HandlerTaskMode::CancelOnDisconnect,
        ..ConfigDropshot::default()
    };
    // The gateway's own log has a line for every request.
    let log = slog::Logger::root(slog::Discard, slog::o!());
    let started = ServerBuilder::new(api, server, log).config(config).start();
    started.map(DropshotServer).map_err(|error| {
        let source = match error {
            BuildError::BindError { error, .. } => error,
            error => std::io::Error::other(error),
        };
        ServerError::Listen { address: listen, source }
    })
}

/// Adds routes whose paths are plain, without variables and folders, to an API. A route of GET also answers HEAD.
///
/// # Errors
///
/// Returns an error if a path has variables.
pub(crate) fn register_routes<C: AdmittingServer>(
    api: &mut ApiDescription<C>,
    routes: impl IntoIterator<Item = Route<C>>,
) -> Result<(), ApiDescriptionRegisterError> {
    for Route { operation, method, path, handler, .. } in routes {
        let methods = if method == Method::GET { vec![method, Method::HEAD] } else { vec![method] };
        for method in methods {
            let answer = move |context: RequestContext<C>, request: RawRequest| async move {
                let (head, request) = (RequestHead::from_dropshot(context, operation), request.into_inner());
                Ok::<_, HttpError>(handler(RouteRequest { head, request, variables: Vec::new() }).await)
            };
            let name = format!("{operation} {method}");
            let endpoint = ApiEndpoint::new(name, answer, method, JSON, path, ApiEndpointVersions::All);
            api.register(endpoint.visible(false))?;
        }
    }
    Ok(())
}

// === impl DropshotServer ===

impl<C: AdmittingServer> DropshotServer<C> {
    /// The address that the server listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// Stops accepting connections at once, and waits at most `time_limit` for running requests.
    pub(crate) async fn stop(self, time_limit: Duration) {
        // dropshot waits for every connection, also for one that says nothing.
        drop(timeout(time_limit, self.0.close()).await);
    }
}
