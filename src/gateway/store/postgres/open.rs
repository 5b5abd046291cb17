//! Opens the database and the data directory of this node.

use std::path::Path;

use sqlx::{Connection as _, PgConnection};
use tokio::sync::Semaphore;

use super::PostgresDatabase;
use super::batch_writer::BatchWriter;
use super::connection::{DatabaseUrl, RESERVATION_CONNECTIONS};
use super::error_conversion::during;
use super::migrations::{MIGRATIONS, newest_version};
use super::shared_answers::ANSWER_CONNECTIONS;
use crate::gateway::store::data_dir::{DataDir, run_blocking};
use crate::gateway::store::sql::data_key_unlock::load_or_create_data_keys;
use crate::gateway::store::sql::driver::SqlPool;
use crate::gateway::store::sql::error_conversion::during_migration;
use crate::gateway::store::sql::{SqlDatabase, SqlStore};
use crate::gateway::store::{MasterKey, StoreError};

pub(in super::super) async fn open(
    path: &Path,
    url: &DatabaseUrl,
    configured_key: Option<MasterKey>,
) -> Result<SqlStore, StoreError> {
    let path = path.to_owned();
    let (data_dir, lock) = run_blocking(move || {
        let data_dir = DataDir::create_or_open(&path)?;
        let lock = data_dir.lock_for_opening()?;
        Ok((data_dir, lock))
    })
    .await?;
    let mut connection = url.connect_for_migration().await.map_err(during("connecting to the database"))?;
    lock_for_opening(&mut connection).await.map_err(during("waiting for other nodes that open the database"))?;
    check_own_database(&mut connection).await?;
    MIGRATIONS.run_direct(None, &mut connection, false).await.map_err(during_migration(newest_version()))?;
    let pool = url.pool();
    let sql_pool = SqlPool::Postgres(pool.clone());
    let (keys, configured_key) = load_or_create_data_keys(&sql_pool, &data_dir, configured_key).await?;
    let (vault, pepper) = keys.into_parts()?;
    let owned_dir = data_dir.clone();
    let node = run_blocking(move || {
        let node = owned_dir.load_or_create_node_id();
        drop(lock);
        node
    })
    .await?;
    // The lock for opening ends with its connection.
    connection.close().await.map_err(during("opening the database"))?;
    let database = PostgresDatabase {
        pool,
        batch_writer: BatchWriter::new(url.clone()),
        reservation_permits: Semaphore::new(RESERVATION_CONNECTIONS),
        answer_permits: Semaphore::new(ANSWER_CONNECTIONS),
        node: node.clone(),
    };
    Ok(SqlStore {
        writer: sql_pool.clone(),
        readers: sql_pool,
        database: SqlDatabase::Postgres(Box::new(database)),
        data_dir,
        configured_key,
        vault,
        pepper,
        node,
    })
}

/// Waits until no other node creates or migrates the tables. The number has the letters `imgo` as
/// its bytes (our choice).
pub(super) async fn lock_for_opening(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("SELECT pg_advisory_lock(1768777583)").execute(connection).await?;
    Ok(())
}

/// Returns an error if the schema has tables of another program.
pub(super) async fn check_own_database(connection: &mut PgConnection) -> Result<(), StoreError> {
    let query = sqlx::query_as(
        "SELECT count(*), coalesce(bool_or(table_name = 'data_keys'), FALSE) FROM information_schema.tables \
         WHERE table_schema = current_schema() AND table_name <> '_sqlx_migrations'",
    );
    let (tables, has_data_keys): (i64, bool) =
        query.fetch_one(connection).await.map_err(during("reading the schema"))?;
    if tables > 0 && !has_data_keys {
        let detail = format!("its schema has {tables} tables of another program; give imagate a database of its own");
        return Err(StoreError::ForeignDatabase { detail });
    }
    Ok(())
}
