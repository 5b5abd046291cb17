//! One page of the list of keys.
//!
//! Indexes find the keys by owner, by group, and by position in the list. A search for a part of a name reads all rows
//! that these conditions leave.

use super::super::driver::SqlPool;
use super::super::paging::{ListOrder, fetch_count, push_contains, split_page};
use super::super::statement::StatementBuilder;
use super::super::usage::sum;
use super::{key_from_row, select_keys};
use crate::gateway::store::{KeyFilter, KeyRow, KeySort, KeyState, ListPage, Timestamp};

/// The sum of a column of the usage of a key.
macro_rules! usage_sum {
    ($column:literal) => {
        concat!("coalesce((SELECT ", sum!($column), " FROM usage_days WHERE usage_days.key_id = keys.id), 0)")
    };
}

pub(super) async fn page(pool: &SqlPool, filter: &KeyFilter, now: Timestamp) -> sqlx::Result<ListPage<KeyRow>> {
    let fetched = rows_query(filter, now).build().fetch_all(pool).await?;
    let (items, has_more) = split_page(fetched, filter.limit, key_from_row)?;
    Ok(ListPage { items, total: fetch_count(count_query(filter, now), pool).await?, has_more })
}

pub(in super::super::super) fn rows_query(filter: &KeyFilter, now: Timestamp) -> StatementBuilder {
    let mut rows = StatementBuilder::new(select_keys!("WHERE keys.deleted_at IS NULL"));
    push_conditions(&mut rows, filter, now);
    list_order(filter.sort.unwrap_or(KeySort::Created)).push(&mut rows, filter.before.as_ref().map(|id| id.as_str()));
    rows.push(" LIMIT ").push_bind(i64::from(filter.limit) + 1);
    rows
}

/// The order of a list of keys. A sum over the usage is read for each key that passes the filter.
const fn list_order(sort: KeySort) -> ListOrder {
    let value = match sort {
        KeySort::Created => None,
        KeySort::Name => Some("lower(keys.name)"),
        KeySort::LastUsed => Some("coalesce(keys.last_used_at, '')"),
        KeySort::Requests => Some(usage_sum!("requests")),
        KeySort::Images => Some(usage_sum!("images")),
        KeySort::Cost => Some(usage_sum!("cost_nano_usd")),
    };
    ListOrder { table: "keys", value, is_ascending: matches!(sort, KeySort::Name) }
}

pub(in super::super::super) fn count_query(filter: &KeyFilter, now: Timestamp) -> StatementBuilder {
    // The table of users is joined only if the filter refers to it.
    let mut count = StatementBuilder::new(if filter.search.is_some() || filter.state.is_some() {
        "SELECT count(*) FROM keys JOIN users ON users.id = keys.user_id WHERE keys.deleted_at IS NULL"
    } else {
        "SELECT count(*) FROM keys WHERE keys.deleted_at IS NULL"
    });
    push_conditions(&mut count, filter, now);
    count
}

fn push_conditions(query: &mut StatementBuilder, filter: &KeyFilter, now: Timestamp) {
    if let Some(owner) = &filter.owner {
        query.push(" AND keys.user_id = ").push_bind(owner.to_string());
    }
    if let Some(group) = &filter.group {
        query.push(" AND keys.group_id = (SELECT id FROM groups WHERE name = ").push_bind(group.clone()).push(")");
    }
    if let Some(search) = &filter.search {
        for (before, column) in [(" AND (", "keys.name"), (" OR ", "keys.public_id"), (" OR ", "users.name")] {
            push_contains(query.push(before), column, search);
        }
        query.push(")");
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
