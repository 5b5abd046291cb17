//! The images of an answer, and what was said about them.

use std::fmt;
#[cfg(not(target_arch = "wasm32"))]
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::session::Head;
use super::{Error, decode};
use crate::image::Format;
use crate::wire::types::{self, ImageUsage, ImagesResponse};

/// The images that one request made.
#[derive(Clone)]
pub struct Images {
    answer: Arc<Answer>,
}

struct Answer {
    response: ImagesResponse,
    request_id: Option<String>,
    is_simulated: bool,
    is_replayed: bool,
    fallback: Option<String>,
}

/// One image. Cloning is cheap: the bytes are shared with the [`Images`] it came from.
#[derive(Clone)]
pub struct Image {
    images: Images,
    index: usize,
}

/// The images of an answer, in order; from [`Images::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    images: &'a Images,
    next: usize,
}

// === impl Images ===

impl Images {
    /// An answer without an image is none, whatever its status says.
    pub(super) fn new(response: ImagesResponse, head: Option<&Head>) -> Result<Self, Error> {
        if response.data.is_empty() || response.data.iter().any(|image| image.b64_json.is_empty()) {
            return Err(Error::unintelligible("the answer holds no image", head));
        }
        let request_id = head.and_then(|head| head.request_id.clone());
        let is_simulated = head.is_some_and(|head| head.is_simulated);
        let is_replayed = head.is_some_and(|head| head.is_replayed);
        let fallback = head.and_then(|head| head.fallback.clone());
        Ok(Self { answer: Arc::new(Answer { response, request_id, is_simulated, is_replayed, fallback }) })
    }

    /// The images, in order.
    #[must_use]
    pub const fn iter(&self) -> Iter<'_> {
        Iter { images: self, next: 0 }
    }

    /// The first image. There always is one.
    #[must_use]
    pub fn first(&self) -> Image {
        self.at(0)
    }

    /// How many images there are; never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.answer.response.data.len()
    }

    /// The whole answer: size, quality and format as they were made, and everything else that the service said.
    #[must_use]
    pub fn response(&self) -> &ImagesResponse {
        &self.answer.response
    }

    /// The same, to keep.
    #[must_use]
    pub fn into_response(self) -> ImagesResponse {
        Arc::try_unwrap(self.answer).map_or_else(|shared| shared.response.clone(), |answer| answer.response)
    }

    /// The tokens that were used, where the service says so.
    #[must_use]
    pub fn usage(&self) -> Option<&ImageUsage> {
        self.answer.response.usage.as_ref()
    }

    /// The id of the request, by which the operator of the service finds it.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.answer.request_id.as_deref()
    }

    /// Whether the built-in simulator of the gateway drew the images instead of the model.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.answer.is_simulated
    }

    /// Whether this is the answer to an earlier request with the same idempotency key, for which nothing was paid again.
    #[must_use]
    pub fn is_replayed(&self) -> bool {
        self.answer.is_replayed
    }

    /// What was made instead of what was asked for, such as `3840x2160 medium`, where a fallback was allowed and taken.
    #[must_use]
    pub fn fallback(&self) -> Option<&str> {
        self.answer.fallback.as_deref()
    }

    fn at(&self, index: usize) -> Image {
        Image { images: self.clone(), index }
    }
}

impl<'a> IntoIterator for &'a Images {
    type Item = Image;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Megabytes of base64 help nobody.
        f.debug_struct("Images")
            .field("len", &self.len())
            .field("request_id", &self.answer.request_id)
            .field("is_simulated", &self.answer.is_simulated)
            .finish_non_exhaustive()
    }
}

// === impl Iter ===

impl Iterator for Iter<'_> {
    type Item = Image;

    fn next(&mut self) -> Option<Image> {
        let index = self.next;
        (index < self.images.len()).then(|| {
            self.next += 1;
            self.images.at(index)
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.images.len() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

// === impl Image ===

impl Image {
    /// The bytes of the image file.
    ///
    /// # Errors
    ///
    /// The service sent something that is not base64.
    pub fn bytes(&self) -> Result<Vec<u8>, Error> {
        decode::all(self.base64())
    }

    /// The bytes as they came: base64 text in the standard alphabet, padded.
    #[must_use]
    pub fn base64(&self) -> &str {
        &self.wire().b64_json
    }

    /// The file format, from the bytes themselves; nothing where they are of no known format.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        decode::facts(self.base64()).map(|facts| facts.format)
    }

    /// Width and height in pixels, from the bytes themselves; nothing where they do not tell.
    #[must_use]
    pub fn dimensions(&self) -> Option<(u32, u32)> {
        decode::facts(self.base64()).map(|facts| (facts.width, facts.height))
    }

    /// The answer that it came in: everything that was said about it, and the images beside it.
    #[must_use]
    pub const fn answer(&self) -> &Images {
        &self.images
    }

    /// The prompt as the model revised it.
    #[must_use]
    pub fn revised_prompt(&self) -> Option<&str> {
        self.wire().revised_prompt.as_deref()
    }

    /// Writes the image file, and says where: the path with the ending that its format has.
    ///
    /// An ending that belongs to another image format is replaced, a missing one is added, any other is kept.
    /// The file appears whole or not at all; one that was there before is replaced.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or the service sent something that is not base64.
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn write_to(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let image = self.clone();
        super::save::image(path.as_ref(), self.format(), move |path| super::save::write(image.base64(), path)).await
    }

    fn wire(&self) -> &types::Image {
        // The index was below the length when this was made, and nothing changes the answer.
        &self.images.response().data[self.index]
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("index", &self.index).field("format", &self.format()).finish_non_exhaustive()
    }
}
