//! Answers with links to the images instead of their bytes, for callers whose dialect asks for `response_format` `url`.
//!
//! The answer is stored as one with an idempotency key; the links lead to it. If the caller gave no key, the answer is
//! stored under a random one while it arrives. The job itself is then that of a plain request: if its caller leaves
//! before it has the links, the storing stops, and a retry gets the answer as any retry of a plain request does.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::Instrument as _;
use uuid::Uuid;

use super::gateway_answer::{AnswerBodyError, GatewayAnswer, GatewayAnswerBody};
use super::image_files::{base_url, link_paths};
use super::job_context::JobContext;
use crate::error::{Error, Rejection, RejectionReason, UpstreamFault};
use crate::gateway::relay::{AnswerMembers, read_answer_members};
use crate::gateway::replay::{AnswerHead, AnswerReader, AnswerView, ClaimOutcome, RecordableAnswer};
use crate::gateway::rules::SharedTask;

/// The status of an answer with images.
const OK: u16 = 200;

/// The reason why an answer has no links.
type LinkError = Box<dyn std::error::Error + Send + Sync>;

/// An answer that is stored only as long as its caller waits for it.
struct AttendedAnswer {
    answer: GatewayAnswer,
    departure: CancellationToken,
    undelivered_body: Arc<UndeliveredBody>,
}

/// The body of an [`AttendedAnswer`]. It breaks off when the caller leaves.
struct AttendedBody {
    body: GatewayAnswerBody,
    departure: Pin<Box<WaitForCancellationFutureOwned>>,
    undelivered_body: Arc<UndeliveredBody>,
}

/// The body of a job's answer once it has been read, until the caller has the links. If the caller leaves before, the
/// body leaves the job as one that was not read to its end, so that a retry gets the answer.
#[derive(Default)]
struct UndeliveredBody {
    body: Mutex<Option<GatewayAnswerBody>>,
    is_delivered: AtomicBool,
}

/// The stored answer of a job.
struct LinkedAnswer {
    /// The idempotency key under which it is stored.
    key: String,
    reader: AnswerReader,
    undelivered_body: Arc<UndeliveredBody>,
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
/// returned as it is, and so is an answer that cannot be stored: it was paid for, so its caller gets the images instead
/// of links to them.
///
/// # Errors
///
/// Returns 502 if the answer breaks off.
pub(super) async fn replace_images(context: &JobContext, answer: GatewayAnswer) -> Result<GatewayAnswer, Error> {
    if answer.head.status != OK {
        return Ok(answer);
    }
    let head = answer.head.clone();
    let LinkedAnswer { key, mut reader, undelivered_body } = match store_answer(context, answer).await {
        Ok(stored) => stored,
        Err(answer) => return Ok(*answer),
    };
    reader.make_restartable();
    match link_images(context, &key, &mut reader).await {
        Ok(body) => {
            undelivered_body.is_delivered.store(true, Ordering::Relaxed);
            Ok(GatewayAnswer { head, body: GatewayAnswerBody::Whole(body) })
        }
        Err(error) if reader.is_broken() => {
            tracing::warn!(error = &*error, "an answer for links broke off");
            Err(Error::Upstream(UpstreamFault::Broken))
        }
        Err(error) => {
            tracing::error!(error = &*error, "an answer has its images instead of links: it is not stored");
            Ok(GatewayAnswer::from_stored_answer(head, reader.restart(), context.gateway.cutoff()))
        }
    }
}

/// Stores the answer. Without a key of the caller, it is stored under a random key until its reader is dropped, or until
/// its end.
///
/// # Errors
///
/// Returns the answer if nothing can be stored.
async fn store_answer(context: &JobContext, answer: GatewayAnswer) -> Result<LinkedAnswer, Box<GatewayAnswer>> {
    let GatewayAnswer { head, body } = answer;
    let undelivered_body = Arc::new(UndeliveredBody::default());
    let body = match (&context.options.idempotency_key, body) {
        (Some(key), GatewayAnswerBody::Stored(body)) => {
            return match body.into_body() {
                Ok(reader) => Ok(LinkedAnswer { key: key.clone(), reader, undelivered_body }),
                Err(body) => Err(Box::new(GatewayAnswer { head, body: GatewayAnswerBody::Stored(body) })),
            };
        }
        (_, body) => body,
    };
    let answer = GatewayAnswer { head, body };
    let key = format!("url-{}", Uuid::new_v4().simple());
    let (caller, task, id) = (&context.caller, context.task.clone(), &context.options.request_id);
    let claim = match context.gateway.replay().claim_or_follow(caller, task, &key, id).await {
        Ok(ClaimOutcome::Claimed(mut claim)) => {
            context.take_answer_space().into_iter().for_each(|space| claim.use_space(space));
            claim
        }
        outcome => {
            let error = outcome.err();
            tracing::error!(?error, "an answer has its images instead of links: it cannot be stored");
            return Err(Box::new(answer));
        }
    };
    let departure = CancellationToken::new();
    let guard = departure.clone().drop_guard();
    let reader = claim.answer_reader().on_leave(move || drop(guard));
    let attended = AttendedAnswer { answer, departure, undelivered_body: Arc::clone(&undelivered_body) };
    let storing = async move { claim.record(Ok(attended)).await };
    drop(tokio::runtime::Handle::current().spawn(storing.in_current_span()));
    Ok(LinkedAnswer { key, reader, undelivered_body })
}

/// Returns the body of an answer with links.
async fn link_images(context: &JobContext, key: &str, reader: &mut AnswerReader) -> Result<Bytes, LinkError> {
    let AnswerMembers { mut members, images } = read_answer_members(reader).await?;
    // The same key may belong to a request of another operation.
    let operation = context.task.operation_id();
    let view = context.gateway.replay().find_request(&context.caller, operation, key).await?;
    let view = view.filter(AnswerView::is_successful).ok_or("the stored answer is not found")?;
    let paths = link_paths(&context.gateway, &context.caller, &view, images.len());
    let paths = paths.map_err(|_| "a link cannot be sealed")?;
    let base = base_url(&context.gateway, context.options.host.as_deref());
    let images = images.into_iter().zip(paths).map(|(mut image, path)| {
        image.insert("url".to_owned(), json!(format!("{base}{path}")));
        Value::Object(image)
    });
    members.insert("data".to_owned(), images.collect());
    Ok(Bytes::from(Value::Object(members).to_string()))
}

// === impl AttendedAnswer ===

impl RecordableAnswer for AttendedAnswer {
    type Body = AttendedBody;

