//! A response that was asked for one image: the image is taken out of it, and the words around it are judged.
//!
//! It comes as events or whole, and is told to the same [`Sink`] that answers of the image endpoints are told to. The image
//! stands in it twice, in the event of its item and in the response at the end: the first counts, the copy is skipped. The
//! tokens come last, so the end of an image waits for them; but an image that is whole counts whatever breaks behind it.

mod found;

use bytes::Bytes;

use self::found::Found;
use super::fill::Usage;
use super::frames::{Frames, Stretch};
use super::intake::Silence;
use super::lexer::{Malformed, Sink};
use super::scan::Scan;
use super::tap::Without;

/// A response on its way in.
#[derive(Debug)]
pub(super) struct Drawn {
    input: Input,
    found: Found,
    /// Anything but comments has come since this was last asked.
    progressed: bool,
}

/// The shape that comes in, known from its first byte.
#[derive(Debug)]
enum Input {
    Unknown,
    Answer(Scan),
    Events { frames: Frames, scan: Scan, data: Data },
}

/// The data of the current event so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    None,
    Object,
    /// Something else, such as the end mark of other APIs.
    Other,
}

// === impl Drawn ===

impl Drawn {
    pub(super) fn new() -> Self {
        Self { input: Input::Unknown, found: Found::default(), progressed: false }
    }

    /// Reads the next piece.
    pub(super) fn push(&mut self, piece: &Bytes, sink: &mut impl Sink) -> Result<(), Malformed> {
        if let Input::Unknown = self.input {
            let Some(first) = piece.iter().find(|byte| !byte.is_ascii_whitespace()) else { return Ok(()) };
            self.input = match first {
                b'{' | b'[' | b'<' => Input::Answer(Scan::within("response")),
                _ => Input::Events { frames: Frames::new(), scan: Scan::new(), data: Data::None },
            };
        }
        match self.input {
            Input::Unknown => Ok(()),
            Input::Answer(_) => self.push_answer(piece, sink),
            Input::Events { .. } => self.push_events(piece, sink),
        }
    }

    /// Nothing more comes: an image that is whole counts.
    pub(super) fn settle(&mut self, sink: &mut impl Sink) {
        self.found.settle(sink);
    }

    /// Whether the upstream has said its last word, good or bad.
    pub(super) const fn is_over(&self) -> bool {
        self.found.is_over()
    }

    /// What the upstream may be doing while nothing comes.
    pub(super) const fn silence(&self) -> Silence {
        match self.input {
            Input::Answer(_) => Silence::Sending,
            Input::Events { .. } if self.found.in_image() => Silence::Sending,
            Input::Unknown | Input::Events { .. } => Silence::Working,
        }
    }

    /// Whether anything but comments has come since this was last asked: a heartbeat is no progress.
    pub(super) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progressed)
    }

    /// Every token of the call, those of the text model too.
    pub(super) fn usage(&self) -> Option<Usage> {
        self.found.usage()
    }

    /// The text model, as the upstream names it.
    pub(super) fn host_model(&self) -> Option<String> {
        self.found.host_model()
    }

    /// What the upstream says instead of an image.
    pub(super) fn without_image(&self) -> Option<Without> {
        self.found.without_image()
    }

    fn push_answer(&mut self, piece: &Bytes, sink: &mut impl Sink) -> Result<(), Malformed> {
        let Input::Answer(scan) = &mut self.input else { return Ok(()) };
        self.progressed = true;
        let was_done = scan.is_done();
        self.found.read_on(scan, piece, piece, sink)?;
        if scan.is_done() && !was_done {
            self.found.end_response(sink);
        }
        Ok(())
    }

    fn push_events(&mut self, piece: &Bytes, sink: &mut impl Sink) -> Result<(), Malformed> {
        let Input::Events { frames, scan, data } = &mut self.input else { return Ok(()) };
        let mut at = 0;
        while at < piece.len() && !self.found.is_over() {
            let (length, stretch) = frames.next(&piece[at..]);
            let part = &piece[at..at + length];
            at += length;
            match stretch {
                Stretch::Data => {
                    self.progressed = true;
                    data.begin(part);
                    let is_object = *data == Data::Object;
                    is_object.then(|| self.found.read_on(scan, piece, part, sink)).transpose()?;
                }
                Stretch::End { .. } => {
                    let scan = std::mem::replace(scan, Scan::new());
                    let is_object = std::mem::replace(data, Data::None) == Data::Object;
                    is_object.then(|| self.found.end_event(&scan, sink)).transpose()?;
                }
                Stretch::Other => {}
            }
        }
        Ok(())
    }
}

// === impl Data ===

impl Data {
    /// Looks at what data begins with.
    fn begin(&mut self, part: &[u8]) {
        if *self != Self::None {
            return;
        }
        if let Some(first) = part.iter().find(|byte| !byte.is_ascii_whitespace()) {
            *self = if *first == b'{' { Self::Object } else { Self::Other };
        }
    }
}

#[cfg(test)]
mod tests;
