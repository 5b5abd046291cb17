//! Implements the trait of the operators, with the same four moves: admit, one call of the console, convert, return.

use std::sync::Arc;

use bytes::Bytes;
use dropshot::{Path, RequestContext};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::address;
use crate::error::Error;
use crate::gateway::CurrentGateway;
use crate::gateway::console::Console;
use crate::gateway::front::{Answer, ApiError, Captured, JsonBody, Query, Reply, Unread, answer, check_query};
use crate::gateway::people::Actor;
use crate::wire::admin::server::{
    AdminApi, DeleteAccountPath, DeleteGroupPath, DeleteKeyPath, DeleteTokenPath, ListAuditQuery, ListKeysQuery,
    ListRecordsQuery, ListTokensQuery, ListUsersQuery, ResetUserPath, RetrieveAccountPath, RetrieveGroupPath,
    RetrieveKeyPath, RetrieveRecordPath, RetrieveUsageQuery, RetrieveUserPath, RotateKeyPath, SignOutUserPath,
    UpdateAccountPath, UpdateGroupPath, UpdateKeyPath, UpdateUserPath,
};
use crate::wire::admin::types;

/// A place to hang the implementation, never a value.
pub(super) enum AdminEndpoints {}

type Context = RequestContext<CurrentGateway>;
type Refusal = ApiError<types::ErrorResponse>;

impl AdminApi for AdminEndpoints {
    type Context = CurrentGateway;

    async fn list_keys(context: Context, query: Query<ListKeysQuery>) -> Result<Reply<types::KeyList>, Refusal> {
        told(&context, |console, actor| async move { console.list_keys(&actor, &query.get()?).await }).await
    }

    async fn create_key(context: Context, body: JsonBody<types::NewKey>) -> Result<Reply<types::CreatedKey>, Refusal> {
        told_of(&context, body, |console, actor, body| async move { console.create_key(&actor, &body).await }).await
    }

    async fn retrieve_key(
        context: Context,
        path: Captured<Path<RetrieveKeyPath>>,
    ) -> Result<Reply<types::Key>, Refusal> {
        told(&context, |console, actor| async move { console.retrieve_key(&actor, &path.get()?.into_inner().id).await })
            .await
    }

    async fn update_key(
        context: Context,
        path: Captured<Path<UpdateKeyPath>>,
        body: JsonBody<types::KeyUpdate>,
    ) -> Result<Reply<types::Key>, Refusal> {
        told_of(&context, body, |console, actor, body| async move {
            console.update_key(&actor, &path.get()?.into_inner().id, &body).await
        })
        .await
    }

    async fn delete_key(
        context: Context,
        path: Captured<Path<DeleteKeyPath>>,
    ) -> Result<Reply<types::DeletedKey>, Refusal> {
        told(&context, |console, actor| async move { console.delete_key(&actor, &path.get()?.into_inner().id).await })
            .await
    }

    async fn rotate_key(
        context: Context,
        path: Captured<Path<RotateKeyPath>>,
        body: JsonBody<types::KeyRotation>,
    ) -> Result<Reply<types::CreatedKey>, Refusal> {
        told_of(&context, body, |console, actor, body| async move {
            console.rotate_key(&actor, &path.get()?.into_inner().id, &body).await
        })
        .await
    }

    async fn list_users(context: Context, query: Query<ListUsersQuery>) -> Result<Reply<types::UserList>, Refusal> {
        told(&context, |console, actor| async move { console.list_users(&actor, &query.get()?).await }).await
    }

    async fn create_user(
        context: Context,
        body: JsonBody<types::NewUser>,
    ) -> Result<Reply<types::CreatedUser>, Refusal> {
        told_of(&context, body, |console, actor, body| async move { console.create_user(&actor, &body).await }).await
    }

