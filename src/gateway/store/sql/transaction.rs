//! Runs several statements in one transaction.

use sqlx::query::Query;

use super::dialect::{Db, DbArguments, DbPool};

pub(super) type SqlStatement<'q> = Query<'q, Db, DbArguments>;

/// Runs a block in one transaction of this pool. `return Ok(…)` in the block rolls the transaction back.
///
/// Such transactions take turns, whatever process makes them: each sees all changes of the one before it. A transaction
/// that begins in another way is given the function of `sql_connection` that returns its first statement.
///
/// This is a macro, because no trait bound can yet state that the future of an async closure is `Send`.
macro_rules! transact {
    ($pool:expr, |$transaction:ident| $body:expr) => {
        transact!($pool, begin_change, |$transaction| $body)
    };
    ($pool:expr, $begin:ident, |$transaction:ident| $body:expr) => {{
        let connection = $pool.acquire().await?;
        let mut connection = $crate::gateway::store::sql_connection::TransactionConnection::new(connection);
        let result: sqlx::Result<_> = async {
            let statement = $crate::gateway::store::sql_connection::$begin(&*connection);
            let mut $transaction = sqlx::Connection::begin_with(&mut *connection, statement).await?;
            let value = $body;
            $transaction.commit().await?;
            Ok(value)
        }
        .await;
        if result.is_ok() {
            connection.set_reusable();
        }
        result
    }};
}
pub(in super::super) use transact;

/// Runs the statements in their order in one transaction.
pub(super) async fn run_all(pool: &DbPool, statements: Vec<SqlStatement<'_>>) -> sqlx::Result<()> {
    transact!(pool, |transaction| {
        for statement in statements {
            statement.execute(&mut *transaction).await?;
        }
    })
}
