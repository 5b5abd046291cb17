//! The state that the calls of one job share if each of them makes one image: the time that an image takes, the number
//! of failed calls, and the decision whether one more is worth paying for. Pure but for a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::attempt::{BUDGET, costs};
use super::ladder;
use super::terms::AttemptDeadlines;
use crate::gateway::upstream::{AttemptFailure, FailureClass};

/// Before the first image, one is expected to take this share of the time for a request (ours): a call that is cut off
/// at the end of that time is paid for and thrown away.
const EXPECTED_SHARE: u32 = 4;
/// The next image may exceed the longest time so far by this share of it (ours).
const MARGIN_SHARE: u32 = 4;

/// The state that the calls of one job share.
#[derive(Debug)]
pub(super) struct FanOutProgress {
    terms: AttemptDeadlines,
    seen: Mutex<FanOutProgressState>,
}

/// The observations of the calls so far.
#[derive(Clone, Copy, Debug)]
struct FanOutProgressState {
    patience: Duration,
    /// The longest time of a call that gave an image, and of one that may have been paid for without giving any.
    made: Option<Duration>,
    lost: Duration,
    /// The number of calls that gave no image and may have cost something.
    spent: usize,
    /// True if one of the images has begun.
    begun: bool,
    /// True if one of the calls has failed in a way after which no smaller image follows.
    barred: bool,
    /// True if any further call would fail as well.
    closed: bool,
}

// === impl FanOutProgress ===

impl FanOutProgress {
    pub(super) const fn new(terms: AttemptDeadlines) -> Self {
        Self { terms, seen: Mutex::new(FanOutProgressState::new(terms.patience)) }
    }

    /// True if another image is worth a call: no failure forbids it, the shared budget allows it, and there is time to
    /// make one.
    pub(super) fn go_on(&self) -> bool {
        let FanOutProgressState { spent, closed, .. } = *self.seen();
        !closed && spent < BUDGET && self.has_time()
    }

    /// True if an image that is begun now can be expected in time.
    pub(super) fn has_time(&self) -> bool {
        let seen = *self.seen();
        let time = if seen.begun { self.terms.left() } else { self.terms.time_to_begin() };
        time >= seen.needed()
    }

    /// Returns the number of all calls that gave no image and may have cost something.
    pub(super) fn spent(&self) -> usize {
        self.seen().spent
    }

    /// Notes that an image has begun.
    pub(super) fn begun(&self) {
        self.seen().begun = true;
    }

    /// True if smaller images would follow if the calls under way fail. An image that has begun is not made again.
    pub(super) fn may_step_down(&self) -> bool {
        let FanOutProgressState { begun, barred, closed, .. } = *self.seen();
        !begun && !barred && !closed
    }

    /// Notes the time in which an image was made.
    pub(super) fn made(&self, took: Duration) {
        let mut seen = self.seen();
        seen.made = seen.made.max(Some(took));
    }

    /// Notes the time after which a call failed.
    pub(super) fn lost(&self, failure: &AttemptFailure, took: Duration) {
        let mut seen = self.seen();
        seen.spent += usize::from(costs(failure));
        seen.barred |= !ladder::may_be_lowered(failure);
        if failure.class == FailureClass::X {
            seen.lost = seen.lost.max(took);
        }
    }

    /// Prevents further calls.
    pub(super) fn close(&self) {
        self.seen().closed = true;
    }

    fn seen(&self) -> MutexGuard<'_, FanOutProgressState> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl FanOutProgressState ===

impl FanOutProgressState {
    const fn new(patience: Duration) -> Self {
        Self { patience, made: None, lost: Duration::ZERO, spent: 0, begun: false, barred: false, closed: false }
    }

    /// Returns the time that an image is expected to take.
    fn needed(self) -> Duration {
        let expected = self.made.map_or(self.patience / EXPECTED_SHARE, |longest| longest + longest / MARGIN_SHARE);
        expected.max(self.lost)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::gateway::upstream::FailureCause;

    const TOTAL: Duration = Duration::from_secs(295);

    fn siblings(patience: u64) -> FanOutProgress {
        let (patience, end) = (Duration::from_secs(patience), Instant::now() + TOTAL);
        FanOutProgress::new(AttemptDeadlines { patience, whole: patience, end, has_below: false })
    }

    /// Returns the number of images that are begun one after the other, and of those that exist when the time is over.
    async fn one_by_one(patience: u64, seconds: u64, count: usize) -> (usize, usize) {
        let (siblings, took) = (siblings(patience), Duration::from_secs(seconds));
        let (mut begun, mut made) = (0, 0);
        while begun < count && siblings.go_on() {
            begun += 1;
            tokio::time::advance(took).await;
            if siblings.terms.end >= Instant::now() {
                siblings.made(took);
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
            let siblings = siblings(patience);
            tokio::time::advance(TOTAL - Duration::from_secs(late)).await;
            assert!(siblings.has_time());
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(!siblings.has_time(), "{patience}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn until_one_has_begun_the_time_of_smaller_images_is_left_to_them() {
        let (patience, end) = (Duration::from_secs(60), Instant::now() + TOTAL);
        let siblings = FanOutProgress::new(AttemptDeadlines { patience, whole: patience, end, has_below: true });
        tokio::time::advance(TOTAL - patience / 2).await;
        assert!(siblings.has_time());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!siblings.has_time());
        siblings.begun();
        assert!(siblings.has_time());
    }

    #[tokio::test(start_paused = true)]
    async fn smaller_images_follow_only_if_none_has_begun_and_none_was_refused() {
        let after = |classes: &[FailureClass]| {
            let siblings = siblings(120);
            classes
                .iter()
                .for_each(|class| siblings.lost(&AttemptFailure::new(*class, FailureCause::Timeout), Duration::ZERO));
            siblings
        };
        for classes in [&[][..], &[FailureClass::N], &[FailureClass::F, FailureClass::X]] {
            assert!(after(classes).may_step_down(), "{classes:?}");
        }
        assert!(!after(&[FailureClass::X, FailureClass::R]).may_step_down());
        let (begun, closed) = (after(&[]), after(&[]));
        begun.begun();
        closed.close();
        assert!(!begun.may_step_down() && !closed.may_step_down());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waited_in_vain_waits_as_long_again_or_not_at_all() {
        let (timeout, siblings) = (AttemptFailure::new(FailureClass::X, FailureCause::Timeout), siblings(120));
        siblings.made(Duration::from_secs(10));
        siblings.lost(&timeout, Duration::from_secs(120));
        tokio::time::advance(TOTAL - Duration::from_secs(100)).await;
        assert!(!siblings.go_on());
    }

    #[tokio::test(start_paused = true)]
    async fn all_of_them_share_one_budget() {
        let siblings = siblings(120);
        let turned_away =
            AttemptFailure { status: Some(429), ..AttemptFailure::new(FailureClass::N, FailureCause::Unreachable) };
        (0..20).for_each(|_| siblings.lost(&turned_away, Duration::ZERO));
        assert!(siblings.go_on());
        (0..BUDGET)
            .for_each(|_| siblings.lost(&AttemptFailure::new(FailureClass::F, FailureCause::Failed), Duration::ZERO));
        assert_eq!((siblings.go_on(), siblings.spent()), (false, BUDGET));
    }
}
