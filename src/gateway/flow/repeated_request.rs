//! Answers requests that may have been sent before: with an idempotency key, or as a retry by a client that had left.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body::Body as _;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use super::detachable_job::DetachableJob;
use super::gateway_answer::GatewayAnswer;
use super::image_run::lookup_error;
use super::image_services::ImageServices;
use super::job_context::JobContext;
use super::job_run::run_job;
use super::refusal_count::count_if_refused;
use super::request_work::count_repeat;
use super::{answer_size, early_stream};
use crate::error::{Error, Rejection, RejectionReason, UpstreamFault};
use crate::gateway::admission::Admission;
use crate::gateway::image_links::LINK_LIFETIME;
use crate::gateway::replay::{AnswerReader, AnswerSource, AnswerSpace, ClaimOutcome, JobRegistration, RUN_WINDOW};
use crate::gateway::rules::SharedTask;
use crate::gateway::work::Work;

/// The bytes of an answer that is charged before it is complete (our choice): an image of 1024x1024 pixels in base64.
const TYPICAL_ANSWER_BYTES: u64 = 2 << 20;
/// The wait for the answer of a stream, which has no answer deadline (our choice): longer than any job.
const NO_ANSWER_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

/// Answers a request. A plain job continues after its caller has left, because it may have been paid for, and after its
/// caller got the error `image_in_progress`. A stream ends when its caller leaves, unless the request has an
/// idempotency key, with which the caller can request the answer again; a client that counts its retries may also ask again
/// for images whose stream had not begun.
///
/// # Errors
///
/// Returns the error that the money rules select from the failed attempts; [`Error::InProgress`] for a plain request
/// whose answer has not begun at the answer deadline; 400 for an idempotency key of another request; and
/// [`Error::Unavailable`] if an earlier request cannot be looked up or the intent cannot be recorded.
pub(super) async fn answer_request(context: Arc<JobContext>) -> Result<GatewayAnswer, Error> {
    if context.task.is_stream() {
        let departure = context.departure.clone();
        return early_stream::begin_stream(answer_stream(context), departure).await;
    }
    let applied_wait = applied_wait(&context);
    let deadline = Instant::now() + applied_wait.unwrap_or(context.services.settings.config.answer_deadline);
    let answer = if context.options.idempotency_key.is_none() {
        answer_without_key(context, deadline).await
    } else {
        timeout_at(deadline, answer_with_key(context)).await.unwrap_or(Err(Error::InProgress))
    };
    answer.map(|answer| answer.with_applied_wait(applied_wait))
}

/// The time that a plain request waits because its caller states it: at most the time limit of an image. If that is
/// shorter than the answer deadline, the failure of the job is told before either.
fn applied_wait(context: &JobContext) -> Option<Duration> {
    let image_deadline = context.caller.group().deadlines.image;
    let longest = image_deadline.max(context.services.settings.config.answer_deadline);
    context.options.preferred_wait.map(|wait| wait.min(longest))
}

async fn answer_stream(context: Arc<JobContext>) -> Result<GatewayAnswer, Error> {
    if context.options.idempotency_key.is_some() {
        answer_with_key(context).await
    } else if context.options.counts_retries() && matches!(context.task, SharedTask::Images(_)) {
        answer_without_key(context, Instant::now() + NO_ANSWER_DEADLINE).await
    } else {
        run_job(&context, None).await
    }
}

/// Answers a request with an idempotency key: the first request with the key runs the job, and every other request with
/// it gets the same answer.
///
/// The job runs in its own task, so the next request gets the answer even if the caller leaves.
async fn answer_with_key(context: Arc<JobContext>) -> Result<GatewayAnswer, Error> {
    let key = context.options.idempotency_key.as_deref().unwrap_or_default();
    let claim_outcome = context
        .services
        .replay
        .claim_or_follow(&context.caller, context.task.clone(), key, &context.options.request_id)
        .await;
    match claim_outcome.map_err(|error| lookup_error(&error))? {
        ClaimOutcome::Claimed(mut claim) => {
            let reader = claim.answer_reader();
            let (services, admission) = (Arc::clone(&context.services), context.options.admission().clone());
            let job = async move {
                if context.options.needs_stored_answer {
                    claim.keep_for(RUN_WINDOW);
                }
                if context.wants_links() {
                    claim.keep_for(LINK_LIFETIME);
                } else {
                    // Links to images in memory would end before they say.
                    claim.keep_in_memory();
                }
                let result = match reserve_answer_space(&context).await {
                    Ok(Some(space)) => {
                        claim.use_space(space);
                        run_job(&context, None).await
                    }
                    Ok(None) => run_job(&context, None).await,
                    Err(error) => Err(error),
                };
                claim.record(result).await;
            };
            drop(tokio::runtime::Handle::current().spawn(job.in_current_span()));
            Ok(read_stored_answer(&services, reader, &admission).await?.with_replay_mark(false))
        }
        ClaimOutcome::Answer(reader) => read_repeated_answer(&context, reader).await,
        ClaimOutcome::Conflict => count_if_refused(&context.services.keys, &context.caller, Err(reused_key_error())),
        ClaimOutcome::AnswerUnavailable => Err(Error::Upstream(UpstreamFault::Unknown)),
    }
}

