//! The ticket: the right to make one attempt on one account now.

use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit};

use super::account::Account;

/// The right to make one attempt on one account. Dropping it, however that comes about, gives the place back.
#[derive(Debug)]
pub(crate) struct Lease {
    account: Arc<Account>,
    _places: Vec<OwnedSemaphorePermit>,
}

// === impl Lease ===

impl Lease {
    /// Waits for a place; a large image needs one of the few for large images too.
    pub(super) async fn take(account: Arc<Account>, large: bool) -> Self {
        let waiting = account.wait();
        let mut places = Vec::with_capacity(2);
        if large {
            places.extend(got(Arc::clone(account.large_places()).acquire_owned().await));
        }
        places.extend(got(Arc::clone(account.places()).acquire_owned().await));
        drop(waiting);
        Self { account, _places: places }
    }

    /// Whose turn it is.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }
}

/// The semaphores of an account are never closed.
fn got(place: Result<OwnedSemaphorePermit, AcquireError>) -> Option<OwnedSemaphorePermit> {
    place.ok()
}
