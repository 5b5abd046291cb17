//! Limits of time that the HTTP client does not know: until an answer begins, and how long it may be silent.
//!
//! In a browser there is no timer, so there the service alone decides.

use std::time::Duration;

#[cfg(target_arch = "wasm32")]
pub(super) use browser::{Silence, within};
#[cfg(not(target_arch = "wasm32"))]
pub(super) use native::{Silence, within};

#[cfg(not(target_arch = "wasm32"))]
mod native {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::time::{Instant, Sleep};

    use super::Duration;

    /// What comes in time; nothing where it does not.
    pub(in crate::client) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(limit, future).await.ok()
    }

    /// Measures how long nothing has come.
    #[derive(Debug)]
    pub(in crate::client) struct Silence {
        limit: Duration,
        /// Made when it is first waited for, because that is when there is a runtime.
        sleep: Option<Pin<Box<Sleep>>>,
    }

    impl Silence {
        pub(in crate::client) fn new(limit: Duration) -> Self {
            Self { limit, sleep: None }
        }

        /// Something has come.
        pub(in crate::client) fn broken(&mut self) {
            // Far in the future is as good as never, where the sum is beyond what a clock can show.
            if let (Some(sleep), Some(end)) = (&mut self.sleep, Instant::now().checked_add(self.limit)) {
                sleep.as_mut().reset(end);
            }
        }

        /// Whether it has lasted for too long.
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
    pub(in crate::client) struct Silence;

    impl Silence {
        pub(in crate::client) fn new(_: Duration) -> Self {
            Self
        }

        pub(in crate::client) fn broken(&mut self) {}

        pub(in crate::client) fn poll(&mut self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }
}
