//! Answers with links to the images instead of their bytes, for callers whose dialect asks for `response_format` `url`.
//!
//! The links lead to the stored answer of the job, which is stored while it arrives. If its caller leaves before it has
//! the links, a retry gets the answer as any retry of a plain request does.

use bytes::Bytes;
use serde_json::{Value, json};

use super::gateway_answer::{GatewayAnswer, GatewayAnswerBody};
use super::image_files::{base_url, link_paths};
use super::job_context::JobContext;
use crate::error::{Error, Rejection, RejectionReason, UpstreamFault};
use crate::gateway::relay::{AnswerMembers, read_answer_members};
use crate::gateway::replay::{AnswerReader, AnswerView};
use crate::gateway::rules::SharedTask;

/// The status of an answer with images.
const OK: u16 = 200;

/// The reason why an answer has no links.
type LinkError = Box<dyn std::error::Error + Send + Sync>;

/// Refuses a stream, whose events have the bytes of the images.
///
/// # Errors
///
/// Returns 400 for a stream.
pub(super) fn refuse_stream(task: &SharedTask) -> Result<(), Rejection> {
    if task.is_stream() {
        let message = "With 'response_format' 'url', 'stream' must be false: the events of a stream have no links.";
        return Err(Rejection::new("stream", RejectionReason::InvalidValue, message));
    }
    Ok(())
}

/// Reads the stored answer of a job to its end, and returns it with a link in place of each image. An answer without
/// images is returned as it is, and so is an answer that cannot be stored: it was paid for, so its caller gets the images
/// instead of links to them.
///
/// # Errors
///
/// Returns 502 if the answer breaks off.
pub(super) async fn replace_images(context: &JobContext, answer: GatewayAnswer) -> Result<GatewayAnswer, Error> {
    let GatewayAnswer { head, body } = answer;
    let mut reader = match body {
        GatewayAnswerBody::Stored(body) if head.status == OK => match body.into_body() {
            Ok(reader) => reader,
            Err(body) => return Ok(GatewayAnswer { head, body: GatewayAnswerBody::Stored(body) }),
        },
        body => return Ok(GatewayAnswer { head, body }),
    };
    reader.make_restartable();
    match link_images(context, &mut reader).await {
        Ok(body) => {
            reader.note_delivered();
            Ok(GatewayAnswer { head, body: GatewayAnswerBody::Whole(body) })
        }
        Err(error) if reader.is_broken() => {
            tracing::warn!(error = &*error, "an answer for links broke off");
            Err(Error::Upstream(UpstreamFault::Broken))
        }
        Err(error) => {
            tracing::error!(error = &*error, "an answer has its images instead of links: it is not stored");
            Ok(GatewayAnswer::from_stored_answer(head, reader.restart(), &context.services.cutoff))
        }
    }
}

/// Returns the body of an answer with links.
async fn link_images(context: &JobContext, reader: &mut AnswerReader) -> Result<Bytes, LinkError> {
    let AnswerMembers { mut members, images } = read_answer_members(&mut *reader).await?;
    let id = reader.id().ok_or("the answer has no id")?;
    let view = context.services.replay.find_stored_answer(id).await?;
    let view = view.filter(AnswerView::is_successful).ok_or("the stored answer is not found")?;
    let paths = link_paths(&context.services.replay, &context.caller, &view, images.len());
    let paths = paths.map_err(|_| "a link cannot be sealed")?;
    let base = base_url(context.services.settings.config.public_url.as_ref(), context.options.host.as_deref());
    let images = images.into_iter().zip(paths).map(|(mut image, path)| {
        image.insert("url".to_owned(), json!(format!("{base}{path}")));
        Value::Object(image)
    });
    members.insert("data".to_owned(), images.collect());
    Ok(Bytes::from(Value::Object(members).to_string()))
}
