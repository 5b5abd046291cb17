//! Decides which master key opens the data keys, and makes the data keys if there are none yet.

use sqlx::SqlitePool;

use super::data_keys as rows;
use super::open::blocking;
use super::trouble::during;
use crate::gateway::store::data_dir::DataDir;
use crate::gateway::store::data_keys::{DataKeys, WrappedDataKeys};
use crate::gateway::store::key_file::KeyFile;
use crate::gateway::store::{MasterKey, StoreError};

/// Returns the data keys of the installation. Makes them if the installation is new, or older than data keys.
pub(super) async fn data_keys(
    writer: &SqlitePool,
    data_dir: &DataDir,
    given: Option<MasterKey>,
) -> Result<(DataKeys, Option<MasterKey>), StoreError> {
    let Some(wrapped) = rows::load(writer).await? else { return first_data_keys(writer, data_dir, given).await };
    if let Some(given) = given {
        return Ok((unlock_given(&given, &wrapped)?, Some(given)));
    }
    let place = data_dir.clone();
    Ok((blocking(move || KeyFile(&place).unlock(&wrapped)).await?, None))
}

async fn first_data_keys(
    writer: &SqlitePool,
    data_dir: &DataDir,
    given: Option<MasterKey>,
) -> Result<(DataKeys, Option<MasterKey>), StoreError> {
    let (older, sealed): (bool, bool) = sqlx::query_as(
        "SELECT EXISTS (SELECT 1 FROM keys), EXISTS (SELECT 1 FROM accounts WHERE sealed IS NOT NULL) \
         OR EXISTS (SELECT 1 FROM tokens) OR EXISTS (SELECT 1 FROM replays)",
    )
    .fetch_one(writer)
    .await
    .map_err(during("looking for keys"))?;
    if sealed {
        return Err(StoreError::damaged("imagate.db has lost its data keys: restore it from a backup"));
    }
    let place = data_dir.clone();
    let in_file = blocking(move || KeyFile(&place).read()).await?;
    match (in_file, given) {
        (None, _) if older => Err(StoreError::damaged(
            "master.key is missing, and no key in imagate.db can be checked without it: restore it from a backup",
        )),
        // This holds even if the configuration gives another key: API keys that were made under this one stay valid.
        (Some(in_file), given) => {
            let keys = DataKeys::succeeding(&in_file)?;
            rows::insert(writer, &keys, given.as_ref().unwrap_or(&in_file)).await?;
            Ok((keys, given))
        }
        (None, Some(given)) => {
            let keys = DataKeys::random()?;
            rows::insert(writer, &keys, &given).await?;
            Ok((keys, Some(given)))
        }
        (None, None) => {
            let place = data_dir.clone();
            let made = blocking(move || KeyFile(&place).make()).await?;
            let keys = DataKeys::random()?;
            rows::insert(writer, &keys, &made).await?;
            Ok((keys, None))
        }
    }
}

/// Returns the data keys, opened by the key of the configuration and no other one.
pub(super) fn unlock_given(given: &MasterKey, wrapped: &WrappedDataKeys) -> Result<DataKeys, StoreError> {
    DataKeys::unwrap(given, wrapped)?.ok_or_else(|| {
        StoreError::damaged(
            "the setting master_key is not the key that imagate.db was encrypted with: set the right key, or, if that key is in the file master.key, remove the setting",
        )
    })
}
