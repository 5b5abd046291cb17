//! Helpers for queries that return a long list in pages.

use sqlx::QueryBuilder;

use super::dialect::{Db, DbPool, DbRow, JSON_TEXTS};

/// Returns the items of one page, and true if more rows follow. The query must ask for one row more than `limit`.
pub(super) fn split_page<T>(
    mut rows: Vec<DbRow>,
    limit: u32,
    read: impl FnMut(&DbRow) -> sqlx::Result<T>,
) -> sqlx::Result<(Vec<T>, bool)> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    Ok((rows.iter().map(read).collect::<sqlx::Result<_>>()?, has_more))
}

/// Runs a query that counts rows, and returns the count.
pub(super) async fn fetch_count(mut query: QueryBuilder<Db>, pool: &DbPool) -> sqlx::Result<u64> {
    let count: i64 = query.build_query_scalar().fetch_one(pool).await?;
    Ok(count.unsigned_abs())
}

/// Adds a subquery of the texts in this JSON list. The list is one bound value, so that the statement is the same for
/// any number of texts.
pub(super) fn push_json_texts(query: &mut QueryBuilder<Db>, list: String) {
    let (before, after) = JSON_TEXTS;
    query.push(before).push_bind(list).push(after);
}

/// Returns a pattern of [`super::dialect::LIKE`] for values that contain this text literally. The query must add `ESCAPE '\'`.
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
