//! The images of an answer, and their metadata.
//!
//! The text of the answer is in memory once: images are parts of it, and are decoded only when they are used.

use std::borrow::Cow;
use std::fmt;
#[cfg(not(target_arch = "wasm32"))]
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::answer_members::{AnswerFacts, AnswerMembers, ImageMembers};
use super::base64_text::Base64Text;
use super::metadata::AnswerMetadata;
use super::raw_json::{UnreadableText, lossy_text};
#[cfg(not(target_arch = "wasm32"))]
use super::save::{EncodedImage, FileNaming, ImageByteSink};
use super::session::Session;
use super::{Error, Json, OpenWord, decode};
use crate::image::{Format, ImageProperties};
use crate::wire::types::{ImageUsage, OutputFormat, ResolvedBackground, ResolvedQuality};

/// The images that one request made. Serialized with serde, they are the answer exactly as it was received.
#[derive(Clone)]
pub struct Images {
    state: Arc<ImagesState>,
}

struct ImagesState {
    json: Json,
    images: Vec<ImageMembers>,
    /// The number of entries of the answer without an image.
    empty_entries: usize,
    /// The number of images that the request asked for.
    requested: usize,
    facts: AnswerFacts,
    meta: AnswerMetadata,
}

/// One image. Cloning is cheap: the bytes are shared with the [`Images`] it belongs to.
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
    /// Reads an answer that is one JSON object. `requested` is the number of images that the request asked for. Returns
    /// an error if the answer holds no image, whatever its status is.
    pub(super) fn parse(body: Vec<u8>, requested: u64, session: &Session) -> Result<Self, Error> {
        let text = String::from_utf8(body).unwrap_or_else(|error| lossy_text(error.as_bytes()));
        let members = AnswerMembers::read(text).map_err(|UnreadableText { error, text }| {
            let unreadable = Error::unintelligible("this version does not understand the answer", session.head());
            unreadable.with_source(error).with_body(text, &session.secrets())
        })?;
        Self::from_members(members, requested, session)
    }

    /// Creates the images of an answer or event. An image may come as an address instead of bytes.
    pub(super) fn from_members(members: AnswerMembers, requested: u64, session: &Session) -> Result<Self, Error> {
        let AnswerMembers { json, images, empty_entries, facts, has_error, .. } = members;
        if images.is_empty() {
            return Err(if has_error { Error::from_answer(&json, session) } else { Error::no_image(&json, session) });
        }
        let (requested, meta) = (usize::try_from(requested).unwrap_or(0), session.recorded_head().clone());
        Ok(Self { state: Arc::new(ImagesState { json, images, empty_entries, requested, facts, meta }) })
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
        self.state.images.len()
    }

    /// Returns the whole answer as it was received, with everything that this version does not know; a JSON string if it
    /// is not JSON. An image of a stream has its event.
    #[must_use]
    pub fn json(&self) -> &Json {
        &self.state.json
    }

    /// Returns the time at which the images were made, in seconds since 1970-01-01 UTC, if the service states it.
    #[must_use]
    pub fn created(&self) -> Option<i64> {
        self.state.facts.created
    }

    /// Returns the model that made the images, if the service names it.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.state.facts.model.as_deref()
    }

    /// Returns width and height of the images in pixels, such as `1024x1024`, as the service states them.
    /// [`Image::dimensions`] reads them from the image itself.
    #[must_use]
    pub fn size(&self) -> Option<&str> {
        self.state.facts.size.as_deref()
    }

    /// Returns the quality with which the images were made, if the service states it.
    #[must_use]
    pub fn quality(&self) -> Option<&OpenWord<ResolvedQuality>> {
        self.state.facts.quality.as_ref()
    }

    /// Returns the file format, if the service states it. [`Image::format`] reads it from the image itself.
    #[must_use]
    pub fn output_format(&self) -> Option<&OpenWord<OutputFormat>> {
        self.state.facts.output_format.as_ref()
    }

    /// Returns the background, if the service states it.
    #[must_use]
    pub fn background(&self) -> Option<&OpenWord<ResolvedBackground>> {
        self.state.facts.background.as_ref()
    }

    /// Returns the tokens that were used, if the service reports them.
    #[must_use]
    pub fn usage(&self) -> Option<&ImageUsage> {
        self.state.facts.usage.as_ref()
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

    /// Returns the number of requested images that are missing from the answer, by what the request asked for and what
    /// the service reports. The images in the answer have been paid for.
    #[must_use]
    pub fn missing(&self) -> usize {
        let undelivered = self.state.requested.saturating_sub(self.len());
        self.meta().missing().max(self.state.empty_entries).max(undelivered)
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

impl IntoIterator for Images {
    type Item = Image;
    type IntoIter = std::vec::IntoIter<Image>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter().collect::<Vec<_>>().into_iter()
    }
}

impl Serialize for Images {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json().serialize(serializer)
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
        decode::decode_all(&self.base64_text()?)
    }

    /// Returns the address of the image, if the service sends addresses instead of images or in addition to them. The
    /// client never fetches such an address; it expires after a while and needs no key.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        self.members().url.as_deref()
    }

    /// Returns the base64 text as the service sent it; empty if the service sent only an address, see [`Image::url`]. A
    /// gateway sends it padded and without line breaks; another service may leave out the padding, break lines, or send a
    /// data URL, all of which [`Image::bytes`] reads.
    #[must_use]
    pub fn base64(&self) -> Cow<'_, str> {
        self.members().base64.as_ref().map(Base64Text::text).unwrap_or_default()
    }

    /// Returns the file format, read from the bytes themselves; `None` if the format is unknown.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        self.properties().map(|properties| properties.format)
    }

    /// Returns width and height in pixels, read from the bytes themselves; `None` if the bytes do not state them.
    #[must_use]
    pub fn dimensions(&self) -> Option<(u32, u32)> {
        self.properties().map(|properties| (properties.width, properties.height))
    }

    /// Returns the answer that contains this image, with its metadata and the other images.
    #[must_use]
    pub const fn answer(&self) -> &Images {
        &self.images
    }

    /// Returns the prompt as the model revised it.
    #[must_use]
    pub fn revised_prompt(&self) -> Option<&str> {
        self.members().revised_prompt.as_deref()
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
    fn base64_text(&self) -> Result<Cow<'_, str>, Error> {
        match (&self.members().base64, self.url()) {
            (None, Some(url)) => Err(Error::remote_image(url, Some(self.images.meta()))),
            _ => Ok(self.base64()),
        }
    }

    fn properties(&self) -> Option<ImageProperties> {
        self.members().base64.as_ref()?.properties()
    }

    fn members(&self) -> &ImageMembers {
        // The callers of `Images::image_at` ensure that the index is below the length, which does not change.
        &self.images.state.images[self.index]
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl EncodedImage for Image {
    fn format(&self) -> Option<Format> {
        Self::format(self)
    }

    fn write(&self, sink: ImageByteSink<'_>) -> Result<(), Error> {
        decode::decode_chunks(&self.base64_text()?, sink)
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("index", &self.index).field("format", &self.format()).finish_non_exhaustive()
    }
}
