//! Unpacks deflated bytes in pieces, with an output buffer of fixed size.

use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZFlush, MZStatus};

/// The reason why unpacking ended early.
#[derive(Debug)]
pub(super) enum InflateError<E> {
    /// The input is not a deflated stream, or is incomplete.
    Broken,
    /// The receiver returned an error.
    Stopped(E),
}

/// The decoder and its output buffer, which are reused for each stream.
pub(super) struct Inflater {
    state: Box<InflateState>,
    piece: Box<[u8]>,
}

impl Inflater {
    pub(super) fn new() -> Self {
        Self { state: InflateState::new_boxed(DataFormat::Raw), piece: vec![0; 32 * 1024].into_boxed_slice() }
    }

    /// Unpacks one stream, and returns the number of input bytes that it occupied.
    pub(super) fn run<E>(
        &mut self,
        input: &[u8],
        mut receive: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<usize, InflateError<E>> {
        self.state.reset(DataFormat::Raw);
        let mut consumed = 0;
        loop {
            let remaining = input.get(consumed..).unwrap_or_default();
            let step = inflate(&mut self.state, remaining, &mut self.piece, MZFlush::None);
            consumed += step.bytes_consumed;
            let piece = self.piece.get(..step.bytes_written).unwrap_or_default();
            if !piece.is_empty() {
                receive(piece).map_err(InflateError::Stopped)?;
            }
            match step.status {
                Ok(MZStatus::StreamEnd) => return Ok(consumed),
                Ok(_) if step.bytes_consumed > 0 || step.bytes_written > 0 => {}
                Ok(_) | Err(_) => return Err(InflateError::Broken),
            }
        }
    }
}
