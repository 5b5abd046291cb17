//! Implements the generated server traits. Each method admits the caller, reads the request, makes one call to another
//! module, and converts the result to an HTTP response.
//!
//! Rules, clocks and logs do not belong here. [`GatewayEndpoints`] is a type without values, so a method uses nothing
//! but its arguments.

mod admin;
mod azure;
mod caller_admission;
mod health;
mod image_answers;
mod image_files;
mod local_admin;
mod mcp;
mod openapi;
mod pages;
mod skills;

use std::net::SocketAddr;
use std::sync::Arc;

#[cfg(feature = "testing")]
use dropshot::{ApiDescription, ApiDescriptionBuildErrors};
use http::{HeaderMap, HeaderName};

use super::CurrentGateway;
use super::admission::{Admission, RequestBudgets};
use super::flow::{self, ADAPTED_HEADER};
use super::front::{
    AdmittingServer, EditBody, HandlerError, HandlerResponse, JsonBody, PathParameters, Route, TypedResponse,
    run_handler,
};
use crate::wire::admin::server as admin_server;
use crate::wire::server::{self, GatewayApi, RetrieveModelPath};
use crate::wire::types;
use admin::AdminEndpoints;
use caller_admission::{ApiRequest, admit, read_unless_stopped};
pub(crate) use health::metrics_api;
use image_answers::{answer_edit, answer_generation, request_options, to_handler_response};
pub(crate) use local_admin::{LocalAdmin, open_local_admin};

/// The type that implements the generated trait of the public API. It has no values.
pub(crate) enum GatewayEndpoints {}

/// The size of a body in bytes from which its limits are looked at before it is read (our choice): the upload of a smaller
/// one costs less than the look.
const UPLOAD_MIN_BYTES: u64 = 1024 * 1024;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Returns every route of the main listener: the public API, the admin API, the pages, the health checks, the
/// API document and the skills.
pub(crate) fn routes() -> Vec<Route<CurrentGateway>> {
    let mut routes = Vec::from(server::routes::<GatewayEndpoints>());
    routes.extend(admin_server::routes::<AdminEndpoints<CurrentGateway>>());
    routes.extend(pages::routes());
    routes.extend(azure::routes());
    routes.extend(health::routes());
    routes.extend(openapi::routes());
    routes.extend([image_files::route(), mcp::route()]);
    routes.extend(skills::routes());
    routes
}

/// Returns the operation, the method and the path of every route, for the drift test.
#[must_use]
pub fn served_routes() -> Vec<[String; 3]> {
    routes().iter().map(Route::description).collect()
}

/// Returns the public API as dropshot registers it.
///
/// # Errors
///
/// Returns the errors of the registration.
#[cfg(feature = "testing")]
pub(crate) fn public_api() -> Result<ApiDescription<CurrentGateway>, ApiDescriptionBuildErrors> {
    server::gateway_api_mod::api_description::<GatewayEndpoints>()
}

/// Returns the admin API as dropshot registers it.
///
/// # Errors
///
/// Returns the errors of the registration.
#[cfg(feature = "testing")]
pub(crate) fn admin_api() -> Result<ApiDescription<CurrentGateway>, ApiDescriptionBuildErrors> {
    admin_server::admin_api_mod::api_description::<AdminEndpoints<CurrentGateway>>()
}

impl AdmittingServer for CurrentGateway {
    /// The address of the client is the forwarded one if the request came through a trusted proxy.
    fn begin_admission(&self, peer: SocketAddr, headers: &HeaderMap) -> Admission {
        let gateway = self.get();
        // A header value that is not text is replaced by an empty text, which contains no address.
        let forwarded = headers.get_all(FORWARDED_FOR).iter().map(|value| value.to_str().unwrap_or_default());
        let address = gateway.settings().config.trusted_proxies.client_address(peer.ip(), forwarded);
        Admission::begin(&gateway.images.request_budgets, address)
    }

    fn request_budgets(&self) -> Arc<RequestBudgets> {
        Arc::clone(&self.get().images.request_budgets)
    }
}

impl GatewayApi for GatewayEndpoints {
    type Context = CurrentGateway;

    async fn create_image(
        head: ApiRequest,
        body: JsonBody<types::ImageGenerationRequest>,
    ) -> TypedResponse<types::ImagesResponse> {
        answer_generation(head, body, None).await
    }

    async fn edit_image(head: ApiRequest, body: EditBody) -> TypedResponse<types::ImagesResponse> {
        answer_edit(head, body, None).await
    }

    async fn estimate_image(
        head: ApiRequest,
        body: JsonBody<types::ImageGenerationRequest>,
    ) -> TypedResponse<types::CostEstimate> {
        run_handler(&head, async {
            let gateway = head.server().get();
            let (caller, admission) = admit(&gateway, &head).await?;
            let options = request_options(&head, &admission)?;
            let body = read_unless_stopped(&gateway, body.with_large_windows().read(&admission)).await?;
            let estimate = flow::estimate_image(&gateway.images, &caller, &options, &body).await?;
            let answer = HandlerResponse::json(&estimate.cost)?;
            Ok::<_, HandlerError>(answer.with_header(ADAPTED_HEADER, estimate.adapted.as_deref()))
        })
        .await
    }

    async fn create_response(
        head: ApiRequest,
        body: JsonBody<types::ResponseRequest>,
    ) -> TypedResponse<types::AgentResponse> {
        run_handler(&head, async {
            let gateway = head.server().get();
            let (caller, admission) = admit(&gateway, &head).await?;
            let options = flow::count_if_refused(&gateway.images.keys, &caller, request_options(&head, &admission))?;
            if body.announced_bytes().is_none_or(|bytes| bytes > UPLOAD_MIN_BYTES) {
                flow::check_upload(&gateway.images, &caller, &options, "create_response").await?;
            }
            let body = body.with_large_windows().with_limit(gateway.settings().config.uploads.response_body);
            let reading = body.read_to_spool(&admission, &gateway.images.spool);
            let body = read_unless_stopped(&gateway, reading).await;
            let body = flow::count_if_refused(&gateway.images.keys, &caller, body)?;
            let headers = head.headers();
            let answer = Box::pin(flow::create_response(&gateway.images, caller, options, headers, body)).await?;
            to_handler_response(&head, &gateway, answer).await
        })
        .await
    }

    async fn list_image_models(head: ApiRequest) -> TypedResponse<types::ImageModelList> {
        run_handler(&head, async {
            let gateway = head.server().get();
            let (caller, _) = admit(&gateway, &head).await?;
            HandlerResponse::json(&flow::list_image_models(&gateway.images, &caller))
        })
        .await
    }

    async fn list_models(head: ApiRequest) -> TypedResponse<types::ModelList> {
        run_handler(&head, async {
            let gateway = head.server().get();
            let (caller, _) = admit(&gateway, &head).await?;
            HandlerResponse::json(&flow::list_models(&gateway.images, &caller).await)
        })
        .await
    }

    async fn retrieve_model(head: ApiRequest, path: PathParameters<RetrieveModelPath>) -> TypedResponse<types::Model> {
        run_handler(&head, async {
            let gateway = head.server().get();
            let (caller, _) = admit(&gateway, &head).await?;
            let model = path.into_value()?.model;
            HandlerResponse::json(&flow::retrieve_model(&gateway.images, &caller, &model).await?)
        })
        .await
    }
}
