//! The base64 text of an image, in the memory of the JSON that contained it.

use std::borrow::Cow;

use super::raw_json::Json;
use super::{Error, decode};
use crate::image::ImageProperties;

/// The base64 text of an image. Cloning is cheap: the text is shared with the answer or event that contained it.
#[derive(Clone)]
pub(super) struct Base64Text {
    /// A JSON string that is not empty.
    json: Json,
}

// === impl Base64Text ===

impl Base64Text {
    /// Creates a text; returns `None` if the value is not a string, or if it is empty.
    pub(super) fn new(json: Json) -> Option<Self> {
        let text = json.text();
        (text.len() > 2 && text.starts_with('"')).then_some(Self { json })
    }

    /// Returns the text as the service sent it.
    pub(super) fn text(&self) -> Cow<'_, str> {
        // The text is copied only if it has JSON escapes: some JSON writers put a backslash before each slash.
        self.json.unescaped_text().map_or_else(|| Cow::Owned(self.json.read().unwrap_or_default()), Cow::Borrowed)
    }

    /// Returns the bytes of the image file.
    pub(super) fn decode(&self) -> Result<Vec<u8>, Error> {
        decode::decode_all(&self.text())
    }

    /// Returns the format and pixel size of the file, read from its first bytes.
    pub(super) fn properties(&self) -> Option<ImageProperties> {
        decode::image_properties(&self.text())
    }
}
