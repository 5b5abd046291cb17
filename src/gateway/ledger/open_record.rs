//! A record between its intent and its outcome. It is opened, filled while the job runs, and closed exactly once.

use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::writer::{ClosedRecord, CommitReplySender, LedgerMessage};
use super::{AttemptClass, JobRecord, JobState, LedgerError, ModelUsage, milliseconds_since};
use crate::gateway::limits::{LimitReservation, LimitStatus};
use crate::gateway::money::Usd;
use crate::gateway::prices::{Cost, CurrentPrices};
use crate::gateway::store::{BindingDigest, CostBasis, missing_images};
use crate::gateway::telemetry::Metrics;
use crate::wire::admin::types::{RecordAttempt, RecordImage, RecordReason};

/// The maximum time for which the end of an answer waits until its record is durable (our choice).
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The outcome of a job that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobOutcome {
    state: JobState,
    error_code: Option<String>,
    error_reason: Option<RecordReason>,
    error_detail: Option<String>,
}

impl JobOutcome {
    /// The caller received the answer.
    pub(crate) fn succeeded() -> Self {
        Self::new(JobState::Succeeded, None)
    }

    /// No image was made. The caller received this code.
    pub(crate) fn failed(error_code: impl Into<String>) -> Self {
        Self::new(JobState::Failed, Some(error_code.into()))
    }

    /// The upstream refused the content. The caller received this code.
    pub(crate) fn refused(error_code: impl Into<String>) -> Self {
        Self::new(JobState::Refused, Some(error_code.into()))
    }

    /// The caller left.
    pub(crate) fn cancelled() -> Self {
        Self::new(JobState::Cancelled, None)
    }

    /// The job was interrupted, and an image may have been charged. `error_code` is the code that the caller received,
    /// if there was one.
    pub(crate) fn interrupted(error_code: Option<String>) -> Self {
        Self::new(JobState::Interrupted, error_code)
    }

    /// Adds the reason.
    pub(crate) fn with_reason(self, reason: RecordReason) -> Self {
        Self { error_reason: Some(reason), ..self }
    }

    /// Adds the part of the upstream's message that is safe to show, if there is one.
    pub(crate) fn with_detail(self, detail: Option<String>) -> Self {
        Self { error_detail: detail.map(JobRecord::truncate_text), ..self }
    }

    const fn new(state: JobState, error_code: Option<String>) -> Self {
        Self { state, error_code, error_reason: None, error_detail: None }
    }
}

/// One attempt of a job: its index in the order in which the attempts began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttemptHandle(usize);

/// The record of a running job. Its intent is durable.
///
/// If it is dropped, the record is closed with the outcome of [`OpenRecord::set_drop_outcome`], or else as interrupted.
#[derive(Debug)]
#[must_use = "a dropped record is closed as interrupted"]
pub(crate) struct OpenRecord(Option<Box<OpenRecordState>>);

/// A record with everything that is needed to close it.
///
/// Without an [`OpenRecord`] around it, it is only an intent: no outcome is written when it is dropped.
#[derive(Debug)]
pub(super) struct OpenRecordState {
    pub(super) record: JobRecord,
    /// The account in the intent.
    intended_account: Option<String>,
    started: Instant,
    /// The start times of the upstream calls that have no outcome yet.
    running_calls: Vec<(AttemptHandle, Instant)>,
    drop_outcome: JobOutcome,
    message_sender: mpsc::Sender<LedgerMessage>,
    metrics: Arc<Metrics>,
    prices: Arc<CurrentPrices>,
    /// The number of attempts that the simulator carries out.
    simulated_attempts: usize,
    /// The smaller image that the next attempts ask for, if a fallback has begun, and the most that it can cost.
    fallback_begun: Option<(String, Option<Usd>)>,
    pub(super) reservation: LimitReservation,
    _unsettled: UnsettledRecordGuard,
}

