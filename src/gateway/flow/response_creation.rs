//! Handles a request for a response: checks the body and runs the job.

use std::sync::Arc;

use http::HeaderMap;

use super::gateway_answer::{GatewayAnswer, OperationAnswer};
use super::image_services::ImageServices;
use super::job_context::JobContext;
use super::refusal_count::{count_if_refused, count_refusal};
use super::request_failure::RequestFailure;
use super::request_options::RequestOptions;
use super::{group_permissions, repeated_request, request_adaptation, request_limits, strict_budget};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::accounts::{ContextPart, ContextRefusal};
use crate::gateway::config::{FilterFilePolicy, StoredContextPolicy};
use crate::gateway::keys::Caller;
use crate::gateway::rules::{ResponseJob, SharedTask, StoredId, StoredKind, TaskRef};
use crate::gateway::spool::SpooledBytes;
use crate::gateway::store::BindingDigest;
use crate::wire::types::AgentResponse;

/// Handles `POST /v1/responses`.
///
/// # Errors
///
/// Returns an error if the request breaks a rule; nothing is charged then. Otherwise the error
/// is the one that the money rules select from the failed attempts, [`Error::InProgress`] if the answer deadline has
/// passed, or [`Error::Unavailable`] if the store fails. The failure states how the request was adapted.
pub(crate) async fn create_response(
    services: &Arc<ImageServices>,
    caller: Caller,
    options: RequestOptions,
    headers: &HeaderMap,
    body: SpooledBytes,
) -> Result<OperationAnswer<AgentResponse>, RequestFailure> {
    let job = request_adaptation::check_response(services, &caller, headers, body)
        .await
        .inspect_err(|failure| count_refusal(&services.keys, &caller, &failure.error))?;
    let adapted = job.adapted_text();
    let bounded = count_if_refused(&services.keys, &caller, strict_budget::bound(&services.prices, &caller, job));
    let job = bounded.map_err(|error| RequestFailure::new(error, adapted))?;
    let adapted = job.adapted_text();
    OperationAnswer::from_result(answer_job(services, caller, options, job).await, adapted)
}

/// Runs a job that passed every rule, unless its group or a limit does not allow it.
async fn answer_job(
    services: &Arc<ImageServices>,
    caller: Caller,
    options: RequestOptions,
    job: ResponseJob,
) -> Result<GatewayAnswer, Error> {
    count_if_refused(&services.keys, &caller, group_permissions::check(&caller, &job))?;
    let job = count_if_refused(&services.keys, &caller, find_accounts(services, &caller, job).await)?;
    let job = inject_image_tool(&caller, job);
    let (has_images, injects) = (job.image_tool().is_some(), job.is_tool_injected());
    tracing::debug!(key = %caller.public_id(), images = has_images, injects, "a response begins");
    // With an idempotency key, the key alone identifies a repeated request, and the conversation turn of the agent is
    // ignored.
    let turn = options.agent_turn.clone().filter(|_| options.idempotency_key.is_none());
    let task = SharedTask::from(job.with_turn(turn));
    count_if_refused(&services.keys, &caller, request_limits::check(&caller, TaskRef::from(&task)))?;
    repeated_request::answer_request(Arc::new(JobContext::new(Arc::clone(services), caller, options, task))).await
}

/// Adds an image tool to the request of an agent, if the group says so. A limit that does not allow the tool must not
/// refuse a request whose caller has not asked for an image.
fn inject_image_tool(caller: &Caller, job: ResponseJob) -> ResponseJob {
    if !caller.group().inject_image_tool || !job.may_inject_image_tool() {
        return job;
    }
    let job = job.with_image_tool();
    match request_limits::check(caller, TaskRef::from(&job)) {
        Ok(()) => job,
        Err(_) => job.without_injected_tool(),
    }
}

/// Finds the accounts to which the context and the conversation of a request belong. A request that names stored context
/// is restricted to the account that stores it; other context only prefers its account.
async fn find_accounts(services: &ImageServices, caller: &Caller, job: ResponseJob) -> Result<ResponseJob, Error> {
    let policy = || stored_context(services, caller);
    if let Some(part) = job.contents().unlisted_stored()
        && policy() == StoredContextPolicy::Own
    {
        let refusal = ContextRefusal { param: part.path.clone(), is_gone: false };
        return Err(context_rejection(refusal).into());
    }
    let parts = context_parts(&job);
    let found = services.accounts.serving_accounts(caller, &parts, job.session(), &policy).await;
    let found = found.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "the accounts of a request could not be looked up");
        Error::Unavailable
    })?;
    found.map(|accounts| job.for_accounts(accounts)).map_err(|refusal| context_rejection(refusal).into())
}

/// Returns what a request names or sends that an upstream has made, oldest first: what it names before what it sends,
/// because only one account can have the former.
fn context_parts(job: &ResponseJob) -> Vec<ContextPart> {
    let contents = job.contents();
    let part = |id: &StoredId, is_stored| ContextPart {
        param: id.path.clone(),
        digest: match id.kind {
            StoredKind::Ciphertext => BindingDigest::of_ciphertext(&id.id),
            _ => BindingDigest::of_id(&id.id),
        },
        is_stored,
    };
    let stored = contents.stored().iter().map(|id| part(id, true));
    stored.chain(contents.maker_ids().iter().map(|id| part(id, false))).collect()
}

/// The words are the same for the context of another user and for context that nobody has, so that they tell nothing
/// about other users.
fn context_rejection(refusal: ContextRefusal) -> Rejection {
    let ContextRefusal { param, is_gone } = refusal;
    let problem = if is_gone {
        format!("The account that stores the context in '{param}' is no longer available.")
    } else {
        format!("This gateway has given no such id to you in an answer: '{param}'.")
    };
    let message = format!("{problem} Send the content itself instead.");
    Rejection::new(param, RejectionReason::InvalidValue, message)
}

/// Returns the stored context that a caller may name. By default, everything that the accounts of its group have stored, if
/// only its one user can have stored it. A filter has not seen what the gateway does not know.
fn stored_context(services: &ImageServices, caller: &Caller) -> StoredContextPolicy {
    let (group, name) = (caller.group(), caller.group_name());
    if caller.filter().is_on() && group.filter_files == FilterFilePolicy::Refuse {
        return StoredContextPolicy::Own;
    }
    group.stored_context.unwrap_or_else(|| {
        let has_own_context = services.keys.has_one_owner(name) && services.accounts.serve_only(name);
        if has_own_context { StoredContextPolicy::Any } else { StoredContextPolicy::Own }
    })
}
