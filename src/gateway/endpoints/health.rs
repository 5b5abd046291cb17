//! The endpoints for monitoring: liveness, readiness and metrics.
//!
//! Liveness and readiness are on every listener, and their answers name no account. The metrics name accounts, so they
//! are only on the listener of `metrics_listen`.

use std::future::ready;

use dropshot::{ApiDescription, ApiDescriptionRegisterError, Body};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};

use crate::gateway::CurrentGateway;
use crate::gateway::config::CorsOrigins;
use crate::gateway::front::{CorsSettings, RequestHead, ResponseCounter, Route, boxed_answer, register_routes};

type HealthRequest = RequestHead<CurrentGateway>;

const TEXT_CONTENT_TYPE: &str = "text/plain; charset=utf-8";
const METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl ResponseCounter for CurrentGateway {
    fn count_response(&self, operation: &str, status: u16) {
        self.get().images.metrics.count_response(operation, status);
    }
}

impl CorsSettings for CurrentGateway {
    fn cors_origins(&self) -> CorsOrigins {
        self.get().settings().config.cors_origins.clone()
    }
}

/// Returns the routes that every listener has.
pub(super) fn routes() -> [Route<CurrentGateway>; 2] {
    [
        Route::new("healthz", Method::GET, "/healthz", |_| boxed_answer(ready(alive_response()))),
        Route::new("readyz", Method::GET, "/readyz", |request| boxed_answer(ready(readiness_response(&request.head)))),
    ]
}

/// Returns the API of the listener of the metrics.
///
/// # Errors
///
/// Returns an error if two routes conflict.
pub(crate) fn metrics_api() -> Result<ApiDescription<CurrentGateway>, ApiDescriptionRegisterError> {
    let metrics =
        Route::new("metrics", Method::GET, "/metrics", |request| boxed_answer(ready(metrics_response(&request.head))));
    let mut api = ApiDescription::new();
    register_routes(&mut api, routes().into_iter().chain([metrics]))?;
    Ok(api)
}

/// Answers 200 as long as the process runs.
fn alive_response() -> Response<Body> {
    text_response(StatusCode::OK, TEXT_CONTENT_TYPE, "ok\n".to_owned())
}

/// Answers 200 while new jobs are accepted: the store can be read and written, the disk has enough free space, and the
/// gateway is not stopping. The answer comes from memory, so that a client without a key cannot cause work in the
/// store; the gateway checks the store every half second.
fn readiness_response(head: &HealthRequest) -> Response<Body> {
    let gateway = head.server().get();
    let unready = gateway.lifecycle.unready_reasons(&gateway.images);
    if unready.is_empty() {
        return text_response(StatusCode::OK, TEXT_CONTENT_TYPE, "ready\n".to_owned());
    }
    let text = format!("not ready: {}\n", unready.join(", "));
    text_response(StatusCode::SERVICE_UNAVAILABLE, TEXT_CONTENT_TYPE, text)
}

fn metrics_response(head: &HealthRequest) -> Response<Body> {
    match head.server().get().render_metrics() {
        Ok(text) => text_response(StatusCode::OK, METRICS_CONTENT_TYPE, text),
        Err(error) => {
            tracing::error!(%error, "the metrics could not be written");
            let text = "the metrics could not be written\n".to_owned();
            text_response(StatusCode::INTERNAL_SERVER_ERROR, TEXT_CONTENT_TYPE, text)
        }
    }
}

fn text_response(status: StatusCode, content_type: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