impl OpenRecordState {
    pub(super) fn new(
        record: JobRecord,
        reservation: LimitReservation,
        message_sender: mpsc::Sender<LedgerMessage>,
        count: watch::Sender<usize>,
        (metrics, prices): (Arc<Metrics>, Arc<CurrentPrices>),
    ) -> Self {
        // If the caller leaves before the job has started, nothing was sent upstream, so the job counts as cancelled.
        let drop_outcome = JobOutcome::cancelled();
        Self {
            intended_account: record.document.account.clone(),
            record,
            started: Instant::now(),
            running_calls: Vec::new(),
            drop_outcome,
            message_sender,
            metrics,
            prices,
            simulated_attempts: 0,
            fallback_begun: None,
            reservation,
            _unsettled: UnsettledRecordGuard::new(count),
        }
    }

    fn close(mut self: Box<Self>, outcome: JobOutcome, reply: Option<CommitReplySender<()>>) {
        for (call, _) in self.running_calls.clone() {
            self.set_call_duration(call);
        }
        let document = &mut self.record.document;
        document.state = outcome.state;
        document.error_code = outcome.error_code;
        document.error_reason = outcome.error_reason;
        document.error_detail = outcome.error_detail;
        document.latency_ms = Some(milliseconds_since(self.started));
        document.missing = missing_images(document);
        if document.attempts.is_empty() {
            // The account in the intent was never called.
            document.account = None;
        }
        self.set_cost();
        self.metrics.count_job(&self.record);
        let outbox = self.message_sender.clone();
        // If there is no writer, the runtime is shutting down. The next start of the gateway then closes the record.
        let _ = outbox.send(LedgerMessage::Close(ClosedRecord::new(self, reply)));
    }

    /// Settles the share of the job in the limits, because its outcome is durable or never will be. A cost that is unknown
    /// counts as the most that the record states, as it does in the store.
    pub(super) fn settle(self) {
        let JobRecord { document, cost, max_job_cost, max_cost, .. } = &self.record;
        self.reservation.settle(cost.or(*max_job_cost).or(*max_cost), document.delivered.len() as u64);
    }

    fn set_cost(&mut self) {
        // If an upstream was called as well, its tokens cannot be told apart from those of the simulator.
        let is_simulated =
            self.simulated_attempts > 0 && self.simulated_attempts == self.record.document.attempts.len();
        let cost = if is_simulated {
            Cost { usd: Some(Usd::ZERO), basis: CostBasis::Exact, reason: None, price_version: None }
        } else {
            self.prices.table().cost(&self.record)
        };
        self.record.set_cost(cost.usd, cost.basis, cost.reason);
        self.record.document.price_version = cost.price_version;
    }

    /// Sets the duration of a call that is still running.
    fn set_call_duration(&mut self, call: AttemptHandle) {
        let Some(index) = self.running_calls.iter().position(|(running, _)| *running == call) else { return };
        let (_, started) = self.running_calls.swap_remove(index);
        if let Some(attempt) = self.record.document.attempts.get_mut(call.0) {
            attempt.latency_ms = Some(milliseconds_since(started));
        }
    }
}

impl OpenRecord {
    /// Wraps a record whose intent is durable.
    pub(super) fn new(entry: Box<OpenRecordState>) -> Self {
        Self(Some(entry))
    }

    /// Marks the start of the job, which may now call an upstream. If the record is dropped after this, it is closed as
    /// interrupted.
    pub(super) fn mark_started(mut self) -> Self {
        self.set_drop_outcome(JobOutcome::interrupted(None));
        self
    }

    /// Notes the start of an attempt. The account of the record is that of the last attempt. Until the attempt has
    /// ended, its class is X (ambiguous): if the caller leaves before that, an image may still have been charged.
    pub(crate) fn begin_attempt(&mut self, account: &str) -> AttemptHandle {
        let Some(entry) = self.0.as_deref_mut() else { return AttemptHandle(0) };
        let attempt = RecordAttempt {
            account: Some(account.to_owned()),
            class: Some(AttemptClass::MaybePaid),
            start_ms: Some(milliseconds_since(entry.started)),
            fallback: entry.fallback_begun.as_ref().map(|(image, _)| image.clone()),
            max_cost_usd: entry.fallback_begun.as_ref().and_then(|(_, most)| *most).map(Usd::dollars),
            ..RecordAttempt::default()
        };
        let document = &mut entry.record.document;
        document.account = Some(account.to_owned());
        let call = AttemptHandle(document.attempts.len());
        document.attempts.push(attempt);
        entry.running_calls.push((call, Instant::now()));
        call
    }

