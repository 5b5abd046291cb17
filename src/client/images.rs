//! The calls that make images.

use std::time::Duration;

use progenitor_client::ResponseValue;

use super::form::EditForm;
use super::paid_call::PaidOperation;
use super::request::AnswerMode;
#[cfg(not(target_arch = "wasm32"))]
use super::saved_images::{ImageTarget, SavedImages, save_answer};
use super::session::TimeLimit;
use super::{Client, EditRequest, Error, GenerateRequest, ImageStream, Images};
use crate::wire::types::CostEstimate;

/// The time limit of an estimate (our choice). The service answers without a call to anybody.
const ESTIMATE_LIMIT: TimeLimit = TimeLimit::Total(Duration::from_secs(30));

pub(super) const JSON: &str = "application/json";
/// The `accept` header of a stream. JSON is accepted too, because a service that cannot stream may still answer.
pub(super) const EVENTS: &str = "text/event-stream, application/json;q=0.5";

/// Calls that make images; from [`Client::images`].
#[derive(Clone, Copy, Debug)]
pub struct ImageCalls<'a> {
    client: &'a Client,
}

// === impl ImageCalls ===

impl<'a> ImageCalls<'a> {
    pub(super) const fn new(client: &'a Client) -> Self {
        Self { client }
    }

    /// Makes images from a prompt, and waits for them: up to 120 seconds, or 300 above 2560x1440, unless the request
    /// sets another limit.
    ///
    /// A `&str` or a `String` is a request with this prompt and all defaults.
    ///
    /// # Errors
    ///
    /// Returns an error if the request breaks a rule, if the service cannot be reached or refuses the request, or if no
    /// image was made in time.
    #[doc(alias = "create_image")]
    pub async fn generate(&self, request: impl Into<GenerateRequest>) -> Result<Images, Error> {
        let options = request.into().into_options();
        let (count, call_options) = (options.count(), options.call_options(TimeLimit::Total(options.time_limit()))?);
        let operation = PaidOperation::CreateImage(options.into_members(AnswerMode::Whole)?.into_body());
        let mut call = self.client.paid_call(call_options, operation).await?;
        let answer = call.read_answer().await;
        call.finish(answer.and_then(|answer| Images::parse(answer, count, call.session())))
    }

    /// Makes images like [`ImageCalls::generate`], and saves them while the answer arrives: in a few megabytes of memory,
    /// however large the images are.
    ///
    /// The target is a path as for [`Images::write_all`], or [`ImageTarget::writer`]. A file appears when its image is
    /// whole. If the answer breaks off, the images that were whole before stay; if there is none, and a writer has got no
    /// byte, the call is made again as [`Retry`](super::Retry) says. Nothing is sent if a file with this path cannot be
    /// written.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), imagate::client::Error> {
    /// let client = imagate::Client::from_env()?;
    /// let saved = client.images().generate_to("A red fox in fresh snow", "fox").await?;
    /// for path in saved.paths() {
    ///     println!("{}", path.display());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`ImageCalls::generate`]; also an error if an image cannot be written or is not base64, or if the
    /// service sent only its address.
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn generate_to(
        &self,
        request: impl Into<GenerateRequest>,
        target: impl Into<ImageTarget<'_>>,
    ) -> Result<SavedImages, Error> {
        let (options, target) = (request.into().into_options(), target.into());
        let count = options.count();
        target.check(count)?;
        let call_options = options.call_options(TimeLimit::Total(options.time_limit()))?;
        let operation = PaidOperation::CreateImage(options.into_members(AnswerMode::Whole)?.into_body());
        let mut call = self.client.paid_call(call_options, operation).await?;
        save_answer(&mut call, target, count).await
    }

