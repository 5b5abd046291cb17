//! What the calls of one job know of each other, where each of them makes one image: how long an image takes, how many
//! calls have failed, and whether one more is worth being paid for. Pure but for a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::attempt::{BUDGET, costs};
use super::ladder;
use super::terms::Terms;
use crate::gateway::upstream::{Class, Failure};

/// As long as no image is there, one is expected to take this share of the time for a request (ours): a call that is cut
/// off at the end of that time is paid, and thrown away.
const EXPECTED_SHARE: u32 = 4;
/// The next image may take longer than the longest so far, by this share of it (ours).
const MARGIN_SHARE: u32 = 4;

/// What the calls of one job know of each other.
#[derive(Debug)]
pub(super) struct Siblings {
    terms: Terms,
    seen: Mutex<Seen>,
}

/// What has been seen of them so far.
#[derive(Clone, Copy, Debug)]
struct Seen {
    patience: Duration,
    /// The longest of those that gave an image, and of those that may have been paid for nothing.
    made: Option<Duration>,
    lost: Duration,
    /// Calls that gave none and may have cost something.
    spent: usize,
    /// One of the images has begun.
    begun: bool,
    /// One of the calls has failed so that no smaller image follows.
    barred: bool,
    /// Whatever comes next would fail as well.
    closed: bool,
}

// === impl Siblings ===

impl Siblings {
    pub(super) const fn new(terms: Terms) -> Self {
        Self { terms, seen: Mutex::new(Seen::new(terms.patience)) }
    }

    /// Whether another image is worth a call: nothing stands against it, the budget of all of them allows it, and there
    /// is time to make one.
    pub(super) fn go_on(&self) -> bool {
        let Seen { spent, closed, .. } = *self.seen();
        !closed && spent < BUDGET && self.has_time()
    }

    /// Whether an image that is begun now can be expected in time.
    pub(super) fn has_time(&self) -> bool {
        let seen = *self.seen();
        let time = if seen.begun { self.terms.left() } else { self.terms.time_to_begin() };
        time >= seen.needed()
    }

    /// Calls of all of them that gave no image and may have cost something.
    pub(super) fn spent(&self) -> usize {
        self.seen().spent
    }

    /// An image has begun.
    pub(super) fn begun(&self) {
        self.seen().begun = true;
    }

    /// True if smaller images would follow if nothing came of the calls under way. What has begun is not made again.
    pub(super) fn may_step_down(&self) -> bool {
        let Seen { begun, barred, closed, .. } = *self.seen();
        !begun && !barred && !closed
    }

    /// An image was made, in this time.
    pub(super) fn made(&self, took: Duration) {
        let mut seen = self.seen();
        seen.made = seen.made.max(Some(took));
    }

    /// A call has failed after this time.
    pub(super) fn lost(&self, failure: &Failure, took: Duration) {
        let mut seen = self.seen();
        seen.spent += usize::from(costs(failure));
        seen.barred |= !ladder::may_be_lowered(failure);
        if failure.class == Class::X {
            seen.lost = seen.lost.max(took);
        }
    }

    /// No further call is begun.
    pub(super) fn close(&self) {
        self.seen().closed = true;
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Seen ===

impl Seen {
    const fn new(patience: Duration) -> Self {
        Self { patience, made: None, lost: Duration::ZERO, spent: 0, begun: false, barred: false, closed: false }
    }

    /// So much time an image is expected to take.
    fn needed(self) -> Duration {
        let expected = self.made.map_or(self.patience / EXPECTED_SHARE, |longest| longest + longest / MARGIN_SHARE);
        expected.max(self.lost)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::gateway::upstream::Cause;

    const TOTAL: Duration = Duration::from_secs(295);

    fn siblings(patience: u64) -> Siblings {
        let (patience, end) = (Duration::from_secs(patience), Instant::now() + TOTAL);
        Siblings::new(Terms { patience, whole: patience, end, has_below: false })
    }

    /// The number of images that are begun one behind the other, and of those that exist when the time is over.
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
        let siblings = Siblings::new(Terms { patience, whole: patience, end, has_below: true });
        tokio::time::advance(TOTAL - patience / 2).await;
        assert!(siblings.has_time());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!siblings.has_time());
        siblings.begun();
        assert!(siblings.has_time());
    }

    #[tokio::test(start_paused = true)]
    async fn smaller_images_follow_only_if_none_has_begun_and_none_was_refused() {
        let after = |classes: &[Class]| {
            let siblings = siblings(120);
            classes.iter().for_each(|class| siblings.lost(&Failure::new(*class, Cause::Timeout), Duration::ZERO));
            siblings
        };
        for classes in [&[][..], &[Class::N], &[Class::F, Class::X]] {
            assert!(after(classes).may_step_down(), "{classes:?}");
        }
        assert!(!after(&[Class::X, Class::R]).may_step_down());
        let (begun, closed) = (after(&[]), after(&[]));
        begun.begun();
        closed.close();
        assert!(!begun.may_step_down() && !closed.may_step_down());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waited_in_vain_waits_as_long_again_or_not_at_all() {
        let (timeout, siblings) = (Failure::new(Class::X, Cause::Timeout), siblings(120));
        siblings.made(Duration::from_secs(10));
        siblings.lost(&timeout, Duration::from_secs(120));
        tokio::time::advance(TOTAL - Duration::from_secs(100)).await;
        assert!(!siblings.go_on());
    }

    #[tokio::test(start_paused = true)]
    async fn all_of_them_share_one_budget() {
        let siblings = siblings(120);
        let turned_away = Failure { status: Some(429), ..Failure::new(Class::N, Cause::Unreachable) };
        (0..20).for_each(|_| siblings.lost(&turned_away, Duration::ZERO));
        assert!(siblings.go_on());
        (0..BUDGET).for_each(|_| siblings.lost(&Failure::new(Class::F, Cause::Failed), Duration::ZERO));
        assert_eq!((siblings.go_on(), siblings.spent()), (false, BUDGET));
    }
}
