//! The options that all kinds of requests for images share.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::Value;

use crate::client::extra_headers::ExtraHeaders;
use crate::client::raw_json::RawJsonObject;
use crate::client::session::{CallOptions, FALLBACK, IDEMPOTENCY_KEY, TimeLimit};
use crate::client::{Error, Fallback, ImageCount, ModelName, OpenWord, Output, PartialImages, Retry};
use crate::image::{Size, SizeRequest};
use crate::tables::{CLIENT_TIMEOUT_LARGE_SECONDS, CLIENT_TIMEOUT_SECONDS, IDEMPOTENCY_KEY_MAX_CHARACTERS};
use crate::wire::types::{Background, Moderation, Quality};

/// The maximum number of characters of an idempotency key.
#[expect(clippy::cast_possible_truncation, reason = "a few hundred")]
const MAX_KEY_CHARACTERS: usize = IDEMPOTENCY_KEY_MAX_CHARACTERS as usize;
/// The maximum number of characters of a prompt, as the API document states it.
const PROMPT_MAX_CHARACTERS: usize = super::max_characters("prompt");

/// The properties of the images that a request asks for.
#[derive(Clone, Debug)]
pub(in crate::client) struct ImageOptions {
    pub(super) prompt: String,
    pub(super) model: ModelName,
    pub(super) size: SizeRequest,
    pub(super) quality: Option<OpenWord<Quality>>,
    pub(super) output: Option<Output>,
    pub(super) count: Option<ImageCount>,
    pub(super) background: Option<OpenWord<Background>>,
    pub(super) moderation: Option<OpenWord<Moderation>>,
    pub(super) user: Option<String>,
    pub(super) partial_images: Option<PartialImages>,
    pub(super) time_limit: Option<Duration>,
    pub(super) retry: Option<Retry>,
    pub(super) deadline: Option<Duration>,
    pub(super) header_options: HeaderOptions,
    /// Fields that were set by their name.
    pub(super) members: RawJsonObject,
}

/// The options of a request that are sent as headers.
#[derive(Clone, Debug, Default)]
pub(in crate::client) struct HeaderOptions {
    pub(super) idempotency_key: Option<String>,
    pub(super) fallback: Option<Fallback>,
    pub(in crate::client) extra: ExtraHeaders,
}

/// The form of the answer that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum AnswerMode {
    /// In one answer.
    Whole,
    /// In a stream of events.
    Events,
}

// === impl AnswerMode ===

#[cfg(feature = "cli")]
impl AnswerMode {
    pub(in crate::client) const fn for_stream(is_stream: bool) -> Self {
        if is_stream { Self::Events } else { Self::Whole }
    }
}

// === impl HeaderOptions ===

impl HeaderOptions {
    pub(in crate::client) fn set_idempotency_key(&mut self, key: String) {
        self.idempotency_key = Some(key);
    }

    /// Returns the headers.
    pub(in crate::client) fn headers(&self) -> Result<HeaderMap, Error> {
        let mut headers = self.extra.parse(Error::request)?;
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

            /// Sets the quality: the amount of work that goes into the image. A text is a word that only the service
            /// knows, such as `"xhigh"`.
            pub fn quality(
                mut self,
                quality: impl Into<$crate::client::OpenWord<$crate::wire::types::Quality>>,
            ) -> Self {
                self.options.quality = Some(quality.into());
                self
            }

            /// Sets the file format; a [`Format`](crate::image::Format) alone stands for its best quality.
            #[doc(alias = "output_format")]
            #[doc(alias = "output_compression")]
            pub fn format(mut self, output: impl Into<$crate::client::Output>) -> Self {
                self.options.output = Some(output.into());
                self
            }

            /// Sets the number of images. Requests for a single image are easier to repeat and to account for.
            ///
            /// A stream carries one image only.
            #[doc(alias = "n")]
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
            pub fn background(
                mut self,
                background: impl Into<$crate::client::OpenWord<$crate::wire::types::Background>>,
            ) -> Self {
                self.options.background = Some(background.into());
                self
            }

            /// Sets the strictness of the model's content filter.
            pub fn moderation(
                mut self,
                moderation: impl Into<$crate::client::OpenWord<$crate::wire::types::Moderation>>,
            ) -> Self {
                self.options.moderation = Some(moderation.into());
                self
            }

            /// Sets an identifier of your end user; it is kept with the usage record.
            pub fn user(mut self, user: impl Into<String>) -> Self {
                self.options.user = Some(user.into());
                self
            }

            /// Sets an identifier of your end user for the provider's detection of abuse.
            pub fn safety_identifier(self, identifier: impl AsRef<str>) -> Self {
                self.set("safety_identifier", identifier.as_ref())
            }

            /// Sets any field of the request, known or not, after all others; it replaces a field of the same name. A
            /// value is not checked. In an edit, a text is sent as it is, and any other value as JSON.
            ///
            /// The choice of the call, and not a field, decides whether the answer is a stream.
            pub fn set(mut self, name: &str, value: impl Into<$crate::client::Json>) -> Self {
                self.options.members.set(name, value.into());
                self
            }

            /// Adds a header to this request only, such as one with which a proxy on the way accounts for costs. It
            /// replaces a header of the client with the same name. Its value is not printed.
            pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
                self.options.header_options.extra.push(name.into(), value.into());
                self
            }

            /// Sets the time limit of each attempt, instead of 120 seconds, or 300 above 2560x1440; an edit also has the
            /// time to send its images at one megabyte per second.
            ///
            /// Without a stream the limit applies to the whole answer; with a stream it applies to the time until the
            /// service begins to answer, and to each pause after that. An image may be made and charged for although
            /// the client has given up.
            pub fn timeout(mut self, limit: std::time::Duration) -> Self {
                self.options.time_limit = Some(limit);
                self
            }