    async fn retrieve_user(
        context: Context,
        path: Captured<Path<RetrieveUserPath>>,
    ) -> Result<Reply<types::User>, Refusal> {
        told(
            &context,
            |console, actor| async move { console.retrieve_user(&actor, &path.get()?.into_inner().id).await },
        )
        .await
    }

    async fn update_user(
        context: Context,
        path: Captured<Path<UpdateUserPath>>,
        body: JsonBody<types::UserUpdate>,
    ) -> Result<Reply<types::User>, Refusal> {
        told_of(&context, body, |console, actor, body| async move {
            console.update_user(&actor, &path.get()?.into_inner().id, &body).await
        })
        .await
    }

    async fn reset_user(
        context: Context,
        path: Captured<Path<ResetUserPath>>,
    ) -> Result<Reply<types::OneTimeLink>, Refusal> {
        told(&context, |console, actor| async move { console.reset_user(&actor, &path.get()?.into_inner().id).await })
            .await
    }

    async fn sign_out_user(
        context: Context,
        path: Captured<Path<SignOutUserPath>>,
    ) -> Result<Reply<types::User>, Refusal> {
        told(
            &context,
            |console, actor| async move { console.sign_out_user(&actor, &path.get()?.into_inner().id).await },
        )
        .await
    }

    async fn retrieve_me(context: Context) -> Result<Reply<types::Me>, Refusal> {
        told(&context, |console, actor| async move { console.retrieve_me(&actor).await }).await
    }

    async fn list_tokens(context: Context, query: Query<ListTokensQuery>) -> Result<Reply<types::TokenList>, Refusal> {
        told(&context, |console, actor| async move { console.list_tokens(&actor, &query.get()?).await }).await
    }

    async fn create_token(
        context: Context,
        body: JsonBody<types::NewToken>,
    ) -> Result<Reply<types::CreatedToken>, Refusal> {
        told_of(&context, body, |console, actor, body| async move { console.create_token(&actor, &body).await }).await
    }

    async fn delete_token(
        context: Context,
        path: Captured<Path<DeleteTokenPath>>,
    ) -> Result<Reply<types::DeletedToken>, Refusal> {
        told(&context, |console, actor| async move { console.delete_token(&actor, &path.get()?.into_inner().id).await })
            .await
    }

    async fn list_groups(context: Context) -> Result<Reply<types::GroupList>, Refusal> {
        told(&context, |console, actor| async move { console.list_groups(&actor).await }).await
    }

    async fn create_group(context: Context, body: JsonBody<types::NewGroup>) -> Result<Reply<types::Group>, Refusal> {
        told_of(&context, body, |console, actor, body| async move { console.create_group(&actor, &body).await }).await
    }

    async fn retrieve_group(
        context: Context,
        path: Captured<Path<RetrieveGroupPath>>,
    ) -> Result<Reply<types::Group>, Refusal> {
        told(
            &context,
            |console, actor| async move { console.retrieve_group(&actor, &path.get()?.into_inner().name).await },
        )
        .await
    }

    async fn update_group(
        context: Context,
        path: Captured<Path<UpdateGroupPath>>,
        body: JsonBody<types::GroupUpdate>,
    ) -> Result<Reply<types::Group>, Refusal> {
        told_of(&context, body, |console, actor, body| async move {
            console.update_group(&actor, &path.get()?.into_inner().name, &body).await
        })
        .await
    }

    async fn delete_group(
        context: Context,
        path: Captured<Path<DeleteGroupPath>>,
    ) -> Result<Reply<types::DeletedGroup>, Refusal> {
        told(
            &context,
            |console, actor| async move { console.delete_group(&actor, &path.get()?.into_inner().name).await },
        )
        .await
    }

    async fn list_records(
        context: Context,
        query: Query<ListRecordsQuery>,
    ) -> Result<Reply<types::RecordList>, Refusal> {
        told(&context, |console, actor| async move { console.list_records(&actor, &query.get()?).await }).await
    }

