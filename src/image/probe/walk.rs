//! Small reads at chosen places, and a count of the parts that were visited.
//!
//! Decides: that a walk ends. Each step costs one part, each part a fixed number of bytes, whatever the file says.

use std::io::ErrorKind;

use super::{Flaw, MAX_PARTS, Source};
use crate::image::Format;

/// A walk through one file.
pub(super) struct Walk<'a> {
    source: &'a dyn Source,
    length: u64,
    format: Format,
    parts: u32,
}

// === impl Walk ===

impl<'a> Walk<'a> {
    pub(super) fn new(source: &'a dyn Source, format: Format) -> Self {
        Self { source, length: source.len(), format, parts: MAX_PARTS }
    }

    /// Counts one more chunk or segment.
    pub(super) fn step(&mut self) -> Result<(), Flaw> {
        self.parts = self.parts.checked_sub(1).ok_or(Flaw::Scattered(self.format))?;
        Ok(())
    }

    /// These bytes, all of them.
    pub(super) fn bytes<const N: usize>(&self, offset: u64) -> Result<[u8; N], Flaw> {
        let mut bytes = [0; N];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills the whole buffer.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Flaw> {
        if fill(self.source, offset, buffer)? < buffer.len() {
            return Err(self.truncated());
        }
        Ok(())
    }

    /// Makes sure that the file is at least so long.
    pub(super) fn reaches(&self, end: u64) -> Result<(), Flaw> {
        if end > self.length { Err(self.truncated()) } else { Ok(()) }
    }

    pub(super) fn damaged(&self, what: &'static str) -> Flaw {
        Flaw::Damaged(self.format, what)
    }

    fn truncated(&self) -> Flaw {
        Flaw::Truncated(self.format)
    }
}

/// Reads until the buffer is full or the source ends, and says how many bytes it was.
pub(super) fn fill(source: &dyn Source, offset: u64, buffer: &mut [u8]) -> Result<usize, Flaw> {
    let (mut place, mut done) = (offset, 0);
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let room = rest.len();
        match source.read_at(place, rest) {
            Ok(0) => break,
            // A source that says it wrote more than there was room for is not believed.
            Ok(count) => {
                let count = count.min(room);
                done += count;
                place = place.saturating_add(count as u64);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Flaw::Unreadable(error.kind())),
        }
    }
    Ok(done)
}
