//! Changes the master key, safely even if a process dies in the middle.

use super::open::blocking;
use super::unlock::unlock_given;
use super::{SqliteStore, data_keys};
use crate::gateway::store::data_keys::WrappedDataKeys;
use crate::gateway::store::key_file::KeyFile;
use crate::gateway::store::{MasterKey, StoreError};

/// The lock for opening is held throughout, so that no process reads the files while they and the database disagree.
pub(super) async fn rotate(store: &SqliteStore, next: Option<MasterKey>) -> Result<(), StoreError> {
    let data_dir = store.data_dir.clone();
    let lock = blocking(move || data_dir.lock_for_opening()).await?;
    let wrapped = data_keys::load(&store.writer).await?.ok_or_else(|| StoreError::damaged("no data key is left"))?;
    match &store.given {
        Some(given) => {
            let keys = unlock_given(given, &wrapped)?;
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
    let (keys, next) = blocking(move || {
        let file = KeyFile(&data_dir);
        let keys = file.unlock(&wrapped)?;
        file.lay_beside(&next)?;
        Ok((keys, next))
    })
    .await?;
    data_keys::rewrap(&store.writer, &keys, &next).await?;
    let data_dir = store.data_dir.clone();
    blocking(move || KeyFile(&data_dir).adopt()).await
}
