//! The changes of a body between the caller and the upstream. Every byte outside of them stays the same.

use crate::gateway::spool::SpooledBytes;
use crate::image::ByteSource as _;

/// Changes that do not overlap, in their order in the body.
#[derive(Clone, Debug, Default)]
pub(super) struct BodyEdits(Vec<BodyEdit>);

/// A part of the body that is replaced, or a place at which pieces are inserted.
#[derive(Clone, Debug)]
pub(super) struct BodyEdit {
    /// The offset of the first byte that is replaced.
    pub(super) start: u64,
    /// The offset after the last byte that is replaced.
    pub(super) end: u64,
    /// The pieces that take their place.
    pub(super) pieces: Vec<SpooledBytes>,
}

// === impl BodyEdits ===

impl BodyEdits {
    /// Adds a change, after those at the same place.
    pub(super) fn add(&mut self, edit: BodyEdit) {
        let index = self.0.partition_point(|other| other.start <= edit.start);
        self.0.insert(index, edit);
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the pieces of the body with the changes.
    pub(super) fn pieces(&self, body: &SpooledBytes) -> Vec<SpooledBytes> {
        if self.0.is_empty() {
            return vec![body.clone()];
        }
        let (mut pieces, mut position) = (Vec::new(), 0);
        for edit in &self.0 {
            pieces.push(body.slice(position, edit.start));
            pieces.extend(edit.pieces.iter().cloned());
            position = edit.end;
        }
        pieces.push(body.slice(position, body.len()));
        pieces
    }
}
