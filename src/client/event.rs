//! Reads the events of an image stream.
//!
//! The members of an event are read in one pass, directly from the received bytes. An event of an unknown type is passed
//! on unchanged, unless it holds an image. An intermediate image that cannot be read is skipped, because the final image
//! is the one that was paid for.

use super::answer_members::AnswerMembers;
use super::raw_json::{UnreadableText, lossy_text};
use super::session::Session;
use super::sse::SseEvent;
use super::{Error, Image, Images, Json};
use crate::wire::types::ImageUsage;

/// The type of an event which states that there will be no image.
const ERROR: &str = "error";
/// The last words of the types of events with an image.
const COMPLETED: &str = "completed";
const PARTIAL_IMAGE: &str = "partial_image";
/// The prefixes of the event types that this version knows.
const FAMILIES: [&str; 2] = ["image_generation", "image_edit"];
/// The message for a final image that cannot be read.
const UNREADABLE: &str = "this version does not understand an event of the stream";

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

// === impl ImageEvent ===

impl ImageEvent {
    pub(super) fn completed(images: &Images) -> Self {
        Self::Completed { image: images.first(), usage: images.usage().cloned() }
    }
}

/// Reads an event; returns `None` for an end marker and for an intermediate image that cannot be read. `partials` is
/// the number of intermediate images before this event.
pub(super) fn read_event(event: SseEvent, partials: u32, session: &Session) -> Result<Option<ImageEvent>, Error> {
    // Other services end a stream with this marker, which is not JSON.
    if event.data == b"[DONE]" {
        return Ok(None);
    }
    let text = String::from_utf8(event.data).unwrap_or_else(|error| lossy_text(error.as_bytes()));
    let members = match AnswerMembers::read(text) {
        Ok(members) => members,
        Err(unreadable) => return read_opaque_event(event.name, unreadable, session),
    };
    // The name of the event decides if the data has no type.
    let kind = members.kind.clone().unwrap_or(event.name);
    let (family, step) = kind.rsplit_once('.').unwrap_or(("", &kind));
    let is_known = FAMILIES.contains(&family);
    let is_error = kind == ERROR || members.has_error;
    let json = members.json.clone();
    let event = match step {
        COMPLETED if is_known => return completed(members, session).map(Some),
        PARTIAL_IMAGE if is_known => return Ok(partial_image(members, partials, session).ok()),
        _ if is_error => return Err(Error::from_stream_event(&json, session)),
        // An event of an unknown type may hold an image nevertheless.
        COMPLETED => completed(members, session).ok(),
        PARTIAL_IMAGE => partial_image(members, partials, session).ok(),
        _ => None,
    };
    Ok(Some(event.unwrap_or(ImageEvent::Other { kind, json })))
}

/// Reads an event whose data is not a JSON object. Only its name tells its type.
fn read_opaque_event(
    kind: String,
    UnreadableText { error, text }: UnreadableText,
    session: &Session,
) -> Result<Option<ImageEvent>, Error> {
    let (family, step) = kind.rsplit_once('.').unwrap_or(("", &kind));
    let json = Json::from_text_or_string(text);
    match step {
        COMPLETED if FAMILIES.contains(&family) => {
            let error = Error::unintelligible(UNREADABLE, session.head()).with_source(error);
            Err(error.with_body(json.text().to_owned(), &session.secrets()))
        }
        PARTIAL_IMAGE if FAMILIES.contains(&family) => Ok(None),
        ERROR => Err(Error::from_stream_event(&json, session)),
        _ => Ok(Some(ImageEvent::Other { kind, json })),
    }
}

/// Returns the final image of an event, as an answer of its own.
fn completed(members: AnswerMembers, session: &Session) -> Result<ImageEvent, Error> {
    Images::from_members(members, 1, session).map(|images| ImageEvent::completed(&images))
}

fn partial_image(members: AnswerMembers, partials: u32, session: &Session) -> Result<ImageEvent, Error> {
    let index = members.partial_index.unwrap_or(partials);
    let images = Images::from_members(members, 1, session)?;
    Ok(ImageEvent::PartialImage { index, image: images.first() })
}
