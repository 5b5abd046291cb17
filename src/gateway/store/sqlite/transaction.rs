//! Runs several statements in one transaction.

use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Sqlite, SqlitePool};

pub(super) type SqlStatement<'q> = Query<'q, Sqlite, SqliteArguments>;

/// Runs a block in one transaction of this pool. `return Ok(…)` in the block rolls the transaction back.
///
/// This is a macro, because no trait bound can yet state that the future of an async closure is `Send`.
macro_rules! transact {
    ($pool:expr, |$transaction:ident| $body:expr) => {{
        let mut connection = $pool.acquire().await?;
        let result: sqlx::Result<_> = async {
            // This takes the write lock first: a transaction that begins with a read cannot wait for the lock later.
            let mut $transaction = sqlx::Connection::begin_with(&mut *connection, "BEGIN IMMEDIATE").await?;
            let value = $body;
            $transaction.commit().await?;
            Ok(value)
        }
        .await;
        $crate::gateway::store::sqlite::transaction::release_connection(connection, result).await
    }};
}
pub(super) use transact;

/// Runs the statements in their order in one transaction.
pub(super) async fn run_all(pool: &SqlitePool, statements: Vec<SqlStatement<'_>>) -> sqlx::Result<()> {
    transact!(pool, |transaction| {
        for statement in statements {
            statement.execute(&mut *transaction).await?;
        }
    })
}

/// Returns the connection to the pool, or closes it after a failure: if the disk is full, SQLite ends a transaction by
/// itself, which the driver does not notice, and every later transaction on that connection would fail.
pub(super) async fn release_connection<T>(
    connection: PoolConnection<Sqlite>,
    result: sqlx::Result<T>,
) -> sqlx::Result<T> {
    if result.is_err() {
        let _ = connection.close().await;
    }
    result
}
