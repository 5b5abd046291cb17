//! Helpers for queries that return a long list in pages.

use super::driver::{SqlPool, SqlRow};
use super::statement::StatementBuilder;

/// Returns the items of one page, and true if more rows follow. The query must ask for one row more than `limit`.
pub(super) fn split_page<T>(
    mut rows: Vec<SqlRow>,
    limit: u32,
    read: impl FnMut(&SqlRow) -> sqlx::Result<T>,
) -> sqlx::Result<(Vec<T>, bool)> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    Ok((rows.iter().map(read).collect::<sqlx::Result<_>>()?, has_more))
}

/// The order of a list that is read in pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListOrder {
    /// The table of the rows.
    pub(super) table: &'static str,
    /// The expression by which rows are sorted, never NULL; `None` if they are sorted by their age.
    pub(super) value: Option<&'static str>,
    /// True if the smallest value comes first, and then the oldest row; otherwise the largest value, and then the newest.
    pub(super) is_ascending: bool,
}

// === impl ListOrder ===

impl ListOrder {
    /// Adds the condition for the rows after the row with the id `before`, and the order of the rows. Where the expression
    /// of the order stands in a subquery, its table is the one of the subquery.
    pub(super) fn push(self, query: &mut StatementBuilder, before: Option<&str>) {
        let Self { table, value, is_ascending } = self;
        let (after, direction) = if is_ascending { (">", "ASC") } else { ("<", "DESC") };
        let position = value.map_or_else(|| format!("{table}.rowid"), |value| format!("{value}, {table}.rowid"));
        if let Some(before) = before {
            query.push(format!(" AND ({position}) {after} (SELECT {position} FROM {table} WHERE {table}.id = "));
            query.push_bind(before.to_owned()).push(")");
        }
        query.push(" ORDER BY ");
        if let Some(value) = value {
            query.push(format!("{value} {direction}, "));
        }
        query.push(format!("{table}.rowid {direction}"));
    }
}

/// Runs a query that counts rows, and returns the count.
pub(super) async fn fetch_count(query: StatementBuilder, pool: &SqlPool) -> sqlx::Result<u64> {
    let count: i64 = query.build().fetch_value(pool).await?;
    Ok(count.unsigned_abs())
}

/// Adds a subquery of the texts in this JSON list. The list is one bound value, so that the statement is the same for
/// any number of texts.
pub(super) fn push_json_texts(query: &mut StatementBuilder, list: String) {
    query.push_by_database("(SELECT value FROM json_each(", "(SELECT json_array_elements_text(CAST(");
    query.push_bind(list).push_by_database("))", " AS JSON)))");
}

/// Adds the condition that a column contains this text, regardless of upper and lower case.
pub(super) fn push_contains(query: &mut StatementBuilder, column: &str, text: &str) {
    query.push(format_args!("lower({column}) LIKE lower(")).push_bind(like_pattern(text)).push(r") ESCAPE '\'");
}

/// Returns a pattern for values that contain this text literally. The query must add `ESCAPE '\'`.
fn like_pattern(text: &str) -> String {
    let mut pattern = String::from("%");
    for character in text.chars() {
        if matches!(character, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('%');
    pattern
}
