//! The text of an `image_url`: a base64 data URL, which is decoded into a file as it comes, or a web address, which is
//! fetched later.

use std::io;
use std::sync::Arc;

use crate::gateway::spool::{SpoolWriter, SpooledFile};
use crate::image::{DataUrlDecoder, DataUrlError};
use crate::tables::{MAX_EDIT_IMAGES, MAX_EDIT_JSON_BODY_BYTES, MAX_JSON_BODY_BYTES};

/// The maximum length of a data URL, in characters: the body limit of the API document without the part for other
/// members, divided among the images and the mask.
pub(super) const URL_MAX: u64 = (MAX_EDIT_JSON_BODY_BYTES - MAX_JSON_BODY_BYTES) / (MAX_EDIT_IMAGES + 1);
/// The maximum length of a web address, in bytes (our choice): browsers and servers accept no much longer ones.
const WEB_ADDRESS_MAX: usize = 8 * 1024;
/// The number of decoded bytes that are collected for one write (our choice). A text with many escapes comes in very
/// small pieces.
const WRITE_THRESHOLD: usize = 192 * 1024;
/// The length of the base64 text that decodes to [`WRITE_THRESHOLD`] bytes.
const BASE64_CHUNK: usize = WRITE_THRESHOLD / 3 * 4;

/// A text that is being received.
#[derive(Debug)]
pub(super) struct ImageUrl {
    writer: SpoolWriter,
    decoder: DataUrlDecoder,
    /// The bytes that are not written yet.
    decoded: Vec<u8>,
    /// The number of characters so far.
    length: u64,
    /// The text up to one byte above [`WEB_ADDRESS_MAX`], until it is known to be a data URL.
    address: Vec<u8>,
    is_web_address: bool,
    /// True if the text may be a web address.
    allows_web_address: bool,
}

/// An image that was received, or can be fetched.
#[derive(Debug)]
pub(super) enum ImageSource {
    /// The file of the image.
    File(Arc<SpooledFile>),
    /// The address, and the writer of the file.
    Web(String, SpoolWriter),
}

/// The reason why a text is not accepted as an image.
#[derive(Debug, thiserror::Error)]
pub(super) enum ImageUrlError {
    /// More than [`URL_MAX`] characters.
    #[error("string too long. Expected a string with at most {URL_MAX} characters.")]
    TooLong,
    /// The text is not a valid data URL.
    #[error(transparent)]
    InvalidDataUrl(#[from] DataUrlError),
    /// The disk failed.
    #[error("the spool cannot be written to")]
    Spool(#[from] io::Error),
}

// === impl ImageUrl ===

impl ImageUrl {
    pub(super) fn new(writer: SpoolWriter, allows_web_address: bool) -> Self {
        let (decoder, decoded, address) = (DataUrlDecoder::new(), Vec::new(), Vec::new());
        Self { writer, decoder, decoded, length: 0, address, is_web_address: false, allows_web_address }
    }

    /// Adds the next characters, which are not escaped in the body.
    pub(super) fn push(&mut self, text: &[u8]) -> Result<(), ImageUrlError> {
        self.count_characters(text.len())?;
        if !self.decoder.has_head() {
            let free = (WEB_ADDRESS_MAX + 1).saturating_sub(self.address.len());
            self.address.extend_from_slice(&text[..text.len().min(free)]);
        }
        if self.is_web_address {
            return self.check_address_length();
        }
        for piece in text.chunks(BASE64_CHUNK) {
            match self.decoder.push(piece, &mut self.decoded) {
                Err(DataUrlError::Remote) if self.allows_web_address => {
                    self.is_web_address = true;
                    return self.check_address_length();
                }
                pushed => pushed?,
            }
            self.write_decoded(WRITE_THRESHOLD)?;
        }
        if self.decoder.has_head() {
            self.address = Vec::new();
        }
        Ok(())
    }

    /// Adds a character that was written as an escape.
    pub(super) fn push_escaped(&mut self, unit: u16) -> Result<(), ImageUrlError> {
        if !self.decoder.has_head() {
            // Neither kind of address has other characters than those of ASCII.
            return self.push(&[u8::try_from(unit).unwrap_or(u8::MAX)]);
        }
        self.count_characters(1)?;
        self.decoder.push_escaped(unit, &mut self.decoded)?;
        self.write_decoded(WRITE_THRESHOLD)
    }

    /// True if the text is a data URL whose text before the comma is complete.
    pub(super) const fn is_in_data(&self) -> bool {
        self.decoder.has_head()
    }

    /// Writes the decoded bytes, so that an upload that pauses holds no memory.
    pub(super) fn flush(&mut self) -> Result<(), ImageUrlError> {
        self.write_decoded(1)
    }

    /// Completes the text.
    pub(super) fn finish(mut self) -> Result<ImageSource, ImageUrlError> {
        if self.is_web_address {
            let address = String::from_utf8(self.address).map_err(|_| DataUrlError::NotDataUrl)?;
            return Ok(ImageSource::Web(address, self.writer));
        }
        self.decoder.finish()?;
        self.flush()?;
        Ok(ImageSource::File(self.writer.finish()))
    }

    fn count_characters(&mut self, characters: usize) -> Result<(), ImageUrlError> {
        self.length += characters as u64;
        if self.length > URL_MAX { Err(ImageUrlError::TooLong) } else { Ok(()) }
    }

    fn check_address_length(&self) -> Result<(), ImageUrlError> {
        if self.address.len() > WEB_ADDRESS_MAX { Err(DataUrlError::NotDataUrl.into()) } else { Ok(()) }
    }

    fn write_decoded(&mut self, min_bytes: usize) -> Result<(), ImageUrlError> {
        if self.decoded.len() >= min_bytes {
            self.writer.write(&self.decoded)?;
            self.decoded.clear();
        }
        Ok(())
    }
}
