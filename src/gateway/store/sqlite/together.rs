//! Several statements, all of them or none.

use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Connection, Sqlite, SqliteConnection, SqlitePool};

pub(super) type Statement<'q> = Query<'q, Sqlite, SqliteArguments>;

/// Runs the statements in their order in one transaction, and says how many rows each has changed.
pub(super) async fn run(pool: &SqlitePool, statements: Vec<Statement<'_>>) -> sqlx::Result<Vec<u64>> {
    let mut connection = pool.acquire().await?;
    let changed = run_on(&mut connection, statements).await;
    if changed.is_err() {
        // On a full disk SQLite ends a transaction by itself, which the driver does not notice: from then on it would
        // refuse every new one on this connection.
        let _ = connection.close().await;
    }
    changed
}

async fn run_on(connection: &mut SqliteConnection, statements: Vec<Statement<'_>>) -> sqlx::Result<Vec<u64>> {
    // Taking the write lock first: a transaction that begins by reading cannot wait for it later.
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let mut changed = Vec::with_capacity(statements.len());
    for statement in statements {
        changed.push(statement.execute(&mut *transaction).await?.rows_affected());
    }
    transaction.commit().await?;
    Ok(changed)
}
