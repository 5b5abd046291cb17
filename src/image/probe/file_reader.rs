//! Reads small pieces at given offsets, and counts the visited parts.
//!
//! The module limits the walk through a file: each chunk or segment counts as one part, and the number of parts is
//! limited.

use std::io::ErrorKind;

use super::{ByteSource, ImageFileError, MAX_PARTS};
use crate::image::Format;

/// A reader of the structure of one file.
pub(super) struct ImageFileReader<'a> {
    source: &'a dyn ByteSource,
    length: u64,
    format: Format,
    remaining_parts: u32,
}

// === impl ImageFileReader ===

impl<'a> ImageFileReader<'a> {
    pub(super) fn new(source: &'a dyn ByteSource, format: Format) -> Self {
        Self { source, length: source.len(), format, remaining_parts: MAX_PARTS }
    }

    /// Counts one more chunk or segment.
    pub(super) fn count_part(&mut self) -> Result<(), ImageFileError> {
        self.remaining_parts = self.remaining_parts.checked_sub(1).ok_or(ImageFileError::TooManyParts(self.format))?;
        Ok(())
    }

    /// Returns the bytes at this offset, or an error if the file ends before the last of them.
    pub(super) fn bytes<const N: usize>(&self, offset: u64) -> Result<[u8; N], ImageFileError> {
        let mut bytes = [0; N];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills the whole buffer, or returns an error.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ImageFileError> {
        if read_full(self.source, offset, buffer)? < buffer.len() {
            return Err(self.truncated());
        }
        Ok(())
    }

    /// Returns an error if the file is shorter than `end`.
    pub(super) fn require_length(&self, end: u64) -> Result<(), ImageFileError> {
        if end > self.length { Err(self.truncated()) } else { Ok(()) }
    }

    pub(super) fn damaged(&self, what: &'static str) -> ImageFileError {
        ImageFileError::Damaged(self.format, what)
    }

    fn truncated(&self) -> ImageFileError {
        ImageFileError::Truncated(self.format)
    }
}

/// Reads until the buffer is full or the source ends, and returns the number of bytes read.
pub(super) fn read_full(source: &dyn ByteSource, offset: u64, buffer: &mut [u8]) -> Result<usize, ImageFileError> {
    let (mut position, mut done) = (offset, 0);
    while let Some(unfilled) = buffer.get_mut(done..).filter(|unfilled| !unfilled.is_empty()) {
        let capacity = unfilled.len();
        match source.read_at(position, unfilled) {
            Ok(0) => break,
            // A source may report more bytes than the buffer can hold; the excess is ignored.
            Ok(count) => {
                let count = count.min(capacity);
                done += count;
                position = position.saturating_add(count as u64);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(ImageFileError::Unreadable(error.kind())),
        }
    }
    Ok(done)
}