    /// Asks what [`ImageCalls::generate`] would cost at most for this request, and whether a limit would refuse it now.
    ///
    /// Nothing is made, paid for or reserved. Of the services with this API, only the gateway has this call.
    ///
    /// # Errors
    ///
    /// Returns an error if the request breaks a rule, or if the service cannot be reached, refuses the key, or does not
    /// have this call. A limit that is reached and a price that is unknown are part of the answer.
    pub async fn estimate(&self, request: impl Into<GenerateRequest>) -> Result<CostEstimate, Error> {
        let options = request.into().into_options();
        let (mode, call_options) = (options.answer_mode(), options.call_options(ESTIMATE_LIMIT)?);
        let body = options.into_members(mode)?.into_body();
        let client = self.client.call(call_options);
        let answer = client.estimate_image(client.inner.fallback(), &body).await;
        answer.map(ResponseValue::into_inner).map_err(|error| Error::from_call(error, &client.inner))
    }

    /// Makes an image from a prompt, and returns its events while it is made.
    ///
    /// Waits until the service accepts the request; everything after that comes through the stream. The stream has
    /// intermediate images if [`GenerateRequest::partial_images`] asks for them.
    ///
    /// # Errors
    ///
    /// Returns an error if the request breaks a rule, or if the service cannot be reached, refuses the request, or does
    /// not begin to answer in time.
    pub async fn generate_stream(&self, request: impl Into<GenerateRequest>) -> Result<ImageStream, Error> {
        let options = request.into().into_options();
        let call_options = options.call_options(TimeLimit::Idle(options.time_limit()))?;
        let operation = PaidOperation::CreateImage(options.into_members(AnswerMode::Events)?.into_body());
        let call = self.client.paid_call(call_options, operation).await?;
        call.begin_stream().await.map(ImageStream::new)
    }

    /// Changes images, or makes new ones from them, and waits for the result: up to the limit of
    /// [`ImageCalls::generate`], plus the time to send the images at one megabyte per second, unless the request sets
    /// another limit.
    ///
    /// The images are checked against the rules of the service before anything is sent. Files are read while they are
    /// sent, also for each retry.
    ///
    /// # Errors
    ///
    /// Returns an error if the request or one of its images breaks a rule, if the service cannot be reached or refuses
    /// the request, or if no image was made in time.
    #[doc(alias = "create_image_edit")]
    pub async fn edit(&self, request: impl Into<EditRequest>) -> Result<Images, Error> {
        let request = request.into();
        let count = request.requested_count();
        let form = EditForm::new(request, AnswerMode::Whole).await?;
        let options = form.call_options(TimeLimit::Total(form.time_limit()));
        let mut call = self.client.paid_call(options, PaidOperation::EditImage(Box::new(form))).await?;
        let answer = call.read_answer().await;
        call.finish(answer.and_then(|answer| Images::parse(answer, count, call.session())))
    }

    /// Changes images like [`ImageCalls::edit`], and saves the result like [`ImageCalls::generate_to`].
    ///
    /// # Errors
    ///
    /// The errors of [`ImageCalls::edit`] and [`ImageCalls::generate_to`].
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn edit_to(
        &self,
        request: impl Into<EditRequest>,
        target: impl Into<ImageTarget<'_>>,
    ) -> Result<SavedImages, Error> {
        let (request, target) = (request.into(), target.into());
        let count = request.requested_count();
        target.check(count)?;
        let form = EditForm::new(request, AnswerMode::Whole).await?;
        let options = form.call_options(TimeLimit::Total(form.time_limit()));
        let mut call = self.client.paid_call(options, PaidOperation::EditImage(Box::new(form))).await?;
        save_answer(&mut call, target, count).await
    }

    /// Changes images, or makes a new one from them, and returns its events while it is made.
    ///
    /// The request and its checks are those of [`ImageCalls::edit`]; the stream is that of
    /// [`ImageCalls::generate_stream`].
    ///
    /// # Errors
    ///
    /// Returns an error if the request or one of its images breaks a rule, or if the service cannot be reached, refuses
    /// the request, or does not begin to answer in time.
    pub async fn edit_stream(&self, request: impl Into<EditRequest>) -> Result<ImageStream, Error> {
        let form = EditForm::new(request.into(), AnswerMode::Events).await?;
        let options = form.call_options(TimeLimit::Idle(form.time_limit()));
        let call = self.client.paid_call(options, PaidOperation::EditImage(Box::new(form))).await?;
        call.begin_stream().await.map(ImageStream::new)
    }
}
