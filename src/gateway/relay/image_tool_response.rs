//! Reads a response that was requested for one image: extracts the image, and reads the members around it.
//!
//! The response comes as events or as one JSON object, and goes to the same [`AnswerSink`] as an answer of the image
//! endpoints. In events, the image comes twice: in the event of its item, and in the response at the end. The copy
//! in the response is skipped. The token counts come last, so the end of the image is reported only after them.
//! A complete image counts even if the rest of the answer breaks off.

mod content;

use bytes::Bytes;

use self::content::ImageToolContent;
use super::answer_members::AnswerUsage;
use super::event_data::EventData;
use super::image_relay::AnswerWithoutImage;
use super::lexer::{AnswerSink, AnswerSyntaxError, RESPONSE_CAPTURE_LIMITS};
use super::sse_frames::{SseFrameScanner, SseFrameSpan};
use super::upstream_body::UpstreamActivity;
use crate::stream::json::JsonReader;

/// A response that is being read.
#[derive(Debug)]
pub(super) struct ImageToolResponse {
    input: ImageToolInput,
    content: ImageToolContent,
    /// True if data of an answer or event has arrived since the last call of `take_progress`.
    progressed: bool,
}

/// The form of the upstream's answer, which its first byte shows.
#[derive(Debug)]
enum ImageToolInput {
    Unknown,
    Json(JsonReader),
    Events { frames: SseFrameScanner, data: EventData },
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
                b'{' | b'[' | b'<' => ImageToolInput::Json(JsonReader::new("response", RESPONSE_CAPTURE_LIMITS)),
                _ => ImageToolInput::Events {
                    frames: SseFrameScanner::new(),
                    data: EventData::new(RESPONSE_CAPTURE_LIMITS),
                },
            };
        }
        match self.input {
            ImageToolInput::Unknown => Ok(()),
            ImageToolInput::Json(_) => self.push_answer(piece, sink),
            ImageToolInput::Events { .. } => self.push_events(piece, sink),
        }
    }

    /// Ends the answer, and reports a complete image to the sink, even if the rest of the answer is missing.
    pub(super) fn finish_image(&mut self, sink: &mut impl AnswerSink) {
        self.content.finish_image(sink);
    }

    /// True if the upstream has sent its final event or its whole response, whether it succeeded or failed.
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

    /// True if data has arrived since the last call. A heartbeat is a comment and no progress.
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
        let ImageToolInput::Json(reader) = &mut self.input else { return Ok(()) };
        self.progressed = true;
        let was_done = reader.is_done();
        reader.push_last(piece, &mut self.content.visitor(piece, sink))?;
        if reader.is_done() && !was_done {
            self.content.end_response(sink);
        }
        Ok(())
    }

    fn push_events(&mut self, piece: &Bytes, sink: &mut impl AnswerSink) -> Result<(), AnswerSyntaxError> {
        let ImageToolInput::Events { frames, data } = &mut self.input else { return Ok(()) };
        let mut at = 0;
        while at < piece.len() && !self.content.is_over() {
            let (length, span) = frames.next(&piece[at..]);
            let part = &piece[at..at + length];
            at += length;
            match span {
                SseFrameSpan::Data => {
                    self.progressed = true;
                    data.push(part, &mut self.content.visitor(piece, sink))?;
                }
                SseFrameSpan::End { .. } => {
                    let is_object = data.finish()?;
                    is_object.then(|| self.content.end_event(sink));
                }
                SseFrameSpan::Other => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
