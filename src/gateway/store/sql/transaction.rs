//! Runs several statements in one transaction.

use sqlx::query::Query;

use super::dialect::{Db, DbArguments, DbPool};

pub(super) type SqlStatement<'q> = Query<'q, Db, DbArguments>;

/// Runs a block in one transaction of this pool. `return Ok(…)` in the block rolls the transaction back.
///
/// Such transactions take turns, whatever process makes them: each sees all changes of the one before it. A connection is
/// closed after a failure: if the disk is full, SQLite ends a transaction by itself, which the driver does not notice,
/// and every later transaction on that connection would fail.
///
/// This is a macro, because no trait bound can yet state that the future of an async closure is `Send`.
macro_rules! transact {
    ($pool:expr, |$transaction:ident| $body:expr) => {{
        let mut connection = $pool.acquire().await?;
        let result: sqlx::Result<_> = async {
            let begin = $crate::gateway::store::sql_connection::begin_statement(&*connection);
            let mut $transaction = sqlx::Connection::begin_with(&mut *connection, begin).await?;
            let value = $body;
            $transaction.commit().await?;
            Ok(value)
        }
        .await;
        if result.is_err() {
            let _ = connection.close().await;
        }
        result
    }};
}
pub(super) use transact;

/// Runs the statements in their order in one transaction.
pub(super) async fn run_all(pool: &DbPool, statements: Vec<SqlStatement<'_>>) -> sqlx::Result<()> {
    transact!(pool, |transaction| {
        for statement in statements {
            statement.execute(&mut *transaction).await?;
        }
    })
}
