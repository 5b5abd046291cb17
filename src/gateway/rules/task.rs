//! The task: a job for images or a response job, for code to which it does not matter which.

use std::sync::Arc;

use super::{Job, ResponseJob};

/// A borrowed task.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TaskRef<'a> {
    /// A job for images.
    Images(&'a Job),
    /// A response job, whose answer may contain images.
    Response(&'a ResponseJob),
}

/// A task with shared ownership.
#[derive(Clone, Debug)]
pub(crate) enum SharedTask {
    /// A job for images.
    Images(Arc<Job>),
    /// A response job, whose answer may contain images.
    Response(Arc<ResponseJob>),
}

// === impl TaskRef ===

impl TaskRef<'_> {
    /// True if the job needs one of the slots for large images.
    pub(crate) fn is_large(self) -> bool {
        match self {
            Self::Images(job) => job.is_large(),
            Self::Response(job) => job.is_large(),
        }
    }
}

impl<'a> From<&'a Job> for TaskRef<'a> {
    fn from(job: &'a Job) -> Self {
        Self::Images(job)
    }
}

impl<'a> From<&'a ResponseJob> for TaskRef<'a> {
    fn from(job: &'a ResponseJob) -> Self {
        Self::Response(job)
    }
}

impl<'a> From<&'a SharedTask> for TaskRef<'a> {
    fn from(task: &'a SharedTask) -> Self {
        match task {
            SharedTask::Images(job) => Self::Images(job),
            SharedTask::Response(job) => Self::Response(job),
        }
    }
}

// === impl SharedTask ===

impl SharedTask {
    /// Returns the operation id in the API document.
    pub(crate) fn operation_id(&self) -> &'static str {
        match self {
            Self::Images(job) => job.operation_id(),
            Self::Response(_) => "create_response",
        }
    }

    /// True if the caller asked for the answer as a stream of events.
    pub(crate) fn is_stream(&self) -> bool {
        match self {
            Self::Images(job) => job.is_stream(),
            Self::Response(job) => job.is_stream(),
        }
    }

    /// Returns every change that was made to the request before it was sent, as the answer and the record state them.
    pub(crate) fn adapted_text(&self) -> Option<String> {
        match self {
            Self::Images(job) => job.adapted_text(),
            Self::Response(job) => job.adapted_text(),
        }
    }

    /// Returns the model that the request names.
    pub(crate) fn model(&self) -> &str {
        match self {
            Self::Images(job) => job.model(),
            Self::Response(job) => job.model(),
        }
    }

    /// Returns the caller's identifier of its end user, if the request has one.
    pub(crate) fn end_user(&self) -> Option<&str> {
        match self {
            Self::Images(job) => job.end_user(),
            Self::Response(job) => job.end_user(),
        }
    }

    /// True if the gateway added an image tool to the request for a response.
    pub(crate) fn is_tool_injected(&self) -> bool {
        matches!(self, Self::Response(job) if job.is_tool_injected())
    }

    /// Returns the turn of the agent's conversation that the job is part of. A request of another turn is never taken
    /// for a repetition, even if its content is equal.
    pub(crate) fn turn(&self) -> Option<&str> {
        match self {
            Self::Images(job) => job.turn(),
            Self::Response(job) => job.turn(),
        }
    }
}

impl From<Job> for SharedTask {
    fn from(job: Job) -> Self {
        Self::Images(Arc::new(job))
    }
}

impl From<ResponseJob> for SharedTask {
    fn from(job: ResponseJob) -> Self {
        Self::Response(Arc::new(job))
    }
}

#[cfg(test)]
impl From<&Arc<Job>> for SharedTask {
    fn from(job: &Arc<Job>) -> Self {
        Self::Images(Arc::clone(job))
    }
}
