//! The counts of password attempts, if several nodes share them.

use std::time::Duration;

use async_trait::async_trait;

use super::{SecretHash, StoreError};

/// The buckets of password attempts of all nodes that share a database. Each bucket loses one attempt per interval.
#[async_trait]
pub(crate) trait SharedAttempts: Send + Sync {
    /// Adds an attempt to all of these buckets. If one of them is full, changes none, and returns the time to wait.
    async fn add_attempt(&self, buckets: &[AttemptBucket]) -> Result<Option<Duration>, StoreError>;

    /// Removes an attempt from these buckets.
    async fn remove_attempt(&self, buckets: &[AttemptBucket]) -> Result<(), StoreError>;
}

/// A bucket of attempts.
#[derive(Clone, Debug)]
pub(crate) struct AttemptBucket {
    /// The keyed hash of what the attempts have in common. It is not stored itself, because a name may be a password
    /// that was typed into the wrong field.
    pub(crate) hash: SecretHash,
    /// The time in which the bucket loses one attempt.
    pub(crate) interval: Duration,
    /// The number of attempts that it can hold.
    pub(crate) burst: u32,
    /// True if a removal empties the bucket.
    pub(crate) is_emptied: bool,
}
