//! The limits on the time of one request, and of each image of the fallback order within it. Pure but for the clock.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::siblings::Siblings;
use crate::gateway::rules::Task;
use crate::tables;

/// Of the time that is left, a call for an image that has a smaller one below it may take this share until the image
/// begins (ours): of the ten minutes of a request the largest one has five, as the specification has it.
const BEGIN_SHARE: u32 = 2;
/// A smaller image is asked for only if this share of the time for a request is left (ours): a call that is cut off at
/// the end of that time is paid, and thrown away.
const WORTH_SHARE: u32 = 8;

/// The limits on the time of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// The longest silence of an upstream at work.
    pub(super) patience: Duration,
    /// The answer must be complete.
    pub(super) end: Instant,
    /// An image that does not begin is given up for a smaller one.
    pub(super) has_below: bool,
}

// === impl Terms ===

impl Terms {
    /// The limits of a request that begins now.
    pub(super) fn new(task: Task<'_>, patience: Duration) -> Self {
        // A text model that says something all the time may talk for longer.
        let total = match task {
            Task::Response(job) if job.stream() => Duration::from_secs(tables::RESPONSE_STREAM_SECONDS).max(patience),
            Task::Images(_) | Task::Response(_) => patience,
        };
        Self { patience, end: Instant::now() + total, has_below: false }
    }

    /// The limits of an image that begins now, and has smaller ones below it or none: an upstream that is silent must not
    /// take their time too.
    pub(super) fn shared(self, has_below: bool) -> Self {
        Self { patience: self.patience.min(self.left()), has_below, ..self }
    }

    /// True if there is time for a smaller image.
    pub(super) fn is_worth_more(&self) -> bool {
        self.left() >= self.patience / WORTH_SHARE
    }

    /// The time that a call has until its image begins, if it is made now.
    pub(super) fn time_to_begin(&self) -> Duration {
        if self.has_below { self.left() / BEGIN_SHARE } else { self.left() }
    }

    /// Resolves when the image of a call that is made now is given up for a smaller one. Never if one of its siblings has
    /// begun, because what is made is not made again.
    pub(super) fn given_up(&self, siblings: Option<&Siblings>) -> impl Future<Output = ()> {
        let moment = self.has_below.then(|| Instant::now() + self.time_to_begin());
        async move {
            match moment {
                Some(moment) => sleep_until(moment).await,
                None => pending().await,
            }
            if siblings.is_some_and(Siblings::has_begun) {
                pending::<()>().await;
            }
        }
    }

    pub(super) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    const TEN_MINUTES: Duration = Duration::from_secs(600);

    fn whole() -> Terms {
        Terms { patience: TEN_MINUTES, end: Instant::now() + TEN_MINUTES, has_below: false }
    }

    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_is_silent_each_time_leaves_time_for_every_step() {
        let (whole, begun) = (whole(), Instant::now());
        let mut waited = Vec::new();
        for has_below in [true, true, false] {
            assert!(whole.is_worth_more());
            let terms = whole.shared(has_below);
            assert_eq!(terms.end, whole.end, "an image that has begun may take all of the time");
            assert_eq!(terms.patience, whole.left());
            let silent = timeout(terms.patience, terms.given_up(None)).await;
            assert_eq!(silent.is_ok(), has_below);
            waited.push(begun.elapsed().as_secs());
        }
        assert_eq!(waited, [300, 450, 600]);
        assert!(!whole.is_worth_more());
    }

    #[tokio::test(start_paused = true)]
    async fn no_smaller_image_is_asked_for_that_cannot_be_there_in_time() {
        let whole = whole();
        advance(Duration::from_secs(525)).await;
        assert!(whole.is_worth_more());
        advance(Duration::from_millis(1)).await;
        assert!(!whole.is_worth_more());
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_begun_is_not_given_up() {
        let terms = whole().shared(true);
        let siblings = Siblings::new(terms);
        timeout(TEN_MINUTES, terms.given_up(Some(&siblings))).await.expect("none has begun");
        siblings.begun();
        timeout(TEN_MINUTES, terms.given_up(Some(&siblings))).await.unwrap_err();
    }
}
