//! Requests to change images.

use super::options::{self, ImageOptions};
use crate::client::{Error, GenerateRequest, Input};
use crate::tables::MAX_EDIT_IMAGES;

/// A request to change images, or to make new ones from them.
///
/// ```
/// use imagate::client::{EditRequest, Input};
/// use imagate::{size, types::Quality};
///
/// let request = EditRequest::new("Put the fox into the forest")
///     .image(Input::from_path("fox.png"))
///     .image(Input::from_path("forest.jpg"))
///     .size(size!("1536x1024"))
///     .quality(Quality::Low);
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is sent with `client.images().edit(…)`"]
pub struct EditRequest {
    options: ImageOptions,
    images: Vec<Input>,
    mask: Option<Input>,
}

// === impl EditRequest ===

impl EditRequest {
    /// Creates a request with this prompt, still without an image.
    pub fn new(prompt: impl Into<String>) -> Self {
        Self { options: ImageOptions::new(prompt.into()), images: Vec::new(), mask: None }
    }

    /// Adds an image to work from: png, jpeg or webp, less than 50 MiB; at most 16 images.
    pub fn image(mut self, image: impl Into<Input>) -> Self {
        self.images.push(image.into());
        self
    }

    /// Adds several images, in this order.
    pub fn images(mut self, images: impl IntoIterator<Item: Into<Input>>) -> Self {
        self.images.extend(images.into_iter().map(Into::into));
        self
    }

    /// Sets the mask, whose transparent part is the part of the first image to change.
    ///
    /// The mask must have an alpha channel, and the format and the pixel size of the first image.
    pub fn mask(mut self, mask: impl Into<Input>) -> Self {
        self.mask = Some(mask.into());
        self
    }

    /// Returns the number of images that the request asks for.
    pub(in crate::client) fn requested_count(&self) -> u64 {
        self.options.count()
    }

    /// Returns the parts of the request, or an error if it has no image or more images than the service accepts.
    pub(in crate::client) fn into_parts(self) -> Result<(ImageOptions, Vec<Input>, Option<Input>), Error> {
        if self.images.is_empty() {
            return Err(Error::request("image", "there is no input image"));
        }
        // A count that does not fit into `u64` is above the limit as well.
        if self.images.len() as u64 > MAX_EDIT_IMAGES {
            let count = self.images.len();
            return Err(Error::request("image", format!("expected at most {MAX_EDIT_IMAGES} images, but got {count}")));
        }
        Ok((self.options, self.images, self.mask))
    }
}

options::setters!(EditRequest);

impl From<&Self> for EditRequest {
    fn from(request: &Self) -> Self {
        request.clone()
    }
}

/// Creates an edit with the same options, still without an image.
impl From<GenerateRequest> for EditRequest {
    fn from(request: GenerateRequest) -> Self {
        Self { options: request.into_options(), images: Vec::new(), mask: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_has_one_to_sixteen_images() {
        let parts = |count: usize| EditRequest::new("a").images(vec![vec![0_u8]; count]).into_parts();
        for count in [0, 17] {
            let error = parts(count).unwrap_err();
            assert!(error.is_invalid_request() && error.param() == Some("image"), "{count}: {error:?}");
        }
        for count in [1, 16] {
            assert_eq!(parts(count).unwrap().1.len(), count);
        }
    }
}
