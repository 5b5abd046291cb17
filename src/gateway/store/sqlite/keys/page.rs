//! One page of a very long list of keys, newest first.
//!
//! Indexes find the keys by owner, by group, and by position in the list. A search for a part of a name reads all rows
//! that these conditions leave.

use sqlx::{QueryBuilder, Sqlite, SqlitePool};

use super::{key_from_row, select_keys};
use crate::gateway::store::sqlite::paging::{fetch_count, like_pattern, split_page};
use crate::gateway::store::{KeyFilter, KeyRow, KeyState, ListPage, Timestamp};

pub(super) async fn page(pool: &SqlitePool, filter: &KeyFilter, now: Timestamp) -> sqlx::Result<ListPage<KeyRow>> {
    let fetched = rows_query(filter, now).build().fetch_all(pool).await?;
    let (items, has_more) = split_page(fetched, filter.limit, key_from_row)?;
    Ok(ListPage { items, total: fetch_count(count_query(filter, now), pool).await?, has_more })
}

fn rows_query(filter: &KeyFilter, now: Timestamp) -> QueryBuilder<Sqlite> {
    let mut rows = QueryBuilder::new(select_keys!("WHERE keys.deleted_at IS NULL"));
    push_conditions(&mut rows, filter, now);
    if let Some(before) = &filter.before {
        rows.push(" AND keys.rowid < (SELECT rowid FROM keys WHERE id = ").push_bind(before.to_string()).push(")");
    }
    rows.push(" ORDER BY keys.rowid DESC LIMIT ").push_bind(i64::from(filter.limit) + 1);
    rows
}

fn count_query(filter: &KeyFilter, now: Timestamp) -> QueryBuilder<Sqlite> {
    // The table of users is joined only if the filter refers to it.
    let mut count = QueryBuilder::new(if filter.search.is_some() || filter.state.is_some() {
        "SELECT count(*) FROM keys JOIN users ON users.id = keys.user_id WHERE keys.deleted_at IS NULL"
    } else {
        "SELECT count(*) FROM keys WHERE keys.deleted_at IS NULL"
    });
    push_conditions(&mut count, filter, now);
    count
}

fn push_conditions(query: &mut QueryBuilder<Sqlite>, filter: &KeyFilter, now: Timestamp) {
    if let Some(owner) = &filter.owner {
        query.push(" AND keys.user_id = ").push_bind(owner.to_string());
    }
    if let Some(group) = &filter.group {
        query.push(" AND keys.group_id = (SELECT id FROM groups WHERE name = ").push_bind(group.clone()).push(")");
    }
    if let Some(search) = &filter.search {
        let pattern = like_pattern(search);
        query.push(" AND (keys.name LIKE ").push_bind(pattern.clone());
        query.push(r" ESCAPE '\' OR keys.public_id LIKE ").push_bind(pattern.clone());
        query.push(r" ESCAPE '\' OR users.name LIKE ").push_bind(pattern).push(r" ESCAPE '\')");
    }
    let Some(state) = filter.state else { return };
    match state {
        KeyState::Disabled => query.push(" AND keys.disabled_at IS NOT NULL"),
        KeyState::UserDisabled => query.push(" AND keys.disabled_at IS NULL AND users.disabled_at IS NOT NULL"),
        KeyState::Expired => query
            .push(" AND keys.disabled_at IS NULL AND users.disabled_at IS NULL AND keys.expires_at <= ")
            .push_bind(now.to_string()),
        KeyState::Active => query
            .push(" AND keys.disabled_at IS NULL AND users.disabled_at IS NULL AND (keys.expires_at IS NULL OR keys.expires_at > ")
            .push_bind(now.to_string())
            .push(")"),
    };
}

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, Row as _};

    use super::*;
    use crate::gateway::store::SqliteStore;
    use crate::gateway::store::testing::new_store;

    async fn plan(store: &SqliteStore, query: QueryBuilder<Sqlite>) -> String {
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", query.sql().as_str()));
        let steps = sqlx::query(explain).fetch_all(&store.readers).await.unwrap();
        steps.iter().map(|step| step.get::<String, _>("detail")).collect::<Vec<_>>().join("; ")
    }

    #[tokio::test]
    async fn a_page_is_found_by_an_index_and_never_sorted() {
        let (_dir, store) = new_store().await;
        let now = Timestamp::now();
        let before = Some("key_1".into());
        let all = KeyFilter { before: before.clone(), limit: 50, ..KeyFilter::default() };
        let owned = KeyFilter { owner: Some("usr_1".into()), before, limit: 50, ..KeyFilter::default() };
        let grouped = KeyFilter { group: Some("default".to_owned()), limit: 50, ..KeyFilter::default() };
        for (filter, index) in
            [(all, "INTEGER PRIMARY KEY (rowid<?)"), (owned, "keys_of_user"), (grouped, "keys_of_group")]
        {
            let rows = plan(&store, rows_query(&filter, now)).await;
            assert!(rows.contains(index) && !rows.contains("TEMP B-TREE"), "{rows}");
            let count = plan(&store, count_query(&filter, now)).await;
            assert!(count.contains("COVERING INDEX"), "{count}");
        }
    }
}
