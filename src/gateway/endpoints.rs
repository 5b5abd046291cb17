//! Implements the generated trait. Each method makes four moves: admit, one flow call, convert, return.
//!
//! No rule, no clock and no log stands here. [`Endpoints`] has no values: everything a method knows comes from the
//! context it is given.

use std::sync::Arc;

use dropshot::{ApiDescription, ApiDescriptionBuildErrors, Path, RequestContext};
use http::Version;
use http::header::AUTHORIZATION;

use super::Gateway;
use super::flow::{self, Verdict};
use super::front::{Answer, ApiError, Captured, EditBody, JsonBody, Kind, Reply, Unread, answer, hold};
use super::keys::Caller;
use crate::error::Error;
use crate::wire::server::{GatewayApi, RetrieveModelPath, gateway_api_mod};
use crate::wire::types;

/// A place to hang the implementation, never a value.
pub(crate) enum Endpoints {}

type Context = RequestContext<Arc<Gateway>>;

/// Every route of the document.
///
/// # Errors
///
/// Where two routes contradict each other.
pub(crate) fn description() -> Result<ApiDescription<Arc<Gateway>>, ApiDescriptionBuildErrors> {
    gateway_api_mod::api_description::<Endpoints>()
}

impl GatewayApi for Endpoints {
    type Context = Arc<Gateway>;

    async fn create_image(
        context: Context,
        body: JsonBody<types::ImageGenerationRequest>,
    ) -> Result<Reply<types::ImagesResponse>, ApiError> {
        let unread = body.unread();
        Ok(answer(&context, unread, async {
            let caller = admit(&context).await?;
            let body = body.read(&caller).await?;
            let made = flow::create_image(context.context(), caller, &context.request_id, &body).await?;
            image_answer(&context, made).await
        })
        .await)
    }

    async fn edit_image(context: Context, body: EditBody) -> Result<Reply<types::ImagesResponse>, ApiError> {
        let unread = body.unread();
        Ok(answer(&context, unread, async {
            let caller = admit(&context).await?;
            let form = body.read(&caller, context.context().spool()).await?;
            let made = flow::edit_image(context.context(), caller, &context.request_id, form).await?;
            image_answer(&context, made).await
        })
        .await)
    }

    async fn create_response(
        context: Context,
        body: JsonBody<types::ResponseRequest>,
    ) -> Result<Reply<types::Response>, ApiError> {
        let unread = body.unread();
        Ok(answer(&context, unread, async {
            admit(&context).await?;
            Err(Error::NotImplemented)
        })
        .await)
    }

    async fn list_models(context: Context) -> Result<Reply<types::ModelList>, ApiError> {
        Ok(answer(&context, Unread::default(), async {
            admit(&context).await?;
            Answer::json(&flow::list_models(context.context()))
        })
        .await)
    }

    async fn retrieve_model(
        context: Context,
        path: Captured<Path<RetrieveModelPath>>,
    ) -> Result<Reply<types::Model>, ApiError> {
        Ok(answer(&context, Unread::default(), async {
            admit(&context).await?;
            let model = path.get()?.into_inner().model;
            Answer::json(&flow::retrieve_model(context.context(), &model)?)
        })
        .await)
    }
}

async fn image_answer(context: &Context, made: flow::Made) -> Result<Answer, Error> {
    let verdict = match made.verdict {
        Verdict::Match => Some("match"),
        Verdict::Mismatch => Some("mismatch"),
        Verdict::Unknown => None,
    };
    let answer = match (made.stream, context.request.version()) {
        (true, _) => Answer::coming(Kind::Events, made.body),
        (false, Version::HTTP_10) => hold(Kind::Json, made.body, context.context().spool()).await?,
        (false, _) => Answer::coming(Kind::Json, made.body),
    };
    Ok(answer
        .with("x-imagate-simulated", made.simulated.then_some("true"))
        .with("x-imagate-delivered", made.delivered.as_deref())
        .with("x-imagate-delivery", verdict))
}

async fn admit(context: &Context) -> Result<Caller, Error> {
    let authorization = context.request.headers().get(AUTHORIZATION);
    flow::admit(context.context(), authorization.map(http::HeaderValue::as_bytes)).await
}
