//! Reads an image from a base64 data URL that arrives in pieces.
//!
//! The URL must name the media type of an image, but not the right one: the bytes of the image decide. Line breaks and
//! spaces between the characters are skipped, because mail and command-line encoders insert them. Everything else is
//! strict: the alphabet must be the standard one, and the padding must be complete.

use super::base64::{Base64Decoder, NotBase64};

/// The maximum length of the text before the comma, in bytes (our choice).
const HEAD_MAX: usize = 256;

/// The reason why a text is not a data URL of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DataUrlError {
    /// The text is an address of a remote image.
    #[error("remote images are not fetched here. Send the image itself as a base64 data URL.")]
    Remote,
    /// The text is neither an address nor a data URL.
    #[error("expected a base64 data URL: 'data:image/png;base64,…'.")]
    NotDataUrl,
    /// The text is a data URL that is truncated or damaged.
    #[error("the data URL is not valid base64.")]
    NotBase64,
}

/// The decoder of one data URL.
#[derive(Debug)]
pub(crate) struct DataUrlDecoder {
    /// The text before the comma, until it is complete.
    head: Option<Vec<u8>>,
    base64: Base64Decoder,
}

// === impl DataUrlError ===

impl DataUrlError {
    /// Returns the error for a text that begins with `head` and is not a data URL of an image.
    fn from_prefix(head: &[u8]) -> Self {
        if is_web_address(head) { Self::Remote } else { Self::NotDataUrl }
    }
}

/// True if the text begins like the address of a remote image; its first [`WEB_ADDRESS_PREFIX`] bytes decide.
fn is_web_address(text: &[u8]) -> bool {
    ["http:", "https:"].iter().any(|scheme| starts_with(text, scheme))
}

/// True if the text begins with this word, in upper or lower case.
fn starts_with(text: &[u8], word: &str) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
}

impl From<NotBase64> for DataUrlError {
    fn from(_: NotBase64) -> Self {
        Self::NotBase64
    }
}

// === impl DataUrlDecoder ===

impl DataUrlDecoder {
    pub(crate) fn new() -> Self {
        Self { head: Some(Vec::new()), base64: Base64Decoder::default() }
    }

    /// True if the text before the comma is complete.
    pub(crate) const fn has_head(&self) -> bool {
        self.head.is_none()
    }

    /// Decodes the next characters, which are not escaped in the JSON text, and appends the bytes to `output`.
    ///
    /// # Errors
    ///
    /// Returns an error as soon as the text cannot be the data URL of an image.
    pub(crate) fn push(&mut self, text: &[u8], output: &mut Vec<u8>) -> Result<(), DataUrlError> {
        let text = self.read_head(text)?;
        Ok(self.base64.push(text, output)?)
    }

    /// Decodes a UTF-16 code unit that is written as an escape. A line break in a JSON text is always escaped.
    ///
    /// # Errors
    ///
    /// Like [`Self::push`].
    pub(crate) fn push_escaped(&mut self, unit: u16, output: &mut Vec<u8>) -> Result<(), DataUrlError> {
        // A data URL has only ASCII characters, escaped or not.
        let byte = u8::try_from(unit).unwrap_or(u8::MAX);
        if self.has_head() && matches!(byte, b'\r' | b'\n' | b'\t') { Ok(()) } else { self.push(&[byte], output) }
    }

    /// Ends the text.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is no data URL of an image, or was truncated.
    pub(crate) fn finish(&self) -> Result<(), DataUrlError> {
        self.head.as_ref().map_or_else(|| Ok(self.base64.finish()?), |head| Err(DataUrlError::from_prefix(head)))
    }

    /// Reads up to the comma, and returns the text after it; the returned text is empty if the comma has not come.
    fn read_head<'a>(&mut self, text: &'a [u8]) -> Result<&'a [u8], DataUrlError> {
        let Some(head) = &mut self.head else { return Ok(text) };
        let comma = text.iter().take(HEAD_MAX).position(|byte| *byte == b',');
        let (prefix, remaining) = text.split_at(comma.unwrap_or_else(|| text.len().min(HEAD_MAX)));
        head.extend_from_slice(prefix);
        let may_be_image = if comma.is_some() {
            is_image_head(head)
        } else {
            head.len() < WEB_ADDRESS_PREFIX || starts_with(head, "data:")
        };
        if head.len() >= HEAD_MAX || !may_be_image {
            return Err(DataUrlError::from_prefix(head));
        }
        if comma.is_some() {
            self.head = None;
        }
        Ok(remaining.get(1..).unwrap_or_default())
    }
}

/// The number of bytes by which a web address can be told from a data URL.
const WEB_ADDRESS_PREFIX: usize = "https://".len();

fn is_image_head(head: &[u8]) -> bool {
    starts_with(head, "data:image/") && head.to_ascii_lowercase().ends_with(b";base64")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &str, piece: usize) -> Result<Vec<u8>, DataUrlError> {
        let (mut url, mut bytes) = (DataUrlDecoder::new(), Vec::new());
        text.as_bytes().chunks(piece).try_for_each(|piece| url.push(piece, &mut bytes))?;
        url.finish()?;
        Ok(bytes)
    }

    #[test]
    fn only_the_data_url_of_an_image_is_decoded() {
        let long = format!("data:image/png;{};base64,QUJD", "a".repeat(HEAD_MAX));
        for piece in [1, 5, 1000] {
            for url in
                ["data:image/png;base64,QUJD", "DATA:Image/png;name=a.png;BASE64,QU JD", "data:image/;base64,QUJD"]
            {
                assert_eq!(decode(url, piece), Ok(b"ABC".to_vec()), "{url} by {piece}");
            }
            assert_eq!(decode("HTTPS://example.com/a.png", piece), Err(DataUrlError::Remote));
            assert_eq!(decode("http:", piece), Err(DataUrlError::Remote));
            for url in [
                "",
                "dat",
                "data:",
                "data:image/png,QUJD",
                "data:;base64,QUJD",
                "data:image/png;base64",
                "a.png",
                &long,
            ] {
                assert_eq!(decode(url, piece), Err(DataUrlError::NotDataUrl), "{url} by {piece}");
            }
            assert_eq!(decode("data:image/png;base64,QUJ", piece), Err(DataUrlError::NotBase64));
        }
    }
}
