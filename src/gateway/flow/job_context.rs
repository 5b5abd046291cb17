//! The context of a job of either kind, with everything that is needed to answer its request. No I/O.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

use super::image_services::ImageServices;
use super::request_options::RequestOptions;
use crate::gateway::config::FallbackPolicy;
use crate::gateway::keys::Caller;
use crate::gateway::replay::JobRegistration;
use crate::gateway::rules::SharedTask;

/// A job, with everything that is needed to answer its request.
pub(super) struct JobContext {
    pub(super) services: Arc<ImageServices>,
    pub(super) caller: Caller,
    pub(super) options: RequestOptions,
    pub(super) task: SharedTask,
    /// The data by which a retry that the client makes by itself is recognized.
    registration: OnceLock<JobRegistration>,
    /// Cancelled when the caller of a stream that had begun has left.
    pub(super) departure: CancellationToken,
}

// === impl JobContext ===

impl JobContext {
    pub(super) fn new(services: Arc<ImageServices>, caller: Caller, options: RequestOptions, task: SharedTask) -> Self {
        let (registration, departure) = (OnceLock::new(), CancellationToken::new());
        Self { services, caller, options, task, registration, departure }
    }

    /// Sets the data by which a retry that the client makes by itself is recognized, and returns them. Must be called before
    /// the job begins.
    pub(super) fn set_registration(&self, registration: JobRegistration) -> JobRegistration {
        self.registration.get_or_init(|| registration).clone()
    }

    /// Returns the data of [`Self::set_registration`]; empty data if there are none.
    pub(super) fn registration(&self) -> JobRegistration {
        self.registration.get().cloned().unwrap_or_default()
    }

    /// True if the caller gets links to the images.
    pub(super) fn wants_links(&self) -> bool {
        matches!(&self.task, SharedTask::Images(job) if job.adaptations().asks_for_urls())
    }

    /// Returns the fallback policy: that of the request, or else that of the group. A response has no fallback.
    pub(super) fn fallback_policy(&self) -> FallbackPolicy {
        match self.task {
            SharedTask::Images(_) => self.options.fallback_policy(&self.caller),
            SharedTask::Response(_) => FallbackPolicy::Never,
        }
    }
}
