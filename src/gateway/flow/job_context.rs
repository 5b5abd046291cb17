//! The context of a job of either kind, with everything that is needed to answer its request.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio_util::sync::CancellationToken;

use super::attempt_context::AttemptContext;
use super::gateway_answer::GatewayAnswer;
use super::{RequestOptions, answer_size, cost_estimate, delivery, request_limits};
use crate::error::{Error, UpstreamFault};
use crate::gateway::Gateway;
use crate::gateway::config::FallbackPolicy;
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
    /// The hash by which a retry that the client makes by itself is recognized.
    fingerprint: OnceLock<[u8; 32]>,
    /// The disk space that is reserved for the stored answer.
    answer_space: Mutex<Option<AnswerSpace>>,
    /// Cancelled when the caller of a stream that had begun has left.
    pub(super) departure: CancellationToken,
}

// === impl JobContext ===

impl JobContext {
    pub(super) fn new(gateway: &Arc<Gateway>, caller: Caller, options: RequestOptions, task: SharedTask) -> Self {
        Self {
            gateway: Arc::clone(gateway),
            caller,
            options,
            task,
            fingerprint: OnceLock::new(),
            answer_space: Mutex::default(),
            departure: CancellationToken::new(),
        }
    }

    /// Returns the data by which a retry that the client makes by itself is recognized, also after a restart. Must be
    /// called before the job begins. A stream is never stored while its caller reads it.
    pub(super) async fn job_registration(&self) -> JobRegistration {
        let marks_retries = self.options.marks_retries();
        let fingerprint = self.gateway.replay().fingerprint(&self.caller, &self.task, marks_retries).await;
        let fingerprint = fingerprint.map(|fingerprint| *self.fingerprint.get_or_init(|| fingerprint));
        let marks_retries = marks_retries && !self.task.is_stream();
        JobRegistration { request_id: self.options.request_id.clone(), marks_retries, fingerprint }
    }

    /// Returns the fingerprint that [`Self::job_registration`] has computed, if there is one.
    pub(super) fn fingerprint(&self) -> Option<[u8; 32]> {
        self.fingerprint.get().copied()
    }

    /// Reserves disk space for the answer, if it is delivered from the disk. An answer whose links cannot be kept has its
    /// images in base64.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`AnswerReplay::reserve_space`](crate::gateway::replay::AnswerReplay::reserve_space) if the
    /// images must be stored.
    pub(super) async fn reserve_answer_space(&self) -> Result<(), Error> {
        let SharedTask::Images(job) = &self.task else { return Ok(()) };
        let is_needed = self.options.needs_stored_answer;
        if !is_needed && !job.adaptations().asks_for_urls() {
            return Ok(());
        }
        match self.gateway.replay().reserve_space(self.options.admission(), answer_size::estimated_bytes(job)).await {
            Ok(space) => *self.answer_space.lock().unwrap_or_else(PoisonError::into_inner) = Some(space),
            Err(error) if is_needed => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }

    /// Returns the disk space that is reserved for the answer.
    pub(super) fn take_answer_space(&self) -> Option<AnswerSpace> {
        self.answer_space.lock().unwrap_or_else(PoisonError::into_inner).take()
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
            self.gateway.replay().remember(&self.caller, self.task.clone(), &error).await;
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
