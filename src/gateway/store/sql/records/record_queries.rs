//! Reads records: one of them, or the newest that pass a filter.
//!
//! A page of records must not read all other records. Each list query names the index that it uses, so a missing index
//! causes an error rather than a slow page.

use super::super::decode::optional_usd;
use super::super::driver::{SqlPool, SqlRow};
use super::super::statement::{StatementBuilder, sql};
use crate::gateway::store::{JobRecord, JobState, RecordFilter, RecordSort, RequestId, RunningJob, Timestamp, UserId};
use crate::wire::admin::types;

/// The limit that means all rows.
pub(in super::super) const NO_LIMIT: i64 = i64::MAX;

/// The condition of the partial indexes on unsuccessful records, written exactly like theirs.
const UNSUCCESSFUL: &str = "state <> 'running' AND state <> 'succeeded'";

/// The position of a record in every list: its creation time and its sequence number.
type RecordCursor = (String, i64);

pub(in super::super) async fn find(
    pool: &SqlPool,
    request_id: &RequestId,
    owner: Option<&UserId>,
) -> sqlx::Result<Option<types::Record>> {
    let mut query = StatementBuilder::new("SELECT document FROM records WHERE request_id = ");
    query.push_bind(request_id.as_str());
    if let Some(owner) = owner {
        query.push(" AND user_id = ").push_bind(owner.as_str());
    }
    query.build().fetch_optional(pool).await?.map(|row| document_from_row(&row)).transpose()
}

pub(in super::super) async fn list(pool: &SqlPool, filter: &RecordFilter) -> sqlx::Result<Vec<types::Record>> {
    let before = match &filter.query.before {
        None => None,
        Some(request_id) => {
            let query = sql("SELECT created_at, seq FROM records WHERE request_id = $1");
            // No record comes before a record that does not exist.
            let Some(row) = query.bind(request_id.as_str()).fetch_optional(pool).await? else { return Ok(Vec::new()) };
            Some((row.try_get("created_at")?, row.try_get("seq")?))
        }
    };
    let query = select_query(filter, before);
    query.build().fetch_all(pool).await?.iter().map(document_from_row).collect()
}

/// Reads the running jobs of all nodes.
pub(in super::super) async fn running_jobs(pool: &SqlPool) -> sqlx::Result<Vec<RunningJob>> {
    let query =
        sql("SELECT document, coalesce(max_job_cost_nano_usd, max_cost_nano_usd) AS max_nano_usd FROM records \
         WHERE state = 'running'");
    let from_row = |row: &SqlRow| {
        Ok(RunningJob { document: document_from_row(row)?, max_cost: optional_usd(row, "max_nano_usd")? })
    };
    query.fetch_all(pool).await?.iter().map(from_row).collect()
}

pub(in super::super::super) fn select_query(filter: &RecordFilter, before: Option<RecordCursor>) -> StatementBuilder {
    let value = sort_value(filter.query.sort.unwrap_or(RecordSort::Time));
    // No index has these values, so a bounded number of records is read for them.
    let is_bounded = value.is_some() || filter.query.size.is_some() || filter.query.quality.is_some();
    let mut query =
        StatementBuilder::new(if is_bounded { "SELECT document FROM (SELECT * " } else { "SELECT document " });
    query.push("FROM records");
    // A missing index causes an error rather than a slow page.
    query.push_by_database(&format!(" INDEXED BY {}", choose_index(filter)), "");
    push_conditions(&mut query, filter);
    if let Some((created_at, seq)) = before {
        query.push(" AND (created_at, seq) < (").push_bind(created_at).push(", ").push_bind(seq).push(")");
    }
    query.push(" ORDER BY created_at DESC, seq DESC LIMIT ");
    if is_bounded {
        query.push_bind(i64::from(RecordFilter::SORTED_MAX)).push(") AS newest WHERE true");
        for (member, wanted) in [("size", &filter.query.size), ("quality", &filter.query.quality)] {
            if let Some(wanted) = wanted {
                query.push(" AND ").push_by_database("document", "CAST(document AS JSON)");
                query.push(format_args!(" ->> '{member}' = ")).push_bind(JobRecord::truncate_text(wanted.clone()));
            }
        }
        query.push(" ORDER BY ");
        if let Some(value) = value {
            query.push(value).push(" DESC, ");
        }
        query.push("created_at DESC, seq DESC LIMIT ");
    }
    query.push_bind(filter.limit.map_or(NO_LIMIT, i64::from));
    query
}

