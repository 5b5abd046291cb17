//! Changes the master key, safely even if a process dies in the middle.

use super::data_key_unlock::unlock_with_configured_key;
use super::open::run_blocking;
use super::{SqliteStore, data_keys};
use crate::gateway::store::data_keys::WrappedDataKeys;
use crate::gateway::store::key_file::KeyFile;
use crate::gateway::store::{MasterKey, StoreError};

/// The lock for opening is held throughout, so that no process reads the files while they and the database disagree.
pub(super) async fn rotate(store: &SqliteStore, next: Option<MasterKey>) -> Result<(), StoreError> {
    let data_dir = store.data_dir.clone();
    let lock = run_blocking(move || data_dir.lock_for_opening()).await?;
    let wrapped = data_keys::load(&store.writer).await?.ok_or_else(|| StoreError::damaged("no data key is left"))?;
    match &store.configured_key {
        Some(given) => {
            let keys = unlock_with_configured_key(given, &wrapped)?;
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

/// Writes the next key beside the present one, then changes the database, then the name of the file: at each point one
/// of both files opens the database.
async fn rotate_file(store: &SqliteStore, wrapped: WrappedDataKeys, next: Option<MasterKey>) -> Result<(), StoreError> {
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
