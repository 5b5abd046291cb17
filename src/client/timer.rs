//! Time limits that the HTTP client does not have: the time until an answer begins, and the longest pause within it.
//!
//! A browser offers no timer, so there the service alone decides.

use std::time::Duration;

#[cfg(target_arch = "wasm32")]
pub(super) use browser::{ReadIdleTimer, within};
#[cfg(not(target_arch = "wasm32"))]
pub(super) use native::{ReadIdleTimer, within};

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
