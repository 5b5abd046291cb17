//! The skills that the gateway publishes: no part of the documents, and nothing for which anybody needs a key.

use dropshot::{
    ApiDescription, ApiDescriptionRegisterError, ApiEndpoint, ApiEndpointVersions, Body, HttpError, RequestContext,
};
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};

use crate::gateway::CurrentGateway;
use crate::gateway::front::{Counts as _, nothing_here};
use crate::gateway::registry::Document;

type Context = RequestContext<CurrentGateway>;

const JSON: &str = "application/json";
const ALL: ApiEndpointVersions = ApiEndpointVersions::All;
/// Five minutes (ours): a new version is nothing that anybody waits for, and a tag costs hardly more than nothing.
const HEADERS: [(HeaderName, &str); 3] = [
    (CONTENT_TYPE, JSON),
    (CACHE_CONTROL, "public, max-age=300"),
    // Whoever knows the address may read it, also a page in a browser.
    (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
];

/// Adds the two documents.
///
/// # Errors
///
/// Where a route is taken.
pub(super) fn register(api: &mut ApiDescription<CurrentGateway>) -> Result<(), ApiDescriptionRegisterError> {
    for method in [Method::GET, Method::HEAD] {
        let (one, other) = (format!("skills manifest {method}"), format!("skills index {method}"));
        api.register(ApiEndpoint::new(one, manifest, method.clone(), JSON, "/skills/skills.json", ALL).visible(false))?;
        let path = "/.well-known/agent-skills/index.json";
        api.register(ApiEndpoint::new(other, index, method, JSON, path, ALL).visible(false))?;
    }
    Ok(())
}

async fn manifest(context: Context) -> Result<Response<Body>, HttpError> {
    let published = context.context().get().skills().await;
    answer(context, published.map(|published| published.manifest.clone())).await
}

async fn index(context: Context) -> Result<Response<Body>, HttpError> {
    let published = context.context().get().skills().await;
    answer(context, published.map(|published| published.index.clone())).await
}

async fn answer(context: Context, document: Option<Document>) -> Result<Response<Body>, HttpError> {
    let Some(document) = document else { return nothing_here(context).await };
    let tags = context.request.headers().get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    let is_known = tags.is_some_and(|tags| document.is_known(tags));
    let mut response = Response::new(if is_known { Body::empty() } else { Body::from(document.bytes.clone()) });
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.extend(HeaderValue::try_from(&document.tag).map(|tag| (ETAG, tag)));
    context.context().answered("skills", response.status().as_u16());
    Ok(response)
}
