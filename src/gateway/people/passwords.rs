//! Passwords: the rules for them, and their hashes.
//!
//! The hash is Argon2id with the parameters that its crate recommends. One hash takes tens of milliseconds and 19 MiB,
//! so only a few hashes are computed at once, and only on blocking threads.

use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicUsize, Ordering};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash as Phc;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use tokio::sync::Semaphore;

use super::IdentityError;
use crate::gateway::store::{PasswordHash, StoreError};

/// The maximum number of hashes that are computed at once (our choice).
const CONCURRENT_HASHES: usize = 2;
/// The allowed length of a password in characters (our choice). The maximum keeps clients from making the gateway hash
/// megabytes.
const PASSWORD_LENGTH: std::ops::RangeInclusive<usize> = 12..=256;

/// Computes password hashes, at most [`CONCURRENT_HASHES`] at a time.
pub(super) struct PasswordHashService {
    permits: Arc<Semaphore>,
    /// The number of computed hashes.
    #[cfg(test)]
    pub(super) computed: AtomicUsize,
}

// === impl PasswordHashService ===

impl PasswordHashService {
    pub(super) fn new() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(CONCURRENT_HASHES)),
            #[cfg(test)]
            computed: AtomicUsize::new(0),
        }
    }

    /// Returns the hash of a password, as it is stored.
    pub(super) async fn hash(&self, password: &str) -> Result<PasswordHash, StoreError> {
        let password = password.to_owned();
        self.compute(move || {
            let result: Result<Phc, _> = Argon2::default().hash_password(password.as_bytes());
            result.map(|hash| PasswordHash(hash.to_string())).map_err(|error| hash_error(error.to_string()))
        })
        .await?
    }

    /// Returns true if this is the hash of the password. Without a hash, the result is false after the same time.
    pub(super) async fn verify(&self, password: &str, hash: Option<PasswordHash>) -> Result<bool, StoreError> {
        // A password of an invalid length is never right, because none is stored, and hashing megabytes would be
        // expensive. Hashing an arbitrary text instead takes as long as a verification.
        let Some(hash) = hash.filter(|_| has_valid_length(password)) else {
            self.hash("nobody's").await?;
            return Ok(false);
        };
        let password = password.to_owned();
        self.compute(move || {
            let hash = Phc::new(&hash.0).map_err(|error| hash_error(error.to_string()))?;
            Ok(Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
        })
        .await?
    }

    /// Runs the work on a blocking thread, when one of the permits is free.
    async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
        // The semaphore is never closed.
        let permit =
            Arc::clone(&self.permits).acquire_owned().await.map_err(|error| StoreError::Refused(error.into()))?;
        #[cfg(test)]
        self.computed.fetch_add(1, Ordering::Relaxed);
        // The permit moves into the closure, because the work continues even if its caller stops waiting.
        let work = move || {
            let _permit = permit;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| StoreError::Refused(error.into()))
    }
}

/// Returns an error if the user with this name must not choose this password.
pub(super) fn check_password(password: &str, name: &str) -> Result<(), IdentityError> {
    if !has_valid_length(password) {
        let (min, max) = (PASSWORD_LENGTH.start(), PASSWORD_LENGTH.end());
        return Err(IdentityError::field("password", format!("the password must have {min} to {max} characters")));
    }
    if password.to_lowercase() == name.to_lowercase() {
        return Err(IdentityError::field("password", "the password must not be the name"));
    }
    Ok(())
}

/// True if the password has an allowed length.
fn has_valid_length(password: &str) -> bool {
    PASSWORD_LENGTH.contains(&password.chars().count())
}

fn hash_error(message: String) -> StoreError {
    StoreError::Refused(message.into())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Otherwise, a client that sends requests and disconnects at once could cause any number of parallel computations.
    #[tokio::test]
    async fn abandoned_work_keeps_its_permit() {
        let passwords = PasswordHashService::new();
        let (started_sender, started_receiver) = channel();
        let (finish_sender, finish_receiver) = channel::<()>();
        let work = move || started_sender.send(()).is_ok() && finish_receiver.recv().is_ok();
        {
            let mut abandoned = Box::pin(passwords.compute(work));
            let first = std::future::poll_fn(|context| std::task::Poll::Ready(abandoned.as_mut().poll(context))).await;
            assert!(first.is_pending());
        }
        started_receiver.recv().unwrap();
        assert_eq!(passwords.permits.available_permits(), CONCURRENT_HASHES - 1);
        finish_sender.send(()).unwrap();
        let _all_permits = passwords.permits.acquire_many(u32::try_from(CONCURRENT_HASHES).unwrap()).await.unwrap();
    }
}
