//! The two drivers behind the types that all statements use: a pool, a connection, a row, and the values of a statement.

use std::ops::{Deref, DerefMut};

use async_trait::async_trait;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::query::Query;
use sqlx::sqlite::SqliteRow;
use sqlx::{
    ColumnIndex, Database, Decode, Encode, Executor as _, PgConnection, PgPool, Pool, Postgres, Row as _, SqlStr,
    Sqlite, SqliteConnection, SqlitePool, Type,
};

use super::statement::SqlStatement;
use super::values::SqlValue;
use crate::gateway::store::postgres::server_unreachable;

/// The connections to a database.
#[derive(Debug, Clone)]
pub(in super::super) enum SqlPool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

/// A connection of a pool. It is closed when it is dropped before a transaction on it came to its end.
///
/// - If the caller goes away while the server of PostgreSQL begins a transaction, the driver does not know that one was
///   begun. The connection would return to the pool inside of it, with its locks.
/// - If the disk is full, SQLite ends a transaction by itself, which the driver does not notice, and every later
///   transaction on that connection would fail.
pub(in super::super) struct PooledConnection<D: Database> {
    connection: PoolConnection<D>,
    is_in_transaction: bool,
}

/// A connection of a pool of any of the databases.
pub(in super::super) enum SqlPoolConnection {
    Sqlite(PooledConnection<Sqlite>),
    Postgres(PooledConnection<Postgres>),
}

/// A connection to any of the databases.
pub(in super::super) type SqlConnection = dyn DriverConnection;

/// A connection of a driver.
#[async_trait]
pub(in super::super) trait DriverConnection: Send {
    fn is_postgres(&self) -> bool;

    /// Runs statements without values, whose text is not prepared.
    async fn execute_text(&mut self, statements: &'static str) -> sqlx::Result<()>;

    /// Returns the number of changed rows.
    async fn execute_statement(&mut self, statement: SqlStatement) -> sqlx::Result<u64>;

    async fn fetch_rows(&mut self, statement: SqlStatement) -> sqlx::Result<Vec<SqlRow>>;
}

/// A row of a result.
pub(in super::super) enum SqlRow {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// A type that can be read from a row of both databases.
pub(in super::super) trait FromSql<'r>:
    Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres>
{
}

impl<'r, T: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres>> FromSql<'r> for T {}

// === impl SqlPool ===

impl SqlPool {
    pub(in super::super) const fn is_postgres(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// The name of the database in messages.
    pub(in super::super) const fn database_name(&self) -> &'static str {
        if self.is_postgres() { "the PostgreSQL database" } else { "imagate.db" }
    }

    pub(in super::super) async fn acquire(&self) -> sqlx::Result<SqlPoolConnection> {
        match self {
            Self::Sqlite(pool) => PooledConnection::acquire(pool).await.map(SqlPoolConnection::Sqlite),
            Self::Postgres(pool) => {
                PooledConnection::acquire(pool).await.map(SqlPoolConnection::Postgres).map_err(server_unreachable)
            }
        }
    }

    /// Begins the transaction of a change. Such transactions take turns, whatever process makes them: one that reads
    /// before it writes must not decide by rows that another one is changing.
    pub(in super::super) async fn begin_change(&self) -> sqlx::Result<SqlPoolConnection> {
        // This takes the write lock of SQLite first: a transaction that begins with a read cannot wait for it later.
        const SQLITE: &str = "BEGIN IMMEDIATE";
        // The lock makes the changes of all nodes take turns. Its number is "imgc" (our choice). The isolation level must
        // be this one, so that the statements see the changes of the transaction before.
        const POSTGRES: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(1768777571)";
        self.begin_with(SQLITE, POSTGRES).await
    }

    /// Begins a transaction whose reads all see the database at one moment.
    pub(super) async fn begin_read(&self) -> sqlx::Result<SqlPoolConnection> {
        self.begin_with("BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY").await
    }

    async fn begin_with(&self, sqlite: &'static str, postgres: &'static str) -> sqlx::Result<SqlPoolConnection> {
        let mut connection = self.acquire().await?;
        match &mut connection {
            SqlPoolConnection::Sqlite(connection) => connection.begin(sqlite).await?,
            SqlPoolConnection::Postgres(connection) => connection.begin(postgres).await?,
        }
        Ok(connection)
    }

    pub(in super::super) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

#[cfg(test)]
impl SqlPool {
    pub(in super::super) fn sqlite(&self) -> &SqlitePool {
        let Self::Sqlite(pool) = self else { panic!("the database is not SQLite") };
        pool
    }

