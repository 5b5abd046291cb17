//! Runs several statements in one transaction.

use sqlx::query::Query;

use super::dialect::{Db, DbArguments, DbPool};
use super::error_conversion::during;
use crate::gateway::store::StoreError;
pub(in super::super) use crate::gateway::store::sql_connection::rollback;

pub(super) type SqlStatement<'q> = Query<'q, Db, DbArguments>;

/// Runs a block in one transaction of this pool, which the value of the block commits. `return Ok(rollback(…))` leaves the
/// block and undoes its changes, and so does an error.
///
/// Such transactions take turns, whatever process makes them: each sees all changes of the one before it. A transaction
/// that begins in another way is given the function of `sql_connection` that returns its first statement.
///
/// This is a macro, because no trait bound can yet state that the future of an async closure is `Send`.
macro_rules! transact {
    ($pool:expr, |$transaction:ident| $body:expr) => {
        transact!($pool, begin_change, |$transaction| $body)
    };
    ($pool:expr, $begin:ident, |$transaction:ident| $body:expr) => {
        match $pool.acquire().await {
            Err(error) => Err(error),
            Ok(connection) => {
                let mut connection = $crate::gateway::store::sql_connection::TransactionConnection::new(connection);
                let result: sqlx::Result<$crate::gateway::store::sql_connection::TransactionValue<_>> = async {
                    let statement = $crate::gateway::store::sql_connection::$begin(&*connection);
                    let mut $transaction = sqlx::Connection::begin_with(&mut *connection, statement).await?;
                    let value = $body;
                    $transaction.commit().await?;
                    Ok($crate::gateway::store::sql_connection::TransactionValue(value))
                }
                .await;
                if result.is_ok() {
                    connection.set_reusable();
                }
                result.map(|value| value.0)
            }
        }
    };
}
pub(in super::super) use transact;

/// Runs statements, and names the operation in their error.
pub(super) async fn perform<T>(
    doing: &'static str,
    statements: impl Future<Output = sqlx::Result<T>> + Send,
) -> Result<T, StoreError> {
    statements.await.map_err(during(doing))
}

/// Runs the statements in their order in one transaction.
pub(super) async fn run_all(pool: &DbPool, statements: Vec<SqlStatement<'_>>) -> sqlx::Result<()> {
    transact!(pool, |transaction| {
        for statement in statements {
            statement.execute(&mut *transaction).await?;
        }
    })
}
