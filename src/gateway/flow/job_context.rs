//! The context of a job of either kind, with everything that is needed to answer its request.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

use super::attempt_context::AttemptContext;
use super::gateway_answer::GatewayAnswer;
use super::{RequestOptions, answer_size, cost_estimate, delivery, request_limits};
use crate::error::{Error, UpstreamFault};
use crate::gateway::Gateway;
use crate::gateway::config::FallbackPolicy;
use crate::gateway::image_links::LINK_LIFETIME;
use crate::gateway::keys::Caller;
use crate::gateway::ledger::{JobOutcome, OpenRecord};
use crate::gateway::replay::{AnswerSender, AnswerSpace, JobRegistration};
use crate::gateway::rules::SharedTask;

/// A job, with everything that is needed to answer its request.
pub(super) struct JobContext {
    pub(super) gateway: Arc<Gateway>,
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
    pub(super) fn new(gateway: &Arc<Gateway>, caller: Caller, options: RequestOptions, task: SharedTask) -> Self {
        let (registration, departure) = (OnceLock::new(), CancellationToken::new());
        Self { gateway: Arc::clone(gateway), caller, options, task, registration, departure }
    }

    /// Returns the data by which a retry that the client makes by itself is recognized, also after a restart. Must be
    /// called before the job begins. A stream is never stored while its caller reads it.
    pub(super) async fn job_registration(&self) -> JobRegistration {
        let (request_id, marks_retries) = (self.options.request_id.clone(), self.options.marks_retries());
        let link_window = self.wants_links().then_some(LINK_LIFETIME);
        let registration = JobRegistration { request_id, marks_retries, fingerprint: None, link_window };
        let registration = self.gateway.replay().with_fingerprint(&self.caller, &self.task, registration).await;
        let marks_retries = marks_retries && !self.task.is_stream();
        self.registration.get_or_init(|| JobRegistration { marks_retries, ..registration }).clone()
    }

    /// True if the caller gets links to the images.
    pub(super) fn wants_links(&self) -> bool {
        matches!(&self.task, SharedTask::Images(job) if job.adaptations().asks_for_urls())
    }

    /// Returns the fingerprint that [`Self::job_registration`] has computed, if there is one.
    pub(super) fn fingerprint(&self) -> Option<[u8; 32]> {
        self.registration.get()?.fingerprint
    }

    /// Reserves disk space for the answer, if it is delivered from the disk. An answer whose links cannot be kept has its
    /// images in base64, so it needs none.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`AnswerStore::reserve_space`](crate::gateway::replay::AnswerStore::reserve_space) if the
    /// images must be stored.
    pub(super) async fn reserve_answer_space(&self) -> Result<Option<AnswerSpace>, Error> {
        let SharedTask::Images(job) = &self.task else { return Ok(None) };
        let is_needed = self.options.needs_stored_answer;
        if !is_needed && !self.wants_links() {
            return Ok(None);
        }
        match self.gateway.replay().reserve_space(self.options.admission(), answer_size::estimated_bytes(job)).await {
            Err(error) if is_needed => Err(error),
            reserved => Ok(reserved.ok()),
        }
    }

    /// Runs the whole job, beginning with its intent. `answer_sender` knows if the caller still waits; without it,
    /// the job is never abandoned. If the caller of a stream that had begun leaves, the job ends as cancelled.
    pub(super) async fn run(
        self: &Arc<Self>,
        answer_sender: Option<&AnswerSender<GatewayAnswer>>,
    ) -> Result<GatewayAnswer, Error> {
        let mut record = self.open_record(answer_sender).await?;
        if !self.departure_cancels() {
            return self.make_answer(record, answer_sender).await;
        }
        record.set_drop_outcome(JobOutcome::cancelled());
        tokio::select! {
            biased;
            answer = self.make_answer(record, answer_sender) => answer,
            () = self.departure.cancelled() => Err(Error::Unavailable),
        }
    }

    /// True if the job ends when its caller leaves: it is a stream, and the caller has no key with which it could ask again.
    fn departure_cancels(&self) -> bool {
        self.task.is_stream() && self.options.idempotency_key.is_none()
    }

    /// Returns the fallback policy: that of the request, or else that of the group. A response has no fallback.
    fn fallback_policy(&self) -> FallbackPolicy {
        match self.task {
            SharedTask::Images(_) => self.options.fallback_policy(&self.gateway, &self.caller),
            SharedTask::Response(_) => FallbackPolicy::Never,
        }
    }

    pub(super) fn attempt_context<'a>(
        &'a self,
        answer_sender: Option<&'a AnswerSender<GatewayAnswer>>,
    ) -> AttemptContext<'a> {
        AttemptContext {
            gateway: &self.gateway,
            caller: &self.caller,
            request_id: &self.options.request_id,
            fallback: self.fallback_policy(),
            answer_sender,
        }
    }

    /// Remembers that the answer broke off, because some clients repeat such a request although the error advises
    /// against a retry. Does nothing for a stream, or for a request with an idempotency key.
    pub(super) async fn remember_broken_answer(&self) {
        if !self.task.is_stream() && self.options.idempotency_key.is_none() {
            let error = Error::Upstream(UpstreamFault::Broken);
            let registration = self.registration.get().cloned().unwrap_or_default();
            self.gateway.replay().remember(&self.caller, self.task.clone(), registration, &error).await;
        }
    }

    /// Records the intent durably, before the first byte is sent upstream.
    async fn open_record(&self, answer_sender: Option<&AnswerSender<GatewayAnswer>>) -> Result<OpenRecord, Error> {
        let group = self.caller.group_name();
        if self.gateway.is_group_unusable(group) {
            tracing::warn!(group, "a request is refused: the settings of its group cannot be used");
            return Err(Error::Unavailable);
        }
        let cost = cost_estimate::estimate(&self.gateway, &self.caller, &self.task, self.fallback_policy());
        let attempt_context = self.attempt_context(answer_sender);
        let reservation = tokio::select! {
            biased;
            reserved = request_limits::reserve(self, &cost) => reserved?,
            // The job waits for room in a budget, and nothing was spent for it.
            () = attempt_context.until_abandoned() => return Err(Error::Unavailable),
        };
        let draft = delivery::record_draft(self, &cost);
        self.gateway.ledger().open(draft, reservation).await.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "an intent could not be recorded");
            Error::Unavailable
        })
    }

    /// Makes the answer. The future is boxed, because it is the largest part of a waiting request's memory.
    async fn make_answer(
        self: &Arc<Self>,
        record: OpenRecord,
        answer_sender: Option<&AnswerSender<GatewayAnswer>>,
    ) -> Result<GatewayAnswer, Error> {
        Box::pin(delivery::deliver(self, record, answer_sender)).await
    }
}
