//! The images of an answer, and their metadata.

use std::fmt;
#[cfg(not(target_arch = "wasm32"))]
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::metadata::AnswerMetadata;
#[cfg(not(target_arch = "wasm32"))]
use super::save::{EncodedImage, FileNaming, ImageByteSink};
use super::{Error, decode};
use crate::image::Format;
use crate::wire::types::{self, ImageUsage, ImagesResponse};

/// The images that one request made.
#[derive(Clone)]
pub struct Images {
    state: Arc<ImagesState>,
}

struct ImagesState {
    response: ImagesResponse,
    meta: AnswerMetadata,
    /// The positions of the images in `response.data`; some services send an empty entry for an image that was not
    /// made.
    positions: Vec<usize>,
}

/// One image. Cloning is cheap: the bytes are shared with the [`Images`] it belongs to.
#[derive(Clone)]
pub struct Image {
    images: Images,
    /// The position of the image in the data of the answer.
    position: usize,
}

/// The images of an answer, in order; from [`Images::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    images: &'a Images,
    next: usize,
}

// === impl Images ===

impl Images {
    /// Creates the images of an answer. Returns an error if the answer holds no image, whatever its status is. An image
    /// may come as an address instead of bytes.
    pub(super) fn new(response: ImagesResponse, head: Option<&AnswerMetadata>) -> Result<Self, Error> {
        let is_made = |image: &types::Image| !image.b64_json.is_empty() || url(image).is_some();
        let images = response.data.iter().enumerate();
        let positions: Vec<usize> = images.filter(|(_, image)| is_made(image)).map(|(position, _)| position).collect();
        if positions.is_empty() {
            return Err(Error::unintelligible("the answer holds no image", head));
        }
        Ok(Self { state: Arc::new(ImagesState { response, meta: head.cloned().unwrap_or_default(), positions }) })
    }

    /// Returns an iterator over the images, in order.
    #[must_use]
    pub const fn iter(&self) -> Iter<'_> {
        Iter { images: self, next: 0 }
    }

    /// Returns the first image. There always is one.
    #[must_use]
    pub fn first(&self) -> Image {
        self.image_at(0)
    }

    /// Returns the number of images; never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an answer has at least one image")]
    pub fn len(&self) -> usize {
        self.state.positions.len()
    }

    /// Returns the whole answer: size, quality and format as they were made, and everything else that the service
    /// reported.
    #[must_use]
    pub fn response(&self) -> &ImagesResponse {
        &self.state.response
    }

    /// Like [`Images::response`], but returns an owned value.
    #[must_use]
    pub fn into_response(self) -> ImagesResponse {
        Arc::try_unwrap(self.state).map_or_else(|shared| shared.response.clone(), |answer| answer.response)
    }

    /// Returns the tokens that were used, if the service reports them.
    #[must_use]
    pub fn usage(&self) -> Option<&ImageUsage> {
        self.state.response.usage.as_ref()
    }

    /// Returns the metadata of the answer: how often the request was sent, and the limits that are left.
    #[must_use]
    pub fn meta(&self) -> &AnswerMetadata {
        &self.state.meta
    }

    /// Returns the id of the request, which lets the operator of the service find it.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.meta().request_id()
    }

    /// Returns true if the built-in simulator of the gateway drew the images instead of the model.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.meta().is_simulated()
    }

    /// Returns true if this is the answer to an earlier request with the same idempotency key; nothing was paid for it
    /// again.
    #[must_use]
    pub fn is_replayed(&self) -> bool {
        self.meta().is_replayed()
    }

    /// Returns the size and quality that were made instead of the requested ones, such as `3840x2160 medium`, if a
    /// fallback was allowed and used.
    #[must_use]
    pub fn fallback(&self) -> Option<&str> {
        self.meta().fallback()
    }

    /// Returns the number of requested images that are missing from the answer: the number that the service reports, or
    /// the number of empty entries in its answer if that is larger. The images in the answer have been paid for.
    #[must_use]
    pub fn missing(&self) -> usize {
        let empty = self.state.response.data.len() - self.len();
        self.meta().missing().max(empty)
    }

    /// Returns the actual size and format of the first image, such as `1024x1024 png`, if the service reports them.
    #[must_use]
    pub fn delivered(&self) -> Option<&str> {
        self.meta().delivered()
    }

    /// Returns `match` or `mismatch`, the result of comparing [`Self::delivered`] with the request, if the service
    /// reports it.
    #[must_use]
    pub fn delivery(&self) -> Option<&str> {
        self.meta().delivery()
    }

    /// Writes every image to a file of its own, and returns the paths in the order of the images.
    ///
    /// A single image gets the path as [`Image::write_to`] would write it. Several are numbered: `fox` becomes
    /// `fox-1.png`, `fox-2.png` and so on. An existing file is never replaced; its number is skipped.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written, or if an image is not base64 or the service sent only its address.
    /// The other images are written nevertheless.
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn write_all(&self, path: impl AsRef<Path>) -> Result<Vec<PathBuf>, Error> {
        super::save::save_all(self.iter(), path.as_ref()).await
    }

    fn image_at(&self, index: usize) -> Image {
        // The index is below the length: the callers ensure that.
        Image { images: self.clone(), position: self.state.positions[index] }
    }
}

