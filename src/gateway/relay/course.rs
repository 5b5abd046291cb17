//! The way of an answer from the upstream to the caller: written anew around its images, or passed on as it is.

use std::task::{Context, Poll};

use bytes::Bytes;

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
}

/// Calls the same function of either.
macro_rules! either {
    ($course:expr, $name:ident $(, $argument:expr)*) => {
        match $course {
            Course::Images(course) => course.$name($($argument),*),
            Course::Response(course) => course.$name($($argument),*),
        }
    };
}

// === impl Course ===

impl Course {
    /// The next pieces for the caller.
    pub(super) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Step, Broken>> {
        either!(self, poll_step, cx)
    }

    /// Reads once: how many bytes, or `None` at the end of the body. The end is told again whenever it is asked for.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, Broken>> {
        either!(self, poll_read, cx)
    }

    /// What the answer held so far.
    pub(super) fn summary(&self) -> Summary {
        either!(self, summary)
    }

    /// Whether it has really begun.
    pub(super) fn proven(&self) -> bool {
        either!(self, proven)
    }

    /// Whether everything that was asked for is there.
    pub(super) fn complete(&self) -> bool {
        either!(self, complete)
    }

    /// What the first image is, and whether more bytes could still tell.
    pub(super) fn first(&self) -> (Option<Facts>, bool) {
        either!(self, first)
    }

    /// What goes out when it breaks off: events, or nothing, so that the transfer itself breaks.
    pub(super) fn break_off(&mut self, error: &str) -> Option<Bytes> {
        either!(self, break_off, error)
    }

    /// What keeps the connection awake, where something may stand here.
    pub(super) fn heartbeat(&mut self) -> Option<Bytes> {
        either!(self, heartbeat)
    }

    /// Whether the caller gets events.
    pub(super) fn streams(&self) -> bool {
        either!(self, streams)
    }

    /// What a whole answer that never began says instead.
    pub(super) fn without_image(&self) -> Option<Without> {
        either!(self, without_image)
    }
}