    async fn retrieve_record(
        context: Context,
        path: Captured<Path<RetrieveRecordPath>>,
    ) -> Result<Reply<types::Record>, Refusal> {
        told(&context, |console, actor| async move {
            console.retrieve_record(&actor, &path.get()?.into_inner().request_id).await
        })
        .await
    }

    async fn retrieve_usage(
        context: Context,
        query: Query<RetrieveUsageQuery>,
    ) -> Result<Reply<types::Usage>, Refusal> {
        told(&context, |console, actor| async move { console.retrieve_usage(&actor, &query.get()?).await }).await
    }

    async fn list_audit(context: Context, query: Query<ListAuditQuery>) -> Result<Reply<types::AuditList>, Refusal> {
        told(&context, |console, actor| async move { console.list_audit(&actor, &query.get()?).await }).await
    }

    async fn list_accounts(context: Context) -> Result<Reply<types::AccountList>, Refusal> {
        told(&context, |console, actor| async move { console.list_accounts(&actor).await }).await
    }

    async fn create_account(
        context: Context,
        body: JsonBody<types::NewAccount>,
    ) -> Result<Reply<types::Account>, Refusal> {
        told_of(&context, body, |console, actor, body| async move { console.create_account(&actor, &body).await }).await
    }

    async fn retrieve_account(
        context: Context,
        path: Captured<Path<RetrieveAccountPath>>,
    ) -> Result<Reply<types::Account>, Refusal> {
        told(&context, |console, actor| async move {
            console.retrieve_account(&actor, &path.get()?.into_inner().name).await
        })
        .await
    }

    async fn update_account(
        context: Context,
        path: Captured<Path<UpdateAccountPath>>,
        body: JsonBody<types::AccountChange>,
    ) -> Result<Reply<types::Account>, Refusal> {
        told_of(&context, body, |console, actor, body| async move {
            console.update_account(&actor, &path.get()?.into_inner().name, &body).await
        })
        .await
    }

    async fn delete_account(
        context: Context,
        path: Captured<Path<DeleteAccountPath>>,
    ) -> Result<Reply<types::DeletedAccount>, Refusal> {
        told(
            &context,
            |console, actor| async move { console.delete_account(&actor, &path.get()?.into_inner().name).await },
        )
        .await
    }
}

/// What the console says to somebody who was let in. Nobody on the way may keep it.
async fn told<T: Serialize, F: Future<Output = Result<T, Error>>>(
    context: &Context,
    work: impl FnOnce(Arc<Console>, Actor) -> F,
) -> Result<Reply<T>, Refusal> {
    let reply = answer(context, Unread::default(), async {
        let gateway = context.context().get();
        let console = Arc::clone(gateway.console());
        let actor = admit(&console, context).await?;
        Answer::json(&work(console, actor).await?)
    });
    Ok(reply.await.no_store())
}

/// The same of a body, which is read after somebody was let in.
async fn told_of<T: Serialize, B: DeserializeOwned, F: Future<Output = Result<T, Error>>>(
    context: &Context,
    body: JsonBody<B>,
    work: impl FnOnce(Arc<Console>, Actor, Bytes) -> F,
) -> Result<Reply<T>, Refusal> {
    let reply = answer(context, body.unread(), async {
        let gateway = context.context().get();
        let console = Arc::clone(gateway.console());
        let actor = admit(&console, context).await?;
        let body = body.read(&actor, gateway.spool()).await?;
        Answer::json(&work(console, actor, body).await?)
    });
    Ok(reply.await.no_store())
}

/// Who is asking. Where an operation has no query parameters, nothing may stand in their place.
async fn admit(console: &Console, context: &Context) -> Result<Actor, Error> {
    let authorization = context.request.headers().get(AUTHORIZATION);
    let address = address(context);
    let actor = console.admit(authorization.map(HeaderValue::as_bytes), address).await?;
    check_query(context)?;
    Ok(actor)
}
