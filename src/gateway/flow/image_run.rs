//! Finds a request for images that a page made, and its answer, which is kept under the idempotency key of the request.

use crate::error::Error;
use crate::gateway::Gateway;
use crate::gateway::keys::Caller;
use crate::gateway::relay::{PacedBody, StoredImage};
use crate::gateway::replay::{AnswerHead, AnswerReader, EarlierAnswer, ReplayError};
use crate::gateway::store::{RequestId, Timestamp, UserId};
use crate::image::Format;

/// The operations that make images.
pub(crate) const IMAGE_OPERATIONS: [&str; 2] = ["create_image", "edit_image"];
/// The status of an answer with images.
const OK: u16 = 200;

/// A request for images, and its answer.
pub(crate) struct ImageRun {
    /// The request, whose record states the outcome.
    pub(crate) request_id: RequestId,
    /// The scope under which the answer is kept.
    pub(super) scope: [u8; 32],
    /// The time from which the answer is not kept.
    pub(super) kept_until: Timestamp,
    /// True if the answer was not complete when it was looked up.
    pub(crate) is_running: bool,
    answer: Option<(AnswerHead, AnswerReader)>,
}

/// The file of an image, for a caller that reads it at the minimum rate.
pub(crate) type ImageFileBody = PacedBody<StoredImage<AnswerReader>>;

/// Returns the request for images that the caller sent with this idempotency key; `None` if there is none, or if it ended
/// without cost.
///
/// # Errors
///
/// Returns [`Error::Unavailable`] if the store cannot be read.
pub(crate) async fn find_image_run(
    gateway: &Gateway,
    caller: &Caller,
    idempotency_key: &str,
) -> Result<Option<ImageRun>, Error> {
    for operation in IMAGE_OPERATIONS {
        if let Some(run) = find_run_of(gateway, caller, operation, idempotency_key).await? {
            return Ok(Some(run));
        }
    }
    Ok(None)
}

/// Does the same as [`find_image_run`] for one operation.
///
/// # Errors
///
/// Returns [`Error::Unavailable`] if the store cannot be read.
pub(super) async fn find_run_of(
    gateway: &Gateway,
    caller: &Caller,
    operation: &'static str,
    idempotency_key: &str,
) -> Result<Option<ImageRun>, Error> {
    let found = gateway.replay().find_request(caller, operation, idempotency_key).await;
    Ok(found.map_err(|error| lookup_error(&error))?.map(ImageRun::from))
}

/// Returns the request for images with this id; `None` if its answer is not kept. The caller of this function decides who
/// may see it.
///
/// # Errors
///
/// Returns [`Error::Unavailable`] if the store cannot be read.
pub(crate) async fn find_image_run_by_id(gateway: &Gateway, id: &RequestId) -> Result<Option<ImageRun>, Error> {
    let found = gateway.replay().find_request_by_id(id).await;
    Ok(found.map_err(|error| lookup_error(&error))?.map(ImageRun::from))
}

/// Returns at most `limit` requests for images of the user that began at `since` or later and whose answers are kept or in
/// progress, newest first.
///
/// # Errors
///
/// Returns [`Error::Unavailable`] if the store cannot be read.
pub(crate) async fn list_image_runs(
    gateway: &Gateway,
    user: &UserId,
    since: Timestamp,
    limit: u32,
) -> Result<Vec<RequestId>, Error> {
    gateway.replay().list_image_requests(user, since, limit).await.map_err(|error| lookup_error(&error))
}

fn lookup_error(error: &ReplayError) -> Error {
    tracing::error!(error = error as &dyn std::error::Error, "an earlier request could not be looked up");
    Error::Unavailable
}

/// Returns the file of the image with this index, from 0, of an answer; `None` if the answer has no such image.
pub(super) async fn open_image(
    gateway: &Gateway,
    head: AnswerHead,
    reader: AnswerReader,
    index: usize,
) -> Option<(Format, ImageFileBody)> {
    if head.status != OK {
        return None;
    }
    match StoredImage::open(reader, index).await {
        Ok(opened) => opened.map(|(format, image)| (format, PacedBody::new(image, gateway.cutoff()))),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "an image of a stored answer cannot be read");
            None
        }
    }
}

// === impl ImageRun ===

impl From<EarlierAnswer> for ImageRun {
    fn from(found: EarlierAnswer) -> Self {
        let EarlierAnswer { request_id, scope, expires_at, is_running, answer } = found;
        Self { request_id, scope, kept_until: expires_at, is_running, answer }
    }
}

impl ImageRun {
    /// True if the answer is kept and has images.
    pub(crate) fn has_images(&self) -> bool {
        self.answer.as_ref().is_some_and(|(head, _)| head.status == OK)
    }

    /// Returns the answer with its head; `None` if it is not complete or not kept.
    pub(crate) fn into_answer(self) -> Option<(AnswerHead, AnswerReader)> {
        self.answer
    }

    /// Returns the file of the image with this index, from 0; `None` if the answer has no such image or is not kept.
    pub(crate) async fn into_image(self, gateway: &Gateway, index: usize) -> Option<(Format, ImageFileBody)> {
        let (head, reader) = self.answer?;
        open_image(gateway, head, reader, index).await
    }
}