/// Adds the conditions that an index or a column can decide.
fn push_conditions(query: &mut StatementBuilder, filter: &RecordFilter) {
    let wanted = &filter.query;
    query.push(" WHERE ");
    push_state(query, filter.state());
    if filter.is_unsuccessful() {
        query.push(" AND ").push(UNSUCCESSFUL);
    }
    if let Some(owner) = &filter.owner {
        query.push(" AND user_id = ").push_bind(owner.to_string());
    }
    if let Some(key) = &wanted.key {
        push_key_id(query.push(" AND key_id = "), key);
    }
    if let Some(user) = &wanted.user {
        push_user_id(query.push(" AND user_id = "), user);
    }
    if let Some(group) = &wanted.group {
        query.push(" AND group_name = ").push_bind(group.clone());
    }
    if let Some(end_user) = &wanted.end_user {
        query.push(" AND end_user = ").push_bind(JobRecord::truncate_text(end_user.clone()));
    }
    if let Some(model) = &wanted.model {
        query.push(" AND model = ").push_bind(JobRecord::truncate_text(model.clone()));
    }
    let reason = wanted.error_reason.map(|reason| reason.as_str().to_owned());
    for (column, value) in [("account", &wanted.account), ("error_code", &wanted.error_code), ("error_reason", &reason)]
    {
        if let Some(value) = value {
            query.push(" AND ").push(column).push(" = ").push_bind(value.clone());
        }
    }
    if let Some(since) = wanted.since {
        query.push(" AND created_at >= ").push_bind(Timestamp::from(since).to_string());
    }
    if let Some(until) = wanted.until {
        query.push(" AND created_at < ").push_bind(Timestamp::from(until).to_string());
    }
}

/// The expression by which records are sorted; `None` if an index has the order.
const fn sort_value(sort: RecordSort) -> Option<&'static str> {
    match sort {
        RecordSort::Time => None,
        RecordSort::Cost => Some("coalesce(cost_nano_usd, -1)"),
        RecordSort::Tokens => Some("coalesce(total_tokens, 0)"),
        RecordSort::Latency => Some("coalesce(latency_ms, 0)"),
    }
}

/// Adds an SQL expression for the id of a key that is given by its id or its public id.
pub(in super::super) fn push_key_id(query: &mut StatementBuilder, key: &str) {
    query.push("coalesce((SELECT id FROM keys WHERE public_id = ").push_bind(key.to_owned());
    query.push("), ").push_bind(key.to_owned()).push(")");
}

/// Adds an SQL expression for the id of a user who is given by id or name. An id has priority, so that no user can pass
/// as another by using its id as a name.
pub(in super::super) fn push_user_id(query: &mut StatementBuilder, user: &str) {
    query.push("coalesce((SELECT id FROM users WHERE id = ").push_bind(user.to_owned());
    query.push("), (SELECT id FROM users WHERE name = ").push_bind(user.to_owned());
    query.push("), ").push_bind(user.to_owned()).push(")");
}

/// Returns the index that leaves the fewest records to read. Indexes also hold the other columns that a filter can name,
/// so that a record that does not pass is skipped without being read.
fn choose_index(filter: &RecordFilter) -> &'static str {
    let by_user = filter.owner.is_some() || filter.query.user.is_some();
    match filter.state() {
        Some(JobState::Running) => "records_running",
        // Few records have an error, and these indexes also hold the state.
        _ if filter.query.error_reason.is_some() => "records_by_error_reason",
        _ if filter.query.error_code.is_some() => "records_by_error_code",
        // A busy key, user or end user has more records than all of them have unsuccessful ones.
        Some(JobState::Failed | JobState::Refused | JobState::Cancelled | JobState::Interrupted) => {
            "records_unsuccessful"
        }
        _ if filter.is_unsuccessful() => "records_unsuccessful_by_time",
        // The index by account holds all of the following, but only it and those of errors hold accounts.
        Some(JobState::Succeeded) | None if filter.query.account.is_some() => "records_by_account",
        // One key can have many end users, but an end user rarely has many keys.
        Some(JobState::Succeeded) | None if filter.query.end_user.is_some() => "records_by_end_user",
        Some(JobState::Succeeded) | None if filter.query.key.is_some() => "records_by_key",
        Some(JobState::Succeeded) | None if by_user => "records_by_user",
        Some(JobState::Succeeded) | None if filter.query.model.is_some() => "records_by_model",
        Some(JobState::Succeeded) | None if filter.query.group.is_some() => "records_by_group",
        Some(JobState::Succeeded) | None => "records_by_time",
    }
}

/// Adds the condition on the state. SQLite uses a partial index only if its condition appears in the statement
/// literally. PostgreSQL, which plans a frequent statement once for all values, knows from a literal state how few records
/// have it.
fn push_state(query: &mut StatementBuilder, state: Option<JobState>) {
    match state {
        None => query.push("state <> 'running'"),
        Some(JobState::Running) => query.push("state = 'running'"),
        Some(JobState::Succeeded) => query.push("state = 'succeeded'"),
        Some(state) => query.push(UNSUCCESSFUL).push(" AND state = '").push(state.as_str()).push("'"),
    };
}

/// Reads a record, without the names of its user and its key.
pub(in super::super) fn document_from_row(row: &SqlRow) -> sqlx::Result<types::Record> {
    let text: &str = row.try_get("document")?;
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(error.into()))
}
