//! The types of the driver of SQLite, and the expressions that SQLite writes in its own way.

use sqlx::{QueryBuilder, Sqlite};

use crate::gateway::store::sql_connection::SqlConnection;

pub(super) use super::SqliteStore as SqlStore;
pub(super) type Db = Sqlite;
pub(super) type DbArguments = sqlx::sqlite::SqliteArguments;
pub(super) type DbConnection = sqlx::SqliteConnection;
pub(super) type DbPool = sqlx::SqlitePool;
pub(super) type DbRow = sqlx::sqlite::SqliteRow;

/// The name of the database in messages.
pub(super) const DATABASE_NAME: &str = "imagate.db";

/// The operator that compares a text with a pattern, regardless of upper and lower case.
pub(super) const LIKE: &str = "LIKE";

/// True if a record can become visible after one with a higher sequence number. Here, writes take turns.
pub(super) const COMMITS_OUT_OF_ORDER: bool = false;

/// The items of the JSON list that is the first value of a statement, as the column `value` of the table `cells`.
pub(super) const JSON_CELLS: &str = "json_each($1) AS cells";

/// False: SQLite searches a JSON list from its start for each item.
pub(super) const READS_JSON_LISTS_FAST: bool = false;

/// Makes a query find records by their sequence number, and by no index.
pub(super) const BY_NUMBER: &str = " NOT INDEXED";

/// Nothing: the transaction has the only lock for writes.
pub(super) const LOCK_ROWS: &str = "";

/// A sum of a column that ends at the largest integer.
pub(super) fn sum_of(expression: &str) -> String {
    format!("CAST(total({expression}) AS INTEGER)")
}

/// The sum of two counts, which ends at the largest integer.
pub(super) fn sum_of_two(one: &str, other: &str) -> String {
    format!("min({one} + {other}, 9223372036854775807)")
}

/// A member of a column of JSON, as a text.
pub(super) fn json_member(column: &str, member: &str) -> String {
    format!("{column} ->> '{member}'")
}

/// The text before and after the list in a subquery of the texts in a JSON list.
pub(super) const JSON_TEXTS: (&str, &str) = ("(SELECT value FROM json_each(", "))");

impl SqlConnection for DbConnection {
    /// This takes the write lock first: a transaction that begins with a read cannot wait for the lock later.
    const BEGIN_CHANGE: &'static str = "BEGIN IMMEDIATE";
    const BEGIN_READ: &'static str = "BEGIN";
}

/// Names the index that a query must use, so that a missing index causes an error rather than a slow query.
pub(super) fn push_index(query: &mut QueryBuilder<Db>, index: &'static str) {
    query.push(" INDEXED BY ").push(index);
}

/// The same for a statement whose text is fixed.
macro_rules! indexed_by {
    ($index:literal) => {
        concat!(" INDEXED BY ", $index)
    };
}
pub(super) use indexed_by;

/// A join that reads the tables in the order of the statement.
macro_rules! ordered_join {
    () => {
        "CROSS JOIN"
    };
}
pub(super) use ordered_join;

/// A sum that ends at the largest integer. `sum` fails if integers overflow; `total` returns a float, and the cast
/// limits it.
macro_rules! sum {
    ($expression:literal) => {
        concat!("CAST(total(", $expression, ") AS INTEGER)")
    };
}
pub(super) use sum;

/// An aggregate that makes a JSON list of texts.
macro_rules! json_list {
    ($expression:literal) => {
        concat!("json_group_array(", $expression, ")")
    };
}
pub(super) use json_list;
