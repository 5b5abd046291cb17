//! The document of the public API, as the gateway serves it. It is public, like the reference on the pages that is rendered
//! from it, and needs no API key.

use std::sync::LazyLock;

use dropshot::{
    ApiDescription, ApiDescriptionRegisterError, ApiEndpoint, ApiEndpointVersions, Body, HttpError, RequestContext,
};
use http::{Method, Response};

use super::skills::document_response;
use crate::gateway::CurrentGateway;
use crate::gateway::registry::PublishedDocument;
use crate::tables;

/// The content type of request bodies, which the registration requires although these requests have no body.
const JSON: &str = "application/json";
const ALL_VERSIONS: ApiEndpointVersions = ApiEndpointVersions::All;

/// The document with its entity tag.
static DOCUMENT: LazyLock<PublishedDocument> =
    LazyLock::new(|| PublishedDocument::new(tables::OPENAPI.as_bytes().to_vec()));

/// Adds the document.
///
/// # Errors
///
/// Returns an error if the route is already registered.
pub(super) fn register(api: &mut ApiDescription<CurrentGateway>) -> Result<(), ApiDescriptionRegisterError> {
    for method in [Method::GET, Method::HEAD] {
        let name = format!("openapi {method}");
        api.register(ApiEndpoint::new(name, serve, method, JSON, "/openapi.json", ALL_VERSIONS).visible(false))?;
    }
    Ok(())
}

async fn serve(context: RequestContext<CurrentGateway>) -> Result<Response<Body>, HttpError> {
    Ok(document_response(&context, "openapi", &DOCUMENT))
}
