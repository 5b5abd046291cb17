//! The types of the driver of PostgreSQL, and the expressions that PostgreSQL writes in its own way.

use sqlx::{Postgres, QueryBuilder};

use crate::gateway::store::sql_connection::SqlConnection;

pub(super) use super::PostgresStore as SqlStore;
pub(super) type Db = Postgres;
pub(super) type DbArguments = sqlx::postgres::PgArguments;
pub(super) type DbConnection = sqlx::PgConnection;
pub(super) type DbPool = sqlx::PgPool;
pub(super) type DbRow = sqlx::postgres::PgRow;

/// The name of the database in messages.
pub(super) const DATABASE_NAME: &str = "the PostgreSQL database";

/// The operator that compares a text with a pattern, regardless of upper and lower case.
pub(super) const LIKE: &str = "ILIKE";

/// True if a record can become visible after one with a higher sequence number: one that a node commits later.
pub(super) const COMMITS_OUT_OF_ORDER: bool = true;

/// The items of the JSON list that is the first value of a statement, as the column `value` of the table `cells`.
pub(super) const JSON_CELLS: &str = "jsonb_array_elements(CAST($1 AS JSONB)) AS cells (value)";

/// Nothing: the planner of PostgreSQL chooses the index.
pub(super) const BY_NUMBER: &str = "";

/// True if rows of many cells are written fastest as one JSON list. Here, each statement is a journey.
pub(super) const READS_JSON_LISTS_FAST: bool = true;

/// The end of a query that locks its rows until the transaction ends.
pub(super) const LOCK_ROWS: &str = " FOR UPDATE";

/// A sum of a column that ends at the largest integer.
pub(super) fn sum_of(expression: &str) -> String {
    format!("CAST(least(coalesce(sum({expression}), 0), 9223372036854775807) AS BIGINT)")
}

/// The sum of two counts, which ends at the largest integer.
pub(super) fn sum_of_two(one: &str, other: &str) -> String {
    format!("capped(CAST({one} AS NUMERIC) + {other})")
}

/// A member of a column of JSON, as a text.
pub(super) fn json_member(column: &str, member: &str) -> String {
    format!("CAST({column} AS JSON) ->> '{member}'")
}

/// The text before and after the list in a subquery of the texts in a JSON list.
pub(super) const JSON_TEXTS: (&str, &str) = ("(SELECT json_array_elements_text(CAST(", " AS JSON)))");

impl SqlConnection for DbConnection {
    /// The lock makes the changes of all nodes take turns. Its number is "imgc" (our choice). The isolation level must be
    /// this one, so that the statements see the changes of the transaction before.
    const BEGIN_CHANGE: &'static str = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(1768777571)";
    const BEGIN_READ: &'static str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";
}

/// Does nothing: the planner of PostgreSQL chooses the index.
pub(super) const fn push_index(_query: &mut QueryBuilder<Db>, _index: &'static str) {}

/// The same for a statement whose text is fixed.
macro_rules! indexed_by {
    ($index:literal) => {
        ""
    };
}
pub(super) use indexed_by;

/// A join. The planner chooses the order of the tables.
macro_rules! ordered_join {
    () => {
        "JOIN"
    };
}
pub(super) use ordered_join;

/// A sum that ends at the largest integer. The sum of integers is a number without a limit.
macro_rules! sum {
    ($expression:literal) => {
        concat!("CAST(least(coalesce(sum(", $expression, "), 0), 9223372036854775807) AS BIGINT)")
    };
}
pub(super) use sum;

/// An aggregate that makes a JSON list of texts.
macro_rules! json_list {
    ($expression:literal) => {
        concat!("coalesce(CAST(json_agg(", $expression, ") AS TEXT), '[]')")
    };
}
pub(super) use json_list;
