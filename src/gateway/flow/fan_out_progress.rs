//! The state that the calls of one job share if each of them makes one image: the time that an image takes, the number
//! of failed calls, and the decision whether one more is worth paying for. Pure but for a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::attempt_deadlines::AttemptDeadlines;
use super::attempt_history::{FAILED_CALL_BUDGET, counts_against_budget};
use super::fallback_order;
use crate::gateway::upstream::{AttemptFailure, FailureClass};

/// Before the first image, one is expected to take this share of the time for a request (our choice): a call that is cut off
/// at the end of that time is paid for and thrown away.
const EXPECTED_SHARE: u32 = 4;
/// The next image may exceed the longest time so far by this share of it (our choice).
const MARGIN_SHARE: u32 = 4;

/// The state that the calls of one job share.
#[derive(Debug)]
pub(super) struct FanOutProgress {
    deadlines: AttemptDeadlines,
    state: Mutex<FanOutProgressState>,
}

/// The observations of the calls so far.
#[derive(Clone, Copy, Debug)]
struct FanOutProgressState {
    max_silence: Duration,
    /// The longest time of a call that gave an image, and of one that may have been paid for without giving any.
    longest_success: Option<Duration>,
    longest_loss: Duration,
    /// The number of calls that gave no image and may have cost something.
    budget_spent: usize,
    /// True if one of the images has begun.
    has_begun: bool,
    /// True if one of the calls has failed in a way after which no smaller image follows.
    is_fallback_barred: bool,
    /// True if any further call would fail as well.
    is_closed: bool,
}

// === impl FanOutProgress ===

impl FanOutProgress {
    pub(super) const fn new(deadlines: AttemptDeadlines) -> Self {
        Self { deadlines, state: Mutex::new(FanOutProgressState::new(deadlines.max_silence)) }
    }

    /// True if another image is worth a call: no failure forbids it, the shared budget allows it, and there is time to
    /// make one.
    pub(super) fn may_begin_image(&self) -> bool {
        let FanOutProgressState { budget_spent: spent, is_closed: closed, .. } = *self.lock();
        !closed && spent < FAILED_CALL_BUDGET && self.has_time_for_image()
    }

    /// True if an image that is begun now can be expected in time.
    pub(super) fn has_time_for_image(&self) -> bool {
        let seen = *self.lock();
        let time = if seen.has_begun { self.deadlines.time_left() } else { self.deadlines.time_to_begin() };
        time >= seen.expected_time()
    }

    /// Returns the number of all calls that gave no image and may have cost something.
    pub(super) fn budget_spent(&self) -> usize {
        self.lock().budget_spent
    }

    /// Notes that an image has begun.
    pub(super) fn note_image_begun(&self) {
        self.lock().has_begun = true;
    }

    /// True if smaller images would follow if the calls under way fail. An image that has begun is not made again.
    pub(super) fn may_fall_back(&self) -> bool {
        let FanOutProgressState { has_begun: begun, is_fallback_barred: barred, is_closed: closed, .. } = *self.lock();
        !begun && !barred && !closed
    }

    /// Notes the time in which an image was made.
    pub(super) fn note_image_made(&self, elapsed: Duration) {
        let mut seen = self.lock();
        seen.longest_success = seen.longest_success.max(Some(elapsed));
    }

    /// Notes the time after which a call failed.
    pub(super) fn note_call_failed(&self, failure: &AttemptFailure, elapsed: Duration) {
        let mut seen = self.lock();
        seen.budget_spent += usize::from(counts_against_budget(failure));
        seen.is_fallback_barred |= !fallback_order::allows_fallback(failure);
        if failure.class == FailureClass::X {
            seen.longest_loss = seen.longest_loss.max(elapsed);
        }
    }

    /// Prevents further calls.
    pub(super) fn stop_new_calls(&self) {
        self.lock().is_closed = true;
    }

    fn lock(&self) -> MutexGuard<'_, FanOutProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl FanOutProgressState ===

impl FanOutProgressState {
    const fn new(max_silence: Duration) -> Self {
        Self {
            max_silence,
            longest_success: None,
            longest_loss: Duration::ZERO,
            budget_spent: 0,
            has_begun: false,
            is_fallback_barred: false,
            is_closed: false,
        }
    }

