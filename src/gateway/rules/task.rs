//! What an attempt sends: the ticket of one kind of request or the other.

use super::{Job, ResponseJob};

/// The ticket of either kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task<'a> {
    /// Images, at the image endpoints.
    Images(&'a Job),
    /// A response, in which images may be.
    Response(&'a ResponseJob),
}

// === impl Task ===

impl Task<'_> {
    /// Whether it takes one of the few places for large images.
    pub(crate) fn is_large(self) -> bool {
        match self {
            Self::Images(job) => job.is_large(),
            Self::Response(job) => job.is_large(),
        }
    }
}

impl<'a> From<&'a Job> for Task<'a> {
    fn from(job: &'a Job) -> Self {
        Self::Images(job)
    }
}

impl<'a> From<&'a ResponseJob> for Task<'a> {
    fn from(job: &'a ResponseJob) -> Self {
        Self::Response(job)
    }
}
