//! Implements the generated trait of the admin API. Each method authenticates the actor, makes one call to the console,
//! and converts the result to an HTTP response.
//!
//! Two servers have these methods: the gateway, and a command that has opened the store ([`AdminServer`]).

use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::gateway::CurrentGateway;
use crate::gateway::admission::Principal;
use crate::gateway::console::Console;
use crate::gateway::flow;
use crate::gateway::front::{
    AdmittingServer, HandlerResponse, JsonBody, PathParameters, Query, RequestHead, ResponseCounter, TypedResponse,
    check_query, run_handler,
};
use crate::gateway::people::Actor;
use crate::gateway::work::{RequestWork, Work};
use crate::wire::admin::server::{
    AdminApi, DeleteAccountPath, DeleteGroupPath, DeleteKeyPath, DeletePricePath, DeleteTokenPath, DisconnectUserPath,
    ListAlertsQuery, ListAuditQuery, ListKeysQuery, ListRecordsQuery, ListTokensQuery, ListUsersQuery,
    ResetUserFactorPath, ResetUserPath, RetrieveAccountPath, RetrieveGroupPath, RetrieveKeyPath, RetrieveRecordPath,
    RetrieveUsageQuery, RetrieveUserPath, RotateKeyPath, SignOutUserPath, TestAccountPath, UpdateAccountPath,
    UpdateGroupPath, UpdateKeyPath, UpdateUserPath,
};
use crate::wire::admin::types;

/// The type that implements the generated trait of the admin API for a server. It has no values.
pub(super) struct AdminEndpoints<S>(PhantomData<S>);

/// A server of the admin API.
pub(super) trait AdminServer: AdmittingServer + ResponseCounter {
    /// Authenticates the actor of a request, and begins the work of the request. Returns the console that answers.
    fn admit_actor(
        &self,
        authorization: Option<&[u8]>,
        address: IpAddr,
    ) -> impl Future<Output = Result<(Arc<Console>, Actor), Error>> + Send;
}

type AdminRequest<S> = RequestHead<S>;

impl AdminServer for CurrentGateway {
    async fn admit_actor(&self, authorization: Option<&[u8]>, address: IpAddr) -> Result<(Arc<Console>, Actor), Error> {
        let gateway = self.get();
        let actor = gateway.console().authenticate(authorization, address).await?;
        let work = flow::begin_of_actor(&gateway, &actor)?;
        Ok((Arc::clone(gateway.console()), actor.with_work(work)))
    }
}

impl<S: AdminServer> AdminApi for AdminEndpoints<S> {
    type Context = S;

    async fn list_keys(head: AdminRequest<S>, query: Query<ListKeysQuery>) -> TypedResponse<types::KeyList> {
        run_operation(&head, |console, actor| async move { console.list_keys(&actor, &query.parse()?).await }).await
    }

    async fn create_key(head: AdminRequest<S>, body: JsonBody<types::NewKey>) -> TypedResponse<types::CreatedKey> {
        run_operation_with_body(
            &head,
            body,
            |console, actor, body| async move { console.create_key(&actor, &body).await },
        )
        .await
    }

    async fn retrieve_key(head: AdminRequest<S>, path: PathParameters<RetrieveKeyPath>) -> TypedResponse<types::Key> {
        run_operation(&head, |console, actor| async move { console.retrieve_key(&actor, &path.into_value()?.id).await })
            .await
    }

    async fn update_key(
        head: AdminRequest<S>,
        path: PathParameters<UpdateKeyPath>,
        body: JsonBody<types::KeyUpdate>,
    ) -> TypedResponse<types::Key> {
        run_operation_with_body(&head, body, |console, actor, body| async move {
            console.update_key(&actor, &path.into_value()?.id, &body).await
        })
        .await
    }

    async fn delete_key(
        head: AdminRequest<S>,
        path: PathParameters<DeleteKeyPath>,
    ) -> TypedResponse<types::DeletedKey> {
        run_operation(&head, |console, actor| async move { console.delete_key(&actor, &path.into_value()?.id).await })
            .await
    }