impl<'a> IntoIterator for &'a Images {
    type Item = Image;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl IntoIterator for Images {
    type Item = Image;
    type IntoIter = std::vec::IntoIter<Image>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter().collect::<Vec<_>>().into_iter()
    }
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The images are left out, because megabytes of base64 are of no use in debug output.
        f.debug_struct("Images")
            .field("len", &self.len())
            .field("request_id", &self.request_id())
            .field("is_simulated", &self.is_simulated())
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
            self.images.image_at(index)
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let remaining = self.images.len() - self.next;
        (remaining, Some(remaining))
    }
}

impl ExactSizeIterator for Iter<'_> {}

// === impl Image ===

impl Image {
    /// Returns the bytes of the image file.
    ///
    /// # Errors
    ///
    /// Returns an error if the service sent something that is not base64, or only the address of the image; see
    /// [`Image::url`].
    pub fn bytes(&self) -> Result<Vec<u8>, Error> {
        decode::decode_all(self.base64_text()?)
    }

    /// Returns the address of the image, if the service sends addresses instead of images or in addition to them. The
    /// client never fetches such an address; it expires after a while and needs no key.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        url(self.wire_image())
    }

    /// Returns the base64 text as the service sent it, in the standard alphabet and padded; empty if the service sent
    /// only an address, see [`Image::url`].
    #[must_use]
    pub fn base64(&self) -> &str {
        &self.wire_image().b64_json
    }

    /// Returns the file format, read from the bytes themselves; `None` if the format is unknown.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        decode::image_properties(self.base64()).map(|properties| properties.format)
    }

    /// Returns width and height in pixels, read from the bytes themselves; `None` if the bytes do not state them.
    #[must_use]
    pub fn dimensions(&self) -> Option<(u32, u32)> {
        decode::image_properties(self.base64()).map(|properties| (properties.width, properties.height))
    }

    /// Returns the answer that contains this image, with its metadata and the other images.
    #[must_use]
    pub const fn answer(&self) -> &Images {
        &self.images
    }

    /// Returns the prompt as the model revised it.
    #[must_use]
    pub fn revised_prompt(&self) -> Option<&str> {
        self.wire_image().revised_prompt.as_deref()
    }

    /// Writes the image file and returns its path, with the extension that belongs to the format.
    ///
    /// An extension of another image format is replaced, a missing one is added, and any other is kept. The file
    /// appears whole or not at all. An existing file is never replaced: if `fox.png` exists, the image becomes
    /// `fox-2.png`, or gets the next free number.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written, or if the service sent something that is not base64, or only the
    /// address of the image.
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn write_to(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        super::save::save_image(self, path.as_ref(), FileNaming::Free).await
    }

    /// Like [`Image::write_to`], but replaces an existing file.
    ///
    /// # Errors
    ///
    /// Like [`Image::write_to`]; an existing file then stays as it was.
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn overwrite(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        super::save::save_image(self, path.as_ref(), FileNaming::Replacing).await
    }

    /// Returns the base64 text, or an error if the service sent only an address.
    fn base64_text(&self) -> Result<&str, Error> {
        match (self.base64(), self.url()) {
            ("", Some(url)) => Err(Error::remote_image(url, Some(self.images.meta()))),
            (base64, _) => Ok(base64),
        }
    }

    fn wire_image(&self) -> &types::Image {
        // `Images` lists only positions that exist, and the answer does not change.
        &self.images.response().data[self.position]
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl EncodedImage for Image {
    fn format(&self) -> Option<Format> {
        Self::format(self)
    }

    fn write(&self, sink: ImageByteSink<'_>) -> Result<(), Error> {
        decode::decode_chunks(self.base64_text()?, sink)
    }
}

/// Returns the member `url`, which other services send and which is not in the gateway's document.
fn url(image: &types::Image) -> Option<&str> {
    image.extra.get("url")?.as_str().filter(|url| !url.is_empty())
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("position", &self.position)
            .field("format", &self.format())
            .finish_non_exhaustive()
    }
}
