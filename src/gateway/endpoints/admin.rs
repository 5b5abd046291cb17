//! Implements the generated trait of the admin API. Each method authenticates the actor, makes one call to the console,
//! and converts the result to an HTTP response.

use std::sync::Arc;

use bytes::Bytes;
use dropshot::{Path, RequestContext};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::gateway::admission::{Admission, Principal};
use crate::gateway::console::Console;
use crate::gateway::flow;
use crate::gateway::front::{
    ApiError, ExtractorResult, HandlerResponse, JsonBody, Query, TypedResponse, admission_of, check_query, run_handler,
};
use crate::gateway::people::Actor;
use crate::gateway::work::{RequestWork, Work};
use crate::gateway::{CurrentGateway, Gateway};
use crate::wire::admin::server::{
    AdminApi, DeleteAccountPath, DeleteGroupPath, DeleteKeyPath, DeletePricePath, DeleteTokenPath, DisconnectUserPath,
    ListAlertsQuery, ListAuditQuery, ListKeysQuery, ListRecordsQuery, ListTokensQuery, ListUsersQuery,
    ResetUserFactorPath, ResetUserPath, RetrieveAccountPath, RetrieveGroupPath, RetrieveKeyPath, RetrieveRecordPath,
    RetrieveUsageQuery, RetrieveUserPath, RotateKeyPath, SignOutUserPath, TestAccountPath, UpdateAccountPath,
    UpdateGroupPath, UpdateKeyPath, UpdateUserPath,
};
use crate::wire::admin::types;

/// The type that implements the generated trait of the admin API. It has no values.
pub(super) enum AdminEndpoints {}

type AdminContext = RequestContext<CurrentGateway>;
type AdminApiError = ApiError<types::ErrorResponse>;

impl AdminApi for AdminEndpoints {
    type Context = CurrentGateway;

    async fn list_keys(
        context: AdminContext,
        query: Query<ListKeysQuery>,
    ) -> Result<TypedResponse<types::KeyList>, AdminApiError> {
        run_operation(&context, |console, actor| async move { console.list_keys(&actor, &query.parse()?).await }).await
    }

    async fn create_key(
        context: AdminContext,
        body: JsonBody<types::NewKey>,
    ) -> Result<TypedResponse<types::CreatedKey>, AdminApiError> {
        run_operation_with_body(&context, body, |console, actor, body| async move {
            console.create_key(&actor, &body).await
        })
        .await
    }

    async fn retrieve_key(
        context: AdminContext,
        path: ExtractorResult<Path<RetrieveKeyPath>>,
    ) -> Result<TypedResponse<types::Key>, AdminApiError> {
        run_operation(&context, |console, actor| async move {
            console.retrieve_key(&actor, &path.into_value()?.into_inner().id).await
        })
        .await
    }

    async fn update_key(
        context: AdminContext,
        path: ExtractorResult<Path<UpdateKeyPath>>,
        body: JsonBody<types::KeyUpdate>,
    ) -> Result<TypedResponse<types::Key>, AdminApiError> {
        run_operation_with_body(&context, body, |console, actor, body| async move {
            console.update_key(&actor, &path.into_value()?.into_inner().id, &body).await
        })
        .await
    }

    async fn delete_key(
        context: AdminContext,
        path: ExtractorResult<Path<DeleteKeyPath>>,
    ) -> Result<TypedResponse<types::DeletedKey>, AdminApiError> {
        run_operation(&context, |console, actor| async move {
            console.delete_key(&actor, &path.into_value()?.into_inner().id).await
        })
        .await
    }

    async fn rotate_key(
        context: AdminContext,
        path: ExtractorResult<Path<RotateKeyPath>>,
        body: JsonBody<types::KeyRotation>,
    ) -> Result<TypedResponse<types::CreatedKey>, AdminApiError> {
        run_operation_with_body(&context, body, |console, actor, body| async move {
            console.rotate_key(&actor, &path.into_value()?.into_inner().id, &body).await
        })
        .await
    }

    async fn list_users(
        context: AdminContext,
        query: Query<ListUsersQuery>,
    ) -> Result<TypedResponse<types::UserList>, AdminApiError> {
        run_operation(&context, |console, actor| async move { console.list_users(&actor, &query.parse()?).await }).await
    }

