//! Passwords: the rules for them, and their hashes.
//!
//! Argon2id with the parameters that its crate recommends. It takes tens of milliseconds and 19 MiB, so only a few are
//! computed at once, and none on the threads that serve requests.

use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicUsize, Ordering};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash as Phc;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use tokio::sync::Semaphore;

use super::IdentityError;
use crate::gateway::store::{PasswordHash, StoreError};

/// The number of hashes that are computed at once (our choice).
const CONCURRENT_HASHES: usize = 2;
/// The length of a password in characters. The upper bound keeps clients from making the gateway hash megabytes.
const PASSWORD_LENGTH: std::ops::RangeInclusive<usize> = 12..=256;

/// Computes hashes, a few at a time.
pub(super) struct PasswordHashService {
    permits: Arc<Semaphore>,
    /// The number of hashes that were computed.
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
            let hashed: Result<Phc, _> = Argon2::default().hash_password(password.as_bytes());
            hashed.map(|hash| PasswordHash(hash.to_string())).map_err(|error| refused(error.to_string()))
        })
        .await?
    }

    /// Returns true if the hash is of this password. Without a hash the result is false after the same time.
    pub(super) async fn verify(&self, password: &str, hash: Option<PasswordHash>) -> Result<bool, StoreError> {
        // No stored password has another length, and megabytes are not worth hashing.
        let Some(hash) = hash.filter(|_| has_length(password)) else {
            self.hash("nobody's").await?;
            return Ok(false);
        };
        let password = password.to_owned();
        self.compute(move || {
            let hash = Phc::new(&hash.0).map_err(|error| refused(error.to_string()))?;
            Ok(Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
        })
        .await?
    }

    async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
        // The semaphore is never closed.
        let permit =
            Arc::clone(&self.permits).acquire_owned().await.map_err(|error| StoreError::Refused(error.into()))?;
        #[cfg(test)]
        self.computed.fetch_add(1, Ordering::Relaxed);
        // The permit moves into the work, which goes on if the caller leaves.
        let work = move || {
            let _turn = permit;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| StoreError::Refused(error.into()))
    }
}

/// Returns an error if a password cannot be chosen by the user with this name.
pub(super) fn check_password(password: &str, name: &str) -> Result<(), IdentityError> {
    if !has_length(password) {
        let (least, most) = (PASSWORD_LENGTH.start(), PASSWORD_LENGTH.end());
        return Err(IdentityError::field("password", format!("the password must have {least} to {most} characters")));
    }
    if password.to_lowercase() == name.to_lowercase() {
        return Err(IdentityError::field("password", "the password must not be the name"));
    }
    Ok(())
}

fn has_length(password: &str) -> bool {
    PASSWORD_LENGTH.contains(&password.chars().count())
}

fn refused(message: String) -> StoreError {
    StoreError::Refused(message.into())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Otherwise a client that connects, asks and leaves at once could cause any number of computations side by side.
    #[tokio::test]
    async fn work_that_nobody_waits_for_any_more_still_has_its_turn() {
        let passwords = PasswordHashService::new();
        let (began, begun) = channel();
        let (go, wait) = channel::<()>();
        let work = move || began.send(()).is_ok() && wait.recv().is_ok();
        {
            let mut asked = Box::pin(passwords.compute(work));
            let first = std::future::poll_fn(|context| std::task::Poll::Ready(asked.as_mut().poll(context))).await;
            assert!(first.is_pending());
        }
        begun.recv().unwrap();
        assert_eq!(passwords.permits.available_permits(), CONCURRENT_HASHES - 1);
        go.send(()).unwrap();
        let _all = passwords.permits.acquire_many(u32::try_from(CONCURRENT_HASHES).unwrap()).await.unwrap();
    }
}
