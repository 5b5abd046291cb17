//! Runs several statements, all of them or none.

use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Sqlite, SqlitePool};

pub(super) type SqlStatement<'q> = Query<'q, Sqlite, SqliteArguments>;

/// Runs a block in one transaction of this pool. `return Ok(…)` in the block leaves it without any change.
///
/// This is a macro, because no bound can say yet that the future of an async closure may change threads.
macro_rules! transact {
    ($pool:expr, |$transaction:ident| $body:expr) => {{
        let mut connection = $pool.acquire().await?;
        let done: sqlx::Result<_> = async {
            // This takes the write lock first: a transaction that begins with a read cannot wait for the lock later.
            let mut $transaction = sqlx::Connection::begin_with(&mut *connection, "BEGIN IMMEDIATE").await?;
            let done = $body;
            $transaction.commit().await?;
            Ok(done)
        }
        .await;
        $crate::gateway::store::sqlite::transaction::release_connection(connection, done).await
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

/// Gives the connection back, or closes it after a failure: on a full disk SQLite ends a transaction by itself, which
/// the driver does not notice, and from then on it would refuse every new one on this connection.
pub(super) async fn release_connection<T>(
    connection: PoolConnection<Sqlite>,
    done: sqlx::Result<T>,
) -> sqlx::Result<T> {
    if done.is_err() {
        let _ = connection.close().await;
    }
    done
}