    /// Makes the started attempts durable, so that the record names their accounts even if the process is killed.
    /// Returns `None` if the intent already has the only account that was called.
    pub(crate) fn persist_attempts(&self) -> Option<CommitFuture> {
        let entry = self.0.as_deref()?;
        let document = &entry.record.document;
        if document.attempts.len() < 2 && document.account == entry.intended_account {
            return None;
        }
        let (reply, result) = oneshot::channel();
        let _ =
            entry.message_sender.send(LedgerMessage::RecordAttempts { record: Box::new(entry.record.clone()), reply });
        Some(CommitFuture(result))
    }

    /// Sets the upstream's request id of an attempt.
    pub(crate) fn set_upstream_id(&mut self, call: AttemptHandle, id: Option<String>) {
        self.edit(|entry| {
            if let Some(attempt) = entry.record.document.attempts.get_mut(call.0) {
                attempt.upstream_request_id = id.map(JobRecord::truncate_text);
            }
        });
    }

    /// Notes the end of an attempt; `class` is `None` if it gave an image. If the attempt has already ended, the new
    /// values replace the old ones.
    pub(crate) fn end_attempt(&mut self, call: AttemptHandle, class: Option<AttemptClass>, status: Option<u16>) {
        self.edit(|entry| {
            entry.set_call_duration(call);
            if let Some(attempt) = entry.record.document.attempts.get_mut(call.0) {
                (attempt.class, attempt.status) = (class, status.map(u64::from));
            }
        });
    }

    /// Notes that the last attempt failed after its answer had begun.
    pub(crate) fn fail_last_attempt(&mut self, class: AttemptClass) {
        self.edit(|entry| {
            if let Some(attempt) = entry.record.document.attempts.last_mut() {
                attempt.class = Some(class);
            }
        });
    }

    /// Sets the outcome that is written if the record is dropped before it is closed, for example because the caller
    /// leaves.
    pub(crate) fn set_drop_outcome(&mut self, outcome: JobOutcome) {
        self.edit(|entry| entry.drop_outcome = outcome);
    }

    /// Adds an image that was delivered to the caller.
    pub(crate) fn add_delivered(&mut self, image: RecordImage) {
        self.edit(|entry| entry.record.document.delivered.push(image));
    }

    /// Notes that the answer was made without the image tool that the gateway had added.
    pub(crate) fn clear_injected_tool(&mut self) {
        self.edit(|entry| {
            let document = &mut entry.record.document;
            document.injected_tool = false;
            (document.size, document.quality, document.output_format) = (None, None, None);
        });
    }

    /// Sets the description of the fallback: the image that was made instead of the requested one.
    pub(crate) fn set_fallback(&mut self, description: String) {
        self.edit(|entry| entry.record.document.fallback = Some(description));
    }

    /// Notes that the next attempts ask for a smaller image, which costs at most `most`.
    pub(crate) fn begin_fallback(&mut self, description: String, most: Option<Usd>) {
        self.edit(|entry| entry.fallback_begun = Some((description, most)));
    }

    /// Notes that a fallback is requested although the original image may have been charged as well.
    pub(crate) fn set_maybe_paid_twice(&mut self) {
        self.edit(|entry| entry.record.document.maybe_paid_twice = Some(true));
    }

    /// Notes that the simulator carries out the attempt that begins now. It costs nothing.
    pub(crate) fn note_simulated_attempt(&mut self) {
        self.edit(|entry| entry.simulated_attempts += 1);
    }

