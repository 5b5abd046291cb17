//! Implements the generated trait of the admin API. Each method authenticates the actor, makes one call to the console,
//! and converts the result to an HTTP response. The methods are generated: only the operation differs.
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
use crate::gateway::front::{self, AdmittingServer, HandlerResponse, ResponseCounter, check_query, run_handler};
use crate::gateway::people::Actor;
use crate::gateway::work::{RequestWork, Work};
use crate::wire::admin::{server, types};

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

type AdminRequest<S> = front::RequestHead<S>;

impl AdminServer for CurrentGateway {
    async fn admit_actor(&self, authorization: Option<&[u8]>, address: IpAddr) -> Result<(Arc<Console>, Actor), Error> {
        let gateway = self.get();
        let actor = gateway.console.authenticate(authorization, address).await?;
        let work = flow::begin_of_actor(&gateway.images, &actor)?;
        Ok((Arc::clone(&gateway.console), actor.with_work(work)))
    }
}

include!("../../../generated/admin_endpoints.rs");

/// Authenticates the actor, calls the console, and returns the result with `Cache-Control: no-store`.
async fn run_operation<S: AdminServer, T: Serialize, F: Future<Output = Result<T, Error>>>(
    head: &AdminRequest<S>,
    operation: impl FnOnce(Arc<Console>, Actor) -> F,
) -> front::TypedResponse<T> {
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
    body: front::JsonBody<B>,
    operation: impl FnOnce(Arc<Console>, Actor, Bytes) -> F,
) -> front::TypedResponse<T>
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
