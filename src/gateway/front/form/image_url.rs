//! The text of an `image_url`: a data URL, which is decoded as it comes, or a web address, which is fetched later.

use std::sync::Arc;

use super::data_url::{DataUrl, ImageUrlError};
use crate::gateway::spool::{SpoolWriter, SpooledFile};
use crate::image::{DataUrlError, WEB_ADDRESS_PREFIX, is_web_address};

/// The maximum length of a web address, in bytes (our choice): browsers and servers accept no much longer ones.
const WEB_ADDRESS_MAX: usize = 8 * 1024;

/// A text that is being received.
#[derive(Debug)]
pub(super) enum ImageUrl {
    /// Too short to tell what it is.
    Prefix(SpoolWriter, Vec<u8>),
    /// A data URL.
    Data(Box<DataUrl>),
    /// A web address.
    Web(SpoolWriter, Vec<u8>),
}

/// An image that was received, or can be fetched.
#[derive(Debug)]
pub(super) enum ImageSource {
    /// The file of the image.
    File(Arc<SpooledFile>),
    /// The address, and the writer of the file.
    Web(String, SpoolWriter),
}

// === impl ImageUrl ===

impl ImageUrl {
    pub(super) const fn new(writer: SpoolWriter) -> Self {
        Self::Prefix(writer, Vec::new())
    }

    /// Adds the next characters, which are not escaped in the body.
    pub(super) fn push(self, text: &[u8]) -> Result<Self, ImageUrlError> {
        match self {
            Self::Prefix(writer, mut prefix) => {
                let missing = WEB_ADDRESS_PREFIX.saturating_sub(prefix.len()).min(text.len());
                prefix.extend_from_slice(&text[..missing]);
                if prefix.len() < WEB_ADDRESS_PREFIX {
                    return Ok(Self::Prefix(writer, prefix));
                }
                Self::from_prefix(writer, prefix)?.push(&text[missing..])
            }
            Self::Data(mut url) => url.push(text).map(|()| Self::Data(url)),
            Self::Web(writer, mut address) => {
                address.extend_from_slice(text);
                if address.len() > WEB_ADDRESS_MAX {
                    Err(DataUrlError::NotDataUrl.into())
                } else {
                    Ok(Self::Web(writer, address))
                }
            }
        }
    }

    /// Adds a character that was written as an escape.
    pub(super) fn push_escaped(self, unit: u16) -> Result<Self, ImageUrlError> {
        match self {
            Self::Data(mut url) => url.push_escaped(unit).map(|()| Self::Data(url)),
            // Neither kind of address has other characters than those of ASCII.
            url => url.push(&[u8::try_from(unit).unwrap_or(u8::MAX)]),
        }
    }

    /// True if the text is a data URL whose text before the comma is complete.
    pub(super) const fn is_in_data(&self) -> bool {
        matches!(self, Self::Data(url) if url.has_head())
    }

    /// Writes the decoded bytes, so that an upload that pauses holds no memory.
    pub(super) fn flush(&mut self) -> Result<(), ImageUrlError> {
        if let Self::Data(url) = self { url.flush() } else { Ok(()) }
    }

    /// Completes the text.
    pub(super) fn finish(self) -> Result<ImageSource, ImageUrlError> {
        match self {
            Self::Prefix(writer, prefix) => Self::from_data_prefix(writer, &prefix)?.finish(),
            Self::Data(url) => url.finish().map(ImageSource::File),
            Self::Web(writer, address) => {
                let address = String::from_utf8(address).map_err(|_| DataUrlError::NotDataUrl)?;
                Ok(ImageSource::Web(address, writer))
            }
        }
    }

    fn from_prefix(writer: SpoolWriter, prefix: Vec<u8>) -> Result<Self, ImageUrlError> {
        if is_web_address(&prefix) { Ok(Self::Web(writer, prefix)) } else { Self::from_data_prefix(writer, &prefix) }
    }

    fn from_data_prefix(writer: SpoolWriter, prefix: &[u8]) -> Result<Self, ImageUrlError> {
        let mut url = Box::new(DataUrl::new(writer));
        url.push(prefix)?;
        Ok(Self::Data(url))
    }
}
