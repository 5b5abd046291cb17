//! The images of an answer, and what was said about them.

use std::fmt;
#[cfg(not(target_arch = "wasm32"))]
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(not(target_arch = "wasm32"))]
use super::save::{EncodedImage, FileNaming, Sink};
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
    head: Option<Head>,
    /// The places of the images in `response.data`; some services send an empty place for an image that was not made.
    places: Vec<usize>,
}

/// One image. Cloning is cheap: the bytes are shared with the [`Images`] it came from.
#[derive(Clone)]
pub struct Image {
    images: Images,
    /// Its place in the data of the answer.
    place: usize,
}

/// The images of an answer, in order; from [`Images::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    images: &'a Images,
    next: usize,
}

// === impl Images ===

impl Images {
    /// An answer without an image is an error, whatever its status is. Images may come as addresses instead of bytes.
    pub(super) fn new(response: ImagesResponse, head: Option<&Head>) -> Result<Self, Error> {
        let is_made = |image: &types::Image| !image.b64_json.is_empty() || url(image).is_some();
        let images = response.data.iter().enumerate();
        let places: Vec<usize> = images.filter(|(_, image)| is_made(image)).map(|(place, _)| place).collect();
        if places.is_empty() {
            return Err(Error::unintelligible("the answer holds no image", head));
        }
        Ok(Self { answer: Arc::new(Answer { response, head: head.cloned(), places }) })
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
        self.answer.places.len()
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
        self.head()?.request_id.as_deref()
    }

    /// Whether the built-in simulator of the gateway drew the images instead of the model.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.head().is_some_and(|head| head.is_simulated)
    }

    /// Whether this is the answer to an earlier request with the same idempotency key, for which nothing was paid again.
    #[must_use]
    pub fn is_replayed(&self) -> bool {
        self.head().is_some_and(|head| head.is_replayed)
    }

    /// What was made instead of what was asked for, such as `3840x2160 medium`, where a fallback was allowed and taken.
    #[must_use]
    pub fn fallback(&self) -> Option<&str> {
        self.head()?.fallback.as_deref()
    }

    /// The number of requested images that are missing from the answer, as the service reports it or leaves empty places;
    /// 0 if it does neither. The images in the answer have been paid for.
    #[must_use]
    pub fn missing(&self) -> usize {
        let empty = self.answer.response.data.len() - self.len();
        self.head().map_or(0, |head| head.missing).max(empty)
    }

    /// The actual size and format of the first image, such as `1024x1024 png`, if the service reports them.
    #[must_use]
    pub fn delivered(&self) -> Option<&str> {
        self.head()?.delivered.as_deref()
    }

    /// `match` or `mismatch`: the result of comparing [`Self::delivered`] with the request, if the service reports it.
    #[must_use]
    pub fn delivery(&self) -> Option<&str> {
        self.head()?.delivery.as_deref()
    }

    /// Writes every image to a file of its own, and returns the paths in the order of the images.
    ///
    /// A single image gets the path as [`Image::write_to`] would write it. Several are numbered: `fox` becomes
    /// `fox-1.png`, `fox-2.png` and so on. An existing file is never replaced; its number is skipped.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written, or if an image is not base64 or came as an address only. The other
    /// images are written nevertheless.
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn write_all(&self, path: impl AsRef<Path>) -> Result<Vec<PathBuf>, Error> {
        super::save::all(self.iter(), path.as_ref()).await
    }

    fn head(&self) -> Option<&Head> {
        self.answer.head.as_ref()
    }

    fn at(&self, index: usize) -> Image {
        // The index is below the length: the callers see to that.
        Image { images: self.clone(), place: self.answer.places[index] }
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
    /// Returns an error if the service sent something that is not base64, or only the address of the image; see
    /// [`Image::url`].
    pub fn bytes(&self) -> Result<Vec<u8>, Error> {
        decode::all(self.sent()?)
    }

    /// The address of the image, from a service that sends addresses instead of images or beside them. The client
    /// fetches nothing from it: such addresses expire after a while, and need no key.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        url(self.wire())
    }

    /// The bytes as they came: base64 text in the standard alphabet, padded. Empty if only [`Image::url`] came.
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
    /// The file appears whole or not at all. An existing file is never replaced: if `fox.png` is taken, the image
    /// becomes `fox-2.png`, or the next number that is free.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written, or if the service sent something that is not base64, or only the
    /// address of the image.
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn write_to(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        super::save::image(self, path.as_ref(), FileNaming::Free).await
    }

    /// Like [`Image::write_to`], but replaces an existing file.
    ///
    /// # Errors
    ///
    /// Like [`Image::write_to`]; an existing file is then left as it was.
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn overwrite(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        super::save::image(self, path.as_ref(), FileNaming::Replacing).await
    }

    /// The base64 text, or an error if it did not come.
    fn sent(&self) -> Result<&str, Error> {
        match (self.base64(), self.url()) {
            ("", Some(url)) => Err(Error::elsewhere(url, self.images.head())),
            (base64, _) => Ok(base64),
        }
    }

    fn wire(&self) -> &types::Image {
        // The place was there when this was made, and nothing changes the answer.
        &self.images.response().data[self.place]
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl EncodedImage for Image {
    fn format(&self) -> Option<Format> {
        Self::format(self)
    }

    fn write(&self, sink: Sink<'_>) -> Result<(), Error> {
        decode::pieces(self.sent()?, sink)
    }
}

/// The member `url`, which other services send and the gateway's document does not have.
fn url(image: &types::Image) -> Option<&str> {
    image.extra.get("url")?.as_str().filter(|url| !url.is_empty())
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("place", &self.place).field("format", &self.format()).finish_non_exhaustive()
    }
}
