//! What the events of an image stream mean.
//!
//! The type is read first, by itself; only then what belongs to it, straight from the bytes. A type of a later version is
//! passed over, and so is an intermediate image that cannot be read: the final one is what was paid for.

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::session::Session;
use super::sse::Event;
use super::{Error, Image, Images};
use crate::wire::types::{self, ImageUsage, ImagesResponse};

/// The type of an event that says that there will be no image.
const ERROR: &str = "error";

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
}

/// What tells an event from another.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Tag {
    #[serde(rename = "type")]
    kind: Option<String>,
    error: Option<IgnoredAny>,
}

/// An event with an image. An unknown word about the image takes nothing from it.
#[derive(Deserialize)]
struct EncodedImage {
    #[serde(default, deserialize_with = "understood")]
    b64_json: Option<String>,
    /// The address of the image, in place of it or beside it.
    #[serde(default, deserialize_with = "understood")]
    url: Option<String>,
    #[serde(default, deserialize_with = "understood")]
    created_at: Option<i64>,
    #[serde(default, deserialize_with = "understood")]
    background: Option<types::ResolvedBackground>,
    #[serde(default, deserialize_with = "understood")]
    model: Option<String>,
    #[serde(default, deserialize_with = "understood")]
    output_format: Option<types::OutputFormat>,
    #[serde(default, deserialize_with = "understood")]
    partial_image_index: Option<u32>,
    #[serde(default, deserialize_with = "understood")]
    quality: Option<types::ResolvedQuality>,
    #[serde(default, deserialize_with = "understood")]
    revised_prompt: Option<String>,
    #[serde(default, deserialize_with = "understood")]
    size: Option<String>,
    #[serde(default, deserialize_with = "understood")]
    usage: Option<ImageUsage>,
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
    match tag.kind.as_deref().unwrap_or(&event.name) {
        "image_generation.completed" | "image_edit.completed" => {
            let picture = EncodedImage::read(event, session)?;
            Ok(Some(ImageEvent::completed(&picture.into_images(session)?)))
        }
        "image_generation.partial_image" | "image_edit.partial_image" => Ok(partial(event, partials, session).ok()),
        word if word == ERROR || tag.error.is_some() => {
            // Whatever it looks like, it says that it failed.
            Err(Error::in_stream(&serde_json::from_slice(&event.data).unwrap_or_default(), session))
        }
        _ => Ok(None),
    }
}

fn tag(event: &Event, session: &Session) -> Result<Tag, Error> {
    match serde_json::from_slice(&event.data) {
        Ok(tag) => Ok(tag),
        Err(_) if event.name == ERROR => Ok(Tag::default()),
        Err(error) => Err(unread(error, session)),
    }
}

fn partial(event: &Event, partials: u32, session: &Session) -> Result<ImageEvent, Error> {
    let picture = EncodedImage::read(event, session)?;
    let index = picture.partial_image_index.unwrap_or(partials);
    Ok(ImageEvent::PartialImage { index, image: picture.into_images(session)?.first() })
}

fn unread(error: serde_json::Error, session: &Session) -> Error {
    Error::unintelligible("an event of the stream is not what this version understands", session.head()).because(error)
}

// === impl EncodedImage ===

impl EncodedImage {
    fn read(event: &Event, session: &Session) -> Result<Self, Error> {
        serde_json::from_slice(&event.data).map_err(|error| unread(error, session))
    }

    /// As the answer that the same request would have had without a stream.
    fn into_images(self, session: &Session) -> Result<Images, Error> {
        let extra: Map<String, Value> = self.url.into_iter().map(|url| ("url".to_owned(), url.into())).collect();
        let b64_json = self.b64_json.unwrap_or_default();
        let image = types::Image { b64_json, revised_prompt: self.revised_prompt, extra };
        let response = ImagesResponse {
            background: self.background,
            created: self.created_at.unwrap_or(0),
            data: vec![image],
            model: self.model,
            output_format: self.output_format,
            quality: self.quality,
            size: self.size,
            usage: self.usage,
            extra: Map::default(),
        };
        Images::new(response, session.head())
    }
}

/// A word about the image, where it is one that this version knows.
fn understood<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).ok())
}
