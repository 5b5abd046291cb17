//! An image as a base64 data URL, which is decoded into a file as it comes.

use std::io;
use std::sync::Arc;

use crate::gateway::spool::{SpoolWriter, SpooledFile};
use crate::image::{DataUrlDecoder, DataUrlError};
use crate::tables::{MAX_EDIT_IMAGES, MAX_EDIT_JSON_BODY_BYTES, MAX_JSON_BODY_BYTES};

/// The maximum length of a data URL, in characters: the body limit of the API document without the part for other
/// members, divided among the images and the mask.
pub(super) const URL_MAX: u64 = (MAX_EDIT_JSON_BODY_BYTES - MAX_JSON_BODY_BYTES) / (MAX_EDIT_IMAGES + 1);
/// The number of decoded bytes that are collected for one write (our choice). A text with many escapes comes in very
/// small pieces.
const WRITE_THRESHOLD: usize = 192 * 1024;
/// The length of the base64 text that decodes to [`WRITE_THRESHOLD`] bytes.
const BASE64_CHUNK: usize = WRITE_THRESHOLD / 3 * 4;

/// A data URL that is being decoded into a file.
#[derive(Debug)]
pub(super) struct DataUrl {
    writer: SpoolWriter,
    decoder: DataUrlDecoder,
    /// The number of characters so far.
    length: u64,
    decoded: Vec<u8>,
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

// === impl DataUrl ===

impl DataUrl {
    pub(super) fn new(writer: SpoolWriter) -> Self {
        Self { writer, decoder: DataUrlDecoder::new(), length: 0, decoded: Vec::new() }
    }

    /// Adds the next characters, which are not escaped in the body.
    pub(super) fn push(&mut self, text: &[u8]) -> Result<(), ImageUrlError> {
        self.count_characters(text.len())?;
        for piece in text.chunks(BASE64_CHUNK) {
            self.decoder.push(piece, &mut self.decoded)?;
            self.write_decoded(WRITE_THRESHOLD)?;
        }
        Ok(())
    }

    /// Adds a character that was written as an escape.
    pub(super) fn push_escaped(&mut self, unit: u16) -> Result<(), ImageUrlError> {
        self.count_characters(1)?;
        self.decoder.push_escaped(unit, &mut self.decoded)?;
        self.write_decoded(WRITE_THRESHOLD)
    }

    /// True if the text before the comma is complete.
    pub(super) const fn has_head(&self) -> bool {
        self.decoder.has_head()
    }

    /// Writes the decoded bytes, so that an upload that pauses holds no memory.
    pub(super) fn flush(&mut self) -> Result<(), ImageUrlError> {
        self.write_decoded(1)
    }

    /// Completes the text.
    pub(super) fn finish(mut self) -> Result<Arc<SpooledFile>, ImageUrlError> {
        self.decoder.finish()?;
        self.flush()?;
        Ok(self.writer.finish())
    }

    fn count_characters(&mut self, characters: usize) -> Result<(), ImageUrlError> {
        self.length += characters as u64;
        if self.length > URL_MAX { Err(ImageUrlError::TooLong) } else { Ok(()) }
    }

    fn write_decoded(&mut self, min_bytes: usize) -> Result<(), ImageUrlError> {
        if self.decoded.len() >= min_bytes {
            self.writer.write(&self.decoded)?;
            self.decoded.clear();
        }
        Ok(())
    }
}
