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
    ///
    /// # Errors
    ///
    /// Where no lease is given any more.
    pub(super) async fn take(account: Arc<Account>, large: bool) -> Result<Self, AcquireError> {
        let waiting = account.wait();
        let mut places = Vec::with_capacity(2);
        if large {
            places.push(Arc::clone(account.large_places()).acquire_owned().await?);
        }
        places.push(Arc::clone(account.places()).acquire_owned().await?);
        drop(waiting);
        Ok(Self { account, _places: places })
    }

    /// Whose turn it is.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }
}
