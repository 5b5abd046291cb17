//! The options that all kinds of requests for images share.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::client::{Error, Fallback, ImageCount, ModelName, Output, PartialImages};
use crate::image::{Format, Size, SizeRequest};
use crate::tables::{CLIENT_TIMEOUT_LARGE_SECONDS, CLIENT_TIMEOUT_SECONDS, IDEMPOTENCY_KEY_MAX_CHARACTERS};
use crate::wire::types::error::ConversionError;
use crate::wire::types::{Background, ImageGenerationRequest, ImageModel, Moderation, OutputFormat, Prompt, Quality};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const FALLBACK: HeaderName = HeaderName::from_static("x-imagate-fallback");
/// The maximum number of characters of an idempotency key.
#[expect(clippy::cast_possible_truncation, reason = "a few hundred")]
const MAX_KEY_CHARACTERS: usize = IDEMPOTENCY_KEY_MAX_CHARACTERS as usize;

/// The properties of the images that a request asks for.
#[derive(Clone, Debug)]
pub(in crate::client) struct ImageOptions {
    pub(super) prompt: String,
    pub(super) model: ModelName,
    pub(super) size: SizeRequest,
    pub(super) quality: Option<Quality>,
    pub(super) output: Option<Output>,
    pub(super) count: Option<ImageCount>,
    pub(super) background: Option<Background>,
    pub(super) moderation: Option<Moderation>,
    pub(super) user: Option<String>,
    pub(super) partial_images: Option<PartialImages>,
    pub(super) time_limit: Option<Duration>,
    pub(super) header_options: HeaderOptions,
}

/// The options of a request that are sent as headers.
#[derive(Clone, Debug, Default)]
pub(in crate::client) struct HeaderOptions {
    pub(super) idempotency_key: Option<String>,
    pub(super) fallback: Option<Fallback>,
}

/// The form of the answer that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum AnswerMode {
    /// In one answer.
    Whole,
    /// In a stream of events.
    Events,
}

// === impl HeaderOptions ===

impl HeaderOptions {
    /// Returns the headers.
    pub(in crate::client) fn headers(&self) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        if let Some(key) = &self.idempotency_key {
            let is_valid =
                (1..=MAX_KEY_CHARACTERS).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
            let value = HeaderValue::from_str(key).ok().filter(|_| is_valid);
            let to_error = || {
                let message = format!("an idempotency key has 1 to {MAX_KEY_CHARACTERS} visible ASCII characters");
                Error::request("Idempotency-Key", message)
            };
            headers.insert(IDEMPOTENCY_KEY, value.ok_or_else(to_error)?);
        }
        if let Some(fallback) = self.fallback {
            headers.insert(FALLBACK, HeaderValue::from_static(fallback.as_str()));
        }
        Ok(headers)
    }
}

