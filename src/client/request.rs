//! Requests for images, in types that exclude most values which the service would refuse.
//!
//! The bounds come from the API document through the generated tables; none is repeated here. Everything else is checked
//! before the request is sent: the prompt, the name of the model, the idempotency key, and values that are valid alone
//! but not together.

mod edit;
mod options;

pub use edit::EditRequest;
pub(super) use options::{AnswerMode, HeaderOptions, ImageOptions};

use std::borrow::Cow;

use crate::image::Format;
use crate::tables::{FieldKind, IMAGE_GENERATION_FIELDS, IMAGE_MODELS};
use crate::wire::Bounded;
use crate::wire::types::ImageModel;

/// The number of images that one request may make.
pub type ImageCount = Bounded<{ bounds("n").0 }, { bounds("n").1 }>;

/// The number of intermediate images that a stream may contain.
pub type PartialImages = Bounded<{ bounds("partial_images").0 }, { bounds("partial_images").1 }>;

/// The compression setting of an image: 0 gives the smallest file, 100 the best quality.
pub type Compression = Bounded<{ bounds("output_compression").0 }, { bounds("output_compression").1 }>;

/// A file format with its options: png is lossless and has no compression to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Output {
    /// Lossless, and large.
    #[default]
    Png,
    /// For photographs and drafts.
    Jpeg {
        /// The compression setting.
        compression: Compression,
    },
    /// Smaller than jpeg at the same quality.
    Webp {
        /// The compression setting.
        compression: Compression,
    },
    /// Still or animated. Only models that an operator has added deliver it.
    Gif,
}

/// The service's reaction if an image of 3840x2160 or 2160x3840 in high or medium quality fails.
///
/// The replacement is an image of the same size in medium quality, or of 1536x1024 or 1024x1536 in medium quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fallback {
    /// The request fails.
    Never,
    /// A replacement is made if nothing can have been paid for.
    Unpaid,
    /// A replacement is made after every failure except a refusal; the requested image may be paid for as well.
    Always,
}

/// The name of an image model, as the service spells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelName(Cow<'static, str>);

/// A request for images.
///
/// ```
/// use imagate::client::{Compression, GenerateRequest, ImageCount, Output};
/// use imagate::{size, types::Quality};
///
/// let request = GenerateRequest::new("A red fox in fresh snow, soft morning light")
///     .size(size!("1536x1024"))
///     .quality(Quality::Low)
///     .format(Output::Webp { compression: Compression::of::<80>() })
///     .count(ImageCount::of::<2>());
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is sent with `client.images().generate(…)`"]
pub struct GenerateRequest {
    options: ImageOptions,
}

// === impl Fallback ===

impl Fallback {
    /// Returns the value of the header.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Unpaid => "unpaid",
            Self::Always => "always",
        }
    }
}

// === impl Output ===

impl Output {
    /// Jpeg in its best quality.
    pub const JPEG: Self = Self::Jpeg { compression: Compression::MAX };
    /// Webp in its best quality.
    pub const WEBP: Self = Self::Webp { compression: Compression::MAX };

    /// Returns the file format alone.
    #[must_use]
    pub const fn format(self) -> Format {
        match self {
            Self::Png => Format::Png,
            Self::Jpeg { .. } => Format::Jpeg,
            Self::Webp { .. } => Format::Webp,
            Self::Gif => Format::Gif,
        }
    }

    /// Returns the compression, if the format has one.
    #[must_use]
    pub const fn compression(self) -> Option<Compression> {
        match self {
            Self::Png | Self::Gif => None,
            Self::Jpeg { compression } | Self::Webp { compression } => Some(compression),
        }
    }
}

impl From<Format> for Output {
    fn from(format: Format) -> Self {
        match format {
            Format::Png => Self::Png,
            Format::Jpeg => Self::JPEG,
            Format::Webp => Self::WEBP,
            Format::Gif => Self::Gif,
        }
    }
}

// === impl ModelName ===

impl ModelName {
    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ModelName {
    fn default() -> Self {
        Self(Cow::Borrowed(IMAGE_MODELS[0].id))
    }
}

impl From<ImageModel> for ModelName {
    fn from(model: ImageModel) -> Self {
        Self(model.to_string().into())
    }
}

impl From<String> for ModelName {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl From<&str> for ModelName {
    fn from(name: &str) -> Self {
        Self(name.to_owned().into())
    }
}

// === impl GenerateRequest ===

impl GenerateRequest {
    /// Creates a request with this prompt, for one image; the model chooses everything else.
    pub fn new(prompt: impl Into<String>) -> Self {
        Self { options: ImageOptions::new(prompt.into()) }
    }

