//! An image in a response: base64 text that shares its memory with the JSON of the whole answer.

use std::borrow::Cow;
use std::fmt;
#[cfg(not(target_arch = "wasm32"))]
use std::path::{Path, PathBuf};

use crate::client::Error;
use crate::client::base64_text::Base64Text;
#[cfg(not(target_arch = "wasm32"))]
use crate::client::decode;
use crate::client::raw_json::Json;
#[cfg(not(target_arch = "wasm32"))]
use crate::client::save::{self, EncodedImage, FileNaming, ImageByteSink};
use crate::image::Format;

/// An image that a model made. Cloning is cheap: the bytes are shared with the answer or event that contained it.
#[derive(Clone)]
pub struct ResponseImage {
    base64: Base64Text,
}

// === impl ResponseImage ===

impl ResponseImage {
    /// Creates an image; returns `None` if the value is not a string, or if it is empty.
    pub(super) fn new(base64: Json) -> Option<Self> {
        Base64Text::new(base64).map(|base64| Self { base64 })
    }

    /// Returns the bytes of the image file.
    ///
    /// # Errors
    ///
    /// Returns an error if the service sent something that is not base64.
    pub fn bytes(&self) -> Result<Vec<u8>, Error> {
        self.base64.decode()
    }

    /// Returns the base64 text as the service sent it, which may lack padding or have line breaks.
    #[must_use]
    pub fn base64(&self) -> Cow<'_, str> {
        self.base64.text()
    }

    /// Returns the file format, read from the bytes themselves; `None` if the format is unknown.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        self.base64.properties().map(|properties| properties.format)
    }

    /// Returns width and height in pixels, read from the bytes themselves; `None` if the bytes do not state them.
    #[must_use]
    pub fn dimensions(&self) -> Option<(u32, u32)> {
        self.base64.properties().map(|properties| (properties.width, properties.height))
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
