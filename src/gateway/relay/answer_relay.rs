//! The relay of an answer from the upstream to the caller. An answer of images is written anew around its images; a
//! response is passed on byte for byte.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::combined_answer::CombinedAnswer;
use super::image_relay::{AnswerWithoutImage, ImageRelay, RelayError, RelayStep};
use super::json_writer::AnswerSummary;
use super::response_passthrough::ResponsePassthrough;
use crate::image::ImageProperties;

/// An answer on its way from the upstream to the caller.
#[derive(Debug)]
pub(super) enum AnswerRelay {
    /// An answer of the image endpoints, written anew around its images.
    Images(Box<ImageRelay>),
    /// A response, byte for byte as the upstream sends it.
    Response(Box<ResponsePassthrough>),
    /// One answer with the images of several calls, all of them complete.
    Combined(Box<CombinedAnswer>),
}

/// Calls the method of this name on an answer that is still arriving. For a combined answer, the result is `$combined`.
macro_rules! delegate {
    ($relay:expr, $name:ident($($argument:expr),*), $combined:expr) => {
        match $relay {
            AnswerRelay::Images(relay) => relay.$name($($argument),*),
            AnswerRelay::Response(relay) => relay.$name($($argument),*),
            AnswerRelay::Combined(_) => $combined,
        }
    };
}

// === impl AnswerRelay ===

impl AnswerRelay {
    /// Returns the next pieces for the caller.
    pub(super) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<RelayStep, RelayError>> {
        if let Self::Combined(combined) = self {
            return combined.poll_step(cx);
        }
        delegate!(self, poll_step(cx), Poll::Pending)
    }

    /// Reads once: returns the number of bytes, or `None` at the end of the body and on each later call.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, RelayError>> {
        delegate!(self, poll_read(cx), Poll::Ready(Ok(None)))
    }

    /// Moves the deadlines of the upstream by the time during which the caller did not read.
    pub(super) fn extend_deadlines(&mut self, by: Duration) {
        match self {
            Self::Images(relay) => relay.upstream.extend_deadline(by),
            Self::Response(passthrough) => passthrough.upstream.extend_deadline(by),
            Self::Combined(_) => {}
        }
    }

    /// Returns the content of the answer so far.
    pub(super) fn summary(&self) -> AnswerSummary {
        match self {
            Self::Images(relay) => relay.summary(),
            Self::Response(relay) => relay.summary(),
            Self::Combined(combined) => combined.summary(),
        }
    }

    /// True if the answer is proven: an image has begun, or a response has begun that cannot be refused any more.
    pub(super) fn is_proven(&self) -> bool {
        delegate!(self, is_proven(), true)
    }

    /// True if everything that was requested is there.
    pub(super) fn is_complete(&self) -> bool {
        delegate!(self, is_complete(), true)
    }

    /// Returns the properties of the first image, if they are known, and true if more bytes may still state them.
    pub(super) fn first_image(&self) -> (Option<ImageProperties>, bool) {
        match self {
            Self::Images(relay) => relay.first_image(),
            Self::Response(relay) => relay.first_image(),
            Self::Combined(combined) => (combined.first_image(), false),
        }
    }

    /// Returns the error event that ends a stream whose upstream broke off. `None` if the caller gets no events: its
    /// transfer then breaks off too.
    pub(super) fn finish_with_error(&mut self, error: &str) -> Option<Bytes> {
        delegate!(self, finish_with_error(error), None)
    }

    /// Returns a heartbeat for the caller, if the caller gets events and a heartbeat may be sent at this point.
    pub(super) fn heartbeat(&mut self) -> Option<Bytes> {
        delegate!(self, heartbeat(), None)
    }

    /// True if the bytes before the proof are held in memory, so that their number must be limited.
    pub(super) const fn is_buffered_before_proof(&self) -> bool {
        match self {
            Self::Images(relay) => relay.is_buffered_before_proof(),
            Self::Response(_) | Self::Combined(_) => true,
        }
    }

    /// Returns the members other than the image that the upstream sent, for an answer that is complete.
    pub(super) fn take_members(&mut self) -> Map<String, Value> {
        match self {
            Self::Images(relay) => relay.take_members(),
            Self::Response(_) | Self::Combined(_) => Map::new(),
        }
    }

    /// True for an answer of images. It ends soon, so that even its stream can be read to the end without a caller; the
    /// stream of a response may go on for long.
    pub(super) const fn is_image_answer(&self) -> bool {
        !matches!(self, Self::Response(_))
    }

    /// True if the caller gets events.
    pub(super) fn is_streaming(&self) -> bool {
        delegate!(self, is_streaming(), false)
    }

    /// Returns the content of a complete answer in which no image was found.
    pub(super) fn without_image(&self) -> Option<AnswerWithoutImage> {
        delegate!(self, without_image(), None)
    }
}
