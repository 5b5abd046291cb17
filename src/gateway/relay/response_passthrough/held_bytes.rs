//! The bytes of a response that are held before they are passed on, and the only changes that are made in them.
//!
//! Some upstreams end an image call with its image and still state that it is being made. Agents then wait for an image
//! that they have. The status of such an item is replaced in place, so nothing else of the response moves; the bytes from
//! such a status on are held until it is known whether its item has a result. The other change is the padding of base64,
//! without which many clients cannot decode an image.

use bytes::{Bytes, BytesMut};

use super::EVENT_HOLD;

/// The unfinished status with its closing quote, and the text of the same length that takes its place: white space may
/// follow a value.
const UNFINISHED: &[u8] = b"generating\"";
const COMPLETED: &[u8] = b"completed\" ";

/// The bytes that have not been passed on, and the status of the current item.
#[derive(Debug, Default)]
pub(super) struct HeldBytes {
    bytes: BytesMut,
    /// The place of an unfinished status in these bytes, or in those that come next.
    unfinished_at: Option<usize>,
    has_result: bool,
    /// The places of unfinished statuses whose items have a result.
    completed_at: Vec<usize>,
    /// The padding that the next bytes need, and its places in them.
    absent_paddings: Vec<(usize, &'static [u8])>,
}

// === impl HeldBytes ===

impl HeldBytes {
    /// Notes that an unfinished status begins at this offset of the next bytes.
    pub(super) fn note_unfinished(&mut self, offset: usize) {
        let inserted: usize = self.absent_paddings.iter().map(|(_, padding)| padding.len()).sum();
        self.unfinished_at.get_or_insert(self.bytes.len() + inserted + offset);
    }

    /// Notes that this padding is absent at this offset of the next bytes.
    pub(super) fn note_padding(&mut self, offset: usize, padding: &'static [u8]) {
        self.absent_paddings.push((offset, padding));
    }

    /// Notes that the result of the current item has begun.
    pub(super) const fn note_result(&mut self) {
        self.has_result = true;
    }

    /// Ends the current item.
    pub(super) fn end_item(&mut self) {
        let unfinished = self.unfinished_at.take().filter(|_| self.has_result);
        self.completed_at.extend(unfinished);
        self.has_result = false;
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn starts_with(&self, prefix: &[u8]) -> bool {
        self.bytes.starts_with(prefix)
    }

    /// Adds the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut start = 0;
        for (offset, padding) in self.absent_paddings.drain(..) {
            self.bytes.extend_from_slice(&bytes[start..offset]);
            self.bytes.extend_from_slice(padding);
            start = offset;
        }
        self.bytes.extend_from_slice(&bytes[start..]);
        // A status that is cut by the end of the bytes is read first.
        let is_whole = |at: &usize| self.bytes.len() >= at + UNFINISHED.len();
        if self.has_result && self.unfinished_at.as_ref().is_some_and(is_whole) {
            self.completed_at.extend(self.unfinished_at.take());
        }
        for at in self.completed_at.drain(..) {
            if let Some(status) = self.bytes.get_mut(at..).filter(|rest| rest.starts_with(UNFINISHED)) {
                status[..COMPLETED.len()].copy_from_slice(COMPLETED);
            }
        }
    }

    /// Adds the next bytes, and returns all that can be passed on: as they are if nothing is held and nothing changes.
    pub(super) fn pass(&mut self, bytes: Bytes) -> Bytes {
        let is_unchanged =
            self.unfinished_at.is_none() && self.completed_at.is_empty() && self.absent_paddings.is_empty();
        if self.bytes.is_empty() && is_unchanged {
            return bytes;
        }
        self.push(&bytes);
        self.take_ready()
    }

    /// Takes the bytes before a status that may have to be replaced; if too many follow it, it stays as it is.
    pub(super) fn take_ready(&mut self) -> Bytes {
        match self.unfinished_at.filter(|at| self.bytes.len() - at <= EVENT_HOLD) {
            Some(at) => {
                self.unfinished_at = Some(0);
                self.bytes.split_to(at).freeze()
            }
            None => self.take_all(),
        }
    }

    /// Takes all bytes.
    pub(super) fn take_all(&mut self) -> Bytes {
        self.unfinished_at = None;
        self.absent_paddings.clear();
        self.bytes.split().freeze()
    }
}
