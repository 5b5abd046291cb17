//! Finds a request for images that a page or a tool made, and the images of a stored answer.

use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::gateway::keys::Caller;
use crate::gateway::relay::{PacedBody, StoredImage};
use crate::gateway::replay::{AnswerReader, AnswerStore, AnswerView, ReplayError};
use crate::gateway::store::{RequestId, Timestamp, UserId};
use crate::image::Format;

/// The operations that make images.
pub(crate) const IMAGE_OPERATIONS: [&str; 2] = ["create_image", "edit_image"];

/// The file of an image, for a caller that reads it at the minimum rate.
pub(crate) type ImageFileBody = PacedBody<StoredImage<AnswerReader>>;

/// Returns the answer of the request for images that the caller sent with this idempotency key; `None` if there is none,
/// or if it ended without cost.
///
/// # Errors
///
/// Returns [`Error::Unavailable`] if the store cannot be read.
pub(crate) async fn find_image_run(
    replay: &AnswerStore,
    caller: &Caller,
    idempotency_key: &str,
) -> Result<Option<AnswerView>, Error> {
    for operation in IMAGE_OPERATIONS {
        let found = replay.find_request(caller, operation, idempotency_key).await;
        if let Some(found) = found.map_err(|error| lookup_error(&error))? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns the request for images with this id; `None` if its answer is not kept. The caller of this function decides who
/// may see it.
///
/// # Errors
///
/// Returns [`Error::Unavailable`] if the store cannot be read.
pub(crate) async fn find_image_run_by_id(replay: &AnswerStore, id: &RequestId) -> Result<Option<AnswerView>, Error> {
    let found = replay.find_request_by_id(id).await;
    found.map_err(|error| lookup_error(&error))
}

/// Returns at most `limit` requests for images of the user that began at `since` or later and whose answers are kept or in
/// progress, newest first.
///
/// # Errors
///
/// Returns [`Error::Unavailable`] if the store cannot be read.
pub(crate) async fn list_image_runs(
    replay: &AnswerStore,
    user: &UserId,
    since: Timestamp,
    limit: u32,
) -> Result<Vec<RequestId>, Error> {
    replay.list_image_requests(user, since, limit).await.map_err(|error| lookup_error(&error))
}

/// Returns the file of the image with this index, from 0; `None` if the answer has no such image or is not kept.
pub(crate) async fn open_image(
    cutoff: &CancellationToken,
    view: AnswerView,
    index: usize,
) -> Option<(Format, ImageFileBody)> {
    if !view.is_successful() {
        return None;
    }
    let (_, reader) = view.answer?;
    match StoredImage::open(reader, index).await {
        Ok(opened) => opened.map(|(format, image)| (format, PacedBody::new(image, cutoff))),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "an image of a stored answer cannot be read");
            None
        }
    }
}

/// Logs that an earlier request could not be looked up, and returns the error for the caller.
pub(super) fn lookup_error(error: &ReplayError) -> Error {
    tracing::error!(error = error as &dyn std::error::Error, "an earlier request could not be looked up");
    Error::Unavailable
}