/// The setters of a request with a field `options`.
macro_rules! setters {
    ($request:ident) => {
        impl $request {
            /// Sets width and height; see [`size!`](crate::size).
            pub fn size(mut self, size: impl Into<$crate::image::SizeRequest>) -> Self {
                self.options.size = size.into();
                self
            }

            /// Sets the quality: the amount of work that goes into the image.
            pub fn quality(mut self, quality: $crate::wire::types::Quality) -> Self {
                self.options.quality = Some(quality);
                self
            }

            /// Sets the file format; a [`Format`](crate::image::Format) alone stands for its best quality.
            pub fn format(mut self, output: impl Into<$crate::client::Output>) -> Self {
                self.options.output = Some(output.into());
                self
            }

            /// Sets the number of images. Requests for a single image are easier to repeat and to account for.
            ///
            /// A stream carries one image only.
            pub fn count(mut self, count: $crate::client::ImageCount) -> Self {
                self.options.count = Some(count);
                self
            }

            /// Sets the maximum number of intermediate images, which come before the final image as events of a stream.
            /// Each is charged for.
            ///
            /// A call without a stream returns an error for more than 0.
            pub fn partial_images(mut self, count: $crate::client::PartialImages) -> Self {
                self.options.partial_images = Some(count);
                self
            }

            /// Sets the model: `gpt-image-2`, its dated snapshot, or another model that the service knows.
            pub fn model(mut self, model: impl Into<$crate::client::ModelName>) -> Self {
                self.options.model = model.into();
                self
            }

            /// Sets the background of the image.
            pub fn background(mut self, background: $crate::wire::types::Background) -> Self {
                self.options.background = Some(background);
                self
            }

            /// Sets the strictness of the model's content filter.
            pub fn moderation(mut self, moderation: $crate::wire::types::Moderation) -> Self {
                self.options.moderation = Some(moderation);
                self
            }

            /// Sets an identifier of your end user; it is kept with the usage record.
            pub fn user(mut self, user: impl Into<String>) -> Self {
                self.options.user = Some(user.into());
                self
            }

            /// Sets the time limit of each attempt, instead of 120 seconds, or 300 above 2560x1440.
            ///
            /// Without a stream the limit applies to the whole answer; with a stream it applies to the time until the
            /// service begins to answer, and to each pause after that. An image may be made and charged for although
            /// the client has given up.
            pub fn timeout(mut self, limit: std::time::Duration) -> Self {
                self.options.time_limit = Some(limit);
                self
            }

            /// Names this request, with up to 255 visible ASCII characters, such as a UUID.
            ///
            /// If the same request is sent with the same name within 24 hours, it gets the result of the first
            /// request, even if the first request still runs, and nothing is paid for twice. Another request with the
            /// same name is refused.
            pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
                self.options.header_options.idempotency_key = Some(key.into());
                self
            }

            /// Sets the reaction to a failure of an image of 3840x2160 or 2160x3840 in high or medium quality, instead
            /// of the setting of the service. [`Images::fallback`](crate::client::Images::fallback) returns what was
            /// made.
            pub fn fallback(mut self, fallback: $crate::client::Fallback) -> Self {
                self.options.header_options.fallback = Some(fallback);
                self
            }

            /// Accepts a smaller image instead of an error, if nothing is paid for twice:
            /// [`Fallback::Unpaid`](crate::client::Fallback).
            pub fn allow_fallback(self) -> Self {
                self.fallback($crate::client::Fallback::Unpaid)
            }
        }
    };
}
pub(super) use setters;

// === impl ImageOptions ===

impl ImageOptions {
    pub(super) fn new(prompt: String) -> Self {
        Self {
            prompt,
            model: ModelName::default(),
            size: SizeRequest::Auto,
            quality: None,
            output: None,
            count: None,
            background: None,
            moderation: None,
            user: None,
            partial_images: None,
            time_limit: None,
            header_options: HeaderOptions::default(),
        }
    }

    /// Returns the time limit that was set, or else the limit of the size.
    pub(in crate::client) fn time_limit(&self) -> Duration {
        let is_large = self.size.exact().is_some_and(Size::is_large);
        let seconds = if is_large { CLIENT_TIMEOUT_LARGE_SECONDS } else { CLIENT_TIMEOUT_SECONDS };
        self.time_limit.unwrap_or(Duration::from_secs(seconds))
    }

    /// Returns the kind of answer that such a request asks for.
    pub(in crate::client) const fn answer_mode(&self) -> AnswerMode {
        if self.partial_images.is_some() { AnswerMode::Events } else { AnswerMode::Whole }
    }

    /// Returns the options that are sent as headers.
    pub(in crate::client) fn headers(&self) -> Result<HeaderMap, Error> {
        self.header_options.headers()
    }

    /// Returns true if a time limit was set.
    pub(in crate::client) fn has_time_limit(&self) -> bool {
        self.time_limit.is_some()
    }

    /// Returns the request as it is sent. Options that were not set are left out, so that the service decides.
    pub(in crate::client) fn into_wire(self, mode: AnswerMode) -> Result<Value, Error> {
        self.check(mode)?;
        let invalid_prompt = |error: ConversionError| Error::request("prompt", format!("the prompt is {error}"));
        let prompt = Prompt::try_from(self.prompt).map_err(invalid_prompt)?;
        let request = ImageGenerationRequest::builder()
            .model(ImageModel::GptImage2)
            .prompt(prompt)
            .n(self.count)
            .size(self.size.exact().map(SizeRequest::Exact))
            .quality(self.quality)
            .output_format(self.output.map(|output| wire_format(output.format())))
            .output_compression(self.output.and_then(Output::compression))
            .background(self.background)
            .moderation(self.moderation)
            .user(self.user)
            .partial_images(self.partial_images)
            .stream((mode == AnswerMode::Events).then_some(true));
        let request: ImageGenerationRequest = request.try_into().map_err(invalid_prompt)?;
        let write_error = |error| Error::request("prompt", format!("the request cannot be written: {error}"));
        let mut body = serde_json::to_value(request).map_err(write_error)?;
        // The API document names its own models only; a service may have others.
        body["model"] = self.model.as_str().into();
        Ok(body)
    }

