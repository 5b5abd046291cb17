//! Helpers for queries that return a long list in pages.

use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Sqlite, SqlitePool};

/// Returns the items of one page, and true if more rows follow. The query must ask for one row more than `limit`.
pub(super) fn split_page<T>(
    mut rows: Vec<SqliteRow>,
    limit: u32,
    read: impl FnMut(&SqliteRow) -> sqlx::Result<T>,
) -> sqlx::Result<(Vec<T>, bool)> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    Ok((rows.iter().map(read).collect::<sqlx::Result<_>>()?, has_more))
}

/// Runs a query that counts rows, and returns the count.
pub(super) async fn fetch_count(mut query: QueryBuilder<Sqlite>, pool: &SqlitePool) -> sqlx::Result<u64> {
    let count: i64 = query.build_query_scalar().fetch_one(pool).await?;
    Ok(count.unsigned_abs())
}

/// Returns a `LIKE` pattern for values that contain this text literally. The query must add `ESCAPE '\'`.
pub(super) fn like_pattern(text: &str) -> String {
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