    /// Returns the time that an image is expected to take.
    fn expected_time(self) -> Duration {
        let expected =
            self.longest_success.map_or(self.max_silence / EXPECTED_SHARE, |longest| longest + longest / MARGIN_SHARE);
        expected.max(self.longest_loss)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::gateway::upstream::FailureCause;

    const TOTAL: Duration = Duration::from_secs(295);

    fn progress(patience: u64) -> FanOutProgress {
        let (patience, end) = (Duration::from_secs(patience), Instant::now() + TOTAL);
        FanOutProgress::new(AttemptDeadlines {
            max_silence: patience,
            full_time: patience,
            complete_by: end,
            has_fallback: false,
        })
    }

    /// Returns the number of images that are begun one after the other, and of those that exist when the time is over.
    async fn one_by_one(patience: u64, seconds: u64, count: usize) -> (usize, usize) {
        let (siblings, took) = (progress(patience), Duration::from_secs(seconds));
        let (mut begun, mut made) = (0, 0);
        while begun < count && siblings.may_begin_image() {
            begun += 1;
            tokio::time::advance(took).await;
            if siblings.deadlines.complete_by >= Instant::now() {
                siblings.note_image_made(took);
                made += 1;
            }
        }
        (begun, made)
    }

    #[tokio::test(start_paused = true)]
    async fn no_image_is_begun_that_cannot_be_there_in_time() {
        assert_eq!(one_by_one(120, 40, 10).await, (7, 7), "an eighth would be cut off at its fifteenth second");
        assert_eq!(one_by_one(120, 20, 10).await, (10, 10));
        assert_eq!(one_by_one(300, 60, 10).await, (4, 4));
        assert_eq!(one_by_one(300, 290, 10).await, (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn before_an_image_is_there_a_share_of_the_patience_is_expected() {
        for (patience, late) in [(120, 30), (300, 75)] {
            let siblings = progress(patience);
            tokio::time::advance(TOTAL - Duration::from_secs(late)).await;
            assert!(siblings.has_time_for_image());
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(!siblings.has_time_for_image(), "{patience}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn until_one_has_begun_the_time_of_smaller_images_is_left_to_them() {
        let (patience, end) = (Duration::from_secs(60), Instant::now() + TOTAL);
        let siblings = FanOutProgress::new(AttemptDeadlines {
            max_silence: patience,
            full_time: patience,
            complete_by: end,
            has_fallback: true,
        });
        tokio::time::advance(TOTAL - patience / 2).await;
        assert!(siblings.has_time_for_image());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!siblings.has_time_for_image());
        siblings.note_image_begun();
        assert!(siblings.has_time_for_image());
    }

    #[tokio::test(start_paused = true)]
    async fn smaller_images_follow_only_if_none_has_begun_and_none_was_refused() {
        let after = |classes: &[FailureClass]| {
            let siblings = progress(120);
            let fail =
                |class| siblings.note_call_failed(&AttemptFailure::new(class, FailureCause::Timeout), Duration::ZERO);
            classes.iter().copied().for_each(fail);
            siblings
        };
        for classes in [&[][..], &[FailureClass::N], &[FailureClass::F, FailureClass::X]] {
            assert!(after(classes).may_fall_back(), "{classes:?}");
        }
        assert!(!after(&[FailureClass::X, FailureClass::R]).may_fall_back());
        let (begun, closed) = (after(&[]), after(&[]));
        begun.note_image_begun();
        closed.stop_new_calls();
        assert!(!begun.may_fall_back() && !closed.may_fall_back());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waited_in_vain_waits_as_long_again_or_not_at_all() {
        let (timeout, siblings) = (AttemptFailure::new(FailureClass::X, FailureCause::Timeout), progress(120));
        siblings.note_image_made(Duration::from_secs(10));
        siblings.note_call_failed(&timeout, Duration::from_secs(120));
        tokio::time::advance(TOTAL - Duration::from_secs(100)).await;
        assert!(!siblings.may_begin_image());
    }

    #[tokio::test(start_paused = true)]
    async fn all_of_them_share_one_budget() {
        let siblings = progress(120);
        let turned_away =
            AttemptFailure { status: Some(429), ..AttemptFailure::new(FailureClass::N, FailureCause::Unreachable) };
        (0..20).for_each(|_| siblings.note_call_failed(&turned_away, Duration::ZERO));
        assert!(siblings.may_begin_image());
        (0..FAILED_CALL_BUDGET).for_each(|_| {
            siblings.note_call_failed(&AttemptFailure::new(FailureClass::F, FailureCause::Failed), Duration::ZERO);
        });
        assert_eq!((siblings.may_begin_image(), siblings.budget_spent()), (false, FAILED_CALL_BUDGET));
    }
}
