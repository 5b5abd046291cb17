//! Decides which master key unwraps the data keys, and creates the data keys if there are none yet.

use super::data_keys as rows;
use super::driver::SqlPool;
use super::error_conversion::during;
use super::statement::sql;
use crate::gateway::store::data_dir::{DataDir, run_blocking};
use crate::gateway::store::data_keys::{DataKeys, WrappedDataKeys};
use crate::gateway::store::key_file::KeyFile;
use crate::gateway::store::{MasterKey, StoreError};

/// Returns the data keys of the installation, and the configured master key if there is one. Creates the data keys if
/// the installation is new.
pub(in super::super) async fn load_or_create_data_keys(
    writer: &SqlPool,
    data_dir: &DataDir,
    configured_key: Option<MasterKey>,
) -> Result<(DataKeys, Option<MasterKey>), StoreError> {
    let Some(wrapped) = rows::load(writer).await? else {
        return create_data_keys(writer, data_dir, configured_key).await;
    };
    if let Some(master_key) = configured_key {
        return Ok((unlock_with_configured_key(&master_key, &wrapped, writer.database_name())?, Some(master_key)));
    }
    let owned_dir = data_dir.clone();
    Ok((run_blocking(move || KeyFile(&owned_dir).unlock(&wrapped)).await?, None))
}

async fn create_data_keys(
    writer: &SqlPool,
    data_dir: &DataDir,
    configured_key: Option<MasterKey>,
) -> Result<(DataKeys, Option<MasterKey>), StoreError> {
    let is_in_use: bool =
        sql("SELECT EXISTS (SELECT 1 FROM keys) OR EXISTS (SELECT 1 FROM accounts WHERE sealed IS NOT NULL) \
         OR EXISTS (SELECT 1 FROM tokens) OR EXISTS (SELECT 1 FROM replays)")
        .fetch_value(writer)
        .await
        .map_err(during("looking for keys"))?;
    if is_in_use {
        return Err(StoreError::damaged(format!(
            "{} has lost its data keys: restore it from a backup",
            writer.database_name()
        )));
    }
    let keys = DataKeys::random()?;
    if let Some(master_key) = configured_key {
        rows::insert(writer, &keys, &master_key).await?;
        return Ok((keys, Some(master_key)));
    }
    let owned_dir = data_dir.clone();
    let file_key = run_blocking(move || KeyFile(&owned_dir).read_or_create()).await?;
    rows::insert(writer, &keys, &file_key).await?;
    Ok((keys, None))
}

/// Returns the data keys, unwrapped with the key of the configuration.
pub(in super::super) fn unlock_with_configured_key(
    configured_key: &MasterKey,
    wrapped: &WrappedDataKeys,
    database_name: &str,
) -> Result<DataKeys, StoreError> {
    DataKeys::unwrap(configured_key, wrapped)?.ok_or_else(|| {
        StoreError::damaged(format!(
            "the setting master_key is not the key that {database_name} was encrypted with: set the right key, or, if that key is in the file master.key, remove the setting"
        ))
    })
}
