//! What machines ask of a gateway: whether it lives, whether it takes requests, and what it has counted.
//!
//! The first two stand on every listener and tell nothing else; the counts name accounts, so they only stand where
//! `metrics_listen` says.

use dropshot::{
    ApiDescription, ApiDescriptionRegisterError, ApiEndpoint, ApiEndpointVersions, Body, HttpError, RequestContext,
};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};

use crate::gateway::front::Counts;
use crate::gateway::{CurrentGateway, Unready};

type Context = RequestContext<CurrentGateway>;

/// What a body of the request would be; there is none.
const JSON: &str = "application/json";
const ALL: ApiEndpointVersions = ApiEndpointVersions::All;
const TEXT: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Counts for CurrentGateway {
    fn answered(&self, operation: &str, status: u16) {
        self.get().metrics().answered(operation, status);
    }
}

/// Everything that stands on the listener of the metrics.
///
/// # Errors
///
/// Where two routes contradict each other.
pub(crate) fn description() -> Result<ApiDescription<CurrentGateway>, ApiDescriptionRegisterError> {
    let mut api = ApiDescription::new();
    register(&mut api)?;
    for method in [Method::GET, Method::HEAD] {
        let name = format!("metrics {method}");
        api.register(ApiEndpoint::new(name, metrics, method, JSON, "/metrics", ALL).visible(false))?;
    }
    Ok(api)
}

/// Adds what stands on every listener.
///
/// # Errors
///
/// Where a route is taken.
pub(super) fn register(api: &mut ApiDescription<CurrentGateway>) -> Result<(), ApiDescriptionRegisterError> {
    for method in [Method::GET, Method::HEAD] {
        let (alive, ready) = (format!("healthz {method}"), format!("readyz {method}"));
        api.register(ApiEndpoint::new(alive, healthz, method.clone(), JSON, "/healthz", ALL).visible(false))?;
        api.register(ApiEndpoint::new(ready, readyz, method, JSON, "/readyz", ALL).visible(false))?;
    }
    Ok(())
}

/// The process answers.
async fn healthz(_context: Context) -> Result<Response<Body>, HttpError> {
    Ok(text(StatusCode::OK, TEXT, "ok\n".to_owned()))
}

/// Answers 200 while new jobs are taken: the store can be read and written, and the gateway is not stopping. The answer
/// comes from memory, because a caller without a key must not be able to cause work in the store, which is checked each
/// half second anyway.
async fn readyz(context: Context) -> Result<Response<Body>, HttpError> {
    let unready: Vec<&str> = context.context().get().unready().into_iter().map(Unready::as_str).collect();
    Ok(if unready.is_empty() {
        text(StatusCode::OK, TEXT, "ready\n".to_owned())
    } else {
        text(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not ready: {}\n", unready.join(", ")))
    })
}

async fn metrics(context: Context) -> Result<Response<Body>, HttpError> {
    Ok(match context.context().get().measured() {
        Ok(counts) => text(StatusCode::OK, OPEN_METRICS, counts),
        Err(error) => {
            tracing::error!(%error, "the metrics could not be written");
            text(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "the metrics could not be written\n".to_owned())
        }
    })
}

fn text(status: StatusCode, kind: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
