//! The paths and the key header of Azure, for callers with the dialect `azure`.
//!
//! The paths are those of the image operations below `/openai/deployments/{deployment}` and `/openai/v1`, with any query.
//! They exist for everybody, because the caller is known only after its key was checked; without the dialect, the answer
//! is that of a path that does not exist, and names the dialect.

use dropshot::{ApiDescription, ApiDescriptionRegisterError, ApiEndpoint, ApiEndpointVersions, Path};
use http::{HeaderName, Method};

use super::{ApiContext, answer_edit, answer_generation};
use crate::error::{Error, MissingResource};
use crate::gateway::config::Dialect;
use crate::gateway::front::{ApiError, EditBody, JsonBody, TypedResponse};
use crate::gateway::keys::Caller;
use crate::gateway::{CurrentGateway, Gateway, flow};
use crate::tables::{MAX_EDIT_FORM_BODY_BYTES, MAX_JSON_BODY_BYTES};
use crate::wire::types;

/// The header in which clients of Azure send the key.
pub(super) const KEY_HEADER: HeaderName = HeaderName::from_static("api-key");
const JSON: &str = "application/json";
const ALL_VERSIONS: ApiEndpointVersions = ApiEndpointVersions::All;

/// A path of Azure.
pub(super) struct AzurePath {
    /// The name of the deployment, which stands for the model if the body names none.
    pub(super) deployment: Option<String>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct DeploymentPath {
    deployment: String,
}

type ImagesResult = Result<TypedResponse<types::ImagesResponse>, ApiError>;

/// Adds the paths.
///
/// # Errors
///
/// Returns an error if a route is already registered.
pub(super) fn register(api: &mut ApiDescription<CurrentGateway>) -> Result<(), ApiDescriptionRegisterError> {
    let post = || Method::POST;
    let (generation_max, edit_max) = (to_usize(MAX_JSON_BODY_BYTES), to_usize(MAX_EDIT_FORM_BODY_BYTES));
    let path = "/openai/deployments/{deployment}/images/generations";
    let endpoint =
        ApiEndpoint::new("azure create_image".into(), create_by_deployment, post(), JSON, path, ALL_VERSIONS);
    api.register(endpoint.request_body_max_bytes(generation_max).visible(false))?;
    let path = "/openai/deployments/{deployment}/images/edits";
    let endpoint = ApiEndpoint::new("azure edit_image".into(), edit_by_deployment, post(), JSON, path, ALL_VERSIONS);
    api.register(endpoint.request_body_max_bytes(edit_max).visible(false))?;
    let path = "/openai/v1/images/generations";
    let endpoint = ApiEndpoint::new("azure v1 create_image".into(), create, post(), JSON, path, ALL_VERSIONS);
    api.register(endpoint.request_body_max_bytes(generation_max).visible(false))?;
    let path = "/openai/v1/images/edits";
    let endpoint = ApiEndpoint::new("azure v1 edit_image".into(), edit, post(), JSON, path, ALL_VERSIONS);
    api.register(endpoint.request_body_max_bytes(edit_max).visible(false))
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Turns the value of the header [`KEY_HEADER`] into a `Caller`.
///
/// # Errors
///
/// Returns the errors of [`flow::admit`], and 401 that names the dialect if the key is valid without it.
pub(super) async fn admit(gateway: &Gateway, key: &[u8]) -> Result<Caller, Error> {
    let caller = flow::admit(gateway, Some(&[b"Bearer ", key].concat())).await?;
    if gateway.dialects(&caller).contains(Dialect::Azure) { Ok(caller) } else { Err(Error::UndeclaredKeyHeader) }
}

/// Checks that the caller may use the paths of Azure.
///
/// # Errors
///
/// Returns 404 that names the dialect.
pub(super) fn check_path(gateway: &Gateway, caller: &Caller, context: &ApiContext) -> Result<(), Error> {
    if gateway.dialects(caller).contains(Dialect::Azure) {
        return Ok(());
    }
    let (method, path) = (context.request.method().to_string(), context.request.uri().path().to_owned());
    Err(Error::NotFound(MissingResource::UndeclaredUrl { method, path }))
}

async fn create_by_deployment(
    context: ApiContext,
    path: Path<DeploymentPath>,
    body: JsonBody<types::ImageGenerationRequest>,
) -> ImagesResult {
    let deployment = Some(path.into_inner().deployment);
    answer_generation(context, body, Some(AzurePath { deployment })).await
}

async fn edit_by_deployment(context: ApiContext, path: Path<DeploymentPath>, body: EditBody) -> ImagesResult {
    let deployment = Some(path.into_inner().deployment);
    answer_edit(context, body, Some(AzurePath { deployment })).await
}

async fn create(context: ApiContext, body: JsonBody<types::ImageGenerationRequest>) -> ImagesResult {
    answer_generation(context, body, Some(AzurePath { deployment: None })).await
}

async fn edit(context: ApiContext, body: EditBody) -> ImagesResult {
    answer_edit(context, body, Some(AzurePath { deployment: None })).await
}
