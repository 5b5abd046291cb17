//! Implements the generated trait. Each method makes four moves: admit, one flow call, convert, return.
//!
//! No rule, no clock and no log stands here. [`Endpoints`] has no values: everything a method knows comes from the
//! context it is given.

mod admin;
mod health;
mod pages;
mod skills;

use std::net::IpAddr;
use std::sync::Arc;

use dropshot::{ApiDescription, ApiDescriptionRegisterError, Path, RequestContext};
use http::header::AUTHORIZATION;
use http::{HeaderName, Version};

use super::Gateway;
use super::flow::{self, Ask};
use super::front::{
    Answer, ApiError, Captured, EditBody, JsonBody, Kind, Reply, Unread, answer, hold, refuse_the_rest,
};
use super::keys::Caller;
use crate::error::Error;
use crate::wire::admin::server as admin_server;
use crate::wire::server::{self, GatewayApi, RetrieveModelPath};
use crate::wire::types;
use admin::AdminEndpoints;
pub(crate) use health::description as measuring;

/// A place to hang the implementation, never a value.
pub(crate) enum Endpoints {}

type Context = RequestContext<Arc<Gateway>>;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Every route of both documents, and the pages.
///
/// # Errors
///
/// Where two routes contradict each other.
pub(crate) fn description() -> Result<ApiDescription<Arc<Gateway>>, ApiDescriptionRegisterError> {
    let mut api = ApiDescription::new();
    server::register::<Endpoints>(&mut api)?;
    admin_server::register::<AdminEndpoints>(&mut api)?;
    pages::register(&mut api)?;
    health::register(&mut api)?;
    skills::register(&mut api)?;
    refuse_the_rest(&mut api)?;
    Ok(api)
}

/// The address from which somebody is calling.
fn address(context: &Context) -> IpAddr {
    let request = &context.request;
    // A value that is no text names nobody.
    let forwarded = request.headers().get_all(FORWARDED_FOR).iter().map(|value| value.to_str().unwrap_or_default());
    context.context().trusted_proxies().caller(request.remote_addr().ip(), forwarded)
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
            let ask = ask(&context)?;
            let body = body.read(&caller).await?;
            let made = flow::create_image(context.context(), caller, ask, &body).await?;
            image_answer(&context, made).await
        })
        .await)
    }

    async fn edit_image(context: Context, body: EditBody) -> Result<Reply<types::ImagesResponse>, ApiError> {
        let unread = body.unread();
        Ok(answer(&context, unread, async {
            let caller = admit(&context).await?;
            let ask = ask(&context)?;
            let form = body.read(&caller, context.context().spool()).await?;
            let made = flow::edit_image(context.context(), caller, ask, form).await?;
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
            let caller = admit(&context).await?;
            let body = body.keep(&caller, context.context().spool()).await?;
            let headers = context.request.headers();
            let made =
                Box::pin(flow::create_response(context.context(), caller, &context.request_id, headers, body)).await?;
            image_answer(&context, made).await
        })
        .await)
    }

    async fn list_models(context: Context) -> Result<Reply<types::ModelList>, ApiError> {
        Ok(answer(&context, Unread::default(), async {
            let caller = admit(&context).await?;
            Answer::json(&flow::list_models(context.context(), &caller).await)
        })
        .await)
    }

    async fn retrieve_model(
        context: Context,
        path: Captured<Path<RetrieveModelPath>>,
    ) -> Result<Reply<types::Model>, ApiError> {
        Ok(answer(&context, Unread::default(), async {
            let caller = admit(&context).await?;
            let model = path.get()?.into_inner().model;
            Answer::json(&flow::retrieve_model(context.context(), &caller, &model).await?)
        })
        .await)
    }
}

async fn image_answer(context: &Context, made: flow::Made) -> Result<Answer, Error> {
    let kind = if made.is_stream() { Kind::Events } else { Kind::Json };
    let answer = match (kind, context.request.version()) {
        (Kind::Json, Version::HTTP_10) => hold(kind, made.body, context.context().spool()).await?,
        _ => Answer::coming(kind, made.body),
    };
    Ok(answer.with_status(made.head.status).with_all(&made.head.headers))
}

fn ask(context: &Context) -> Result<Ask, Error> {
    Ask::read(&context.request_id, context.request.headers())
}

async fn admit(context: &Context) -> Result<Caller, Error> {
    let authorization = context.request.headers().get(AUTHORIZATION);
    flow::admit(context.context(), authorization.map(http::HeaderValue::as_bytes)).await
}
