//! The key that the first start prints. It works with the simulator. It is disabled before the first use of an account
//! whose calls can cost something, because printed text may stay in a log for ever.
//!
//! Its id is noted in the store, so that every node and every command finds it.

use std::time::Duration;

use chrono::Utc;

use crate::gateway::config::{AccountConfig, UpstreamConfig};
use crate::gateway::store::{AuditContext, KeyChange, KeyState, Store, StoreError, Timestamp};

/// The time for which the key is valid (our choice).
pub(crate) const FIRST_KEY_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// True if calls to the account can cost something.
pub(crate) fn is_billable(account: &AccountConfig) -> bool {
    !matches!(account.upstream, UpstreamConfig::Simulator)
}

/// The expiry of a first key that is created now.
pub(crate) fn first_key_expiry() -> Timestamp {
    Timestamp::from(Utc::now() + FIRST_KEY_LIFETIME)
}

/// True if the first key is still valid.
///
/// # Errors
///
/// Returns an error if the store fails.
pub(crate) async fn is_first_key_active(store: &dyn Store) -> Result<bool, StoreError> {
    match store.first_key().await? {
        Some(id) => is_active(store, id.as_str()).await,
        None => Ok(false),
    }
}

/// Disables the first key if it is still valid; returns true if it was. Must be called before the first use of an
/// account whose calls can cost something.
///
/// # Errors
///
/// Returns an error if the store fails; the account must not be used then.
pub(crate) async fn disable_first_key(store: &dyn Store, audit: &AuditContext) -> Result<bool, StoreError> {
    let Some(id) = store.first_key().await? else { return Ok(false) };
    let was_active = disable_if_active(store, audit, id.as_str()).await?;
    store.forget_first_key().await?;
    Ok(was_active)
}

async fn is_active(store: &dyn Store, id: &str) -> Result<bool, StoreError> {
    Ok(store.find_key(id, None).await?.is_some_and(|key| key.state(Timestamp::now()) == KeyState::Active))
}

async fn disable_if_active(store: &dyn Store, audit: &AuditContext, id: &str) -> Result<bool, StoreError> {
    let is_active = is_active(store, id).await?;
    if is_active {
        store.change_key(audit, id, None, &[KeyChange::Disable]).await?;
        tracing::warn!(
            "the key that the first start printed is disabled, because there is an upstream account that can incur \
             costs"
        );
    }
    Ok(is_active)
}