    pub(in super::super) fn postgres(&self) -> &PgPool {
        let Self::Postgres(pool) = self else { panic!("the database is not PostgreSQL") };
        pool
    }
}

// === impl SqlPoolConnection ===

impl SqlPoolConnection {
    /// Ends the transaction with this statement.
    pub(in super::super) async fn end(self, statement: &'static str) -> sqlx::Result<()> {
        match self {
            Self::Sqlite(connection) => connection.end(statement).await,
            Self::Postgres(connection) => connection.end(statement).await,
        }
    }
}

impl Deref for SqlPoolConnection {
    type Target = SqlConnection;

    fn deref(&self) -> &SqlConnection {
        match self {
            Self::Sqlite(connection) => &*connection.connection,
            Self::Postgres(connection) => &*connection.connection,
        }
    }
}

impl DerefMut for SqlPoolConnection {
    fn deref_mut(&mut self) -> &mut SqlConnection {
        match self {
            Self::Sqlite(connection) => &mut *connection.connection,
            Self::Postgres(connection) => &mut *connection.connection,
        }
    }
}

// === impl PooledConnection ===

impl<D: Database<Connection: DriverConnection>> PooledConnection<D> {
    pub(in super::super) async fn acquire(pool: &Pool<D>) -> sqlx::Result<Self> {
        Ok(Self { connection: Box::pin(pool.acquire()).await?, is_in_transaction: false })
    }

    /// Begins a transaction with this statement.
    pub(in super::super) async fn begin(&mut self, statement: &'static str) -> sqlx::Result<()> {
        self.is_in_transaction = true;
        self.connection.execute_text(statement).await
    }

    /// Ends the transaction with this statement.
    pub(in super::super) async fn end(mut self, statement: &'static str) -> sqlx::Result<()> {
        self.connection.execute_text(statement).await?;
        self.is_in_transaction = false;
        Ok(())
    }
}

impl<D: Database> Deref for PooledConnection<D> {
    type Target = D::Connection;

    fn deref(&self) -> &D::Connection {
        &self.connection
    }
}

impl<D: Database> DerefMut for PooledConnection<D> {
    fn deref_mut(&mut self) -> &mut D::Connection {
        &mut self.connection
    }
}

impl<D: Database> Drop for PooledConnection<D> {
    fn drop(&mut self) {
        if self.is_in_transaction {
            self.connection.close_on_drop();
        }
    }
}

// === impl DriverConnection ===

macro_rules! impl_driver_connection {
    ($connection:ty, $variant:ident, $is_postgres:literal) => {
        #[async_trait]
        impl DriverConnection for $connection {
            fn is_postgres(&self) -> bool {
                $is_postgres
            }

            async fn execute_text(&mut self, statements: &'static str) -> sqlx::Result<()> {
                self.execute(sqlx::raw_sql(statements)).await.map(drop)
            }

            async fn execute_statement(&mut self, statement: SqlStatement) -> sqlx::Result<u64> {
                Ok(self.execute(to_driver_query(statement.into_parts($is_postgres))).await?.rows_affected())
            }

            async fn fetch_rows(&mut self, statement: SqlStatement) -> sqlx::Result<Vec<SqlRow>> {
                let rows = self.fetch_all(to_driver_query(statement.into_parts($is_postgres))).await?;
                Ok(rows.into_iter().map(SqlRow::$variant).collect())
            }
        }
    };
}
impl_driver_connection!(SqliteConnection, Sqlite, false);
impl_driver_connection!(PgConnection, Postgres, true);

fn to_driver_query<D: Database>((text, values): (SqlStr, Vec<SqlValue>)) -> Query<'static, D, D::Arguments>
where
    Option<i64>: Encode<'static, D> + Type<D>,
    Option<String>: Encode<'static, D> + Type<D>,
    Option<Vec<u8>>: Encode<'static, D> + Type<D>,
{
    values.into_iter().fold(sqlx::query(text), |query, value| match value {
        SqlValue::Integer(value) => query.bind(value),
        SqlValue::Text(value) => query.bind(value),
        SqlValue::Bytes(value) => query.bind(value),
    })
}

// === impl SqlRow ===

impl SqlRow {
    /// Reads a cell.
    pub(in super::super) fn try_get<'r, T, I>(&'r self, column: I) -> sqlx::Result<T>
    where
        T: FromSql<'r>,
        I: ColumnIndex<SqliteRow> + ColumnIndex<PgRow>,
    {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
    }
}