    async fn create_user(
        context: AdminContext,
        body: JsonBody<types::NewUser>,
    ) -> Result<TypedResponse<types::CreatedUser>, AdminApiError> {
        run_operation_with_body(&context, body, |console, actor, body| async move {
            console.create_user(&actor, &body).await
        })
        .await
    }

    async fn retrieve_user(
        context: AdminContext,
        path: ExtractorResult<Path<RetrieveUserPath>>,
    ) -> Result<TypedResponse<types::User>, AdminApiError> {
        run_operation(&context, |console, actor| async move {
            console.retrieve_user(&actor, &path.into_value()?.into_inner().id).await
        })
        .await
    }

    async fn update_user(
        context: AdminContext,
        path: ExtractorResult<Path<UpdateUserPath>>,
        body: JsonBody<types::UserUpdate>,
    ) -> Result<TypedResponse<types::User>, AdminApiError> {
        run_operation_with_body(&context, body, |console, actor, body| async move {
            console.update_user(&actor, &path.into_value()?.into_inner().id, &body).await
        })
        .await
    }

    async fn reset_user(
        context: AdminContext,
        path: ExtractorResult<Path<ResetUserPath>>,
    ) -> Result<TypedResponse<types::OneTimeLink>, AdminApiError> {
        run_operation(&context, |console, actor| async move {
            console.reset_user(&actor, &path.into_value()?.into_inner().id).await
        })
        .await
    }

    async fn reset_user_factor(
        context: AdminContext,
        path: ExtractorResult<Path<ResetUserFactorPath>>,
    ) -> Result<TypedResponse<types::User>, AdminApiError> {
        run_operation(&context, |console, actor| async move {
            console.reset_user_factor(&actor, &path.into_value()?.into_inner().id).await
        })
        .await
    }

    async fn disconnect_user(
        context: AdminContext,
        path: ExtractorResult<Path<DisconnectUserPath>>,
    ) -> Result<TypedResponse<types::User>, AdminApiError> {
        run_operation(&context, |console, actor| async move {
            console.disconnect_user(&actor, &path.into_value()?.into_inner().id).await
        })
        .await
    }

    async fn sign_out_user(
        context: AdminContext,
        path: ExtractorResult<Path<SignOutUserPath>>,
    ) -> Result<TypedResponse<types::User>, AdminApiError> {
        run_operation(&context, |console, actor| async move {
            console.sign_out_user(&actor, &path.into_value()?.into_inner().id).await
        })
        .await
    }

    async fn retrieve_me(context: AdminContext) -> Result<TypedResponse<types::Me>, AdminApiError> {
        run_operation(&context, |console, actor| async move { console.retrieve_me(&actor).await }).await
    }

    async fn list_tokens(
        context: AdminContext,
        query: Query<ListTokensQuery>,
    ) -> Result<TypedResponse<types::TokenList>, AdminApiError> {
        run_operation(&context, |console, actor| async move { console.list_tokens(&actor, &query.parse()?).await })
            .await
    }

    async fn create_token(
        context: AdminContext,
        body: JsonBody<types::NewToken>,
    ) -> Result<TypedResponse<types::CreatedToken>, AdminApiError> {
        run_operation_with_body(&context, body, |console, actor, body| async move {
            console.create_token(&actor, &body).await
        })
        .await
    }

    async fn delete_token(
        context: AdminContext,
        path: ExtractorResult<Path<DeleteTokenPath>>,
    ) -> Result<TypedResponse<types::DeletedToken>, AdminApiError> {
        run_operation(&context, |console, actor| async move {
            console.delete_token(&actor, &path.into_value()?.into_inner().id).await
        })
        .await
    }

    async fn list_groups(context: AdminContext) -> Result<TypedResponse<types::GroupList>, AdminApiError> {
        run_operation(&context, |console, actor| async move { console.list_groups(&actor).await }).await
    }

    async fn create_group(
        context: AdminContext,
        body: JsonBody<types::NewGroup>,
    ) -> Result<TypedResponse<types::Group>, AdminApiError> {
        run_operation_with_body(&context, body, |console, actor, body| async move {
            console.create_group(&actor, &body).await
        })
        .await
    }

