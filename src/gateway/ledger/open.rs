//! A record on its way: begun, filled while the job runs, closed exactly once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::writer::{Message, Outgoing, Reply};
use super::{Attempt, Class, Delivered, LedgerError, ModelUsage, Record, State, milliseconds_since};
use crate::gateway::telemetry::Metrics;

/// The longest time that the end of an answer waits for its record (ours).
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);

/// How a job ended. It cannot say that it is still running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    state: State,
    error_code: Option<String>,
    error_reason: Option<&'static str>,
    error_detail: Option<String>,
}

impl Outcome {
    /// The caller got the image.
    pub(crate) fn succeeded() -> Self {
        Self::new(State::Succeeded, None)
    }

    /// No image was made; the caller read this code.
    pub(crate) fn failed(error_code: impl Into<String>) -> Self {
        Self::new(State::Failed, Some(error_code.into()))
    }

    /// The upstream refused the content; the caller read this code.
    pub(crate) fn refused(error_code: impl Into<String>) -> Self {
        Self::new(State::Refused, Some(error_code.into()))
    }

    /// The caller left.
    pub(crate) fn cancelled() -> Self {
        Self::new(State::Cancelled, None)
    }

    /// It broke off, and an image may have been paid; the caller may have read a code.
    pub(crate) fn interrupted(error_code: Option<String>) -> Self {
        Self::new(State::Interrupted, error_code)
    }

    /// The same with the reason: a word of the gateway, and words of the upstream that are safe to show.
    pub(crate) fn because(self, reason: &'static str, detail: Option<String>) -> Self {
        Self { error_reason: Some(reason), error_detail: detail.map(Record::clip), ..self }
    }

    const fn new(state: State, error_code: Option<String>) -> Self {
        Self { state, error_code, error_reason: None, error_detail: None }
    }
}

/// One upstream call of a job, in the order in which they were begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call(usize);

/// The record of a job that runs. Its intent is durable.
///
/// Dropping it closes it too: with the outcome of [`OpenRecord::when_dropped`], else as interrupted.
#[derive(Debug)]
#[must_use = "dropping it closes the record as interrupted"]
pub(crate) struct OpenRecord(Option<Box<Entry>>);

/// A record with what it takes to close it. Behind one pointer, because it travels inside the body of the answer.
///
/// By itself it is an intent, and dropping it does nothing; only an [`OpenRecord`] owes an outcome.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) record: Record,
    /// The account that the intent names.
    intended: Option<String>,
    started: Instant,
    /// When each upstream call that has no outcome yet was begun.
    calling: Vec<(Call, Instant)>,
    when_dropped: Outcome,
    outbox: mpsc::UnboundedSender<Message>,
    metrics: Arc<Metrics>,
    _unsettled: Unsettled,
}

impl Entry {
    pub(super) fn new(
        record: Record,
        outbox: mpsc::UnboundedSender<Message>,
        count: watch::Sender<usize>,
        metrics: Arc<Metrics>,
    ) -> Self {
        // A caller that gave up waiting for the intent has sent nothing, so the job counts as cancelled until it
        // begins.
        let when_dropped = Outcome::cancelled();
        Self {
            intended: record.account.clone(),
            record,
            started: Instant::now(),
            calling: Vec::new(),
            when_dropped,
            outbox,
            metrics,
            _unsettled: Unsettled::count(count),
        }
    }

    fn close(mut self: Box<Self>, outcome: Outcome, reply: Option<Reply<()>>) {
        for (call, _) in self.calling.clone() {
            self.hang_up(call);
        }
        self.record.state = outcome.state;
        self.record.error_code = outcome.error_code;
        self.record.error_reason = outcome.error_reason.map(str::to_owned);
        self.record.error_detail = outcome.error_detail;
        self.record.latency_ms = Some(milliseconds_since(self.started));
        self.record.missing = self.record.count_missing();
        if self.record.attempts.is_empty() {
            // The account that the intent names was never asked.
            self.record.account = None;
        }
        self.metrics.job_ended(&self.record);
        let outbox = self.outbox.clone();
        // Without a writer the runtime is going down: the next start finds the row running and closes it.
        let _ = outbox.send(Message::Close(Outgoing::new(self, reply)));
    }

    /// Says how long a call took that is going on.
    fn hang_up(&mut self, call: Call) {
        let Some(place) = self.calling.iter().position(|(other, _)| *other == call) else { return };
        let (_, began) = self.calling.swap_remove(place);
        if let Some(attempt) = self.record.attempts.get_mut(call.0) {
            attempt.latency_ms = Some(milliseconds_since(began));
        }
    }
}

impl OpenRecord {
    /// To be called when the intent is durable.
    pub(super) fn new(entry: Box<Entry>) -> Self {
        Self(Some(entry))
    }

    /// The job has the record and may spend: from now on a record that is dropped unclosed is interrupted.
    pub(super) fn begin(mut self) -> Self {
        self.when_dropped(Outcome::interrupted(None));
        self
    }

    /// Says that an upstream call begins. The last one names the account of the record. Until it has ended it counts as
    /// ambiguous: a caller who leaves in the middle may have an image paid for all the same.
    pub(crate) fn begin_attempt(&mut self, account: &str) -> Call {
        let Some(entry) = self.0.as_deref_mut() else { return Call(0) };
        entry.record.account = Some(account.to_owned());
        let attempt = Attempt {
            account: account.to_owned(),
            class: Some(Class::X),
            status: None,
            latency_ms: None,
            upstream_request_id: None,
        };
        let call = Call(entry.record.attempts.len());
        entry.record.attempts.push(attempt);
        entry.calling.push((call, Instant::now()));
        call
    }

