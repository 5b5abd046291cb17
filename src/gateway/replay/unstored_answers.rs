//! Answers that were paid for and could not be written to disk although their callers get them only from the stored
//! answer. They are kept in memory for a short time, by this process only.
//!
//! The module decides how much memory they may take, and which is dropped first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::disk_budget::{DiskBudget, DiskReservation};
use super::stored_answer::StoredAnswer;
use crate::gateway::store::{ReplayClaim, RequestId};

/// The memory for all of these answers (our choice): the answers of about three of the largest images. Space on disk is
/// reserved before an answer is made, so they occur only if something else fills the disk meanwhile.
const MEMORY_MAX_BYTES: u64 = 128 * 1024 * 1024;
/// The time for which such an answer is kept (our choice): a page or an agent asks for its image at once.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// The answers in memory.
pub(super) struct UnstoredAnswers {
    budget: Arc<DiskBudget>,
    answers: Mutex<VecDeque<UnstoredAnswer>>,
}

struct UnstoredAnswer {
    request_id: RequestId,
    answer: Arc<StoredAnswer>,
    expires_at: Instant,
}

// === impl UnstoredAnswers ===

impl UnstoredAnswers {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { budget: DiskBudget::new(MEMORY_MAX_BYTES), answers: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<UnstoredAnswer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves memory. If `may_drop`, drops the oldest answers for it if necessary. `None` if there is none left.
    pub(super) fn reserve(&self, bytes: u64, may_drop: bool) -> Option<DiskReservation> {
        loop {
            let reservation = self.budget.try_reserve_blocks(bytes);
            if reservation.is_some() || !may_drop || self.lock().pop_front().is_none() {
                return reservation;
            }
        }
    }

    /// Keeps an answer that is complete but for its end.
    pub(super) fn keep(&self, request_id: RequestId, answer: Arc<StoredAnswer>) {
        self.lock().push_back(UnstoredAnswer { request_id, answer, expires_at: Instant::now() + KEPT_FOR });
    }

    /// Returns the answer of the request that made this claim.
    pub(super) fn find(&self, claim: &ReplayClaim) -> Option<Arc<StoredAnswer>> {
        let now = Instant::now();
        let answers = self.lock();
        let found =
            answers.iter().find(|unstored| unstored.request_id == claim.request_id && unstored.expires_at > now);
        found.map(|found| Arc::clone(&found.answer))
    }

    /// Drops the answers whose time is over.
    pub(super) fn remove_expired(&self, now: Instant) {
        self.lock().retain(|unstored| unstored.expires_at > now);
    }
}
