//! Time limits that the HTTP client does not have: the time until an answer begins, and the longest pause within it.
//!
//! A browser offers no timer, so there the service alone decides.

use std::time::Duration;

#[cfg(target_arch = "wasm32")]
pub(super) use browser::{Deadline, ReadIdleTimer, within};
#[cfg(not(target_arch = "wasm32"))]
pub(super) use native::{Deadline, ReadIdleTimer, within};

/// Returns the result of the future, or `None` if the deadline passes before the future is ready. The future is boxed,
/// because both cases would hold it.
pub(super) async fn before<T>(deadline: Option<Deadline>, future: impl Future<Output = T>) -> Option<T> {
    let future = Box::pin(future);
    match deadline {
        Some(deadline) => within(deadline.time_left(), future).await,
        None => Some(future.await),
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod native {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::time::{Instant, Sleep};

    use super::Duration;

    /// Returns the result of the future, or `None` if the future is not ready within the limit.
    pub(in crate::client) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(limit, future).await.ok()
    }

    /// The end of a call that has a limit.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::client) struct Deadline {
        limit: Duration,
        end: Instant,
    }

    impl Deadline {
        /// Creates the deadline of a call that begins now; `None` if it exceeds the range of the clock.
        pub(in crate::client) fn after(limit: Duration) -> Option<Self> {
            Instant::now().checked_add(limit).map(|end| Self { limit, end })
        }

        /// Returns the limit of the whole call.
        pub(in crate::client) fn limit(self) -> Duration {
            self.limit
        }

        pub(in crate::client) fn time_left(self) -> Duration {
            self.end.saturating_duration_since(Instant::now())
        }
    }

    /// Measures the time since the last bytes arrived.
    #[derive(Debug)]
    pub(in crate::client) struct ReadIdleTimer {
        limit: Duration,
        /// `None` until the first poll, because a runtime is certain to exist only then.
        sleep: Option<Pin<Box<Sleep>>>,
    }

    impl ReadIdleTimer {
        pub(in crate::client) fn new(limit: Duration) -> Self {
            Self { limit, sleep: None }
        }

        /// Restarts the measurement, because bytes have arrived.
        pub(in crate::client) fn restart(&mut self) {
            // If the sum exceeds the range of the clock, the limit is so far in the future that it is never reached.
            if let (Some(sleep), Some(end)) = (&mut self.sleep, Instant::now().checked_add(self.limit)) {
                sleep.as_mut().reset(end);
            }
        }

        /// Returns `Ready` if no bytes have arrived within the limit.
        pub(in crate::client) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
            let limit = self.limit;
            self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit))).as_mut().poll(cx)
        }
    }
}

#[cfg(target_arch = "wasm32")]
mod browser {
    use std::task::{Context, Poll};

    use super::Duration;

    pub(in crate::client) async fn within<T>(_: Duration, future: impl Future<Output = T>) -> Option<T> {
        Some(future.await)
    }

    /// A limit that is never reached.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::client) struct Deadline(Duration);

    impl Deadline {
        pub(in crate::client) fn after(limit: Duration) -> Option<Self> {
            Some(Self(limit))
        }

        pub(in crate::client) fn limit(self) -> Duration {
            self.0
        }

        pub(in crate::client) fn time_left(self) -> Duration {
            self.0
        }
    }

    #[derive(Debug)]
    pub(in crate::client) struct ReadIdleTimer;

    impl ReadIdleTimer {
        pub(in crate::client) fn new(_: Duration) -> Self {
            Self
        }

        pub(in crate::client) fn restart(&mut self) {}

        pub(in crate::client) fn poll(&mut self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }
}
