//! Implements the trait of the operators, with the same four moves: admit, one call of the console, convert, return.

use std::sync::Arc;

use dropshot::{Path, RequestContext};
use http::HeaderValue;
use http::header::AUTHORIZATION;

use crate::error::Error;
use crate::gateway::Gateway;
use crate::gateway::console::{Console, Operator};
use crate::gateway::front::{Answer, ApiError, Captured, JsonBody, Reply, Unread, answer};
use crate::wire::admin::server::{AdminApi, DeleteAccountPath, RetrieveAccountPath, UpdateAccountPath};
use crate::wire::admin::types;

/// A place to hang the implementation, never a value.
pub(super) enum AdminEndpoints {}

type Context = RequestContext<Arc<Gateway>>;
type Refusal = ApiError<types::ErrorResponse>;

impl AdminApi for AdminEndpoints {
    type Context = Arc<Gateway>;

    async fn list_accounts(context: Context) -> Result<Reply<types::AccountList>, Refusal> {
        let reply = answer(&context, Unread::default(), async {
            let operator = admit(&context)?;
            Answer::json(&console(&context).list_accounts(&operator).await?)
        });
        Ok(reply.await.no_store())
    }

    async fn create_account(
        context: Context,
        body: JsonBody<types::NewAccount>,
    ) -> Result<Reply<types::Account>, Refusal> {
        let unread = body.unread();
        let reply = answer(&context, unread, async {
            let operator = admit(&context)?;
            let body = body.read(&operator).await?;
            Answer::json(&console(&context).create_account(&operator, &body).await?)
        });
        Ok(reply.await.no_store())
    }

    async fn retrieve_account(
        context: Context,
        path: Captured<Path<RetrieveAccountPath>>,
    ) -> Result<Reply<types::Account>, Refusal> {
        let reply = answer(&context, Unread::default(), async {
            let operator = admit(&context)?;
            let name = path.get()?.into_inner().name;
            Answer::json(&console(&context).retrieve_account(&operator, &name).await?)
        });
        Ok(reply.await.no_store())
    }

    async fn update_account(
        context: Context,
        path: Captured<Path<UpdateAccountPath>>,
        body: JsonBody<types::AccountChange>,
    ) -> Result<Reply<types::Account>, Refusal> {
        let unread = body.unread();
        let reply = answer(&context, unread, async {
            let operator = admit(&context)?;
            let name = path.get()?.into_inner().name;
            let body = body.read(&operator).await?;
            Answer::json(&console(&context).update_account(&operator, &name, &body).await?)
        });
        Ok(reply.await.no_store())
    }

    async fn delete_account(
        context: Context,
        path: Captured<Path<DeleteAccountPath>>,
    ) -> Result<Reply<types::DeletedAccount>, Refusal> {
        let reply = answer(&context, Unread::default(), async {
            let operator = admit(&context)?;
            let name = path.get()?.into_inner().name;
            Answer::json(&console(&context).delete_account(&operator, &name).await?)
        });
        Ok(reply.await.no_store())
    }
}

fn console(context: &Context) -> &Console {
    context.context().console()
}

fn admit(context: &Context) -> Result<Operator, Error> {
    let authorization = context.request.headers().get(AUTHORIZATION);
    console(context).admit(authorization.map(HeaderValue::as_bytes))
}
