//! The rows of wrapped data keys.

use super::driver::SqlPool;
use super::error_conversion::during;
use super::statement::{SqlStatement, sql};
use super::transaction::{self};
use crate::gateway::store::data_keys::{DataKeys, PEPPER, VAULT, WrappedDataKeys};
use crate::gateway::store::{MasterKey, StoreError, Timestamp};

/// Returns the wrapped data keys; `None` if there are none yet.
pub(in super::super) async fn load(pool: &SqlPool) -> Result<Option<WrappedDataKeys>, StoreError> {
    let rows = sql("SELECT purpose, wrapped FROM data_keys").fetch_all(pool).await;
    let (mut vault, mut pepper) = (None, None);
    for row in rows.map_err(during("reading the data keys"))? {
        let wrapped: Vec<u8> = row.try_get("wrapped").map_err(during("reading the data keys"))?;
        match row.try_get("purpose").map_err(during("reading the data keys"))? {
            VAULT => vault = Some(wrapped),
            PEPPER => pepper = Some(wrapped),
            // A newer program would have raised the schema version, so this row is damage.
            unknown => {
                return Err(StoreError::damaged(format!(
                    "{} has a data key for the unknown purpose `{unknown}`",
                    pool.database_name()
                )));
            }
        }
    }
    match (vault, pepper) {
        (None, None) => Ok(None),
        (Some(vault), Some(pepper)) => Ok(Some(WrappedDataKeys { vault, pepper })),
        _ => Err(StoreError::damaged(format!(
            "{} has lost one of its data keys: restore it from a backup",
            pool.database_name()
        ))),
    }
}

/// Stores the keys of an installation that has none.
pub(in super::super) async fn insert(pool: &SqlPool, keys: &DataKeys, master: &MasterKey) -> Result<(), StoreError> {
    let now = Timestamp::now().to_string();
    let insert = |(purpose, wrapped): (&'static str, Vec<u8>)| -> SqlStatement {
        sql("INSERT INTO data_keys (purpose, wrapped, created_at) VALUES ($1, $2, $3)")
            .bind(purpose)
            .bind(wrapped)
            .bind(now.clone())
    };
    let statements = keys.wrap(master)?.map(insert).into();
    transaction::run_all(pool, statements).await.map_err(during("storing the data keys"))?;
    Ok(())
}

/// Wraps all keys again, in one transaction.
pub(in super::super) async fn rewrap(pool: &SqlPool, keys: &DataKeys, master: &MasterKey) -> Result<(), StoreError> {
    let update = |(purpose, wrapped): (&'static str, Vec<u8>)| -> SqlStatement {
        sql("UPDATE data_keys SET wrapped = $2 WHERE purpose = $1").bind(purpose).bind(wrapped)
    };
    let statements = keys.wrap(master)?.map(update).into();
    transaction::run_all(pool, statements).await.map_err(during("wrapping the data keys"))?;
    Ok(())
}
