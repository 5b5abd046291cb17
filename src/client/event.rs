//! What the events of an image stream mean.
//!
//! The type is read first, by itself; only then what belongs to it, straight from the bytes. An event of a later version
//! is handed on as it came. An intermediate image that cannot be read is passed over: the final one is what was paid for.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::lenient::{self, Members};
use super::session::Session;
use super::sse::Event;
use super::{Error, Image, Images, Json};
use crate::wire::types::ImageUsage;

/// The type of an event that says that there will be no image.
const ERROR: &str = "error";
/// The first words of the event types that this version knows.
const FAMILIES: [&str; 2] = ["image_generation", "image_edit"];

/// Something that happened while an image was made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ImageEvent {
    /// An intermediate image.
    #[non_exhaustive]
    PartialImage {
        /// Counts the intermediate images of the stream from 0.
        index: u32,
        /// The image as far as it is.
        image: Image,
    },
    /// The final image. Nothing comes after it.
    #[non_exhaustive]
    Completed {
        /// The image; [`Image::answer`] is everything that was said about it.
        image: Image,
        /// The tokens that were used, where the service says so.
        usage: Option<ImageUsage>,
    },
    /// An event of a type that this version does not know, and that holds no image.
    #[non_exhaustive]
    Other {
        /// Its type.
        kind: String,
        /// The event as it came.
        json: Json,
    },
}

/// What tells an event from another.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Tag {
    #[serde(rename = "type")]
    kind: Option<String>,
    error: Option<IgnoredAny>,
}

// === impl ImageEvent ===

impl ImageEvent {
    pub(super) fn completed(images: &Images) -> Self {
        Self::Completed { image: images.first(), usage: images.usage().cloned() }
    }
}

/// Reads an event; nothing where it has nothing to say about an image. `partials` is how many there were.
pub(super) fn read(event: &Event, partials: u32, session: &Session) -> Result<Option<ImageEvent>, Error> {
    // Other services end with this word; it is no JSON.
    if event.data == b"[DONE]" {
        return Ok(None);
    }
    let tag = tag(event, session)?;
    let kind = tag.kind.as_deref().unwrap_or(&event.name);
    let (family, step) = kind.rsplit_once('.').unwrap_or(("", kind));
    let is_known = FAMILIES.contains(&family);
    match step {
        "completed" if is_known => Ok(Some(ImageEvent::completed(&drawn(event, session)?))),
        "partial_image" if is_known => Ok(partial(event, partials, session).ok()),
        _ if kind == ERROR || tag.error.is_some() => {
            // Whatever it looks like, it says that it failed.
            Err(Error::in_stream(&serde_json::from_slice(&event.data).unwrap_or_default(), session))
        }
        _ => other(kind, event, partials, session),
    }
}

/// An event of a type that this version does not know. One that holds an image is what its last word says.
fn other(kind: &str, event: &Event, partials: u32, session: &Session) -> Result<Option<ImageEvent>, Error> {
    match kind.rsplit('.').next() {
        Some("completed") if let Ok(images) = drawn(event, session) => return Ok(Some(ImageEvent::completed(&images))),
        Some("partial_image") if let Ok(event) = partial(event, partials, session) => return Ok(Some(event)),
        _ => {}
    }
    let text = String::from_utf8_lossy(&event.data).into_owned();
    let json = Json::read_text(text).map_err(|error| unread(error, session))?;
    Ok(Some(ImageEvent::Other { kind: kind.to_owned(), json }))
}

fn tag(event: &Event, session: &Session) -> Result<Tag, Error> {
    match serde_json::from_slice(&event.data) {
        Ok(tag) => Ok(tag),
        Err(_) if event.name == ERROR => Ok(Tag::default()),
        Err(error) => Err(unread(error, session)),
    }
}

fn partial(event: &Event, partials: u32, session: &Session) -> Result<ImageEvent, Error> {
    let members = members(event, session)?;
    let index = members.get("partial_image_index").and_then(|index| u32::try_from(index.as_u64()?).ok());
    let images = Images::new(lenient::event(members), session.head())?;
    Ok(ImageEvent::PartialImage { index: index.unwrap_or(partials), image: images.first() })
}

/// The image of an event, in an answer of its own.
fn drawn(event: &Event, session: &Session) -> Result<Images, Error> {
    Images::new(lenient::event(members(event, session)?), session.head())
}

fn members(event: &Event, session: &Session) -> Result<Members, Error> {
    serde_json::from_slice(&event.data).map_err(|error| unread(error, session))
}

fn unread(error: serde_json::Error, session: &Session) -> Error {
    Error::unintelligible("an event of the stream is not what this version understands", session.head()).because(error)
}