    async fn retrieve_group(
        context: AdminContext,
        path: ExtractorResult<Path<RetrieveGroupPath>>,
    ) -> Result<TypedResponse<types::Group>, AdminApiError> {
        run_operation(&context, |console, actor| async move {
            console.retrieve_group(&actor, &path.into_value()?.into_inner().name).await
        })
        .await
    }

    async fn update_group(
        context: AdminContext,
        path: ExtractorResult<Path<UpdateGroupPath>>,
        body: JsonBody<types::GroupUpdate>,
    ) -> Result<TypedResponse<types::Group>, AdminApiError> {
        run_operation_with_body(&context, body, |console, actor, body| async move {
            console.update_group(&actor, &path.into_value()?.into_inner().name, &body).await
        })
        .await
    }

    async fn delete_group(
        context: AdminContext,
        path: ExtractorResult<Path<DeleteGroupPath>>,
    ) -> Result<TypedResponse<types::DeletedGroup>, AdminApiError> {
        run_operation(&context, |console, actor| async move {
            console.delete_group(&actor, &path.into_value()?.into_inner().name).await
        })
        .await
    }

    async fn list_alerts(
        context: AdminContext,
        query: Query<ListAlertsQuery>,
    ) -> Result<TypedResponse<types::AlertList>, AdminApiError> {
        run_operation(&context, |console, actor| async move { console.list_alerts(&actor, &query.parse()?).await })
            .await
    }

    async fn list_prices(context: AdminContext) -> Result<TypedResponse<types::PriceList>, AdminApiError> {
        run_operation(&context, |console, actor| async move { console.list_prices(&actor).await }).await
    }

    async fn set_price(
        context: AdminContext,
        body: JsonBody<types::NewPrice>,
    ) -> Result<TypedResponse<types::Price>, AdminApiError> {
        run_operation_with_body(
            &context,
            body,
            |console, actor, body| async move { console.set_price(&actor, &body).await },
        )
        .await
    }

    async fn delete_price(
        context: AdminContext,
        path: ExtractorResult<Path<DeletePricePath>>,
    ) -> Result<TypedResponse<types::DeletedPrice>, AdminApiError> {
        run_operation(&context, |console, actor| async move {
            let DeletePricePath { model, from } = path.into_value()?.into_inner();
            console.delete_price(&actor, &model, &from).await
        })
        .await
    }

    async fn list_records(
        context: AdminContext,
        query: Query<ListRecordsQuery>,
    ) -> Result<TypedResponse<types::RecordList>, AdminApiError> {
        run_operation(&context, |console, actor| async move { console.list_records(&actor, &query.parse()?).await })
            .await
    }

    async fn retrieve_record(
        context: AdminContext,
        path: ExtractorResult<Path<RetrieveRecordPath>>,
    ) -> Result<TypedResponse<types::Record>, AdminApiError> {
        run_operation(&context, |console, actor| async move {
            console.retrieve_record(&actor, &path.into_value()?.into_inner().request_id).await
        })
        .await
    }

    async fn retrieve_usage(
        context: AdminContext,
        query: Query<RetrieveUsageQuery>,
    ) -> Result<TypedResponse<types::Usage>, AdminApiError> {
        run_operation(&context, |console, actor| async move { console.retrieve_usage(&actor, &query.parse()?).await })
            .await
    }

    async fn list_audit(
        context: AdminContext,
        query: Query<ListAuditQuery>,
    ) -> Result<TypedResponse<types::AuditList>, AdminApiError> {
        run_operation(&context, |console, actor| async move { console.list_audit(&actor, &query.parse()?).await }).await
    }

    async fn list_accounts(context: AdminContext) -> Result<TypedResponse<types::AccountList>, AdminApiError> {
        run_operation(&context, |console, actor| async move { console.list_accounts(&actor).await }).await
    }

    async fn create_account(
        context: AdminContext,
        body: JsonBody<types::NewAccount>,
    ) -> Result<TypedResponse<types::Account>, AdminApiError> {
        run_operation_with_body(&context, body, |console, actor, body| async move {
            console.create_account(&actor, &body).await
        })
        .await
    }

