//! The relay of an answer from the upstream to the caller: written anew around its images, or passed on as it is.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::gathered::CombinedAnswer;
use super::pass::ResponsePassthrough;
use super::rewrite::AnswerSummary;
use super::tap::{AnswerWithoutImage, ImageRelay, RelayError, RelayStep};
use crate::image::ImageProperties;

/// An answer between the upstream and the caller.
#[derive(Debug)]
pub(super) enum AnswerRelay {
    /// Images, as the image endpoints answer.
    Images(Box<ImageRelay>),
    /// A response, byte for byte as the upstream sends it.
    Response(Box<ResponsePassthrough>),
    /// Images that are all complete.
    Gathered(Box<CombinedAnswer>),
}

/// Calls the same function of an answer that is still coming; for a combined answer the result is known.
macro_rules! either {
    ($course:expr, $name:ident($($argument:expr),*), $gathered:expr) => {
        match $course {
            AnswerRelay::Images(course) => course.$name($($argument),*),
            AnswerRelay::Response(course) => course.$name($($argument),*),
            AnswerRelay::Gathered(_) => $gathered,
        }
    };
}

// === impl AnswerRelay ===

impl AnswerRelay {
    /// Returns the next pieces for the caller.
    pub(super) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<RelayStep, RelayError>> {
        if let Self::Gathered(gathered) = self {
            return gathered.poll_step(cx);
        }
        either!(self, poll_step(cx), Poll::Pending)
    }

    /// Reads once: returns the number of bytes, or `None` at the end of the body and on each later call.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, RelayError>> {
        either!(self, poll_read(cx), Poll::Ready(Ok(None)))
    }

    /// Moves the deadlines of the upstream by the time that the caller was away.
    pub(super) fn postpone(&mut self, by: Duration) {
        match self {
            Self::Images(course) => course.intake.postpone(by),
            Self::Response(course) => course.intake.postpone(by),
            Self::Gathered(_) => {}
        }
    }

    /// Returns the content of the answer so far.
    pub(super) fn summary(&self) -> AnswerSummary {
        match self {
            Self::Images(course) => course.summary(),
            Self::Response(course) => course.summary(),
            Self::Gathered(course) => course.summary(),
        }
    }

    /// True if the answer has really begun.
    pub(super) fn proven(&self) -> bool {
        either!(self, proven(), true)
    }

    /// True if everything that was requested is there.
    pub(super) fn complete(&self) -> bool {
        either!(self, complete(), true)
    }

    /// Returns the properties of the first image, and true if more bytes could still show them.
    pub(super) fn first(&self) -> (Option<ImageProperties>, bool) {
        match self {
            Self::Images(course) => course.first(),
            Self::Response(course) => course.first(),
            Self::Gathered(course) => (course.first(), false),
        }
    }

    /// Returns the bytes that go out if the answer breaks off: events, or nothing, so that the transfer itself breaks.
    pub(super) fn break_off(&mut self, error: &str) -> Option<Bytes> {
        either!(self, break_off(error), None)
    }

    /// Returns the bytes that keep the connection open, if they may be sent here.
    pub(super) fn heartbeat(&mut self) -> Option<Bytes> {
        either!(self, heartbeat(), None)
    }

    /// True if the bytes before an image are held in memory, so that they must be few.
    pub(super) const fn holds_back(&self) -> bool {
        match self {
            Self::Images(course) => course.holds_back(),
            Self::Response(_) | Self::Gathered(_) => true,
        }
    }

    /// Returns the members other than the image that the upstream sent, for an answer that is complete.
    pub(super) fn take_members(&mut self) -> Map<String, Value> {
        match self {
            Self::Images(course) => course.take_members(),
            Self::Response(_) | Self::Gathered(_) => Map::new(),
        }
    }

    /// True for an answer of images, which is over soon.
    pub(super) const fn draws(&self) -> bool {
        !matches!(self, Self::Response(_))
    }

    /// True if the caller gets events.
    pub(super) fn streams(&self) -> bool {
        either!(self, streams(), false)
    }

    /// Returns the content of a complete answer that never began.
    pub(super) fn without_image(&self) -> Option<AnswerWithoutImage> {
        either!(self, without_image(), None)
    }
}
