//! What to draw, in types that hold no value which the service would refuse.
//!
//! The bounds come from the document by way of the tables; none is repeated here. The prompt alone is checked when it is
//! sent, because a type for it would only move the same check to another line.

use std::time::Duration;

use super::Error;
use crate::image::{Format, Size, SizeRequest};
use crate::tables::{CLIENT_TIMEOUT_LARGE_SECONDS, CLIENT_TIMEOUT_SECONDS, IMAGE_GENERATION_FIELDS, Kind};
use crate::wire::Bounded;
use crate::wire::types::error::ConversionError;
use crate::wire::types::{Background, ImageGenerationRequest, ImageModel, Moderation, OutputFormat, Prompt, Quality};

/// How many images one request may make.
pub type ImageCount = Bounded<{ bounds("n").0 }, { bounds("n").1 }>;

/// How strongly an image is compressed: 0 is the smallest file, 100 the best picture.
pub type Compression = Bounded<{ bounds("output_compression").0 }, { bounds("output_compression").1 }>;

/// A file format with what goes with it: png is without loss and has no compression to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Output {
    /// Without loss, and large.
    #[default]
    Png,
    /// For photographs and drafts.
    Jpeg {
        /// How strongly to compress.
        compression: Compression,
    },
    /// Smaller than jpeg at the same quality.
    Webp {
        /// How strongly to compress.
        compression: Compression,
    },
}

/// A request for images.
///
/// ```
/// use imagate::client::{Compression, GenerateRequest, ImageCount, Output};
/// use imagate::{size, types::Quality};
///
/// let request = GenerateRequest::new("A red fox in fresh snow, soft morning light")
///     .size(size!("1536x1024"))
///     .quality(Quality::Low)
///     .format(Output::Webp { compression: Compression::new(80)? })
///     .count(ImageCount::new(2)?);
/// # Ok::<(), imagate::client::OutOfBounds>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is sent with `client.images().generate(…)`"]
pub struct GenerateRequest {
    prompt: String,
    model: ImageModel,
    size: SizeRequest,
    quality: Option<Quality>,
    output: Option<Output>,
    count: Option<ImageCount>,
    background: Option<Background>,
    moderation: Option<Moderation>,
    user: Option<String>,
    time_limit: Option<Duration>,
}

// === impl Output ===

impl Output {
    /// Jpeg in its best quality.
    pub const JPEG: Self = Self::Jpeg { compression: Compression::MAX };
    /// Webp in its best quality.
    pub const WEBP: Self = Self::Webp { compression: Compression::MAX };

    /// The file format alone.
    #[must_use]
    pub const fn format(self) -> Format {
        match self {
            Self::Png => Format::Png,
            Self::Jpeg { .. } => Format::Jpeg,
            Self::Webp { .. } => Format::Webp,
        }
    }

    /// The compression, where the format has one.
    #[must_use]
    pub const fn compression(self) -> Option<Compression> {
        match self {
            Self::Png => None,
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
        }
    }
}

// === impl GenerateRequest ===

impl GenerateRequest {
    /// A request with this prompt, for one image, everything else as the model likes it.
    pub fn new(prompt: impl Into<String>) -> Self {
        Self {
            prompt: prompt.into(),
            model: ImageModel::GptImage2,
            size: SizeRequest::Auto,
            quality: None,
            output: None,
            count: None,
            background: None,
            moderation: None,
            user: None,
            time_limit: None,
        }
    }

    /// Width and height; see [`size!`](crate::size).
    pub fn size(mut self, size: impl Into<SizeRequest>) -> Self {
        self.size = size.into();
        self
    }

    /// How much work goes into the image.
    pub fn quality(mut self, quality: Quality) -> Self {
        self.quality = Some(quality);
        self
    }

    /// The file format; a [`Format`] alone stands for its best quality.
    pub fn format(mut self, output: impl Into<Output>) -> Self {
        self.output = Some(output.into());
        self
    }

    /// How many images. Requests for a single one are easier to repeat and to account for.
    pub fn count(mut self, count: ImageCount) -> Self {
        self.count = Some(count);
        self
    }

    /// The model, or its dated snapshot.
    pub fn model(mut self, model: ImageModel) -> Self {
        self.model = model;
        self
    }

