//! The state that the calls of one job share if each of them makes one image: the time that an image takes, the number
//! of failed calls, and the decision whether another call is worth paying for. It does no I/O, but reads the clock.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::attempt_deadlines::AttemptDeadlines;
use super::attempt_history::{FAILED_CALLS_MAX, is_counted_failure};
use super::fallback_order;
use crate::gateway::ledger::AttemptClass;
use crate::gateway::upstream::AttemptFailure;

/// Before the first image is made, an image is expected to take `max_silence` divided by this number (our choice). A
/// call that is cut off at the deadline of the job is paid for, and its image is lost.
const EXPECTED_TIME_DIVISOR: u32 = 4;
/// The next image is expected to exceed the longest time so far by that time divided by this number (our choice).
const MARGIN_DIVISOR: u32 = 4;

/// The state that the calls of one job share.
#[derive(Debug)]
pub(super) struct FanOutProgress {
    deadlines: AttemptDeadlines,
    state: Mutex<FanOutProgressState>,
}

/// The observations of the calls so far.
#[derive(Clone, Copy, Debug)]
struct FanOutProgressState {
    /// The longest silence of an upstream during a call.
    max_silence: Duration,
    /// The longest time of a call that gave an image.
    longest_success: Option<Duration>,
    /// The longest time of a call whose failure is ambiguous (an image may have been paid for).
    longest_loss: Duration,
    /// The number of failed calls that count, because they may have cost something.
    counted_failures: usize,
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

    /// True if another image is worth a call: no failure forbids it, the shared limit of failed calls is not reached,
    /// and there is time for the image.
    pub(super) fn may_begin_image(&self) -> bool {
        let FanOutProgressState { counted_failures, is_closed, .. } = *self.lock();
        !is_closed && counted_failures < FAILED_CALLS_MAX && self.has_time_for_image()
    }

    /// True if an image whose call begins now can be expected in time.
    pub(super) fn has_time_for_image(&self) -> bool {
        let state = *self.lock();
        let time = if state.has_begun { self.deadlines.time_left() } else { self.deadlines.time_to_begin() };
        time >= state.expected_time()
    }

    /// Returns the number of failed calls that count, because they may have cost something.
    pub(super) fn counted_failures(&self) -> usize {
        self.lock().counted_failures
    }

    /// Notes that an image has begun.
    pub(super) fn note_image_begun(&self) {
        self.lock().has_begun = true;
    }

    /// True if smaller images may follow after the calls in flight have failed. If an image has begun, none follow.
    pub(super) fn may_fall_back(&self) -> bool {
        let FanOutProgressState { has_begun, is_fallback_barred, is_closed, .. } = *self.lock();
        !has_begun && !is_fallback_barred && !is_closed
    }

    /// Notes that an image was made, and the time of its call.
    pub(super) fn note_image_made(&self, elapsed: Duration) {
        let mut state = self.lock();
        state.longest_success = state.longest_success.max(Some(elapsed));
    }

    /// Notes that a call failed, and the time after which it failed.
    pub(super) fn note_call_failed(&self, failure: &AttemptFailure, elapsed: Duration) {
        let mut state = self.lock();
        state.counted_failures += usize::from(is_counted_failure(failure));
        state.is_fallback_barred |= !fallback_order::allows_fallback(failure);
        if failure.class() == AttemptClass::MaybePaid {
            state.longest_loss = state.longest_loss.max(elapsed);
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
            counted_failures: 0,
            has_begun: false,
            is_fallback_barred: false,
            is_closed: false,
        }
    }

