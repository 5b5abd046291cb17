//! The members of an answer or event with images, as far as this version knows them.
//!
//! The images are paid for, so a member that is missing or of an unexpected type does not affect the others. The text
//! itself is kept, with everything that is not read here.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::answer_splitter::image_positions;
use super::base64_text::Base64Text;
use super::raw_json::{Json, UnreadableText};
use crate::client::OpenWord;
use crate::wire::types::{ImageUsage, OutputFormat, ResolvedBackground, ResolvedQuality};

/// The members that belong to an image: of an element of `data`, or of an event.
const IMAGE_MEMBERS: [&str; 3] = ["b64_json", "url", "revised_prompt"];

/// The members of an answer or event, in the order in which [`AnswerMembers::read_object`] takes them: its own, then
/// those of [`IMAGE_MEMBERS`], then those of [`AnswerFacts::new`].
#[rustfmt::skip]
const ANSWER_MEMBERS: [&str; 15] = [
    "type", "error", "partial_image_index", "data",
    "b64_json", "url", "revised_prompt",
    "created", "created_at", "model", "size", "quality", "output_format", "background", "usage",
];

/// An image as the service sent it: its bytes, its address, or both.
pub(super) struct ImageMembers {
    pub(super) base64: Option<Base64Text>,
    /// Other services send it; it is not in the document of the gateway.
    pub(super) url: Option<String>,
    pub(super) revised_prompt: Option<String>,
}

/// The members of an answer or event.
pub(super) struct AnswerMembers {
    /// The whole answer or event; a JSON string if it is not JSON.
    pub(super) json: Json,
    /// The type of an event.
    pub(super) kind: Option<String>,
    /// True if there is a member `error` that is not null.
    pub(super) has_error: bool,
    /// The number of the intermediate image.
    pub(super) partial_index: Option<u32>,
    pub(super) images: Vec<ImageMembers>,
    /// The number of entries without an image; some services send one for each image that was not made.
    pub(super) empty_entries: usize,
    pub(super) facts: AnswerFacts,
}

/// The members that state how the images were made.
#[derive(Debug, Default)]
pub(super) struct AnswerFacts {
    pub(super) created: Option<i64>,
    pub(super) model: Option<String>,
    pub(super) size: Option<String>,
    pub(super) quality: Option<OpenWord<ResolvedQuality>>,
    pub(super) output_format: Option<OpenWord<OutputFormat>>,
    pub(super) background: Option<OpenWord<ResolvedBackground>>,
    pub(super) usage: Option<ImageUsage>,
}

// === impl ImageMembers ===

impl ImageMembers {
    /// Returns `None` if there is no image.
    fn new([base64, url, revised_prompt]: [Option<Json>; 3]) -> Option<Self> {
        let base64 = base64.and_then(Base64Text::new);
        let url = read::<String>(url).filter(|url| !url.is_empty());
        (base64.is_some() || url.is_some()).then(|| Self { base64, url, revised_prompt: read(revised_prompt) })
    }
}

// === impl AnswerMembers ===

impl AnswerMembers {
    /// Reads an answer or event. If it is not JSON, as with the number `Infinity` that some servers write, only its images
    /// are read. Returns the text again if it has none.
    pub(super) fn read(text: String) -> Result<Self, UnreadableText> {
        Self::read_object(text).or_else(Self::read_images)
    }

    /// Reads an answer or event, in one pass; the list of images of an answer takes a second one. Returns the text again
    /// if it is not a JSON object.
    fn read_object(text: String) -> Result<Self, UnreadableText> {
        let (json, members) = Json::read_object(text, ANSWER_MEMBERS)?;
        let [kind, error, partial_index, data, members @ ..] = members;
        let [base64, url, revised_prompt, facts @ ..] = members;
        let entries = match (data, &base64, &url) {
            (Some(data), None, None) => data.members_of_elements(IMAGE_MEMBERS),
            _ => vec![[base64, url, revised_prompt]],
        };
        let entry_count = entries.len();
        let images: Vec<ImageMembers> = entries.into_iter().filter_map(ImageMembers::new).collect();
        Ok(Self {
            json,
            kind: read(kind),
            has_error: error.is_some_and(|error| !error.is_null()),
            partial_index: read(partial_index),
            empty_entries: entry_count - images.len(),
            images,
            facts: AnswerFacts::new(facts),
        })
    }

    /// Reads the images of a text that is not a JSON object.
    fn read_images(unreadable: UnreadableText) -> Result<Self, UnreadableText> {
        let positions = image_positions(&unreadable.text);
        if positions.is_empty() {
            return Err(unreadable);
        }
        let (json, source) = (Json::from(&*unreadable.text), Arc::new(unreadable.text));
        let parts = positions.into_iter().map(|position| Json::part(&source, position));
        let entries: Vec<Option<ImageMembers>> =
            parts.map(|base64| ImageMembers::new([Some(base64), None, None])).collect();
        let entry_count = entries.len();
        let images: Vec<ImageMembers> = entries.into_iter().flatten().collect();
        Ok(Self {
            json,
            kind: None,
            has_error: false,
            partial_index: None,
            empty_entries: entry_count - images.len(),
            images,
            facts: AnswerFacts::default(),
        })
    }
}

// === impl AnswerFacts ===

impl AnswerFacts {
    fn new([created, created_at, model, size, quality, output_format, background, usage]: [Option<Json>; 8]) -> Self {
        Self {
            created: created.or(created_at).and_then(|created| whole_seconds(&created)),
            model: read(model),
            size: read(size),
            quality: read(quality),
            output_format: read(output_format),
            background: read(background),
            usage: read(usage),
        }
    }
}

/// Reads a member; returns `None` if it does not have this type.
fn read<T: DeserializeOwned>(member: Option<Json>) -> Option<T> {
    member?.read()
}

/// Returns the time in whole seconds, because some services send fractions.
fn whole_seconds(created: &Json) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "only the whole seconds are needed")]
    let from_fraction = || created.read().map(|seconds: f64| seconds as i64);
    created.read().or_else(from_fraction)
}
