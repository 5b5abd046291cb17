//! Makes links to the images of stored answers, and finds the image of a link.

use chrono::{DateTime, Utc};

use super::image_run::{ImageFileBody, lookup_error, open_image};
use super::image_services::ImageServices;
use crate::error::Error;
use crate::gateway::config::PublicUrl;
use crate::gateway::image_links::{ImageLink, ImageLinkSealer, link_end};
use crate::gateway::keys::Caller;
use crate::gateway::replay::{AnswerId, AnswerStore, AnswerView};
use crate::gateway::store::Timestamp;
use crate::image::Format;

/// The image that a link leads to.
pub(crate) struct LinkedImage {
    /// The format of the file.
    pub(crate) format: Format,
    /// The file.
    pub(crate) body: ImageFileBody,
    /// The time from which the link is not valid.
    pub(crate) expires_at: DateTime<Utc>,
}

/// Returns the image to which the token of a link leads. Returns `None` if the token was not sealed here or has ended,
/// if its answer is not kept any more, or if its API key is not valid.
///
/// # Errors
///
/// Returns [`Error::Unavailable`] if the store cannot be read.
pub(crate) async fn find_linked_image(services: &ImageServices, token: &str) -> Result<Option<LinkedImage>, Error> {
    let Some(link) = link_sealer(&services.replay).open(token, Utc::now()) else { return Ok(None) };
    let is_valid = services.keys.is_valid_key(&link.key).await.map_err(|error| {
        tracing::error!(error = &*error as &dyn std::error::Error, "the store could not check the key of a link");
        Error::Unavailable
    })?;
    if !is_valid {
        return Ok(None);
    }
    let ImageLink { scope, request_id, index, expires_at, .. } = link;
    let found = services.replay.find_stored_answer(&AnswerId { scope, request_id }).await;
    let Some(view) = found.map_err(|error| lookup_error(&error))? else { return Ok(None) };
    let image = open_image(&services.cutoff, view, usize::from(index)).await;
    Ok(image.map(|(format, body)| LinkedImage { format, body, expires_at }))
}

/// Returns the paths of the links to the first `count` images of a stored answer of this caller.
///
/// # Errors
///
/// Returns [`Error::Unavailable`] if the system has no random bytes.
pub(crate) fn link_paths(
    replay: &AnswerStore,
    caller: &Caller,
    view: &AnswerView,
    count: usize,
) -> Result<Vec<String>, Error> {
    let links = link_sealer(replay);
    let expires_at = link_end(Timestamp::now(), view.stored_until);
    let indices = (0..=u8::MAX).take(count);
    let paths = indices.map(|index| {
        let (AnswerId { scope, request_id }, key) = (view.id.clone(), caller.public_id().clone());
        links.path(&ImageLink { scope, request_id, key, index, expires_at })
    });
    paths.collect::<Result<_, _>>().map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "a link could not be sealed");
        Error::Unavailable
    })
}

/// Returns the base of the links: `public_url`, or else the host of the request. Without both, the links are paths.
pub(crate) fn base_url(public_url: Option<&PublicUrl>, host: Option<&str>) -> String {
    let base = public_url.map(|url| url.as_str().to_owned());
    base.or_else(|| host.map(|host| format!("http://{host}"))).unwrap_or_default()
}

/// Makes and opens the links to images of stored answers.
fn link_sealer(replay: &AnswerStore) -> ImageLinkSealer {
    ImageLinkSealer::new(replay.vault().clone())
}
