//! Answers generations and edits, also those that came by a path of Azure, and converts the answers of the request flow.

use http::Version;

use super::caller_admission::{ApiRequest, admit, read_unless_stopped};
use crate::error::{Error, MissingResource};
use crate::gateway::Gateway;
use crate::gateway::admission::Admission;
use crate::gateway::config::Dialect;
use crate::gateway::flow::{self, ADAPTED_HEADER, GatewayAnswerBody, OperationAnswer, RequestFailure, RequestOptions};
use crate::gateway::front::{
    EditBody, FormNames, FormSettings, GatheredBody, HandlerError, HandlerResponse, JsonBody, ResponseKind,
    TypedResponse, run_handler, spool_response,
};
use crate::gateway::keys::Caller;
use crate::gateway::relay::PacedBody;
use crate::wire::types;

/// A path of Azure.
pub(super) struct AzurePath {
    /// The name of the deployment, which stands for the model if the body names none.
    pub(super) deployment: Option<String>,
}

/// Answers a generation, also one that came by a path of Azure.
pub(super) async fn answer_generation(
    head: ApiRequest,
    body: JsonBody<types::ImageGenerationRequest>,
    azure: Option<AzurePath>,
) -> TypedResponse<types::ImagesResponse> {
    run_handler(&head, async {
        let gateway = head.server().get();
        let (caller, options) = admit_image_request(&gateway, &head, azure).await?;
        let body = read_unless_stopped(&gateway, body.with_large_windows().read(options.admission())).await;
        let body = flow::count_if_refused(&gateway.images.keys, &caller, body)?;
        let answer = Box::pin(flow::create_image(&gateway.images, caller, options, &body)).await?;
        to_handler_response(&head, &gateway, answer).await
    })
    .await
}

/// Answers an edit, also one that came by a path of Azure.
pub(super) async fn answer_edit(
    head: ApiRequest,
    body: EditBody,
    azure: Option<AzurePath>,
) -> TypedResponse<types::ImagesResponse> {
    run_handler(&head, async {
        let gateway = head.server().get();
        let (caller, options) = admit_image_request(&gateway, &head, azure).await?;
        flow::check_upload(&gateway.images, &caller, &options, "edit_image").await?;
        let names = FormNames { dialects: caller.dialects(), added: gateway.settings().image_models.added_names() };
        let settings = FormSettings { names, downloader: gateway.settings().image_downloader.clone() };
        let reading = Box::pin(body.read(options.admission(), &gateway.images.spool, settings));
        let form = read_unless_stopped(&gateway, reading).await;
        let form = flow::count_if_refused(&gateway.images.keys, &caller, form)?;
        let answer = Box::pin(flow::edit_image(&gateway.images, caller, options, form)).await?;
        to_handler_response(&head, &gateway, answer).await
    })
    .await
}

/// Admits a request for images, and reads its options.
async fn admit_image_request(
    gateway: &Gateway,
    head: &ApiRequest,
    azure: Option<AzurePath>,
) -> Result<(Caller, RequestOptions), Error> {
    let (caller, admission) = admit(gateway, head).await?;
    let options = match azure {
        Some(path) => check_path(&caller, head).map(|()| path.deployment),
        None => Ok(None),
    }
    .and_then(|deployment| Ok(request_options(head, &admission)?.with_deployment(deployment)));
    let options = flow::count_if_refused(&gateway.images.keys, &caller, options)?;
    Ok((caller, options))
}

pub(super) async fn to_handler_response<T>(
    head: &ApiRequest,
    gateway: &Gateway,
    operation_answer: OperationAnswer<T>,
) -> Result<HandlerResponse<T>, HandlerError> {
    let OperationAnswer { answer: gateway_answer, schema } = operation_answer;
    let kind = if gateway_answer.is_stream() { ResponseKind::Events } else { ResponseKind::Json };
    let answer = match (kind, head.version()) {
        (ResponseKind::Json, Version::HTTP_10) => {
            // HTTP/1.0 has no chunked encoding: the length must be known before the first byte is sent.
            let spooled = spool_response(gateway_answer.body, &gateway.images.spool).await.map_err(|error| {
                let adapted = gateway_answer.head.headers.get(ADAPTED_HEADER).map(String::as_str);
                HandlerError::from(error).with_header(ADAPTED_HEADER, adapted)
            })?;
            let length = spooled.remaining().to_string();
            let body = PacedBody::new(spooled, &gateway.images.cutoff);
            HandlerResponse::streaming(schema, kind, body).with_header("content-length", Some(&length))
        }
        _ => match gateway_answer.body {
            // Each body enforces the minimum rate and the cutoff by itself.
            GatewayAnswerBody::Live(body) if kind == ResponseKind::Json => {
                match GatheredBody::gather(body, |body| body.is_closing()).await.into_whole() {
                    Ok(whole) => HandlerResponse::whole(schema, whole),
                    Err(body) => HandlerResponse::streaming(schema, kind, body),
                }
            }
            GatewayAnswerBody::Live(body) => HandlerResponse::streaming(schema, kind, body),
            GatewayAnswerBody::Early(stream) => HandlerResponse::streaming(schema, kind, stream),
            GatewayAnswerBody::Stored(body) => HandlerResponse::streaming(schema, kind, body),
            GatewayAnswerBody::Whole(body) => HandlerResponse::whole(schema, body),
        },
    };
    Ok(answer.with_status(gateway_answer.head.status).with_headers(&gateway_answer.head.headers))
}

impl From<RequestFailure> for HandlerError {
    fn from(RequestFailure { error, adapted }: RequestFailure) -> Self {
        Self::from(error).with_header(ADAPTED_HEADER, adapted.as_deref())
    }
}

/// Checks that the caller may use the paths of Azure.
///
/// # Errors
///
/// Returns 404 that names the dialect.
fn check_path(caller: &Caller, head: &ApiRequest) -> Result<(), Error> {
    if caller.dialects().contains(Dialect::Azure) {
        return Ok(());
    }
    let (method, path) = (head.method().to_string(), head.uri().path().to_owned());
    Err(Error::NotFound(MissingResource::UndeclaredUrl { method, path }))
}

pub(super) fn request_options(head: &ApiRequest, admission: &Admission) -> Result<RequestOptions, Error> {
    RequestOptions::from_headers(head.request_id(), head.headers(), admission)
}
