//! An image in a response: base64 text that shares its memory with the JSON of the whole answer.

use std::borrow::Cow;
use std::fmt;
#[cfg(not(target_arch = "wasm32"))]
use std::path::{Path, PathBuf};

use crate::client::raw_json::Json;
#[cfg(not(target_arch = "wasm32"))]
use crate::client::save::{self, EncodedImage, FileNaming, ImageByteSink};
use crate::client::{Error, decode};
use crate::image::{Format, ImageProperties};

/// An image that a model made. Cloning is cheap: the bytes are shared with the answer or event that contained it.
#[derive(Clone)]
pub struct ResponseImage {
    /// A JSON string that is not empty.
    base64: Json,
}

// === impl ResponseImage ===

impl ResponseImage {
    /// Creates an image; returns `None` if the value is not a string, or if it is empty.
    pub(super) fn new(base64: Json) -> Option<Self> {
        let text = base64.text();
        (text.len() > 2 && text.starts_with('"')).then_some(Self { base64 })
    }

    /// Returns the bytes of the image file.
    ///
    /// # Errors
    ///
    /// Returns an error if the service sent something that is not base64.
    pub fn bytes(&self) -> Result<Vec<u8>, Error> {
        decode::decode_all(&self.base64())
    }

    /// Returns the image as the service sent it: base64 text in the standard alphabet, padded.
    #[must_use]
    pub fn base64(&self) -> Cow<'_, str> {
        // The text is copied only if it has JSON escapes: some JSON writers put a backslash before each slash.
        self.base64.unescaped_text().map_or_else(|| Cow::Owned(self.base64.read().unwrap_or_default()), Cow::Borrowed)
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

    /// Writes the image file and returns its path, like [`Image::write_to`](crate::client::Image::write_to).
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written, or if the service sent something that is not base64.
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn write_to(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        save::save_image(self, path.as_ref(), FileNaming::Free).await
    }

    /// Like [`ResponseImage::write_to`], but replaces an existing file.
    ///
    /// # Errors
    ///
    /// Like [`ResponseImage::write_to`]; an existing file then stays as it was.
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn overwrite(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        save::save_image(self, path.as_ref(), FileNaming::Replacing).await
    }

    fn properties(&self) -> Option<ImageProperties> {
        decode::image_properties(&self.base64())
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl EncodedImage for ResponseImage {
    fn format(&self) -> Option<Format> {
        Self::format(self)
    }

    fn write(&self, sink: ImageByteSink<'_>) -> Result<(), Error> {
        decode::decode_chunks(&self.base64(), sink)
    }
}

impl fmt::Debug for ResponseImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseImage").field("format", &self.format()).finish_non_exhaustive()
    }
}