    fn into_parts(self) -> (AnswerHead, AttendedBody) {
        let departure = Box::pin(self.departure.cancelled_owned());
        (self.answer.head, AttendedBody { body: self.answer.body, departure, undelivered_body: self.undelivered_body })
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

impl Drop for AttendedBody {
    fn drop(&mut self) {
        let body = std::mem::replace(&mut self.body, GatewayAnswerBody::Whole(Bytes::new()));
        *self.undelivered_body.body.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
    }
}

// === impl UndeliveredBody ===

impl Drop for UndeliveredBody {
    fn drop(&mut self) {
        let body = self.body.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(GatewayAnswerBody::Stored(body)), false) = (body, self.is_delivered.load(Ordering::Relaxed))
            && let Ok(reader) = body.into_body()
        {
            reader.leave_undelivered();
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    /// Reads all of a stored answer, and drops what the caller and the writer of the answer hold. Returns true if the
    /// reader left as one that has read all of it.
    async fn leaves_as_read(is_delivered: bool, is_caller_first: bool) -> bool {
        let head = AnswerHead { status: OK, content_type: String::new(), headers: std::collections::BTreeMap::new() };
        let (sender, receiver) = std::sync::mpsc::channel();
        let reader = AnswerReader::from_bytes(&head, Bytes::from_static(b"{}"));
        let reader = reader.on_exit(move |has_read_all| sender.send(has_read_all).unwrap());
        let answer = GatewayAnswer::from_stored_answer(head, reader, &CancellationToken::new());
        let undelivered_body = Arc::new(UndeliveredBody::default());
        let attended = AttendedAnswer {
            answer,
            departure: CancellationToken::new(),
            undelivered_body: Arc::clone(&undelivered_body),
        };
        let mut body = attended.into_parts().1;
        while let Some(frame) = body.frame().await {
            frame.unwrap();
        }
        undelivered_body.is_delivered.store(is_delivered, Ordering::Relaxed);
        if is_caller_first {
            drop(undelivered_body);
            assert!(receiver.try_recv().is_err(), "the body has its reader");
            drop(body);
        } else {
            drop(body);
            assert!(receiver.try_recv().is_err(), "the caller does not have the links");
            drop(undelivered_body);
        }
        receiver.try_recv().unwrap()
    }

    #[tokio::test]
    async fn an_answer_whose_links_were_not_delivered_counts_as_not_read() {
        for (is_delivered, is_caller_first) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!(leaves_as_read(is_delivered, is_caller_first).await, is_delivered, "{is_caller_first}");
        }
    }
}