    async fn rotate_key(
        head: AdminRequest<S>,
        path: PathParameters<RotateKeyPath>,
        body: JsonBody<types::KeyRotation>,
    ) -> TypedResponse<types::CreatedKey> {
        run_operation_with_body(&head, body, |console, actor, body| async move {
            console.rotate_key(&actor, &path.into_value()?.id, &body).await
        })
        .await
    }

    async fn list_users(head: AdminRequest<S>, query: Query<ListUsersQuery>) -> TypedResponse<types::UserList> {
        run_operation(&head, |console, actor| async move { console.list_users(&actor, &query.parse()?).await }).await
    }

    async fn create_user(head: AdminRequest<S>, body: JsonBody<types::NewUser>) -> TypedResponse<types::CreatedUser> {
        run_operation_with_body(
            &head,
            body,
            |console, actor, body| async move { console.create_user(&actor, &body).await },
        )
        .await
    }

    async fn retrieve_user(
        head: AdminRequest<S>,
        path: PathParameters<RetrieveUserPath>,
    ) -> TypedResponse<types::User> {
        run_operation(
            &head,
            |console, actor| async move { console.retrieve_user(&actor, &path.into_value()?.id).await },
        )
        .await
    }

    async fn update_user(
        head: AdminRequest<S>,
        path: PathParameters<UpdateUserPath>,
        body: JsonBody<types::UserUpdate>,
    ) -> TypedResponse<types::User> {
        run_operation_with_body(&head, body, |console, actor, body| async move {
            console.update_user(&actor, &path.into_value()?.id, &body).await
        })
        .await
    }

    async fn reset_user(
        head: AdminRequest<S>,
        path: PathParameters<ResetUserPath>,
    ) -> TypedResponse<types::OneTimeLink> {
        run_operation(&head, |console, actor| async move { console.reset_user(&actor, &path.into_value()?.id).await })
            .await
    }

    async fn reset_user_factor(
        head: AdminRequest<S>,
        path: PathParameters<ResetUserFactorPath>,
    ) -> TypedResponse<types::User> {
        run_operation(
            &head,
            |console, actor| async move { console.reset_user_factor(&actor, &path.into_value()?.id).await },
        )
        .await
    }

    async fn disconnect_user(
        head: AdminRequest<S>,
        path: PathParameters<DisconnectUserPath>,
    ) -> TypedResponse<types::User> {
        run_operation(
            &head,
            |console, actor| async move { console.disconnect_user(&actor, &path.into_value()?.id).await },
        )
        .await
    }

    async fn sign_out_user(head: AdminRequest<S>, path: PathParameters<SignOutUserPath>) -> TypedResponse<types::User> {
        run_operation(
            &head,
            |console, actor| async move { console.sign_out_user(&actor, &path.into_value()?.id).await },
        )
        .await
    }

    async fn retrieve_me(head: AdminRequest<S>) -> TypedResponse<types::Me> {
        run_operation(&head, |console, actor| async move { console.retrieve_me(&actor).await }).await
    }

    async fn list_tokens(head: AdminRequest<S>, query: Query<ListTokensQuery>) -> TypedResponse<types::TokenList> {
        run_operation(&head, |console, actor| async move { console.list_tokens(&actor, &query.parse()?).await }).await
    }

    async fn create_token(
        head: AdminRequest<S>,
        body: JsonBody<types::NewToken>,
    ) -> TypedResponse<types::CreatedToken> {
        run_operation_with_body(
            &head,
            body,
            |console, actor, body| async move { console.create_token(&actor, &body).await },
        )
        .await
    }

    async fn delete_token(
        head: AdminRequest<S>,
        path: PathParameters<DeleteTokenPath>,
    ) -> TypedResponse<types::DeletedToken> {
        run_operation(&head, |console, actor| async move { console.delete_token(&actor, &path.into_value()?.id).await })
            .await
    }