/// Answers a request without an idempotency key: a plain one, or a stream until it begins. A retry that the client makes
/// by itself gets the answer to the earlier request, and so does a retry after `image_in_progress`, on any node. Any other
/// request begins a new job, which continues if the caller leaves, so that a later retry gets the answer that was paid for.
async fn answer_without_key(context: Arc<JobContext>, deadline: Instant) -> Result<GatewayAnswer, Error> {
    let (replay, registration) = (&context.services.replay, job_registration(&context).await);
    let earlier_answer = timeout_at(deadline, read_earlier_answer(&context, &registration)).await;
    if let Some(answer) = earlier_answer.unwrap_or(Err(Error::InProgress))? {
        return Ok(answer);
    }
    let (receiver, mut sender) = replay.register_job(&context.caller, context.task.clone(), registration);
    let (services, admission) = (Arc::clone(&context.services), context.options.admission().clone());
    let mut job = DetachableJob::new(async move {
        let result = match reserve_answer_space(&context).await {
            Ok(space) => {
                sender.use_space(space);
                run_job(&context, Some(&sender)).await
            }
            Err(error) => Err(error),
        };
        sender.complete(result).await;
    });
    let mut answer = pin!(receiver.answer(deadline));
    let source = tokio::select! {
        biased;
        source = &mut answer => source,
        () = &mut job => answer.await,
    };
    // The job may still have to store its answer.
    drop(job);
    match source? {
        AnswerSource::Direct(answer) => Ok(answer),
        AnswerSource::Stored(reader) => read_stored_answer(&services, reader, &admission).await,
    }
}

/// Returns the data by which a retry that the client makes by itself is recognized, also after a restart. Must be
/// called before the job begins. A stream is never stored while its caller reads it.
async fn job_registration(context: &JobContext) -> JobRegistration {
    let (request_id, announces_retries) = (context.options.request_id.clone(), context.options.announces_retries());
    let link_window = context.wants_links().then_some(LINK_LIFETIME);
    let registration = JobRegistration { request_id, announces_retries, fingerprint: None, link_window };
    let registration = context.services.replay.with_fingerprint(&context.caller, &context.task, registration).await;
    let announces_retries = announces_retries && !context.task.is_stream();
    context.set_registration(JobRegistration { announces_retries, ..registration })
}

/// Reserves disk space for the answer, if it is delivered from the disk. An answer whose links cannot be kept has its
/// images in base64, so it needs none.
///
/// # Errors
///
/// Returns the errors of [`AnswerStore::reserve_space`](crate::gateway::replay::AnswerStore::reserve_space) if the
/// images must be stored.
async fn reserve_answer_space(context: &JobContext) -> Result<Option<AnswerSpace>, Error> {
    let SharedTask::Images(job) = &context.task else { return Ok(None) };
    let is_needed = context.options.needs_stored_answer;
    if !is_needed && !context.wants_links() {
        return Ok(None);
    }
    match context.services.replay.reserve_space(context.options.admission(), answer_size::estimated_bytes(job)).await {
        Err(error) if is_needed => Err(error),
        reserved => Ok(reserved.ok()),
    }
}

/// Returns the answer to an earlier request that this plain request repeats, as soon as it begins; `None` if the request
/// must run a job of its own.
async fn read_earlier_answer(
    context: &JobContext,
    registration: &JobRegistration,
) -> Result<Option<GatewayAnswer>, Error> {
    let (replay, caller, task) = (&context.services.replay, &context.caller, &context.task);
    let found = if context.options.may_be_retry() {
        replay.find_earlier_answer(caller, task, registration).await
    } else {
        replay.find_answer_in_progress(caller, task, registration).await
    };
    match found.map_err(|error| lookup_error(&error))? {
        Some(reader) => read_repeated_answer(context, reader).await.map(Some),
        None => Ok(None),
    }
}

async fn read_stored_answer(
    services: &ImageServices,
    reader: AnswerReader,
    admission: &Admission,
) -> Result<GatewayAnswer, Error> {
    let reader = reader.for_request(admission);
    let head = reader.head().await.map_err(|_| Error::Upstream(UpstreamFault::Unknown))?;
    Ok(GatewayAnswer::from_stored_answer(head, reader, &services.cutoff))
}

/// Answers with what an earlier request has paid for, and notes what that saves.
async fn read_repeated_answer(context: &JobContext, reader: AnswerReader) -> Result<GatewayAnswer, Error> {
    count_repeat(&context.services, &context.caller, &context.options.request_id).await?;
    let request_id = reader.id().map(|id| id.request_id.clone());
    let answer = read_stored_answer(&context.services, reader, context.options.admission()).await?;
    if let Some(request_id) = request_id.filter(|_| answer.head.status == 200) {
        context.services.usage_fold.note_replay(&context.caller, &request_id);
    }
    context.caller.charge(Work::RepeatedBytes(answer.body.size_hint().exact().unwrap_or(TYPICAL_ANSWER_BYTES)));
    Ok(answer.into_replayed())
}

fn reused_key_error() -> Error {
    let message = "The header 'Idempotency-Key' belongs to an earlier request with another body. Use a new key.";
    Rejection::new("Idempotency-Key", RejectionReason::IdempotencyKeyReused, message).into()
}