    /// Checks the rules that the types cannot express: empty texts, and values that are valid alone but not together.
    fn check(&self, mode: AnswerMode) -> Result<(), Error> {
        let images = self.count.map_or(1, ImageCount::get);
        let partials = self.partial_images.map_or(0, PartialImages::get);
        if self.prompt.trim().is_empty() {
            Err(Error::request("prompt", "the prompt is empty"))
        } else if self.model.as_str().is_empty() {
            Err(Error::request("model", "the name of the model is empty"))
        } else if mode == AnswerMode::Events && images > 1 {
            Err(Error::request("n", "a stream can carry only one image"))
        } else if mode == AnswerMode::Whole && partials > 0 {
            Err(Error::request("partial_images", "only a stream can have intermediate images"))
        } else {
            Ok(())
        }
    }
}

fn wire_format(format: Format) -> OutputFormat {
    match format {
        Format::Png => OutputFormat::Png,
        Format::Jpeg => OutputFormat::Jpeg,
        Format::Webp => OutputFormat::Webp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_refused(change: impl FnOnce(&mut ImageOptions), mode: AnswerMode, param: &str) {
        let mut options = ImageOptions::new("a fox".to_owned());
        change(&mut options);
        let error = options.into_wire(mode).unwrap_err();
        assert!(error.is_invalid_request() && error.param() == Some(param) && !error.is_retryable(), "{error:?}");
    }

    #[test]
    fn invalid_combinations_are_refused_before_anything_is_sent() {
        for mode in [AnswerMode::Whole, AnswerMode::Events] {
            assert_refused(|options| options.prompt = " \n\t".to_owned(), mode, "prompt");
            assert_refused(|options| options.prompt = "x".repeat(32_001), mode, "prompt");
        }
        assert_refused(|options| options.count = ImageCount::new(2).ok(), AnswerMode::Events, "n");
        assert_refused(
            |options| options.partial_images = PartialImages::new(1).ok(),
            AnswerMode::Whole,
            "partial_images",
        );
    }

    #[test]
    fn one_image_and_no_intermediate_images_are_always_accepted() {
        let mut options = ImageOptions::new("a fox".to_owned());
        (options.count, options.partial_images) = (ImageCount::new(1).ok(), PartialImages::new(0).ok());
        assert!(options.clone().into_wire(AnswerMode::Whole).is_ok() && options.into_wire(AnswerMode::Events).is_ok());
    }

    #[test]
    fn an_invalid_idempotency_key_is_refused_before_anything_is_sent() {
        let headers = |key: String| HeaderOptions { idempotency_key: Some(key), fallback: None }.headers();
        for key in [String::new(), "k".repeat(256), "a b".to_owned(), "schl\u{fc}ssel".to_owned(), "a\n".to_owned()] {
            let error = headers(key.clone()).unwrap_err();
            assert!(error.is_invalid_request() && error.param() == Some("Idempotency-Key"), "{key:?}: {error:?}");
        }
        let sent = headers("k".repeat(255)).unwrap();
        assert_eq!((sent["idempotency-key"].len(), sent.len()), (255, 1));
        assert!(HeaderOptions::default().headers().unwrap().is_empty());
    }

    #[test]
    fn a_fallback_is_sent_as_a_header() {
        let request = || crate::client::GenerateRequest::new("a fox");
        for (request, value) in [
            (request().fallback(Fallback::Never), "never"),
            (request().fallback(Fallback::Unpaid), "unpaid"),
            (request().allow_fallback(), "unpaid"),
            (request().fallback(Fallback::Always), "always"),
        ] {
            assert_eq!(request.options.headers().unwrap()[FALLBACK], value);
        }
    }

    #[test]
    fn large_images_have_a_longer_time_limit() {
        let limit = |size: Size| {
            let mut options = ImageOptions::new(String::new());
            options.size = SizeRequest::Exact(size);
            options.time_limit().as_secs()
        };
        assert_eq!(limit(crate::size!("2560x1440")), 120);
        assert_eq!(limit(crate::size!("2576x1440")), 300);
        assert_eq!(ImageOptions::new(String::new()).time_limit().as_secs(), 120);
    }
}