    /// Returns the time that an image is expected to take.
    fn expected_time(self) -> Duration {
        let first = self.max_silence / EXPECTED_TIME_DIVISOR;
        let expected = self.longest_success.map_or(first, |longest| longest + longest / MARGIN_DIVISOR);
        expected.max(self.longest_loss)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::gateway::upstream::FailureCause;

    const TOTAL: Duration = Duration::from_secs(295);

    fn new_progress(max_silence: u64) -> FanOutProgress {
        let (max_silence, end) = (Duration::from_secs(max_silence), Instant::now() + TOTAL);
        FanOutProgress::new(AttemptDeadlines {
            max_silence,
            full_time: max_silence,
            complete_by: end,
            shares_time: false,
        })
    }

    /// Begins images one after the other, and returns the number of images that were begun and that were made in time.
    async fn images_in_sequence(max_silence: u64, seconds: u64, count: usize) -> (usize, usize) {
        let (progress, elapsed) = (new_progress(max_silence), Duration::from_secs(seconds));
        let (mut begun_count, mut made_count) = (0, 0);
        while begun_count < count && progress.may_begin_image() {
            begun_count += 1;
            tokio::time::advance(elapsed).await;
            if progress.deadlines.complete_by >= Instant::now() {
                progress.note_image_made(elapsed);
                made_count += 1;
            }
        }
        (begun_count, made_count)
    }

    #[tokio::test(start_paused = true)]
    async fn no_image_begins_without_enough_time() {
        assert_eq!(
            images_in_sequence(120, 40, 10).await,
            (7, 7),
            "an eighth image would be cut off after fifteen seconds"
        );
        assert_eq!(images_in_sequence(120, 20, 10).await, (10, 10));
        assert_eq!(images_in_sequence(300, 60, 10).await, (4, 4));
        assert_eq!(images_in_sequence(300, 290, 10).await, (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn before_the_first_image_a_share_of_the_limit_is_expected() {
        for (max_silence, remaining) in [(120, 30), (300, 75)] {
            let progress = new_progress(max_silence);
            tokio::time::advance(TOTAL - Duration::from_secs(remaining)).await;
            assert!(progress.has_time_for_image());
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(!progress.has_time_for_image(), "{max_silence}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_for_fallbacks_is_reserved_until_an_image_begins() {
        let (max_silence, end) = (Duration::from_secs(60), Instant::now() + TOTAL);
        let progress = FanOutProgress::new(AttemptDeadlines {
            max_silence,
            full_time: max_silence,
            complete_by: end,
            shares_time: true,
        });
        tokio::time::advance(TOTAL - max_silence / 2).await;
        assert!(progress.has_time_for_image());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!progress.has_time_for_image());
        progress.note_image_begun();
        assert!(progress.has_time_for_image());
    }

    #[tokio::test(start_paused = true)]
    async fn fallbacks_follow_only_if_no_image_began_or_was_refused() {
        let after = |classes: &[AttemptClass]| {
            let progress = new_progress(120);
            let fail = |class| progress.note_call_failed(&AttemptFailure::of_class(class), Duration::ZERO);
            classes.iter().copied().for_each(fail);
            progress
        };
        for classes in [&[][..], &[AttemptClass::NothingDone], &[AttemptClass::ReportedFailed, AttemptClass::MaybePaid]]
        {
            assert!(after(classes).may_fall_back(), "{classes:?}");
        }
        assert!(!after(&[AttemptClass::MaybePaid, AttemptClass::Refused]).may_fall_back());
        let (with_image, stopped) = (after(&[]), after(&[]));
        with_image.note_image_begun();
        stopped.stop_new_calls();
        assert!(!with_image.may_fall_back() && !stopped.may_fall_back());
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_raises_the_expected_time_of_an_image() {
        let (timeout, progress) = (AttemptFailure::new(FailureCause::Timeout), new_progress(120));
        progress.note_image_made(Duration::from_secs(10));
        progress.note_call_failed(&timeout, Duration::from_secs(120));
        tokio::time::advance(TOTAL - Duration::from_secs(100)).await;
        assert!(!progress.may_begin_image());
    }

    #[tokio::test(start_paused = true)]
    async fn all_calls_share_one_limit_of_failures() {
        let progress = new_progress(120);
        let refused = AttemptFailure { status: Some(429), ..AttemptFailure::new(FailureCause::NoConnection) };
        (0..20).for_each(|_| progress.note_call_failed(&refused, Duration::ZERO));
        assert!(progress.may_begin_image());
        (0..FAILED_CALLS_MAX).for_each(|_| {
            progress.note_call_failed(&AttemptFailure::new(FailureCause::Failed), Duration::ZERO);
        });
        assert_eq!((progress.may_begin_image(), progress.counted_failures()), (false, FAILED_CALLS_MAX));
    }
}
