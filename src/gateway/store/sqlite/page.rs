//! What every page of a long list has in common.

use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Sqlite, SqlitePool};

/// The rows of one page, of which one more than wanted was asked for, and whether that one was there.
pub(super) fn more<T>(
    mut rows: Vec<SqliteRow>,
    limit: u32,
    read: impl FnMut(&SqliteRow) -> sqlx::Result<T>,
) -> sqlx::Result<(Vec<T>, bool)> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    Ok((rows.iter().map(read).collect::<sqlx::Result<_>>()?, has_more))
}

/// What a query counts.
pub(super) async fn total(mut query: QueryBuilder<Sqlite>, pool: &SqlitePool) -> sqlx::Result<u64> {
    let count: i64 = query.build_query_scalar().fetch_one(pool).await?;
    Ok(count.unsigned_abs())
}

/// A pattern that finds this text anywhere, whatever is in it. To be followed by `ESCAPE '\'`.
pub(super) fn anywhere(text: &str) -> String {
    let mut pattern = String::from("%");
    for letter in text.chars() {
        if matches!(letter, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern.push('%');
    pattern
}