    async fn list_groups(head: AdminRequest<S>) -> TypedResponse<types::GroupList> {
        run_operation(&head, |console, actor| async move { console.list_groups(&actor).await }).await
    }

    async fn create_group(head: AdminRequest<S>, body: JsonBody<types::NewGroup>) -> TypedResponse<types::Group> {
        run_operation_with_body(
            &head,
            body,
            |console, actor, body| async move { console.create_group(&actor, &body).await },
        )
        .await
    }

    async fn retrieve_group(
        head: AdminRequest<S>,
        path: PathParameters<RetrieveGroupPath>,
    ) -> TypedResponse<types::Group> {
        run_operation(
            &head,
            |console, actor| async move { console.retrieve_group(&actor, &path.into_value()?.name).await },
        )
        .await
    }

    async fn update_group(
        head: AdminRequest<S>,
        path: PathParameters<UpdateGroupPath>,
        body: JsonBody<types::GroupUpdate>,
    ) -> TypedResponse<types::Group> {
        run_operation_with_body(&head, body, |console, actor, body| async move {
            console.update_group(&actor, &path.into_value()?.name, &body).await
        })
        .await
    }

    async fn delete_group(
        head: AdminRequest<S>,
        path: PathParameters<DeleteGroupPath>,
    ) -> TypedResponse<types::DeletedGroup> {
        run_operation(
            &head,
            |console, actor| async move { console.delete_group(&actor, &path.into_value()?.name).await },
        )
        .await
    }

    async fn list_alerts(head: AdminRequest<S>, query: Query<ListAlertsQuery>) -> TypedResponse<types::AlertList> {
        run_operation(&head, |console, actor| async move { console.list_alerts(&actor, &query.parse()?).await }).await
    }

    async fn list_prices(head: AdminRequest<S>) -> TypedResponse<types::PriceList> {
        run_operation(&head, |console, actor| async move { console.list_prices(&actor).await }).await
    }

    async fn set_price(head: AdminRequest<S>, body: JsonBody<types::NewPrice>) -> TypedResponse<types::Price> {
        run_operation_with_body(
            &head,
            body,
            |console, actor, body| async move { console.set_price(&actor, &body).await },
        )
        .await
    }

    async fn delete_price(
        head: AdminRequest<S>,
        path: PathParameters<DeletePricePath>,
    ) -> TypedResponse<types::DeletedPrice> {
        run_operation(&head, |console, actor| async move {
            let DeletePricePath { model, from } = path.into_value()?;
            console.delete_price(&actor, &model, &from).await
        })
        .await
    }

    async fn list_records(head: AdminRequest<S>, query: Query<ListRecordsQuery>) -> TypedResponse<types::RecordList> {
        run_operation(&head, |console, actor| async move { console.list_records(&actor, &query.parse()?).await }).await
    }

    async fn retrieve_record(
        head: AdminRequest<S>,
        path: PathParameters<RetrieveRecordPath>,
    ) -> TypedResponse<types::Record> {
        run_operation(&head, |console, actor| async move {
            console.retrieve_record(&actor, &path.into_value()?.request_id).await
        })
        .await
    }

    async fn retrieve_usage(head: AdminRequest<S>, query: Query<RetrieveUsageQuery>) -> TypedResponse<types::Usage> {
        run_operation(&head, |console, actor| async move { console.retrieve_usage(&actor, &query.parse()?).await })
            .await
    }

    async fn list_audit(head: AdminRequest<S>, query: Query<ListAuditQuery>) -> TypedResponse<types::AuditList> {
        run_operation(&head, |console, actor| async move { console.list_audit(&actor, &query.parse()?).await }).await
    }

    async fn list_accounts(head: AdminRequest<S>) -> TypedResponse<types::AccountList> {
        run_operation(&head, |console, actor| async move { console.list_accounts(&actor).await }).await
    }