    /// Makes the begun calls durable, so that the record of a killed process names the accounts that it has asked.
    /// Returns `None` if the intent names the only account already.
    pub(crate) fn note_attempts(&self) -> Option<Closing> {
        let entry = self.0.as_deref()?;
        if entry.record.attempts.len() < 2 && entry.record.account == entry.intended {
            return None;
        }
        let (reply, answer) = oneshot::channel();
        let _ = entry.outbox.send(Message::Note { record: Box::new(entry.record.clone()), reply });
        Some(Closing(answer))
    }

    /// Sets the upstream's id of a call.
    pub(crate) fn set_upstream_id(&mut self, call: Call, id: Option<String>) {
        self.edit(|entry| {
            if let Some(attempt) = entry.record.attempts.get_mut(call.0) {
                attempt.upstream_request_id = id.map(Record::clip);
            }
        });
    }

    /// Says how a call has ended; without a class it gave an image. Of a call that has ended already it says better.
    pub(crate) fn end_attempt(&mut self, call: Call, class: Option<Class>, status: Option<u16>) {
        self.edit(|entry| {
            entry.hang_up(call);
            if let Some(attempt) = entry.record.attempts.get_mut(call.0) {
                (attempt.class, attempt.status) = (class, status);
            }
        });
    }

    /// Says that the last attempt failed after all, after its answer had begun.
    pub(crate) fn fail_attempt(&mut self, class: Class) {
        self.edit(|entry| {
            if let Some(attempt) = entry.record.attempts.last_mut() {
                attempt.class = Some(class);
            }
        });
    }

    /// What is written if this is dropped unclosed, as happens when a caller leaves who takes the job with it.
    pub(crate) fn when_dropped(&mut self, outcome: Outcome) {
        self.edit(|entry| entry.when_dropped = outcome);
    }

    /// Adds an image that went to the caller.
    pub(crate) fn add_delivered(&mut self, image: Delivered) {
        self.edit(|entry| entry.record.delivered.push(image));
    }

    /// Says what was made instead of what was asked for.
    pub(crate) fn set_fallback(&mut self, made: String) {
        self.edit(|entry| entry.record.fallback = Some(made));
    }

    /// Says that a smaller image is asked for although the larger one may have been paid for as well.
    pub(crate) fn set_maybe_paid_twice(&mut self) {
        self.edit(|entry| entry.record.maybe_paid_twice = true);
    }

    /// Sets the id under which the upstream keeps the response.
    pub(crate) fn set_response_id(&mut self, id: String) {
        self.edit(|entry| entry.record.response_id = Some(id));
    }

    /// Says what the upstream counted, for each model.
    pub(crate) fn set_usage(&mut self, usage: ModelUsage) {
        self.edit(|entry| (entry.record.usage, entry.record.host_usage) = (usage.image, usage.host));
    }

    /// Names the model that made the images, and the text model that was beside it.
    pub(crate) fn set_models(&mut self, image: Option<String>, host: Option<String>) {
        self.edit(|entry| {
            (entry.record.image_model, entry.record.host_model) = (image.map(Record::clip), host.map(Record::clip));
        });
    }

    /// Notes that the first byte goes to the caller now. Later calls change nothing.
    pub(crate) fn mark_first_byte(&mut self) {
        self.edit(|entry| {
            let elapsed = milliseconds_since(entry.started);
            entry.record.first_byte_ms.get_or_insert(elapsed);
        });
    }

    /// Closes the record. The outcome is on its way from this moment, the future only says when it is durable.
    ///
    /// # Errors
    /// The future fails where the database did not take the outcome in several tries. It is not lost then: the
    /// writer goes on trying for as long as the process lives, and after that the record counts as interrupted.
    pub(crate) fn close(mut self, outcome: Outcome) -> Closing {
        let (reply, answer) = oneshot::channel();
        if let Some(entry) = self.0.take() {
            entry.close(outcome, Some(reply));
        }
        Closing(answer)
    }

    fn edit(&mut self, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.0.as_deref_mut() {
            change(entry);
        }
    }
}

impl Drop for OpenRecord {
    fn drop(&mut self) {
        if let Some(entry) = self.0.take() {
            let outcome = entry.when_dropped.clone();
            entry.close(outcome, None);
        }
    }
}

/// Resolves when the outcome is durable. A plain value, so that a response body can hold and poll it.
#[derive(Debug)]
#[must_use = "the caller's last byte may only follow when it has resolved"]
pub(crate) struct Closing(oneshot::Receiver<Result<(), LedgerError>>);

impl Closing {
    /// Waits as long as an answer may wait for its record. The outcome stays on its way.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`OpenRecord::close`], or [`LedgerError::Overloaded`] if the database takes too long.
    pub(crate) async fn in_time(self) -> Result<(), LedgerError> {
        timeout(CLOSE_PATIENCE, self).await.unwrap_or(Err(LedgerError::Overloaded))
    }
}

impl Future for Closing {
    type Output = Result<(), LedgerError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|answer| answer.unwrap_or(Err(LedgerError::Stopped)))
    }
}

/// One record that is not settled yet; `Ledger::drain` waits until there is none.
#[derive(Debug)]
pub(super) struct Unsettled(watch::Sender<usize>);

impl Unsettled {
    fn count(sender: watch::Sender<usize>) -> Self {
        sender.send_modify(|count| *count += 1);
        Self(sender)
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
