//! An edit as a form: text fields, then the images, then the mask. The generator does not support forms.

use std::hash::{Hash as _, Hasher};
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::multipart::Form;
use reqwest::{Request, RequestBuilder};

use super::input::CheckedInput;
use super::request::{AnswerMode, EditRequest};
use super::session::{CallOptions, TimeLimit};
use super::{Error, Input, Retry};
use crate::wire::client::Client;

/// The name of each part that holds an image. It is the same for a single image, because every service that accepts
/// several images under this name also accepts one.
const IMAGE_PART: &str = "image[]";
const MASK_PART: &str = "mask";

/// The upload rate that the time limit assumes (our choice); a slower connection may exceed the limit.
const BYTES_PER_SECOND: u64 = 1 << 20;

/// A checked edit, which can be written as a form any number of times.
#[derive(Debug)]
pub(super) struct EditForm {
    fields: Vec<(String, String)>,
    images: Vec<CheckedInput>,
    mask: Option<CheckedInput>,
    time_limit: Duration,
    headers: HeaderMap,
    retry: Option<Retry>,
    deadline: Option<Duration>,
}

// === impl EditForm ===

impl EditForm {
    /// Checks the request and examines its images.
    pub(super) async fn new(request: EditRequest, mode: AnswerMode) -> Result<Self, Error> {
        let (options, inputs, mask) = request.into_parts()?;
        let (time_limit, has_time_limit) = (options.time_limit(), options.has_time_limit());
        let CallOptions { headers, retry, deadline, .. } = options.call_options(TimeLimit::Total(time_limit))?;
        let fields = options.into_members(mode)?.into_form_fields().collect();
        let mut images = Vec::with_capacity(inputs.len());
        for input in inputs {
            images.push(input.check("image").await?);
        }
        let mask = match mask {
            Some(mask) => Some(check_mask(mask, images.first()).await?),
            None => None,
        };
        let mut form = Self { fields, images, mask, time_limit, headers, retry, deadline };
        if !has_time_limit {
            form.time_limit += form.upload_time();
        }
        Ok(form)
    }

    /// Returns the time limit that was set, or else the limit of the size class plus the time to send the images.
    pub(super) fn time_limit(&self) -> Duration {
        self.time_limit
    }

    /// Returns the settings of a call with this limit.
    pub(super) fn call_options(&self, limit: TimeLimit) -> CallOptions {
        CallOptions { limit, headers: self.headers.clone(), retry: self.retry, deadline: self.deadline }
    }

    fn upload_time(&self) -> Duration {
        let bytes: u64 = self.images.iter().chain(&self.mask).map(CheckedInput::length).sum();
        Duration::from_secs(bytes / BYTES_PER_SECOND)
    }

    /// Adds the fields and the content of all images to the hash. The names of files make no difference.
    pub(super) async fn hash<H: Hasher + Send + 'static>(&self, mut hasher: H) -> Result<H, Error> {
        self.fields.hash(&mut hasher);
        for image in &self.images {
            hasher = image.hash("image", hasher).await?;
        }
        if let Some(mask) = &self.mask {
            hasher = mask.hash("mask", hasher).await?;
        }
        (self.images.len(), self.mask.is_some()).hash(&mut hasher);
        Ok(hasher)
    }

    /// Adds the form to a request without a body, for one attempt.
    pub(super) fn add_to(&self, request: Request, client: &Client) -> reqwest::Result<Request> {
        RequestBuilder::from_parts(client.client.clone(), request).multipart(self.write()?).build()
    }

    fn write(&self) -> reqwest::Result<Form> {
        let mut form = Form::new();
        for (name, value) in &self.fields {
            form = form.text(name.clone(), value.clone());
        }
        for image in &self.images {
            form = form.part(IMAGE_PART, image.part()?);
        }
        match &self.mask {
            Some(mask) => Ok(form.part(MASK_PART, mask.part()?)),
            None => Ok(form),
        }
    }
}

/// Checks that the mask has the format and size of the first image, and an alpha channel.
async fn check_mask(mask: Input, image: Option<&CheckedInput>) -> Result<CheckedInput, Error> {
    let mask = mask.check("mask").await?;
    let refusal = |message: String| Err(Error::request("mask", message));
    let header = mask.header();
    let (mask_properties, image_properties) =
        (header.properties, image.map_or(header.properties, |image| image.header().properties));
    if mask_properties.format != image_properties.format {
        refusal(format!("the mask is {}, but the first image is {}", mask_properties.format, image_properties.format))
    } else if (mask_properties.width, mask_properties.height) != (image_properties.width, image_properties.height) {
        let sizes = (mask_properties.width, mask_properties.height, image_properties.width, image_properties.height);
        refusal(format!("the mask has {}x{} px, but the first image has {}x{} px", sizes.0, sizes.1, sizes.2, sizes.3))
    } else if header.has_alpha {
        Ok(mask)
    } else {
        refusal("the mask has no alpha channel; its transparent part is the region to change".to_owned())
    }
}
