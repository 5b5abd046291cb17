//! Answers with links to the images instead of their bytes, for callers whose dialect asks for `response_format` `url`.
//!
//! The answer is stored as one with an idempotency key; the links lead to it. If the caller gave no key, the answer is
//! stored under a random one while it arrives. The job itself is then that of a plain request: if its caller leaves, the
//! storing stops, and a retry gets the answer as any retry of a plain request does.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::Instrument as _;
use uuid::Uuid;

use super::gateway_answer::{AnswerBodyError, GatewayAnswer, GatewayAnswerBody};
use super::image_files::{base_url, link_paths};
use super::image_run::{ImageRun, find_run_of};
use super::job_context::JobContext;
use crate::error::{Error, Rejection, RejectionReason, UpstreamFault};
use crate::gateway::relay::{AnswerMembers, read_answer_members};
use crate::gateway::replay::{AnswerHead, ClaimOutcome, RecordableAnswer};
use crate::gateway::rules::SharedTask;

/// The status of an answer with images.
const OK: u16 = 200;

/// An answer that is stored only as long as its caller waits for it.
struct AttendedAnswer {
    answer: GatewayAnswer,
    departure: CancellationToken,
}

/// The body of an [`AttendedAnswer`]. It breaks off when the caller leaves.
struct AttendedBody {
    body: GatewayAnswerBody,
    departure: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// Refuses a stream, whose events have the bytes of the images.
///
/// # Errors
///
/// Returns 400 for a stream.
pub(super) fn check(task: &SharedTask) -> Result<(), Rejection> {
    if task.is_stream() {
        let message = "With 'response_format' 'url', 'stream' must be false: the events of a stream have no links.";
        return Err(Rejection::new("stream", RejectionReason::InvalidValue, message));
    }
    Ok(())
}

/// Reads the answer of a job to its end, and returns it with a link in place of each image. An answer without images is
/// returned as it is.
///
/// # Errors
///
/// Returns 502 if the answer breaks off or could not be stored, and [`Error::Unavailable`] if the store fails.
pub(super) async fn replace_images(context: &JobContext, answer: GatewayAnswer) -> Result<GatewayAnswer, Error> {
    if answer.head.status != OK {
        return Ok(answer);
    }
    let head = answer.head.clone();
    let (key, members) = match &context.options.idempotency_key {
        Some(key) => (key.clone(), read_members(answer.body).await?),
        None => {
            let key = format!("url-{}", Uuid::new_v4().simple());
            let members = store_answer(context, &key, answer).await?;
            (key, members)
        }
    };
    let AnswerMembers { mut members, images } = members;
    // The same key may belong to a request of another operation. After the payment, no error invites a retry.
    let operation = context.task.operation_id();
    let run = find_run_of(&context.gateway, &context.caller, operation, &key).await;
    let run = run.ok().flatten().filter(ImageRun::has_images);
    let run = run.ok_or_else(|| {
        tracing::error!("an answer with links could not be stored");
        Error::Upstream(UpstreamFault::Unknown)
    })?;
    let paths = link_paths(&context.gateway, &context.caller, &run, images.len())?;
    let base = base_url(&context.gateway, context.options.host.as_deref());
    let images = images.into_iter().zip(paths).map(|(mut image, path)| {
        image.insert("url".to_owned(), json!(format!("{base}{path}")));
        Value::Object(image)
    });
    members.insert("data".to_owned(), images.collect());
    let body = Bytes::from(Value::Object(members).to_string());
    Ok(GatewayAnswer { head, body: GatewayAnswerBody::Whole(body) })
}

/// Stores the answer under this idempotency key while it is read.
async fn store_answer(context: &JobContext, key: &str, answer: GatewayAnswer) -> Result<AnswerMembers, Error> {
    let (caller, task, id) = (&context.caller, context.task.clone(), &context.options.request_id);
    let outcome = context.gateway.replay().claim_or_follow(caller, task, key, id).await.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "the answer for links could not be claimed");
        Error::Unavailable
    })?;
    let ClaimOutcome::Claimed(claim) = outcome else { return Err(Error::Internal) };
    let reader = claim.answer_reader();
    let departure = CancellationToken::new();
    // It is cancelled if this future is dropped, and has no effect after the end of the answer.
    let _departure = departure.clone().drop_guard();
    let attended = AttendedAnswer { answer, departure };
    let storing = async move { claim.record(Ok(attended)).await };
    drop(tokio::runtime::Handle::current().spawn(storing.in_current_span()));
    read_members(reader).await
}

async fn read_members<B>(body: B) -> Result<AnswerMembers, Error>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    read_answer_members(body).await.map_err(|error| {
        tracing::warn!(error = &error as &dyn std::error::Error, "an answer for links broke off");
        Error::Upstream(UpstreamFault::Broken)
    })
}

// === impl AttendedAnswer ===

impl RecordableAnswer for AttendedAnswer {
    type Body = AttendedBody;

    fn into_parts(self) -> (AnswerHead, AttendedBody) {
        let departure = Box::pin(self.departure.cancelled_owned());
        (self.answer.head, AttendedBody { body: self.answer.body, departure })
    }
}

// === impl AttendedBody ===

impl Body for AttendedBody {
    type Data = Bytes;
    type Error = AnswerBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerBodyError>>> {
        if self.departure.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(AnswerBodyError::caller_left())));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }
}