            /// Sets the limit of the whole call: all its attempts, the waits between them, and the answer or the stream up
            /// to the final image. It begins when the images of an edit have been checked. In a browser, which has no
            /// timer, it does nothing.
            ///
            /// A call that exceeds the limit fails with
            /// [`ErrorKind::Deadline`](crate::client::ErrorKind::Deadline). Its error has the idempotency key of the
            /// call, and the next equal call of the same client has that key too.
            pub fn deadline(mut self, limit: std::time::Duration) -> Self {
                self.options.deadline = Some(limit);
                self
            }

            /// Sets the policy of retries, instead of that of the client.
            pub fn retry(mut self, retry: $crate::client::Retry) -> Self {
                self.options.retry = Some(retry);
                self
            }

            /// Names this request, with up to 255 visible ASCII characters, such as a UUID.
            ///
            /// If the same request is sent with the same name within 24 hours, it gets the result of the first
            /// request, even if the first request still runs, and nothing is paid for twice. Another request with the
            /// same name is refused. Without a name, the client gives one to each call, and gives it again to the next
            /// equal call if the first one was dropped
            /// ([`Builder::idempotency_keys`](crate::client::Builder::idempotency_keys)).
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
            retry: None,
            deadline: None,
            header_options: HeaderOptions::default(),
            members: RawJsonObject::default(),
        }
    }

    /// Returns the time limit that was set, or else the limit of the size.
    pub(in crate::client) fn time_limit(&self) -> Duration {
        let is_large = self.size.exact().is_some_and(Size::is_large);
        let seconds = if is_large { CLIENT_TIMEOUT_LARGE_SECONDS } else { CLIENT_TIMEOUT_SECONDS };
        self.time_limit.unwrap_or(Duration::from_secs(seconds))
    }

    /// Returns the number of images that the request asks for.
    pub(in crate::client) fn count(&self) -> u64 {
        let set_by_name = self.members.get("n").and_then(|count| count.read());
        set_by_name.or(self.count.and_then(|count| count.get().try_into().ok())).unwrap_or(1)
    }

    /// Returns the kind of answer that such a request asks for.
    pub(in crate::client) const fn answer_mode(&self) -> AnswerMode {
        if self.partial_images.is_some() { AnswerMode::Events } else { AnswerMode::Whole }
    }

    /// Returns the settings of a call with this limit.
    pub(in crate::client) fn call_options(&self, limit: TimeLimit) -> Result<CallOptions, Error> {
        let headers = self.header_options.headers()?;
        Ok(CallOptions { limit, deadline: self.deadline, headers, retry: self.retry })
    }

    /// Returns true if a time limit was set.
    pub(in crate::client) fn has_time_limit(&self) -> bool {
        self.time_limit.is_some()
    }

    /// Returns the fields as they are sent. Options that were not set are left out, so that the service decides.
    pub(in crate::client) fn into_members(self, mode: AnswerMode) -> Result<RawJsonObject, Error> {
        self.check(mode)?;
        let text = |word: &dyn ToString| Value::String(word.to_string());
        let fields = [
            ("model", Some(text(&self.model.as_str()))),
            ("prompt", Some(Value::String(self.prompt))),
            ("n", self.count.map(|count| count.get().into())),
            ("size", self.size.exact().map(|size| text(&size))),
            ("quality", self.quality.map(|word| text(&word))),
            ("output_format", self.output.map(|output| text(&output.format().as_str()))),
            ("output_compression", self.output.and_then(Output::compression).map(|value| value.get().into())),
            ("background", self.background.map(|word| text(&word))),
            ("moderation", self.moderation.map(|word| text(&word))),
            ("user", self.user.map(Value::String)),
            ("partial_images", self.partial_images.map(|count| count.get().into())),
        ];
        let mut members = RawJsonObject::default();
        for (name, value) in fields {
            if let Some(value) = value {
                members.set(name, value.into());
            }
        }
        members.extend(self.members);
        if mode == AnswerMode::Events || members.get("stream").is_some() {
            members.set("stream", (mode == AnswerMode::Events).into());
        }
        Ok(members)
    }

    /// Checks the rules that the types cannot express: empty texts, and values that are valid alone but not together.
    fn check(&self, mode: AnswerMode) -> Result<(), Error> {
        let images = self.count.map_or(1, ImageCount::get);
        let partials = self.partial_images.map_or(0, PartialImages::get);
        if self.prompt.trim().is_empty() {
            Err(Error::request("prompt", "the prompt is empty"))
        } else if self.prompt.chars().count() > PROMPT_MAX_CHARACTERS {
            Err(Error::request("prompt", format!("the prompt is longer than {PROMPT_MAX_CHARACTERS} characters")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_refused(change: impl FnOnce(&mut ImageOptions), mode: AnswerMode, param: &str) {
        let mut options = ImageOptions::new("a fox".to_owned());
        change(&mut options);
        let error = options.into_members(mode).unwrap_err();
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
        assert!(
            options.clone().into_members(AnswerMode::Whole).is_ok() && options.into_members(AnswerMode::Events).is_ok()
        );
    }

    #[test]
    fn an_invalid_idempotency_key_is_refused_before_anything_is_sent() {
        let headers = |key: String| HeaderOptions { idempotency_key: Some(key), ..Default::default() }.headers();
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
            assert_eq!(request.options.header_options.headers().unwrap()[FALLBACK], value);
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
