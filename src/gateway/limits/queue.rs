//! The jobs of this process that wait for room in budgets.
//!
//! A job waits at the budget that has no room for it. Those that wait at one budget are served in the order in which they
//! began to wait, and a job that comes later does not pass them. Only the first one is woken when room may have come; one
//! that leaves the queue, for whatever reason, wakes the next.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::reservation::{LimitSubject, SubjectLimits};

/// The queues of all budgets that have one.
#[derive(Debug, Default)]
pub(super) struct BudgetQueues(Mutex<QueueState>);

#[derive(Debug, Default)]
struct QueueState {
    /// The number of the next job that waits. A smaller one comes first.
    next: u64,
    waiting: HashMap<LimitSubject, BTreeMap<u64, Arc<Notify>>>,
}

/// The place of a job in the queue of at most one budget. The job leaves the queue when it is dropped.
pub(super) struct QueuePlace<'a> {
    queues: &'a BudgetQueues,
    number: u64,
    at: Option<LimitSubject>,
    wake: Arc<Notify>,
}

// === impl BudgetQueues ===

impl BudgetQueues {
    /// Returns a place for a job that begins to wait. It is in no queue yet.
    pub(super) fn new_place(&self) -> QueuePlace<'_> {
        let mut state = self.lock();
        state.next += 1;
        QueuePlace { queues: self, number: state.next, at: None, wake: Arc::default() }
    }

    /// Returns the first budget of these at which another job waits that came before this one. A job that has no place
    /// comes after all that wait.
    pub(super) fn queued_at<'s>(
        &self,
        subjects: &'s [SubjectLimits],
        place: Option<&QueuePlace<'_>>,
    ) -> Option<&'s SubjectLimits> {
        let number = place.map_or(u64::MAX, |place| place.number);
        let state = self.lock();
        if state.waiting.is_empty() {
            return None;
        }
        let has_earlier = |limited: &SubjectLimits| {
            let first = state.waiting.get(&limited.subject).and_then(BTreeMap::first_key_value);
            limited.limits.budget.is_some() && first.is_some_and(|(first, _)| *first < number)
        };
        subjects.iter().find(|limited| has_earlier(limited))
    }

    /// Wakes the first job that waits at the budget of each of these subjects.
    pub(super) fn wake<'s>(&self, subjects: impl Iterator<Item = &'s LimitSubject>) {
        let state = self.lock();
        if state.waiting.is_empty() {
            return;
        }
        for subject in subjects {
            state.wake_first(subject);
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl QueueState ===

impl QueueState {
    fn wake_first(&self, subject: &LimitSubject) {
        if let Some((_, first)) = self.waiting.get(subject).and_then(BTreeMap::first_key_value) {
            first.notify_one();
        }
    }

    fn remove(&mut self, subject: &LimitSubject, number: u64) {
        let Some(queue) = self.waiting.get_mut(subject) else { return };
        queue.remove(&number);
        if queue.is_empty() {
            self.waiting.remove(subject);
        } else {
            self.wake_first(subject);
        }
    }
}

// === impl QueuePlace ===

impl QueuePlace<'_> {
    /// Moves to the queue of this budget. Returns true if the job was not in it: room may have come since it was looked for.
    pub(super) fn move_to(&mut self, subject: &LimitSubject) -> bool {
        if self.at.as_ref() == Some(subject) {
            return false;
        }
        let mut state = self.queues.lock();
        if let Some(left) = self.at.replace(subject.clone()) {
            state.remove(&left, self.number);
        }
        state.waiting.entry(subject.clone()).or_default().insert(self.number, Arc::clone(&self.wake));
        true
    }

    /// Takes a place in the queue of a subject, and waits there until this time if the job has it already.
    pub(super) async fn wait_for_room(&mut self, subject: &LimitSubject, until: Instant) {
        if !self.move_to(subject) {
            self.wait_until(until).await;
        }
    }

    /// Waits until the job should look for room again: room may have come, or the time is over.
    pub(super) async fn wait_until(&self, time: Instant) {
        // Both results mean the same.
        let _ = timeout_at(time, self.wake.notified()).await;
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        if let Some(at) = self.at.take() {
            self.queues.lock().remove(&at, self.number);
        }
    }
}
