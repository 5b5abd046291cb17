//! Reads an answer of the image endpoints that comes as server-sent events: the data of each event goes on as slices of
//! the pieces. An event of 30 MB needs no more memory than one of 30 bytes.

use bytes::Bytes;

use super::event_data::EventData;
use super::lexer::{AnswerSink, AnswerSyntaxError, AnswerVisitor, CAPTURE_LIMITS};
use super::sse_frames::{SseFrameScanner, SseFrameSpan};

/// Reads a stream of events.
#[derive(Debug)]
pub(super) struct SseAnswerReader {
    frames: SseFrameScanner,
    data: EventData,
    /// The base64 bytes seen so far, of the current image.
    base64_seen: usize,
    progressed: bool,
}

// === impl SseAnswerReader ===

impl SseAnswerReader {
    pub(super) fn new() -> Self {
        let data = EventData::new(CAPTURE_LIMITS);
        Self { frames: SseFrameScanner::new(), data, base64_seen: 0, progressed: false }
    }

    /// Reads the next piece.
    pub(super) fn push(&mut self, piece: &Bytes, sink: &mut impl AnswerSink) -> Result<(), AnswerSyntaxError> {
        let mut at = 0;
        while at < piece.len() {
            let (length, span) = self.frames.next(&piece[at..]);
            let part = &piece[at..at + length];
            at += length;
            match span {
                SseFrameSpan::Data => self.read_data(piece, part, sink)?,
                SseFrameSpan::End { .. } => self.end_frame(sink)?,
                SseFrameSpan::Other => {}
            }
        }
        Ok(())
    }

    /// Reads a part of the data of an event, which is a slice of the piece.
    fn read_data(&mut self, piece: &Bytes, part: &[u8], sink: &mut impl AnswerSink) -> Result<(), AnswerSyntaxError> {
        self.progressed = true;
        if self.data.detect_object(part) {
            sink.announce_event(self.frames.event_name());
        }
        let base64_seen = &mut self.base64_seen;
        self.data.push(part, &mut AnswerVisitor { base64_seen, is_event: true, piece, sink })
    }

    fn end_frame(&mut self, sink: &mut impl AnswerSink) -> Result<(), AnswerSyntaxError> {
        let name = self.frames.take_event_name();
        if self.data.finish()? {
            sink.event_end(name);
        }
        Ok(())
    }

    /// True if data of an event has come since the last call: a heartbeat is not progress.
    pub(super) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progressed)
    }

    /// True if the data of an event has begun and is not complete.
    pub(super) fn in_event(&self) -> bool {
        self.data.is_object()
    }

    /// Ends the stream. A complete event counts even if the blank line after it is missing.
    #[cfg(test)]
    pub(super) fn finish(&mut self) -> Result<(), AnswerSyntaxError> {
        self.data.finish()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