    async fn create_account(head: AdminRequest<S>, body: JsonBody<types::NewAccount>) -> TypedResponse<types::Account> {
        run_operation_with_body(&head, body, |console, actor, body| async move {
            console.create_account(&actor, &body).await
        })
        .await
    }

    async fn retrieve_account(
        head: AdminRequest<S>,
        path: PathParameters<RetrieveAccountPath>,
    ) -> TypedResponse<types::Account> {
        run_operation(&head, |console, actor| async move {
            console.retrieve_account(&actor, &path.into_value()?.name).await
        })
        .await
    }

    async fn update_account(
        head: AdminRequest<S>,
        path: PathParameters<UpdateAccountPath>,
        body: JsonBody<types::AccountChange>,
    ) -> TypedResponse<types::Account> {
        run_operation_with_body(&head, body, |console, actor, body| async move {
            console.update_account(&actor, &path.into_value()?.name, &body).await
        })
        .await
    }

    async fn delete_account(
        head: AdminRequest<S>,
        path: PathParameters<DeleteAccountPath>,
    ) -> TypedResponse<types::DeletedAccount> {
        run_operation(
            &head,
            |console, actor| async move { console.delete_account(&actor, &path.into_value()?.name).await },
        )
        .await
    }

    async fn test_account(
        head: AdminRequest<S>,
        path: PathParameters<TestAccountPath>,
    ) -> TypedResponse<types::AccountTest> {
        run_operation(
            &head,
            |console, actor| async move { console.test_account(&actor, &path.into_value()?.name).await },
        )
        .await
    }
}

/// Authenticates the actor, calls the console, and returns the result with `Cache-Control: no-store`.
async fn run_operation<S: AdminServer, T: Serialize, F: Future<Output = Result<T, Error>>>(
    head: &AdminRequest<S>,
    operation: impl FnOnce(Arc<Console>, Actor) -> F,
) -> TypedResponse<T> {
    let reply = run_handler(head, async {
        let (console, actor) = admit(head).await?;
        let work = actor.work().clone();
        charged_answer(&work, operation(console, actor).await)
    });
    reply.await.no_store()
}

/// Does the same as [`run_operation`] for an operation with a body, which is read after authentication.
async fn run_operation_with_body<S, T, B, F>(
    head: &AdminRequest<S>,
    body: JsonBody<B>,
    operation: impl FnOnce(Arc<Console>, Actor, Bytes) -> F,
) -> TypedResponse<T>
where
    S: AdminServer,
    T: Serialize + Send + 'static,
    B: DeserializeOwned + JsonSchema + Send + Sync + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    let reply = run_handler(head, async {
        let (console, actor) = admit(head).await?;
        let work = actor.work().clone();
        let body = body.read(head.admission()).await?;
        let answer = body.run_parsing(Box::pin(operation(console, actor, body.text().clone()))).await;
        charged_answer(&work, answer)
    });
    reply.await.no_store()
}

/// Returns the answer with the result of an operation, whose size is charged.
fn charged_answer<T: Serialize>(work: &RequestWork, result: Result<T, Error>) -> Result<HandlerResponse<T>, Error> {
    let answer = HandlerResponse::json(&result.inspect_err(|_| work.charge(Work::Refusal))?)?;
    work.charge(Work::WrittenBytes(answer.body_bytes()));
    Ok(answer)
}

/// Authenticates the actor, and begins the work of the request. Query parameters are refused if the operation has none.
async fn admit<S: AdminServer>(head: &AdminRequest<S>) -> Result<(Arc<Console>, Actor), Error> {
    let authorization = head.headers().get(AUTHORIZATION);
    let admission = head.admission();
    let authorization = authorization.map(HeaderValue::as_bytes);
    let (console, actor) = head.server().admit_actor(authorization, admission.address()).await?;
    let work = actor.work();
    work.charge(Work::Operation);
    admission.set_principal(Principal::of_actor(actor.user().map(|user| &user.id)).with_work(work.clone()));
    check_query(head).inspect_err(|_| work.charge(Work::Refusal))?;
    Ok((console, actor))
}
