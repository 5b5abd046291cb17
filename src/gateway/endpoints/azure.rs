//! The paths and the key header of Azure, for callers with the dialect `azure`.
//!
//! The paths are those of the image operations below `/openai/deployments/{deployment}` and `/openai/v1`, with any query.
//! They exist for everybody, because the caller is known only after its key was checked; without the dialect, the answer
//! is that of a path that does not exist, and names the dialect.

use http::{HeaderName, Method};

use super::{ApiRequest, answer_edit, answer_generation};
use crate::error::{Error, MissingResource};
use crate::gateway::config::Dialect;
use crate::gateway::front::{HandlerFuture, Route, RouteRequest, UnreadRequestBody, boxed_answer};
use crate::gateway::keys::Caller;
use crate::gateway::{CurrentGateway, Gateway, flow};
use crate::tables::{MAX_EDIT_FORM_BODY_BYTES, MAX_JSON_BODY_BYTES};

/// The header in which clients of Azure send the key.
pub(super) const KEY_HEADER: HeaderName = HeaderName::from_static("api-key");
/// The variable of the paths.
const DEPLOYMENT: &str = "deployment";

/// A path of Azure.
pub(super) struct AzurePath {
    /// The name of the deployment, which stands for the model if the body names none.
    pub(super) deployment: Option<String>,
}

/// Returns the paths.
pub(super) fn routes() -> [Route<CurrentGateway>; 4] {
    let post = |operation, path, handler| Route::new(operation, Method::POST, path, handler);
    [
        post("azure create_image", "/openai/deployments/{deployment}/images/generations", create),
        post("azure edit_image", "/openai/deployments/{deployment}/images/edits", edit),
        post("azure v1 create_image", "/openai/v1/images/generations", create),
        post("azure v1 edit_image", "/openai/v1/images/edits", edit),
    ]
}

/// Turns the value of the header [`KEY_HEADER`] into a `Caller`.
///
/// # Errors
///
/// Returns the errors of [`flow::admit`], and 401 that names the dialect if the key is valid without it.
pub(super) async fn admit(gateway: &Gateway, key: &[u8]) -> Result<Caller, Error> {
    let caller = flow::admit(&gateway.images, Some(&[b"Bearer ", key].concat())).await?;
    if caller.dialects().contains(Dialect::Azure) { Ok(caller) } else { Err(Error::UndeclaredKeyHeader) }
}

/// Checks that the caller may use the paths of Azure.
///
/// # Errors
///
/// Returns 404 that names the dialect.
pub(super) fn check_path(caller: &Caller, head: &ApiRequest) -> Result<(), Error> {
    if caller.dialects().contains(Dialect::Azure) {
        return Ok(());
    }
    let (method, path) = (head.method().to_string(), head.uri().path().to_owned());
    Err(Error::NotFound(MissingResource::UndeclaredUrl { method, path }))
}

fn create(mut request: RouteRequest<CurrentGateway>) -> HandlerFuture {
    let azure = AzurePath { deployment: request.take_variable(DEPLOYMENT) };
    let body = UnreadRequestBody::new(request.request, MAX_JSON_BODY_BYTES);
    boxed_answer(answer_generation(request.head, body, Some(azure)))
}

fn edit(mut request: RouteRequest<CurrentGateway>) -> HandlerFuture {
    let azure = AzurePath { deployment: request.take_variable(DEPLOYMENT) };
    let body = UnreadRequestBody::new(request.request, MAX_EDIT_FORM_BODY_BYTES);
    boxed_answer(answer_edit(request.head, body, Some(azure)))
}
