//! Deflated bytes, unpacked piece by piece in a fixed window.

use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZFlush, MZStatus};

/// Why unpacking ended early.
#[derive(Debug)]
pub(super) enum InflateError<E> {
    /// It is not a deflated stream, or not a whole one.
    Broken,
    /// The receiver had enough.
    Stopped(E),
}

/// The window, used again for one stream after another.
pub(super) struct Inflater {
    state: Box<InflateState>,
    piece: Box<[u8]>,
}

impl Inflater {
    pub(super) fn new() -> Self {
        Self { state: InflateState::new_boxed(DataFormat::Raw), piece: vec![0; 32 * 1024].into_boxed_slice() }
    }

    /// Unpacks one stream, and says how many bytes of the input it was.
    pub(super) fn run<E>(
        &mut self,
        input: &[u8],
        mut receive: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<usize, InflateError<E>> {
        self.state.reset(DataFormat::Raw);
        let mut consumed = 0;
        loop {
            let rest = input.get(consumed..).unwrap_or_default();
            let step = inflate(&mut self.state, rest, &mut self.piece, MZFlush::None);
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