    /// What is behind the subject.
    pub fn background(mut self, background: Background) -> Self {
        self.background = Some(background);
        self
    }

    /// How strict the content filter of the model is.
    pub fn moderation(mut self, moderation: Moderation) -> Self {
        self.moderation = Some(moderation);
        self
    }

    /// An identifier of your end user; it is kept with the usage record.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// How long each attempt may take, the whole answer included, instead of 120 seconds, or 300 above 2560x1440.
    ///
    /// What is given up may be made and charged for nevertheless.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    pub(super) fn time_limit(&self) -> Duration {
        let is_large = self.size.exact().is_some_and(Size::is_large);
        let seconds = if is_large { CLIENT_TIMEOUT_LARGE_SECONDS } else { CLIENT_TIMEOUT_SECONDS };
        self.time_limit.unwrap_or(Duration::from_secs(seconds))
    }

    /// The request as it goes over the wire. What was not chosen is left out, so that the service decides.
    pub(super) fn into_wire(self) -> Result<ImageGenerationRequest, Error> {
        if self.prompt.trim().is_empty() {
            return Err(Error::request("prompt", "the prompt is empty"));
        }
        let refuse = |error: ConversionError| Error::request("prompt", format!("the prompt is {error}"));
        let prompt = Prompt::try_from(self.prompt).map_err(refuse)?;
        let request = ImageGenerationRequest::builder()
            .model(self.model)
            .prompt(prompt)
            .n(self.count)
            .size(self.size.exact().map(SizeRequest::Exact))
            .quality(self.quality)
            .output_format(self.output.map(|output| wire_format(output.format())))
            .output_compression(self.output.and_then(Output::compression))
            .background(self.background)
            .moderation(self.moderation)
            .user(self.user);
        request.try_into().map_err(refuse)
    }
}

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

fn wire_format(format: Format) -> OutputFormat {
    match format {
        Format::Png => OutputFormat::Png,
        Format::Jpeg => OutputFormat::Jpeg,
        Format::Webp => OutputFormat::Webp,
    }
}

/// The bounds of a whole number of the request, as the document has them.
const fn bounds(name: &str) -> (i64, i64) {
    let mut row = 0;
    while row < IMAGE_GENERATION_FIELDS.len() {
        let field = &IMAGE_GENERATION_FIELDS[row];
        if let Kind::Integer { min, max } = field.kind
            && is_same(field.name, name)
        {
            return (min, max);
        }
        row += 1;
    }
    // Only ever evaluated by the compiler, for the two types above.
    (0, 0)
}

/// `==` of texts is not for constants yet.
const fn is_same(left: &str, right: &str) -> bool {
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

    #[track_caller]
    fn check(request: GenerateRequest, expected: &Value) {
        let mut body = serde_json::to_value(request.into_wire().unwrap()).unwrap();
        // The generator writes `stream` whatever it is; `null` and absent mean the same.
        if let Some(members) = body.as_object_mut() {
            members.retain(|_, value| !value.is_null() && *value != json!(false));
        }
        assert_eq!(body, *expected);
    }

    #[test]
    fn what_was_not_chosen_is_left_out() {
        check("a fox".into(), &json!({"model": "gpt-image-2", "prompt": "a fox"}));
    }

    #[test]
    fn everything_that_was_chosen_is_sent() {
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
        check(request, &expected);
    }

    #[test]
    fn png_has_no_compression() {
        check(
            GenerateRequest::new("a").format(Format::Png),
            &json!({"model": "gpt-image-2", "prompt": "a", "output_format": "png"}),
        );
    }

    #[test]
    fn an_empty_prompt_is_refused_before_anything_is_sent() {
        for prompt in ["", " \n\t", &"x".repeat(32_001)] {
            let error = GenerateRequest::new(prompt).into_wire().unwrap_err();
            assert!(error.is_invalid_request() && error.param() == Some("prompt") && !error.is_retryable(), "{error}");
        }
    }

    #[test]
    fn large_images_may_take_longer() {
        let limit = |size: Size| GenerateRequest::new("a").size(size).time_limit().as_secs();
        assert_eq!(limit(crate::size!("2560x1440")), 120);
        assert_eq!(limit(crate::size!("2576x1440")), 300);
        assert_eq!(GenerateRequest::new("a").time_limit().as_secs(), 120);
    }
}
