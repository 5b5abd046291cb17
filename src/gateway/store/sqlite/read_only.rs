//! Opens the store for reading only: without a migration, without a lock, and without a change of any file. Every write
//! fails.

use std::path::Path;
use std::sync::Arc;

use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;

use super::SqliteDatabase;
use super::batch_writer::BatchWriter;
use super::open::{BUSY_TIMEOUT, pool};
use crate::gateway::store::data_dir::DataDir;
use crate::gateway::store::key_file::KeyFile;
use crate::gateway::store::sql::data_key_unlock::unlock_with_configured_key;
use crate::gateway::store::sql::driver::SqlPool;
use crate::gateway::store::sql::error_conversion::during;
use crate::gateway::store::sql::{SqlDatabase, SqlStore, data_keys as rows};
use crate::gateway::store::{MasterKey, NodeId, StoreError};

/// Opens the store. The database must have the newest schema, and a [`super::DatabaseFile`] must be open as long as the
/// store, because a connection that only reads leaves the files of the write-ahead log behind.
pub(in super::super) async fn open(path: &Path, configured_key: Option<MasterKey>) -> Result<SqlStore, StoreError> {
    let data_dir = DataDir::at(path);
    let options = SqliteConnectOptions::new()
        .filename(data_dir.database_path())
        .read_only(true)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging();
    let readers =
        pool(1).connect_with(options.pragma("query_only", "ON")).await.map_err(during("opening the database"))?;
    let pool = SqlPool::Sqlite(readers.clone());
    let wrapped = rows::load(&pool).await?;
    let wrapped = wrapped.ok_or_else(|| StoreError::damaged("imagate.db has no data keys"))?;
    let keys = match &configured_key {
        Some(configured_key) => unlock_with_configured_key(configured_key, &wrapped, pool.database_name())?,
        None => KeyFile(&data_dir).find_fitting(&wrapped)?.data_keys,
    };
    let (vault, pepper) = keys.into_parts()?;
    let batch_writer = BatchWriter::new(data_dir.database_path());
    // It opens a connection at its first write, so it is closed before there can be one.
    batch_writer.close();
    let database = SqliteDatabase { writer: readers, batch_writer: Arc::new(batch_writer) };
    Ok(SqlStore {
        writer: pool.clone(),
        readers: pool,
        database: SqlDatabase::Sqlite(database),
        data_dir,
        configured_key,
        vault,
        pepper,
        node: NodeId::only(),
    })
}
