//! Implements the generated trait. Each method makes four moves: admit, one flow call, convert, return.
//!
//! No rule, no clock and no log stands here. [`Endpoints`] has no values: everything a method knows comes from the
//! context it is given.

mod admin;
mod health;
mod pages;
mod skills;

use std::net::IpAddr;

use dropshot::{ApiDescription, ApiDescriptionRegisterError, Path, RequestContext};
use http::header::AUTHORIZATION;
use http::{HeaderName, Version};

use super::flow::{self, Ask, MadeBody};
use super::front::{Answer, ApiError, Captured, EditBody, JsonBody, Kind, Reply, Unread, answer, hold};
use super::keys::Caller;
use super::relay::PacedBody;
use super::{CurrentGateway, Gateway};
use crate::error::Error;
use crate::wire::admin::server as admin_server;
use crate::wire::server::{self, GatewayApi, RetrieveModelPath};
use crate::wire::types;
use admin::AdminEndpoints;
pub(crate) use health::description as measuring;

/// A place to hang the implementation, never a value.
pub(crate) enum Endpoints {}

type Context = RequestContext<CurrentGateway>;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Every route of both documents, and the pages.
///
/// # Errors
///
/// Where two routes contradict each other.
pub(crate) fn description() -> Result<ApiDescription<CurrentGateway>, ApiDescriptionRegisterError> {
    let mut api = ApiDescription::new();
    server::register::<Endpoints>(&mut api)?;
    admin_server::register::<AdminEndpoints>(&mut api)?;
    pages::register(&mut api)?;
    health::register(&mut api)?;
    skills::register(&mut api)?;
    Ok(api)
}

/// The address from which somebody is calling.
fn address(context: &Context) -> IpAddr {
    let request = &context.request;
    // A value that is no text names nobody.
    let forwarded = request.headers().get_all(FORWARDED_FOR).iter().map(|value| value.to_str().unwrap_or_default());
    context.context().get().trusted_proxies().caller(request.remote_addr().ip(), forwarded)
}

impl GatewayApi for Endpoints {
    type Context = CurrentGateway;

    async fn create_image(
        context: Context,
        body: JsonBody<types::ImageGenerationRequest>,
    ) -> Result<Reply<types::ImagesResponse>, ApiError> {
        let unread = body.unread();
        Ok(answer(&context, unread, async {
            let gateway = context.context().get();
            let caller = admit(&gateway, &context).await?;
            let ask = flow::counted(&gateway, &caller, ask(&context))?;
            let body = unless_cut(&gateway, body.read(&caller, gateway.spool())).await;
            let body = flow::counted(&gateway, &caller, body)?;
            let made = flow::create_image(&gateway, caller, ask, &body).await?;
            image_answer(&context, &gateway, made).await
        })
        .await)
    }

    async fn edit_image(context: Context, body: EditBody) -> Result<Reply<types::ImagesResponse>, ApiError> {
        let unread = body.unread();
        Ok(answer(&context, unread, async {
            let gateway = context.context().get();
            let caller = admit(&gateway, &context).await?;
            let ask = flow::counted(&gateway, &caller, ask(&context))?;
            let reading = Box::pin(body.read(&caller, gateway.spool()));
            let form = unless_cut(&gateway, reading).await;
            let form = flow::counted(&gateway, &caller, form)?;
            let made = flow::edit_image(&gateway, caller, ask, form).await?;
            image_answer(&context, &gateway, made).await
        })
        .await)
    }

    async fn create_response(
        context: Context,
        body: JsonBody<types::ResponseRequest>,
    ) -> Result<Reply<types::Response>, ApiError> {
        let unread = body.unread();
        Ok(answer(&context, unread, async {
            let gateway = context.context().get();
            let caller = admit(&gateway, &context).await?;
            let ask = flow::counted(&gateway, &caller, ask(&context))?;
            let body = unless_cut(&gateway, body.keep(&caller, gateway.spool())).await;
            let body = flow::counted(&gateway, &caller, body)?;
            let headers = context.request.headers();
            let made = flow::create_response(&gateway, caller, ask, headers, body).await?;
            image_answer(&context, &gateway, made).await
        })
        .await)
    }

    async fn list_models(context: Context) -> Result<Reply<types::ModelList>, ApiError> {
        Ok(answer(&context, Unread::default(), async {
            let gateway = context.context().get();
            let caller = admit(&gateway, &context).await?;
            Answer::json(&flow::list_models(&gateway, &caller).await)
        })
        .await)
    }

    async fn retrieve_model(
        context: Context,
        path: Captured<Path<RetrieveModelPath>>,
    ) -> Result<Reply<types::Model>, ApiError> {
        Ok(answer(&context, Unread::default(), async {
            let gateway = context.context().get();
            let caller = admit(&gateway, &context).await?;
            let model = path.get()?.into_inner().model;
            Answer::json(&flow::retrieve_model(&gateway, &caller, &model).await?)
        })
        .await)
    }
}

async fn image_answer(context: &Context, gateway: &Gateway, made: flow::Made) -> Result<Answer, Error> {
    let kind = if made.is_stream() { Kind::Events } else { Kind::Json };
    let answer = match (kind, context.request.version()) {
        (Kind::Json, Version::HTTP_10) => {
            let held = hold(made.body, gateway.spool()).await?;
            let length = held.length().to_string();
            let body = PacedBody::new(held, gateway.cutoff());
            Answer::coming(kind, body).with("content-length", Some(&length))
        }
        _ => match made.body {
            // Each keeps to the least rate and to the cutoff by itself.
            MadeBody::Live(body) => Answer::coming(kind, body),
            MadeBody::Early(stream) => Answer::coming(kind, stream),
            MadeBody::Followed(body) => Answer::coming(kind, body),
        },
    };
    Ok(answer.with_status(made.head.status).with_all(&made.head.headers))
}

/// Reads the request, unless the gateway stops first, when nothing was spent for it.
async fn unless_cut<T>(gateway: &Gateway, read: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::select! {
        read = read => read,
        () = gateway.cutoff().cancelled() => Err(Error::Unavailable),
    }
}

fn ask(context: &Context) -> Result<Ask, Error> {
    Ask::read(&context.request_id, context.request.headers())
}

async fn admit(gateway: &Gateway, context: &Context) -> Result<Caller, Error> {
    let authorization = context.request.headers().get(AUTHORIZATION);
    flow::admit(gateway, authorization.map(http::HeaderValue::as_bytes)).await
}
