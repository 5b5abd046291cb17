//! The statements: a text with the values that are bound to it.

use std::fmt::{Display, Write as _};

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

use super::driver::{FromSql, SqlConnection, SqlPool, SqlRow};
use super::values::{SqlValue, ToSqlValue};

/// The text of a statement as each of the databases understands it. Most texts are the same for both.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct SqlText {
    pub(in super::super) sqlite: &'static str,
    pub(in super::super) postgres: &'static str,
}

/// Returns a [`SqlText`] of several parts. The part `[one, other]` differs: `one` is for SQLite, and `other` for PostgreSQL.
macro_rules! sql_text {
    ($before:literal, [$sqlite:expr, $postgres:expr], $after:literal) => {
        $crate::gateway::store::sql::statement::SqlText {
            sqlite: concat!($before, $sqlite, $after),
            postgres: concat!($before, $postgres, $after),
        }
    };
}
pub(super) use sql_text;

/// Returns a [`SqlText`] that reads the items of the JSON list that is its first value, as the column `value` of the table
/// `cells`.
macro_rules! with_json_cells {
    ($before:literal, $after:literal) => {
        $crate::gateway::store::sql::statement::sql_text!(
            $before,
            ["json_each($1) AS cells", "jsonb_array_elements(CAST($1 AS JSONB)) AS cells (value)"],
            $after
        )
    };
}
pub(super) use with_json_cells;

/// Returns a [`SqlText`] that names the index that it must use, so that in SQLite, a missing index causes an error rather
/// than a slow query. The planner of PostgreSQL chooses the index.
macro_rules! indexed {
    ($before:literal, $index:literal, $after:literal) => {
        $crate::gateway::store::sql::statement::sql_text!($before, [concat!(" INDEXED BY ", $index), ""], $after)
    };
}
pub(super) use indexed;

/// A statement with its values, in the order of the numbers `$1`, `$2` and so on.
pub(in super::super) struct SqlStatement {
    sqlite: SqlStr,
    postgres: SqlStr,
    values: Vec<SqlValue>,
}

/// A statement whose text is made of parts. Values are always bound, never part of the text.
pub(in super::super) struct StatementBuilder {
    sqlite: String,
    postgres: String,
    values: Vec<SqlValue>,
}

/// The place where a statement is run: any connection of a pool, or a certain connection.
pub(in super::super) enum SqlExecutor<'c> {
    Pool(&'c SqlPool),
    Connection(&'c mut SqlConnection),
}

/// Makes a statement of this text.
pub(in super::super) fn sql(text: impl Into<SqlText>) -> SqlStatement {
    let SqlText { sqlite, postgres } = text.into();
    SqlStatement { sqlite: sqlite.into_sql_str(), postgres: postgres.into_sql_str(), values: Vec::new() }
}

impl From<&'static str> for SqlText {
    fn from(text: &'static str) -> Self {
        Self { sqlite: text, postgres: text }
    }
}

impl<'c> From<&'c SqlPool> for SqlExecutor<'c> {
    fn from(pool: &'c SqlPool) -> Self {
        Self::Pool(pool)
    }
}

impl<'c> From<&'c mut SqlConnection> for SqlExecutor<'c> {
    fn from(connection: &'c mut SqlConnection) -> Self {
        Self::Connection(connection)
    }
}

// === impl SqlStatement ===

impl SqlStatement {
    pub(in super::super) fn bind(mut self, value: impl ToSqlValue) -> Self {
        self.values.push(value.to_sql_value());
        self
    }

    pub(super) fn into_parts(self, is_postgres: bool) -> (SqlStr, Vec<SqlValue>) {
        (if is_postgres { self.postgres } else { self.sqlite }, self.values)
    }

    /// Returns the number of changed rows.
    pub(in super::super) async fn execute<'c>(self, executor: impl Into<SqlExecutor<'c>>) -> sqlx::Result<u64> {
        match executor.into() {
            SqlExecutor::Pool(pool) => pool.acquire().await?.execute_statement(self).await,
            SqlExecutor::Connection(connection) => connection.execute_statement(self).await,
        }
    }

    pub(in super::super) async fn fetch_all<'c>(
        self,
        executor: impl Into<SqlExecutor<'c>>,
    ) -> sqlx::Result<Vec<SqlRow>> {
        match executor.into() {
            SqlExecutor::Pool(pool) => pool.acquire().await?.fetch_rows(self).await,
            SqlExecutor::Connection(connection) => connection.fetch_rows(self).await,
        }
    }

    /// Returns the first row, if there is one. The statement must not have many.
    pub(in super::super) async fn fetch_optional<'c>(
        self,
        executor: impl Into<SqlExecutor<'c>>,
    ) -> sqlx::Result<Option<SqlRow>> {
        Ok(self.fetch_all(executor).await?.into_iter().next())
    }

    pub(super) async fn fetch_one<'c>(self, executor: impl Into<SqlExecutor<'c>>) -> sqlx::Result<SqlRow> {
        self.fetch_optional(executor).await?.ok_or(sqlx::Error::RowNotFound)
    }

    /// Returns the first cell of the only row.
    pub(in super::super) async fn fetch_value<'c, T: for<'r> FromSql<'r>>(
        self,
        executor: impl Into<SqlExecutor<'c>>,
    ) -> sqlx::Result<T> {
        self.fetch_one(executor).await?.try_get(0)
    }

    /// Returns the first cell of the row, if there is one.
    pub(in super::super) async fn fetch_optional_value<'c, T: for<'r> FromSql<'r>>(
        self,
        executor: impl Into<SqlExecutor<'c>>,
    ) -> sqlx::Result<Option<T>> {
        self.fetch_optional(executor).await?.map(|row| row.try_get(0)).transpose()
    }
}

#[cfg(test)]
impl SqlStatement {
    /// The text for SQLite.
    pub(in super::super) fn sqlite_text(&self) -> &str {
        self.sqlite.as_str()
    }
}

// === impl StatementBuilder ===

impl StatementBuilder {
    pub(in super::super) fn new(text: &str) -> Self {
        Self { sqlite: text.to_owned(), postgres: text.to_owned(), values: Vec::new() }
    }

    pub(super) fn push(&mut self, text: impl Display) -> &mut Self {
        // Writing to a string cannot fail.
        let _ = write!(self.sqlite, "{text}");
        let _ = write!(self.postgres, "{text}");
        self
    }

    /// Adds a part that differs between the databases.
    pub(super) fn push_by_database(&mut self, sqlite: &str, postgres: &str) -> &mut Self {
        self.sqlite.push_str(sqlite);
        self.postgres.push_str(postgres);
        self
    }

    pub(super) fn push_bind(&mut self, value: impl ToSqlValue) -> &mut Self {
        self.values.push(value.to_sql_value());
        self.push(format_args!("${}", self.values.len()))
    }

    /// Adds a list of values in parentheses.
    pub(super) fn push_list(&mut self, values: impl IntoIterator<Item: ToSqlValue>) -> &mut Self {
        let mut separator = "(";
        for value in values {
            self.push(std::mem::replace(&mut separator, ", ")).push_bind(value);
        }
        self.push(")")
    }

    pub(in super::super) fn build(self) -> SqlStatement {
        let Self { sqlite, postgres, values } = self;
        let [sqlite, postgres] = [sqlite, postgres].map(|text| AssertSqlSafe(text).into_sql_str());
        SqlStatement { sqlite, postgres, values }
    }
}
