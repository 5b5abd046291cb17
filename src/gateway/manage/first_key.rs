//! The key that the first start prints: good for the simulator, and disabled before the first account is used that can
//! cost something. What is printed may lie in a log for ever.

use std::path::PathBuf;
use std::time::Duration;

use chrono::Utc;

use crate::gateway::config::{Account, Config, Upstream};
use crate::gateway::store::{Act, KeyChange, KeyId, KeyState, KeyStore as _, SqliteStore, StoreError, Timestamp};

/// How long the key is good at most.
pub(crate) const FIRST_KEY_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Its presence says that the first key was handed out; it holds the key's id until the key is disabled.
const WELCOMED: &str = "welcomed";

/// Whether calls to the account can cost something.
pub(crate) fn is_real(account: &Account) -> bool {
    !matches!(account.upstream, Upstream::Simulator)
}

/// Whether a first key was ever handed out.
pub(crate) fn was_welcomed(config: &Config) -> bool {
    marker(config).exists()
}

/// Notes that this is the first key.
///
/// # Errors
///
/// Where the data directory cannot be written to.
pub(crate) fn remember_first_key(config: &Config, key: &KeyId) -> std::io::Result<()> {
    std::fs::write(marker(config), key.as_str())
}

/// When a first key that is made now ends.
pub(crate) fn first_key_end() -> Timestamp {
    Timestamp::from(Utc::now() + FIRST_KEY_LIFE)
}

/// Disables the first key if it is still good. To be called before an account is used that can cost something. Says
/// whether it was disabled now.
///
/// # Errors
///
/// Where the store has trouble; the account must not be used then.
pub(crate) async fn retire_first_key(config: &Config, store: &SqliteStore, act: &Act) -> Result<bool, StoreError> {
    let marker = marker(config);
    // Without it no key was printed.
    let Ok(id) = std::fs::read_to_string(&marker) else { return Ok(false) };
    if id.is_empty() {
        return Ok(false);
    }
    let key = store.find_key(&id, None).await?;
    let active = key.is_some_and(|key| key.state(Timestamp::now()) == KeyState::Active);
    if active {
        store.change_key(act, &id, None, &[KeyChange::Disable]).await?;
        tracing::warn!(
            "the key that the first start printed is disabled: an upstream account that can cost something is there"
        );
    }
    if let Err(error) = std::fs::write(&marker, []) {
        tracing::warn!(%error, "the data directory cannot be written to");
    }
    Ok(active)
}

fn marker(config: &Config) -> PathBuf {
    config.data_dir.join(WELCOMED)
}
