//! The way of an answer from the upstream to the caller: written anew around its images, or passed on as it is.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::gathered::Gathered;
use super::pass::Pass;
use super::rewrite::Summary;
use super::tap::{Broken, Step, Tap, Without};
use crate::image::Facts;

/// An answer between the upstream and the caller.
#[derive(Debug)]
pub(super) enum Course {
    /// Images, as the image endpoints answer.
    Images(Box<Tap>),
    /// A response, as the upstream says it.
    Response(Box<Pass>),
    /// Images that are all there.
    Gathered(Box<Gathered>),
}

/// Calls the same function of what is still coming; of what is all there the answer is known.
macro_rules! either {
    ($course:expr, $name:ident($($argument:expr),*), $gathered:expr) => {
        match $course {
            Course::Images(course) => course.$name($($argument),*),
            Course::Response(course) => course.$name($($argument),*),
            Course::Gathered(_) => $gathered,
        }
    };
}

// === impl Course ===

impl Course {
    /// The next pieces for the caller.
    pub(super) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Step, Broken>> {
        if let Self::Gathered(gathered) = self {
            return gathered.poll_step(cx);
        }
        either!(self, poll_step(cx), Poll::Pending)
    }

    /// Reads once: how many bytes, or `None` at the end of the body. The end is told again whenever it is asked for.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, Broken>> {
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

    /// What the answer held so far.
    pub(super) fn summary(&self) -> Summary {
        match self {
            Self::Images(course) => course.summary(),
            Self::Response(course) => course.summary(),
            Self::Gathered(course) => course.summary(),
        }
    }

    /// Whether it has really begun.
    pub(super) fn proven(&self) -> bool {
        either!(self, proven(), true)
    }

    /// Whether everything that was asked for is there.
    pub(super) fn complete(&self) -> bool {
        either!(self, complete(), true)
    }

    /// What the first image is, and whether more bytes could still tell.
    pub(super) fn first(&self) -> (Option<Facts>, bool) {
        match self {
            Self::Images(course) => course.first(),
            Self::Response(course) => course.first(),
            Self::Gathered(course) => (course.first(), false),
        }
    }

    /// What goes out when it breaks off: events, or nothing, so that the transfer itself breaks.
    pub(super) fn break_off(&mut self, error: &str) -> Option<Bytes> {
        either!(self, break_off(error), None)
    }

    /// What keeps the connection awake, where something may stand here.
    pub(super) fn heartbeat(&mut self) -> Option<Bytes> {
        either!(self, heartbeat(), None)
    }

    /// Whether anything is kept of what comes before an image, so that it must not be much.
    pub(super) const fn holds_back(&self) -> bool {
        match self {
            Self::Images(course) => course.holds_back(),
            Self::Response(_) | Self::Gathered(_) => true,
        }
    }

    /// What the upstream said beside its image, of an answer that is whole.
    pub(super) fn take_members(&mut self) -> Map<String, Value> {
        match self {
            Self::Images(course) => course.take_members(),
            Self::Response(_) | Self::Gathered(_) => Map::new(),
        }
    }

    /// True for an image stream, which is over soon.
    pub(super) const fn draws(&self) -> bool {
        !matches!(self, Self::Response(_))
    }

    /// Whether the caller gets events.
    pub(super) fn streams(&self) -> bool {
        either!(self, streams(), false)
    }

    /// What a whole answer that never began says instead.
    pub(super) fn without_image(&self) -> Option<Without> {
        either!(self, without_image(), None)
    }
}
