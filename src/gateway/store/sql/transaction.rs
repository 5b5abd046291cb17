//! Runs several statements in one transaction.

use super::driver::SqlPool;
use super::error_conversion::during;
use super::statement::SqlStatement;
use crate::gateway::store::StoreError;

/// The value of a block of [`transact`], and the end of its transaction. It keeps a block of [`rollback`] apart from an
/// ordinary result: no `return Ok(…)` undoes the changes by mistake.
pub(in super::super) enum TransactionEnd<T> {
    Commit(T),
    Rollback(T),
}

/// The value of a transaction whose changes are undone.
pub(in super::super) const fn rollback<T>(value: T) -> TransactionEnd<T> {
    TransactionEnd::Rollback(value)
}

/// Runs a block in a transaction that is begun by this future, and which the value of the block commits.
/// `return Ok(rollback(…))` leaves the block and undoes its changes, and so does an error.
///
/// This is a macro, because no trait bound can yet state that the future of an async closure is `Send`.
macro_rules! transact {
    ($begin:expr, |$transaction:ident| $body:expr) => {
        match $begin.await {
            Err(error) => Err(error),
            Ok(mut transaction) => {
                use $crate::gateway::store::sql::transaction::TransactionEnd;
                let $transaction = &mut *transaction;
                let result: sqlx::Result<TransactionEnd<_>> = async { Ok(TransactionEnd::Commit($body)) }.await;
                match result {
                    Ok(TransactionEnd::Commit(value)) => transaction.end("COMMIT").await.map(|()| value),
                    Ok(TransactionEnd::Rollback(value)) => {
                        // If this fails, the connection is closed, which undoes the changes, too.
                        let _ = transaction.end("ROLLBACK").await;
                        Ok(value)
                    }
                    Err(error) => Err(error),
                }
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
pub(super) async fn run_all(pool: &SqlPool, statements: Vec<SqlStatement>) -> sqlx::Result<()> {
    transact!(pool.begin_change(), |transaction| {
        for statement in statements {
            statement.execute(&mut *transaction).await?;
        }
    })
}
