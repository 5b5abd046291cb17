//! Changes the master key. If the process dies at any moment, the data keys can still be unwrapped.

use super::SqlStore;
use super::data_key_unlock::unlock_with_configured_key;
use super::data_keys;
use crate::gateway::store::data_dir::run_blocking;
use crate::gateway::store::data_keys::WrappedDataKeys;
use crate::gateway::store::key_file::KeyFile;
use crate::gateway::store::{MasterKey, StoreError};

/// Changes the master key. Holds the lock for opening throughout, so that no other process reads the key files while
/// they do not match the database.
pub(super) async fn rotate(store: &SqlStore, next: Option<MasterKey>) -> Result<(), StoreError> {
    let data_dir = store.data_dir.clone();
    let lock = run_blocking(move || data_dir.lock_for_opening()).await?;
    let wrapped = data_keys::load(&store.writer).await?.ok_or_else(|| StoreError::damaged("no data key is left"))?;
    match &store.configured_key {
        Some(configured_key) => {
            let keys = unlock_with_configured_key(configured_key, &wrapped, store.writer.database_name())?;
            let next = next.ok_or(StoreError::MasterKey {
                detail: "the settings name it, so give the new one, and write it into the settings afterwards",
            })?;
            data_keys::rewrap(&store.writer, &keys, &next).await?;
        }
        None => rotate_file(store, wrapped, next).await?,
    }
    drop(lock);
    Ok(())
}

/// Writes the next key beside the current key, then changes the database, then renames the file of the next key: at
/// each moment, one of the two files holds the key of the database.
async fn rotate_file(store: &SqlStore, wrapped: WrappedDataKeys, next: Option<MasterKey>) -> Result<(), StoreError> {
    let next = next.map_or_else(MasterKey::random, Ok)?;
    let data_dir = store.data_dir.clone();
    let (keys, next) = run_blocking(move || {
        let key_file = KeyFile(&data_dir);
        let keys = key_file.unlock(&wrapped)?;
        key_file.write_next_key(&next)?;
        Ok((keys, next))
    })
    .await?;
    data_keys::rewrap(&store.writer, &keys, &next).await?;
    let data_dir = store.data_dir.clone();
    run_blocking(move || KeyFile(&data_dir).promote_next_key()).await
}
