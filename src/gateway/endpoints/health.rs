//! The endpoints for monitoring: liveness, readiness and metrics.
//!
//! Liveness and readiness are on every listener, and their answers name no account. The metrics name accounts, so they
//! are only on the listener of `metrics_listen`.

use dropshot::{
    ApiDescription, ApiDescriptionRegisterError, ApiEndpoint, ApiEndpointVersions, Body, HttpError, RequestContext,
};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};

use crate::gateway::config::CorsOrigins;
use crate::gateway::front::{CorsSettings, ResponseCounter};
use crate::gateway::{CurrentGateway, UnreadyReason};

type HealthContext = RequestContext<CurrentGateway>;

/// The content type of request bodies, which the registration requires although these requests have no body.
const JSON: &str = "application/json";
const ALL_VERSIONS: ApiEndpointVersions = ApiEndpointVersions::All;
const TEXT_CONTENT_TYPE: &str = "text/plain; charset=utf-8";
const METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl ResponseCounter for CurrentGateway {
    fn count_response(&self, operation: &str, status: u16) {
        self.get().metrics().count_response(operation, status);
    }
}

impl CorsSettings for CurrentGateway {
    fn cors_origins(&self) -> CorsOrigins {
        self.get().config.cors_origins.clone()
    }
}

/// Returns every route of the metrics listener.
///
/// # Errors
///
/// Returns an error if two routes conflict.
pub(crate) fn metrics_api_description() -> Result<ApiDescription<CurrentGateway>, ApiDescriptionRegisterError> {
    let mut api = ApiDescription::new();
    register(&mut api)?;
    for method in [Method::GET, Method::HEAD] {
        let name = format!("metrics {method}");
        api.register(ApiEndpoint::new(name, metrics, method, JSON, "/metrics", ALL_VERSIONS).visible(false))?;
    }
    Ok(api)
}

/// Adds the routes that every listener has.
///
/// # Errors
///
/// Returns an error if a route is already registered.
pub(super) fn register(api: &mut ApiDescription<CurrentGateway>) -> Result<(), ApiDescriptionRegisterError> {
    for method in [Method::GET, Method::HEAD] {
        let (alive, ready) = (format!("healthz {method}"), format!("readyz {method}"));
        api.register(ApiEndpoint::new(alive, healthz, method.clone(), JSON, "/healthz", ALL_VERSIONS).visible(false))?;
        api.register(ApiEndpoint::new(ready, readyz, method, JSON, "/readyz", ALL_VERSIONS).visible(false))?;
    }
    Ok(())
}

/// Answers 200 as long as the process runs.
async fn healthz(_context: HealthContext) -> Result<Response<Body>, HttpError> {
    Ok(text_response(StatusCode::OK, TEXT_CONTENT_TYPE, "ok\n".to_owned()))
}

/// Answers 200 while new jobs are accepted: the store can be read and written, the disk has enough free space, and the
/// gateway is not stopping. The answer comes from memory, so that a client without a key cannot cause work in the
/// store; the gateway checks the store every half second.
async fn readyz(context: HealthContext) -> Result<Response<Body>, HttpError> {
    let unready: Vec<&str> = context.context().get().unready_reasons().into_iter().map(UnreadyReason::as_str).collect();
    Ok(if unready.is_empty() {
        text_response(StatusCode::OK, TEXT_CONTENT_TYPE, "ready\n".to_owned())
    } else {
        text_response(
            StatusCode::SERVICE_UNAVAILABLE,
            TEXT_CONTENT_TYPE,
            format!("not ready: {}\n", unready.join(", ")),
        )
    })
}

async fn metrics(context: HealthContext) -> Result<Response<Body>, HttpError> {
    Ok(match context.context().get().render_metrics() {
        Ok(text) => text_response(StatusCode::OK, METRICS_CONTENT_TYPE, text),
        Err(error) => {
            tracing::error!(%error, "the metrics could not be written");
            text_response(
                StatusCode::INTERNAL_SERVER_ERROR,
                TEXT_CONTENT_TYPE,
                "the metrics could not be written\n".to_owned(),
            )
        }
    })
}

fn text_response(status: StatusCode, content_type: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
