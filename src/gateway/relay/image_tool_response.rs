//! Reads a response that was requested for one image: extracts the image, and evaluates the members around it.
//!
//! The response comes as events or as one JSON object, and goes to the same [`AnswerSink`] as an answer of the image
//! endpoints. As events it contains the image twice, in the event of its item and in the response at the end: the first
//! one is used, the copy is skipped. The token counts come last, so the end of the image is reported only after them.
//! An image that is complete counts even if the rest of the answer breaks off.

mod content;

use bytes::Bytes;

use self::content::ImageToolContent;
use super::answer_members::AnswerUsage;
use super::image_relay::AnswerWithoutImage;
use super::json_scanner::JsonScanner;
use super::lexer::{AnswerSink, AnswerSyntaxError};
use super::sse_frames::{SseFrameScanner, SseFrameSpan};
use super::upstream_body::UpstreamActivity;

/// A response that is being read.
#[derive(Debug)]
pub(super) struct ImageToolResponse {
    input: ImageToolInput,
    content: ImageToolContent,
    /// True if anything but comments has come since the last call of `take_progress`.
    progressed: bool,
}

/// The incoming shape, known from its first byte.
#[derive(Debug)]
enum ImageToolInput {
    Unknown,
    Json(JsonScanner),
    Events { frames: SseFrameScanner, scan: JsonScanner, data: ImageToolDataKind },
}

/// The type of the current event's data so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageToolDataKind {
    None,
    Object,
    /// Another value, such as the `[DONE]` at the end of other APIs' streams.
    Other,
}

// === impl ImageToolResponse ===

impl ImageToolResponse {
    pub(super) fn new() -> Self {
        Self { input: ImageToolInput::Unknown, content: ImageToolContent::default(), progressed: false }
    }

    /// Reads the next piece.
    pub(super) fn push(&mut self, piece: &Bytes, sink: &mut impl AnswerSink) -> Result<(), AnswerSyntaxError> {
        if let ImageToolInput::Unknown = self.input {
            let Some(first) = piece.iter().find(|byte| !byte.is_ascii_whitespace()) else { return Ok(()) };
            self.input = match first {
                b'{' | b'[' | b'<' => ImageToolInput::Json(JsonScanner::at_path("response")),
                _ => ImageToolInput::Events {
                    frames: SseFrameScanner::new(),
                    scan: JsonScanner::new(),
                    data: ImageToolDataKind::None,
                },
            };
        }
        match self.input {
            ImageToolInput::Unknown => Ok(()),
            ImageToolInput::Json(_) => self.push_answer(piece, sink),
            ImageToolInput::Events { .. } => self.push_events(piece, sink),
        }
    }

    /// Ends the answer. An image that is complete counts, even if the answer is not.
    pub(super) fn finish_image(&mut self, sink: &mut impl AnswerSink) {
        self.content.finish_image(sink);
    }

    /// True if the upstream has sent its final event or response, good or bad.
    pub(super) const fn is_over(&self) -> bool {
        self.content.is_over()
    }

    /// Returns the activity that may explain a silence of the upstream.
    pub(super) const fn activity(&self) -> UpstreamActivity {
        match self.input {
            ImageToolInput::Json(_) => UpstreamActivity::Sending,
            ImageToolInput::Events { .. } if self.content.is_in_image() => UpstreamActivity::Sending,
            ImageToolInput::Unknown | ImageToolInput::Events { .. } => UpstreamActivity::Working,
        }
    }

    /// True if anything but comments has come since the last call: a heartbeat is not progress.
    pub(super) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progressed)
    }

    /// Returns all tokens of the call, including those of the text model.
    pub(super) fn usage(&self) -> Option<AnswerUsage> {
        self.content.usage()
    }

    /// Returns the text model, as the upstream names it.
    pub(super) fn host_model(&self) -> Option<String> {
        self.content.host_model()
    }

    /// Returns the content of the answer if it has no image.
    pub(super) fn without_image(&self) -> Option<AnswerWithoutImage> {
        self.content.without_image()
    }

    fn push_answer(&mut self, piece: &Bytes, sink: &mut impl AnswerSink) -> Result<(), AnswerSyntaxError> {
        let ImageToolInput::Json(scan) = &mut self.input else { return Ok(()) };
        self.progressed = true;
        let was_done = scan.is_done();
        self.content.read_value(scan, piece, piece, sink)?;
        if scan.is_done() && !was_done {
            self.content.end_response(sink);
        }
        Ok(())
    }

    fn push_events(&mut self, piece: &Bytes, sink: &mut impl AnswerSink) -> Result<(), AnswerSyntaxError> {
        let ImageToolInput::Events { frames, scan, data } = &mut self.input else { return Ok(()) };
        let mut at = 0;
        while at < piece.len() && !self.content.is_over() {
            let (length, span) = frames.next(&piece[at..]);
            let part = &piece[at..at + length];
            at += length;
            match span {
                SseFrameSpan::Data => {
                    self.progressed = true;
                    data.detect(part);
                    let is_object = *data == ImageToolDataKind::Object;
                    is_object.then(|| self.content.read_value(scan, piece, part, sink)).transpose()?;
                }
                SseFrameSpan::End { .. } => {
                    let scan = std::mem::replace(scan, JsonScanner::new());
                    let is_object = std::mem::replace(data, ImageToolDataKind::None) == ImageToolDataKind::Object;
                    is_object.then(|| self.content.end_event(&scan, sink)).transpose()?;
                }
                SseFrameSpan::Other => {}
            }
        }
        Ok(())
    }
}

// === impl ImageToolDataKind ===

impl ImageToolDataKind {
    /// Decides the type of the data by its beginning.
    fn detect(&mut self, part: &[u8]) {
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