    /// Returns the rest of the limits of the job's key, user and group.
    pub(crate) fn limit_status(&self) -> LimitStatus {
        self.0.as_deref().map(|entry| entry.reservation.status().clone()).unwrap_or_default()
    }

    /// Binds these values to the account of the last attempt, in the transaction that closes the record.
    pub(crate) fn set_bindings(&mut self, bindings: Vec<BindingDigest>) {
        self.edit(|entry| entry.record.bindings = bindings);
    }

    /// Returns the name of the account of the last attempt.
    pub(crate) fn account(&self) -> Option<&str> {
        self.0.as_deref().and_then(|entry| entry.record.document.account.as_deref())
    }

    /// Sets the token counts that the upstream reported for each model.
    pub(crate) fn set_usage(&mut self, usage: ModelUsage) {
        self.edit(|entry| entry.record.set_usage(usage));
    }

    /// Sets the model that made the images, and the text model that worked with it.
    pub(crate) fn set_models(&mut self, image: Option<String>, host: Option<String>) {
        self.edit(|entry| {
            (entry.record.document.image_model, entry.record.document.host_model) =
                (image.map(JobRecord::truncate_text), host.map(JobRecord::truncate_text));
        });
    }

    /// Notes that the first byte of the answer is sent now. Later calls have no effect.
    pub(crate) fn mark_first_byte(&mut self) {
        self.edit(|entry| {
            let elapsed = milliseconds_since(entry.started);
            entry.record.document.first_byte_ms.get_or_insert(elapsed);
        });
    }

    /// Closes the record. The outcome is sent to the writer at once; the returned future resolves when it is durable.
    ///
    /// # Errors
    ///
    /// The future fails if several writes of the outcome have failed, or if the database refuses the record itself. In
    /// the first case, the writer continues to try as long as the process lives. If no write ever succeeds, the record
    /// counts as interrupted.
    pub(crate) fn close(mut self, outcome: JobOutcome) -> CommitFuture {
        let (reply, result) = oneshot::channel();
        if let Some(entry) = self.0.take() {
            entry.close(outcome, Some(reply));
        }
        CommitFuture(result)
    }

    fn edit(&mut self, change: impl FnOnce(&mut OpenRecordState)) {
        if let Some(entry) = self.0.as_deref_mut() {
            change(entry);
        }
    }
}

impl Drop for OpenRecord {
    fn drop(&mut self) {
        if let Some(entry) = self.0.take() {
            let outcome = entry.drop_outcome.clone();
            entry.close(outcome, None);
        }
    }
}

/// A future that resolves when a write to the record is durable. It is a named type, so that a response body can hold
/// and poll it.
#[derive(Debug)]
#[must_use = "the caller may get the last byte only after this future has resolved"]
pub(crate) struct CommitFuture(oneshot::Receiver<Result<(), LedgerError>>);

impl CommitFuture {
    /// Waits until the write is durable, at most for [`CLOSE_TIMEOUT`]. After a timeout, the writer still continues
    /// with the write.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`OpenRecord::close`], or [`LedgerError::Overloaded`] if the database takes too long.
    pub(crate) async fn with_timeout(self) -> Result<(), LedgerError> {
        timeout(CLOSE_TIMEOUT, self).await.unwrap_or(Err(LedgerError::Overloaded))
    }
}

impl Future for CommitFuture {
    type Output = Result<(), LedgerError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|result| result.unwrap_or(Err(LedgerError::Stopped)))
    }
}

/// Counts one record whose outcome is not durable yet. `Ledger::drain` waits until the count is 0.
#[derive(Debug)]
pub(super) struct UnsettledRecordGuard(watch::Sender<usize>);

impl UnsettledRecordGuard {
    fn new(sender: watch::Sender<usize>) -> Self {
        // Only the count 0 is awaited: other changes wake nobody.
        sender.send_if_modified(|count| {
            *count += 1;
            false
        });
        Self(sender)
    }
}

impl Drop for UnsettledRecordGuard {
    fn drop(&mut self) {
        self.0.send_if_modified(|count| {
            *count -= 1;
            *count == 0
        });
    }
}
