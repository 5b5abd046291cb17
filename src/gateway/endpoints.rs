//! Implements the generated server traits. Each method admits the caller, reads the request, makes one call to another
//! module, and converts the result to an HTTP response.
//!
//! Rules, clocks and logs do not belong here. [`GatewayEndpoints`] is a type without values, so a method uses nothing
//! but its arguments.

mod admin;
mod azure;
mod health;
mod image_files;
mod mcp;
mod openapi;
mod pages;
mod served_routes;
mod skills;

use std::net::SocketAddr;
use std::sync::Arc;

use dropshot::{ApiDescription, ApiDescriptionRegisterError, Path, RequestContext};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, Version};

use super::admission::{Admission, Principal, RequestBudgets};
use super::flow::{self, ADAPTED_HEADER, GatewayAnswerBody, RequestFailure, RequestOptions};
use super::front::{
    AdmittingServer, ApiError, EditBody, ExtractorResult, FormNames, FormSettings, GatheredBody, HandlerError,
    HandlerResponse, JsonBody, ResponseKind, TypedResponse, admission_of, run_handler, spool_response,
};
use super::keys::Caller;
use super::relay::PacedBody;
use super::{CurrentGateway, Gateway};
use crate::error::Error;
use crate::wire::admin::server as admin_server;
use crate::wire::server::{self, GatewayApi, RetrieveModelPath};
use crate::wire::types;
use admin::AdminEndpoints;
use azure::AzurePath;
pub(crate) use health::metrics_api_description;
pub use served_routes::served_routes;

/// The type that implements the generated trait of the public API. It has no values.
pub(crate) enum GatewayEndpoints {}

type ApiContext = RequestContext<CurrentGateway>;

/// The size of a body in bytes from which its limits are looked at before it is read (our choice): the upload of a smaller
/// one costs less than the look.
const UPLOAD_MIN_BYTES: u64 = 1024 * 1024;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Returns every route of the main listener: the public API, the admin API, the pages, the health checks, the
/// API document and the skills.
///
/// # Errors
///
/// Returns an error if two routes conflict.
pub(crate) fn api_description() -> Result<ApiDescription<CurrentGateway>, ApiDescriptionRegisterError> {
    let mut api = ApiDescription::new();
    server::register::<GatewayEndpoints>(&mut api)?;
    admin_server::register::<AdminEndpoints>(&mut api)?;
    pages::register(&mut api)?;
    azure::register(&mut api)?;
    health::register(&mut api)?;
    openapi::register(&mut api)?;
    skills::register(&mut api)?;
    image_files::register(&mut api)?;
    mcp::register(&mut api)?;
    Ok(api)
}

impl AdmittingServer for CurrentGateway {
    /// The address of the client is the forwarded one if the request came through a trusted proxy.
    fn begin_admission(&self, peer: SocketAddr, headers: &HeaderMap) -> Admission {
        let gateway = self.get();
        // A header value that is not text is replaced by an empty text, which contains no address.
        let forwarded = headers.get_all(FORWARDED_FOR).iter().map(|value| value.to_str().unwrap_or_default());
        let address = gateway.trusted_proxies().client_address(peer.ip(), forwarded);
        Admission::begin(gateway.request_budgets(), address)
    }

    fn request_budgets(&self) -> Arc<RequestBudgets> {
        Arc::clone(self.get().request_budgets())
    }
}

impl GatewayApi for GatewayEndpoints {
    type Context = CurrentGateway;

    async fn create_image(
        context: ApiContext,
        body: JsonBody<types::ImageGenerationRequest>,
    ) -> Result<TypedResponse<types::ImagesResponse>, ApiError> {
        answer_generation(context, body, None).await
    }

    async fn edit_image(context: ApiContext, body: EditBody) -> Result<TypedResponse<types::ImagesResponse>, ApiError> {
        answer_edit(context, body, None).await
    }

