//! The images of requests whose answers are kept: on the pages of their records, and in the list of recent requests. Only
//! the user whose request it was gets them, whatever the role of another user is.

use http::StatusCode;
use http::header::CONTENT_DISPOSITION;

use super::http_messages::{PageBody, PageResponse};
use super::page_context::PageContext;
use super::page_error::PageError;
use crate::error::Error;
use crate::gateway::flow::{self, IMAGE_OPERATIONS, ImageFileBody};
use crate::gateway::replay::RUN_WINDOW;
use crate::gateway::store::{RequestId, Timestamp};
use crate::image::Format;
use crate::wire::admin::types;

/// The maximum number of requests in the list (our choice).
const RECENT_MAX: u32 = 8;

/// The images of a record.
#[derive(Default)]
pub(super) struct StoredImages {
    /// The paths of the files.
    pub(super) paths: Vec<String>,
    /// True if the request is in progress.
    pub(super) is_running: bool,
}

/// Returns the images of a record of the signed-in user; none if it belongs to another user.
pub(super) async fn of_record(context: &PageContext<'_>, record: &types::Record) -> Result<StoredImages, PageError> {
    let is_image_request = IMAGE_OPERATIONS.contains(&record.operation.as_str());
    if !is_image_request || context.own_user_id().is_none_or(|user| user.as_str() != record.user) {
        return Ok(StoredImages::default());
    }
    let id = RequestId::from(record.request_id.as_str());
    let Some(run) = flow::find_image_run_by_id(&context.gateway.images.replay, &id).await? else {
        return Ok(StoredImages::default());
    };
    let is_running = run.is_running || record.state == types::RecordState::Running;
    // The answer may have no image, or its file may be lost.
    let has_images = flow::open_image(&context.gateway.images.cutoff, run, 0).await.is_some();
    let count = if has_images { record.delivered.len() } else { 0 };
    let paths = (0..count).map(|index| format!("/records/{id}/images/{index}")).collect();
    Ok(StoredImages { paths, is_running })
}

/// Sends the file of an image of a record of the signed-in user.
pub(super) async fn send_record_image(
    context: &PageContext<'_>,
    id: &str,
    index: &str,
) -> Result<PageResponse, PageError> {
    let record = context.console().retrieve_record(context.actor()?, id).await?;
    if context.own_user_id().is_none_or(|user| user.as_str() != record.user) {
        return Err(PageError::NotFound);
    }
    let run = flow::find_image_run_by_id(&context.gateway.images.replay, &record.request_id.as_str().into()).await?;
    let index: usize = index.parse().map_err(|_| PageError::NotFound)?;
    let image = flow::open_image(&context.gateway.images.cutoff, run.ok_or(PageError::NotFound)?, index).await;
    Ok(image_response(image.ok_or(PageError::NotFound)?, index))
}

/// Returns the records of the user's newest requests whose answers are kept or in progress, the newest first.
pub(super) async fn recent_records(context: &PageContext<'_>) -> Result<Vec<types::Record>, PageError> {
    let Some(user) = context.own_user_id() else { return Ok(Vec::new()) };
    let since = Timestamp::now() - RUN_WINDOW;
    let mut records = Vec::new();
    for id in flow::list_image_runs(&context.gateway.images.replay, &user, since, RECENT_MAX).await? {
        match context.console().retrieve_record(context.actor()?, id.as_str()).await {
            Ok(record) => records.push(record),
            // It was removed meanwhile.
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(records)
}

/// The answer with the file of an image.
pub(super) fn image_response((format, body): (Format, ImageFileBody), index: usize) -> PageResponse {
    let name = format!("inline; filename=\"imagate-{index}.{}\"", format.extension());
    let response = PageResponse::with_body(StatusCode::OK, content_type(format), PageBody::Image(Box::new(body)));
    response.with_header(CONTENT_DISPOSITION, &name)
}

const fn content_type(format: Format) -> &'static str {
    match format {
        Format::Png => "image/png",
        Format::Jpeg => "image/jpeg",
        Format::Webp => "image/webp",
        Format::Gif => "image/gif",
    }
}
