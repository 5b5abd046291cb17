//! An image in a response: base64 inside a text that is shared with everything around it.

use std::borrow::Cow;
use std::fmt;
#[cfg(not(target_arch = "wasm32"))]
use std::path::{Path, PathBuf};

use crate::client::open::Json;
#[cfg(not(target_arch = "wasm32"))]
use crate::client::save::{self, EncodedImage, FileNaming, Sink};
use crate::client::{Error, decode};
use crate::image::{Facts, Format};

/// An image that a model drew. Cloning is cheap: the bytes are shared with the answer or event it came in.
#[derive(Clone)]
pub struct ResponseImage {
    /// A JSON string that is not empty.
    base64: Json,
}

// === impl ResponseImage ===

impl ResponseImage {
    /// Nothing where it is no text, or an empty one.
    pub(super) fn new(base64: Json) -> Option<Self> {
        let text = base64.text();
        (text.len() > 2 && text.starts_with('"')).then_some(Self { base64 })
    }

    /// The bytes of the image file.
    ///
    /// # Errors
    ///
    /// The service sent something that is not base64.
    pub fn bytes(&self) -> Result<Vec<u8>, Error> {
        decode::all(&self.base64())
    }

    /// The bytes as they came: base64 text in the standard alphabet, padded.
    #[must_use]
    pub fn base64(&self) -> Cow<'_, str> {
        // Some writers of JSON put a backslash before each slash.
        self.base64.plain().map_or_else(|| Cow::Owned(self.base64.read().unwrap_or_default()), Cow::Borrowed)
    }

    /// The file format, from the bytes themselves; nothing where they are of no known format.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        self.facts().map(|facts| facts.format)
    }

    /// Width and height in pixels, from the bytes themselves; nothing where they do not tell.
    #[must_use]
    pub fn dimensions(&self) -> Option<(u32, u32)> {
        self.facts().map(|facts| (facts.width, facts.height))
    }

    /// Writes the image file, and says where, as [`Image::write_to`](crate::client::Image::write_to) does.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or the service sent something that is not base64.
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn write_to(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        save::image(self, path.as_ref(), FileNaming::Free).await
    }

    /// Like [`ResponseImage::write_to`], but replaces an existing file.
    ///
    /// # Errors
    ///
    /// Like [`ResponseImage::write_to`]; an existing file is then left as it was.
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn overwrite(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        save::image(self, path.as_ref(), FileNaming::Replacing).await
    }

    fn facts(&self) -> Option<Facts> {
        decode::facts(&self.base64())
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl EncodedImage for ResponseImage {
    fn format(&self) -> Option<Format> {
        Self::format(self)
    }

    fn write(&self, sink: Sink<'_>) -> Result<(), Error> {
        decode::pieces(&self.base64(), sink)
    }
}

impl fmt::Debug for ResponseImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseImage").field("format", &self.format()).finish_non_exhaustive()
    }
}