    async fn estimate_image(
        context: ApiContext,
        body: JsonBody<types::ImageGenerationRequest>,
    ) -> Result<TypedResponse<types::CostEstimate>, ApiError> {
        Ok(run_handler(&context, async {
            let gateway = context.context().get();
            let (caller, admission) = admit(&gateway, &context).await?;
            let options = request_options(&context, &admission)?;
            let body = read_unless_stopped(&gateway, body.with_large_windows().read(&admission)).await?;
            let estimate = flow::estimate_image(&gateway, &caller, &options, &body).await?;
            let answer = HandlerResponse::json(&estimate.cost)?;
            Ok::<_, HandlerError>(answer.with_header(ADAPTED_HEADER, estimate.adapted.as_deref()))
        })
        .await)
    }

    async fn create_response(
        context: ApiContext,
        body: JsonBody<types::ResponseRequest>,
    ) -> Result<TypedResponse<types::Response>, ApiError> {
        Ok(run_handler(&context, async {
            let gateway = context.context().get();
            let (caller, admission) = admit(&gateway, &context).await?;
            let options = flow::count_if_refused(&gateway, &caller, request_options(&context, &admission))?;
            if body.announced_bytes().is_none_or(|bytes| bytes > UPLOAD_MIN_BYTES) {
                flow::check_upload(&gateway, &caller, &options, "create_response").await?;
            }
            let body = body.with_large_windows().with_limit(gateway.config().uploads.response_body);
            let reading = body.read_to_spool(&admission, gateway.spool());
            let body = read_unless_stopped(&gateway, reading).await;
            let body = flow::count_if_refused(&gateway, &caller, body)?;
            let headers = context.request.headers();
            let gateway_answer = Box::pin(flow::create_response(&gateway, caller, options, headers, body)).await?;
            to_handler_response(&context, &gateway, gateway_answer).await
        })
        .await)
    }

    async fn list_image_models(context: ApiContext) -> Result<TypedResponse<types::ImageModelList>, ApiError> {
        Ok(run_handler(&context, async {
            let gateway = context.context().get();
            let (caller, _) = admit(&gateway, &context).await?;
            HandlerResponse::json(&flow::list_image_models(&gateway, &caller))
        })
        .await)
    }

    async fn list_models(context: ApiContext) -> Result<TypedResponse<types::ModelList>, ApiError> {
        Ok(run_handler(&context, async {
            let gateway = context.context().get();
            let (caller, _) = admit(&gateway, &context).await?;
            HandlerResponse::json(&flow::list_models(&gateway, &caller).await)
        })
        .await)
    }

    async fn retrieve_model(
        context: ApiContext,
        path: ExtractorResult<Path<RetrieveModelPath>>,
    ) -> Result<TypedResponse<types::Model>, ApiError> {
        Ok(run_handler(&context, async {
            let gateway = context.context().get();
            let (caller, _) = admit(&gateway, &context).await?;
            let model = path.into_value()?.into_inner().model;
            HandlerResponse::json(&flow::retrieve_model(&gateway, &caller, &model).await?)
        })
        .await)
    }
}

/// Answers a generation, also one that came by a path of Azure.
async fn answer_generation(
    context: ApiContext,
    body: JsonBody<types::ImageGenerationRequest>,
    azure: Option<AzurePath>,
) -> Result<TypedResponse<types::ImagesResponse>, ApiError> {
    Ok(run_handler(&context, async {
        let gateway = context.context().get();
        let (caller, options) = admit_image_request(&gateway, &context, azure).await?;
        let body = read_unless_stopped(&gateway, body.with_large_windows().read(options.admission())).await;
        let body = flow::count_if_refused(&gateway, &caller, body)?;
        let gateway_answer = Box::pin(flow::create_image(&gateway, caller, options, &body)).await?;
        to_handler_response(&context, &gateway, gateway_answer).await
    })
    .await)
}

/// Answers an edit, also one that came by a path of Azure.
async fn answer_edit(
    context: ApiContext,
    body: EditBody,
    azure: Option<AzurePath>,
) -> Result<TypedResponse<types::ImagesResponse>, ApiError> {
    Ok(run_handler(&context, async {
        let gateway = context.context().get();
        let (caller, options) = admit_image_request(&gateway, &context, azure).await?;
        flow::check_upload(&gateway, &caller, &options, "edit_image").await?;
        let names = FormNames { dialects: gateway.dialects(&caller), added: gateway.image_models().added_names() };
        let settings = FormSettings { names, downloader: gateway.image_downloader().cloned() };
        let reading = Box::pin(body.read(options.admission(), gateway.spool(), settings));
        let form = read_unless_stopped(&gateway, reading).await;
        let form = flow::count_if_refused(&gateway, &caller, form)?;
        let gateway_answer = Box::pin(flow::edit_image(&gateway, caller, options, form)).await?;
        to_handler_response(&context, &gateway, gateway_answer).await
    })
    .await)
}