    async fn retrieve_account(
        context: AdminContext,
        path: ExtractorResult<Path<RetrieveAccountPath>>,
    ) -> Result<TypedResponse<types::Account>, AdminApiError> {
        run_operation(&context, |console, actor| async move {
            console.retrieve_account(&actor, &path.into_value()?.into_inner().name).await
        })
        .await
    }

    async fn update_account(
        context: AdminContext,
        path: ExtractorResult<Path<UpdateAccountPath>>,
        body: JsonBody<types::AccountChange>,
    ) -> Result<TypedResponse<types::Account>, AdminApiError> {
        run_operation_with_body(&context, body, |console, actor, body| async move {
            console.update_account(&actor, &path.into_value()?.into_inner().name, &body).await
        })
        .await
    }

    async fn delete_account(
        context: AdminContext,
        path: ExtractorResult<Path<DeleteAccountPath>>,
    ) -> Result<TypedResponse<types::DeletedAccount>, AdminApiError> {
        run_operation(&context, |console, actor| async move {
            console.delete_account(&actor, &path.into_value()?.into_inner().name).await
        })
        .await
    }

    async fn test_account(
        context: AdminContext,
        path: ExtractorResult<Path<TestAccountPath>>,
    ) -> Result<TypedResponse<types::AccountTest>, AdminApiError> {
        run_operation(&context, |console, actor| async move {
            console.test_account(&actor, &path.into_value()?.into_inner().name).await
        })
        .await
    }
}

/// Authenticates the actor, calls the console, and returns the result with `Cache-Control: no-store`.
async fn run_operation<T: Serialize, F: Future<Output = Result<T, Error>>>(
    context: &AdminContext,
    operation: impl FnOnce(Arc<Console>, Actor) -> F,
) -> Result<TypedResponse<T>, AdminApiError> {
    let reply = run_handler(context, async {
        let gateway = context.context().get();
        let console = Arc::clone(gateway.console());
        let (actor, _) = admit(&gateway, context).await?;
        let work = actor.work().clone();
        charged_answer(&work, operation(console, actor).await)
    });
    Ok(reply.await.no_store())
}

/// Does the same as [`run_operation`] for an operation with a body, which is read after authentication.
async fn run_operation_with_body<T, B, F>(
    context: &AdminContext,
    body: JsonBody<B>,
    operation: impl FnOnce(Arc<Console>, Actor, Bytes) -> F,
) -> Result<TypedResponse<T>, AdminApiError>
where
    T: Serialize + Send + 'static,
    B: DeserializeOwned + JsonSchema + Send + Sync + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    let reply = run_handler(context, async {
        let gateway = context.context().get();
        let console = Arc::clone(gateway.console());
        let (actor, admission) = admit(&gateway, context).await?;
        let work = actor.work().clone();
        let body = body.read(&admission).await?;
        let answer = body.run_parsing(Box::pin(operation(console, actor, body.text().clone()))).await;
        charged_answer(&work, answer)
    });
    Ok(reply.await.no_store())
}

/// Returns the answer with the result of an operation, whose size is charged.
fn charged_answer<T: Serialize>(work: &RequestWork, result: Result<T, Error>) -> Result<HandlerResponse, Error> {
    let answer = HandlerResponse::json(&result.inspect_err(|_| work.charge(Work::Refusal))?)?;
    work.charge(Work::WrittenBytes(answer.body_bytes()));
    Ok(answer)
}

/// Authenticates the actor, and begins the work of the request. Query parameters are refused if the operation has none.
async fn admit(gateway: &Gateway, context: &AdminContext) -> Result<(Actor, Admission), Error> {
    let authorization = context.request.headers().get(AUTHORIZATION);
    let admission = admission_of(context);
    let authorization = authorization.map(HeaderValue::as_bytes);
    let actor = gateway.console().authenticate(authorization, admission.address()).await?;
    let work = flow::begin_of_actor(gateway, &actor)?;
    work.charge(Work::Operation);
    admission.set_principal(Principal::of_actor(actor.user().map(|user| &user.id)).with_work(work.clone()));
    check_query(context).inspect_err(|_| work.charge(Work::Refusal))?;
    Ok((actor.with_work(work), admission))
}
