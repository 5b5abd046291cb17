//! The key that the first start prints. It works with the simulator. It is disabled before the first use of an account
//! whose calls can cost something, because printed text may stay in a log for ever.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use chrono::Utc;

use crate::gateway::config::{AccountConfig, Config, UpstreamConfig};
use crate::gateway::store::{AuditContext, KeyChange, KeyId, KeyState, Store, StoreError, Timestamp};

/// The time for which the key is valid (our choice).
pub(crate) const FIRST_KEY_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// The name of the file in the data directory that shows that a first key was printed. It holds the id of the key; when
/// the key is disabled, the file becomes empty.
const FIRST_KEY_FILE: &str = "welcomed";

/// True if calls to the account can cost something.
pub(crate) fn is_billable(account: &AccountConfig) -> bool {
    !matches!(account.upstream, UpstreamConfig::Simulator)
}

/// True if a first key was printed before.
///
/// # Errors
///
/// Returns an error if the data directory cannot be read.
pub(crate) fn was_first_key_issued(config: &Config) -> std::io::Result<bool> {
    first_key_file(config).try_exists()
}

/// Records the id of the first key.
///
/// # Errors
///
/// Returns an error if the data directory cannot be written to.
pub(crate) fn record_first_key(config: &Config, key: &KeyId) -> std::io::Result<()> {
    std::fs::write(first_key_file(config), key.as_str())
}

/// The expiry of a first key that is created now.
pub(crate) fn first_key_expiry() -> Timestamp {
    Timestamp::from(Utc::now() + FIRST_KEY_LIFETIME)
}

/// Disables the first key if it is still valid; returns true if it was. Must be called before the first use of an
/// account whose calls can cost something.
///
/// # Errors
///
/// Returns an error if the store fails or the file with the id cannot be read; the account must not be used then.
pub(crate) async fn disable_first_key(
    config: &Config,
    store: &dyn Store,
    audit: &AuditContext,
) -> Result<bool, StoreError> {
    let marker = first_key_file(config);
    let id = match std::fs::read_to_string(&marker) {
        Ok(id) if id.is_empty() => return Ok(false),
        Ok(id) => id,
        // If there is no file, no key was printed.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => {
            let source = format!("{}: {error}", marker.display()).into();
            return Err(StoreError::Unavailable { doing: "looking up the key that the first start printed", source });
        }
    };
    let key = store.find_key(&id, None).await?;
    let is_active = key.is_some_and(|key| key.state(Timestamp::now()) == KeyState::Active);
    if is_active {
        store.change_key(audit, &id, None, &[KeyChange::Disable]).await?;
        tracing::warn!(
            "the key that the first start printed is disabled, because there is an upstream account that can incur \
             costs"
        );
    }
    if let Err(error) = std::fs::write(&marker, []) {
        tracing::warn!(%error, "the data directory cannot be written to");
    }
    Ok(is_active)
}

fn first_key_file(config: &Config) -> PathBuf {
    config.data_dir.join(FIRST_KEY_FILE)
}
