//! The paths of Azure, for callers with the dialect `azure`.
//!
//! The paths are those of the image operations below `/openai/deployments/{deployment}` and `/openai/v1`, with any query.
//! They exist for everybody, because the caller is known only after its key was checked; without the dialect, the answer
//! is that of a path that does not exist, and names the dialect.

use http::Method;

use super::image_answers::{AzurePath, answer_edit, answer_generation};
use crate::gateway::CurrentGateway;
use crate::gateway::front::{HandlerFuture, Route, RouteRequest, UnreadRequestBody, boxed_answer};
use crate::tables::{MAX_EDIT_FORM_BODY_BYTES, MAX_JSON_BODY_BYTES};

/// The variable of the paths.
const DEPLOYMENT: &str = "deployment";

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
