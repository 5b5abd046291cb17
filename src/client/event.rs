//! Reads the events of an image stream.
//!
//! The type of an event is read first, and then the members that this type has, both directly from the received bytes.
//! An event of an unknown type is passed on unchanged, unless it holds an image. An intermediate image that cannot be
//! read is skipped, because the final image is the one that was paid for.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::lenient::{self, JsonMap};
use super::session::Session;
use super::sse::SseEvent;
use super::{Error, Image, Images, Json};
use crate::wire::types::ImageUsage;

/// The type of an event which states that there will be no image.
const ERROR: &str = "error";
/// The prefixes of the event types that this version knows.
const FAMILIES: [&str; 2] = ["image_generation", "image_edit"];

/// An event in the making of an image.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ImageEvent {
    /// An intermediate image.
    #[non_exhaustive]
    PartialImage {
        /// The number of the intermediate image in the stream, counted from 0.
        index: u32,
        /// The image in its current state.
        image: Image,
    },
    /// The final image. Nothing comes after it.
    #[non_exhaustive]
    Completed {
        /// The image; [`Image::answer`] returns everything that the service reported about it.
        image: Image,
        /// The tokens that were used, if the service reports them.
        usage: Option<ImageUsage>,
    },
    /// An event of a type that this version does not know, without an image.
    #[non_exhaustive]
    Other {
        /// The type of the event.
        kind: String,
        /// The event, unchanged; a JSON string if it is not JSON.
        json: Json,
    },
}

/// The members that distinguish the kinds of events.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ImageEventTag {
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

/// Reads an event; returns `None` for an end marker and for an intermediate image that cannot be read. `partials` is
/// the number of intermediate images before this event.
pub(super) fn read_event(event: &SseEvent, partials: u32, session: &Session) -> Result<Option<ImageEvent>, Error> {
    // Other services end a stream with this marker, which is not JSON.
    if event.data == b"[DONE]" {
        return Ok(None);
    }
    // The name of the event decides if the data has no type, or is not JSON.
    let tag: ImageEventTag = serde_json::from_slice(&event.data).unwrap_or_default();
    let kind = tag.kind.as_deref().unwrap_or(&event.name);
    let (family, step) = kind.rsplit_once('.').unwrap_or(("", kind));
    let is_known = FAMILIES.contains(&family);
    match step {
        "completed" if is_known => Ok(Some(ImageEvent::completed(&event_images(event, session)?))),
        "partial_image" if is_known => Ok(partial_image(event, partials, session).ok()),
        _ if kind == ERROR || tag.error.is_some() => {
            // The event is an error, whatever its other members are.
            let detail = lenient::read_object(&event.data).map(Value::Object).unwrap_or_default();
            Err(Error::from_stream_event(&detail, session))
        }
        _ => Ok(Some(read_unknown_event(kind, event, partials, session))),
    }
}

/// Reads an event of an unknown type. If the event holds an image, the last word of the type decides whether the image
/// is final.
fn read_unknown_event(kind: &str, event: &SseEvent, partials: u32, session: &Session) -> ImageEvent {
    let with_image = match kind.rsplit('.').next() {
        Some("completed") => event_images(event, session).map(|images| ImageEvent::completed(&images)).ok(),
        Some("partial_image") => partial_image(event, partials, session).ok(),
        _ => None,
    };
    with_image.unwrap_or_else(|| {
        let json = Json::from_text_or_string(String::from_utf8_lossy(&event.data).into_owned());
        ImageEvent::Other { kind: kind.to_owned(), json }
    })
}

fn partial_image(event: &SseEvent, partials: u32, session: &Session) -> Result<ImageEvent, Error> {
    let members = members(event, session)?;
    let index = members.get("partial_image_index").and_then(|index| u32::try_from(index.as_u64()?).ok());
    let images = Images::new(lenient::response_from_event(members), session.head())?;
    Ok(ImageEvent::PartialImage { index: index.unwrap_or(partials), image: images.first() })
}

/// Returns the image of an event, as an answer of its own.
fn event_images(event: &SseEvent, session: &Session) -> Result<Images, Error> {
    Images::new(lenient::response_from_event(members(event, session)?), session.head())
}

fn members(event: &SseEvent, session: &Session) -> Result<JsonMap, Error> {
    lenient::read_object(&event.data).map_err(|error| {
        Error::unintelligible("this version does not understand an event of the stream", session.head())
            .with_source(error)
    })
}