    pub(super) fn into_options(self) -> ImageOptions {
        self.options
    }
}

options::setters!(GenerateRequest);

impl From<&Self> for GenerateRequest {
    fn from(request: &Self) -> Self {
        request.clone()
    }
}

impl From<String> for GenerateRequest {
    fn from(prompt: String) -> Self {
        Self::new(prompt)
    }
}

impl From<&str> for GenerateRequest {
    fn from(prompt: &str) -> Self {
        Self::new(prompt)
    }
}

/// Returns the bounds of an integer field of the request, as the API document states them.
const fn bounds(name: &str) -> (i64, i64) {
    let mut index = 0;
    while index < IMAGE_GENERATION_FIELDS.len() {
        let field = &IMAGE_GENERATION_FIELDS[index];
        if let FieldKind::Integer { min, max } = field.kind
            && is_equal(field.name, name)
        {
            return (min, max);
        }
        index += 1;
    }
    // This function runs only at compile time, for the types above, whose fields exist.
    (0, 0)
}

/// Returns the maximum number of characters of a text field of the request, as the API document states it.
const fn max_characters(name: &str) -> usize {
    let mut index = 0;
    while index < IMAGE_GENERATION_FIELDS.len() {
        let field = &IMAGE_GENERATION_FIELDS[index];
        if let FieldKind::Text { max, .. } = field.kind
            && is_equal(field.name, name)
        {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "thousands, for the only field that has such a bound"
            )]
            return max as usize;
        }
        index += 1;
    }
    0
}

/// Compares two texts at compile time, because `==` on `str` is not `const` yet.
const fn is_equal(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let mut index = 0;
    while index < left.len() && index < right.len() && left[index] == right[index] {
        index += 1;
    }
    index == left.len() && index == right.len()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::types::{Background, Moderation, Quality};

    #[track_caller]
    fn check(request: GenerateRequest, mode: AnswerMode, expected: &Value) {
        let body = request.into_options().into_members(mode).unwrap().text();
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), *expected);
    }

    #[test]
    fn options_that_are_not_set_are_left_out() {
        check("a fox".into(), AnswerMode::Whole, &json!({"model": "gpt-image-2", "prompt": "a fox"}));
    }

    #[test]
    fn options_that_are_set_are_sent() {
        let request = GenerateRequest::new("a fox")
            .model(ImageModel::GptImage220260421)
            .size(crate::size!("1536x1024"))
            .quality(Quality::High)
            .format(Output::Jpeg { compression: Compression::new(0).unwrap() })
            .count(ImageCount::MAX)
            .background(Background::Opaque)
            .moderation(Moderation::Low)
            .user("u-1");
        let expected = json!({
            "model": "gpt-image-2-2026-04-21", "prompt": "a fox", "size": "1536x1024", "quality": "high", "n": 10,
            "output_format": "jpeg", "output_compression": 0, "background": "opaque", "moderation": "low", "user": "u-1",
        });
        check(request, AnswerMode::Whole, &expected);
    }

    #[test]
    fn a_model_that_the_document_does_not_name_is_sent_unchanged() {
        check(
            GenerateRequest::new("a").model("sketch-1"),
            AnswerMode::Whole,
            &json!({"model": "sketch-1", "prompt": "a"}),
        );
        let error = GenerateRequest::new("a").model("").into_options().into_members(AnswerMode::Whole).unwrap_err();
        assert_eq!(error.param(), Some("model"));
    }

    #[test]
    fn words_and_fields_that_the_document_does_not_name_are_sent_unchanged() {
        let request = GenerateRequest::new("a")
            .quality("xhigh")
            .background("transparent".to_owned())
            .moderation("high")
            .safety_identifier("u-2")
            .set("size", "512x512")
            .set("seed", json!(7))
            .set("stream", true);
        let expected = json!({
            "model": "gpt-image-2", "prompt": "a", "quality": "xhigh", "background": "transparent", "moderation": "high",
            "safety_identifier": "u-2", "size": "512x512", "seed": 7, "stream": false,
        });
        check(request, AnswerMode::Whole, &expected);
        assert_eq!(crate::client::OpenWord::from("high"), Quality::High);
    }

    #[test]
    fn png_has_no_compression() {
        check(
            GenerateRequest::new("a").format(Format::Png),
            AnswerMode::Whole,
            &json!({"model": "gpt-image-2", "prompt": "a", "output_format": "png"}),
        );
    }

    #[test]
    fn a_stream_request_sets_stream() {
        let request = GenerateRequest::new("a").partial_images(PartialImages::new(2).unwrap());
        let expected = json!({"model": "gpt-image-2", "prompt": "a", "stream": true, "partial_images": 2});
        check(request, AnswerMode::Events, &expected);
    }
}