/// Admits a request for images, and reads its options.
async fn admit_image_request(
    gateway: &Gateway,
    context: &ApiContext,
    azure: Option<AzurePath>,
) -> Result<(Caller, RequestOptions), Error> {
    let (caller, admission) = admit(gateway, context).await?;
    let options = match azure {
        Some(path) => azure::check_path(gateway, &caller, context).map(|()| path.deployment),
        None => Ok(None),
    }
    .and_then(|deployment| Ok(request_options(context, &admission)?.with_deployment(deployment)));
    let options = flow::count_if_refused(gateway, &caller, options)?;
    Ok((caller, options))
}

async fn to_handler_response(
    context: &ApiContext,
    gateway: &Gateway,
    gateway_answer: flow::GatewayAnswer,
) -> Result<HandlerResponse, HandlerError> {
    let kind = if gateway_answer.is_stream() { ResponseKind::Events } else { ResponseKind::Json };
    let answer = match (kind, context.request.version()) {
        (ResponseKind::Json, Version::HTTP_10) => {
            // HTTP/1.0 has no chunked encoding: the length must be known before the first byte is sent.
            let spooled = spool_response(gateway_answer.body, gateway.spool()).await.map_err(|error| {
                let adapted = gateway_answer.head.headers.get(ADAPTED_HEADER).map(String::as_str);
                HandlerError::from(error).with_header(ADAPTED_HEADER, adapted)
            })?;
            let length = spooled.remaining().to_string();
            let body = PacedBody::new(spooled, gateway.cutoff());
            HandlerResponse::streaming(kind, body).with_header("content-length", Some(&length))
        }
        _ => match gateway_answer.body {
            // Each body enforces the minimum rate and the cutoff by itself.
            GatewayAnswerBody::Live(body) if kind == ResponseKind::Json => {
                let gathered = GatheredBody::gather(body, |body| body.is_closing()).await;
                gathered.into_whole().map_or_else(|body| HandlerResponse::streaming(kind, body), HandlerResponse::whole)
            }
            GatewayAnswerBody::Live(body) => HandlerResponse::streaming(kind, body),
            GatewayAnswerBody::Early(stream) => HandlerResponse::streaming(kind, stream),
            GatewayAnswerBody::Stored(body) => HandlerResponse::streaming(kind, body),
            GatewayAnswerBody::Whole(body) => HandlerResponse::whole(body),
        },
    };
    Ok(answer.with_status(gateway_answer.head.status).with_headers(&gateway_answer.head.headers))
}

impl From<RequestFailure> for HandlerError {
    fn from(RequestFailure { error, adapted }: RequestFailure) -> Self {
        Self::from(error).with_header(ADAPTED_HEADER, adapted.as_deref())
    }
}

/// Reads the request, unless the gateway stops first. The caller can then safely repeat it, because no upstream was
/// called for it.
async fn read_unless_stopped<T>(
    gateway: &Gateway,
    reading: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::select! {
        read = reading => read,
        () = gateway.cutoff().cancelled() => Err(Error::Unavailable),
    }
}

fn request_options(context: &ApiContext, admission: &Admission) -> Result<RequestOptions, Error> {
    RequestOptions::from_headers(&context.request_id, context.request.headers(), admission)
}

/// Checks the key of a request, whose admission then counts for the owner of the key.
async fn admit(gateway: &Gateway, context: &ApiContext) -> Result<(Caller, Admission), Error> {
    let headers = context.request.headers();
    let caller = match (headers.get(AUTHORIZATION), headers.get(azure::KEY_HEADER)) {
        (None, Some(key)) => azure::admit(gateway, key.as_bytes()).await,
        (authorization, _) => flow::admit(gateway, authorization.map(http::HeaderValue::as_bytes)).await,
    }?;
    let admission = admission_of(context);
    admission.set_principal(Principal::of_key(caller.user(), caller.key()).with_work(caller.work().clone()));
    Ok((caller, admission))
}
