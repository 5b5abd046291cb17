//! An image as a base64 data URL, which is decoded as it comes.
//!
//! Line breaks and spaces between the characters are skipped, because mail and command-line encoders insert them.
//! Everything else is strict: the alphabet must be the standard one, and the padding must be complete.

use std::io;
use std::sync::Arc;

use crate::gateway::spool::{SpoolWriter, SpooledFile};
use crate::image::{Base64Decoder, DataUrlError, starts_with};
use crate::tables::{MAX_EDIT_IMAGES, MAX_EDIT_JSON_BODY_BYTES, MAX_JSON_BODY_BYTES};

/// The maximum length of a data URL, in characters: the body limit of the API document without the part for other
/// members, divided among the images and the mask.
pub(super) const URL_MAX: u64 = (MAX_EDIT_JSON_BODY_BYTES - MAX_JSON_BODY_BYTES) / (MAX_EDIT_IMAGES + 1);
/// The maximum length of the text before the comma, in bytes (our choice).
const HEAD_MAX: usize = 256;
/// The number of decoded bytes that are collected for one write (our choice). A text with many escapes comes in very
/// small pieces.
const WRITE_THRESHOLD: usize = 192 * 1024;
/// The length of the base64 text that decodes to [`WRITE_THRESHOLD`] bytes.
const BASE64_CHUNK: usize = WRITE_THRESHOLD / 3 * 4;

/// A data URL that is being decoded into a file.
#[derive(Debug)]
pub(super) struct DataUrl {
    writer: SpoolWriter,
    /// The text before the comma, until it is complete.
    head: Option<Vec<u8>>,
    /// The number of characters so far.
    length: u64,
    base64: Base64Decoder,
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
        Self {
            writer,
            head: Some(Vec::new()),
            length: 0,
            base64: Base64Decoder::skipping_spaces(),
            decoded: Vec::new(),
        }
    }

    /// Adds the next characters, which are not escaped in the body.
    pub(super) fn push(&mut self, mut text: &[u8]) -> Result<(), ImageUrlError> {
        self.count_characters(text.len())?;
        if self.head.is_some() {
            text = self.read_head(text)?;
        }
        for piece in text.chunks(BASE64_CHUNK) {
            self.base64.push(piece, &mut self.decoded)?;
            self.write_decoded(WRITE_THRESHOLD)?;
        }
        Ok(())
    }

    /// True if the text before the comma is complete.
    pub(super) const fn has_head(&self) -> bool {
        self.head.is_none()
    }

    /// Writes the decoded bytes, so that an upload that pauses holds no memory.
    pub(super) fn flush(&mut self) -> Result<(), ImageUrlError> {
        self.write_decoded(1)
    }

    /// Adds a character that was written as an escape. A line break in a JSON text is always escaped.
    pub(super) fn push_escaped(&mut self, byte: u8) -> Result<(), ImageUrlError> {
        if self.head.is_none() && matches!(byte, b'\r' | b'\n' | b'\t') {
            self.count_characters(1)
        } else {
            self.push(&[byte])
        }
    }

    /// Completes the text.
    pub(super) fn finish(mut self) -> Result<Arc<SpooledFile>, ImageUrlError> {
        if let Some(head) = &self.head {
            return Err(DataUrlError::from_prefix(head).into());
        }
        self.base64.finish()?;
        self.write_decoded(1)?;
        Ok(self.writer.finish())
    }

    fn count_characters(&mut self, characters: usize) -> Result<(), ImageUrlError> {
        self.length += characters as u64;
        if self.length > URL_MAX { Err(ImageUrlError::TooLong) } else { Ok(()) }
    }

    /// Reads up to the comma, and returns the text after it; the returned text is empty if the comma has not come.
    fn read_head<'a>(&mut self, text: &'a [u8]) -> Result<&'a [u8], ImageUrlError> {
        let Some(head) = &mut self.head else { return Ok(text) };
        let comma = text.iter().take(HEAD_MAX).position(|byte| *byte == b',');
        let (prefix, remaining) = text.split_at(comma.unwrap_or_else(|| text.len().min(HEAD_MAX)));
        head.extend_from_slice(prefix);
        let may_be_data_url = head.len() < b"https://".len() || starts_with(head, "data:");
        if head.len() >= HEAD_MAX || !may_be_data_url {
            return Err(DataUrlError::from_prefix(head).into());
        }
        if comma.is_none() {
            return Ok(remaining);
        }
        if !starts_with(head, "data:image/") || !head.to_ascii_lowercase().ends_with(b";base64") {
            return Err(DataUrlError::from_prefix(head).into());
        }
        self.head = None;
        Ok(&remaining[1..])
    }

    fn write_decoded(&mut self, min_bytes: usize) -> Result<(), ImageUrlError> {
        if self.decoded.len() >= min_bytes {
            self.writer.write(&self.decoded)?;
            self.decoded.clear();
        }
        Ok(())
    }
}
