//! Reads records: one of them, or the newest that pass a filter.
//!
//! A page of records must not read all other records. Each list query names the index that it uses, so a missing index
//! causes an error rather than a slow page.

use sqlx::{QueryBuilder, Row};

use super::super::decode::{
    list as json_list, optional_count, optional_hash, optional_parsed, optional_usd, parsed, text,
};
use super::super::dialect::{Db, DbPool, DbRow, push_index};
use crate::gateway::store::{
    AnswerCharges, JobState, Record, RecordFilter, RecordSort, RequestId, TokenDetails, TokenUsage, UserId,
};

/// The limit that means all rows.
pub(in super::super) const NO_LIMIT: i64 = i64::MAX;

/// The condition of the partial indexes on unsuccessful records, written exactly like theirs.
const UNSUCCESSFUL: &str = "state <> 'running' AND state <> 'succeeded'";

/// The position of a record in every list: its creation time and its sequence number.
type RecordCursor = (String, i64);

pub(in super::super) async fn find(
    pool: &DbPool,
    request_id: &RequestId,
    owner: Option<&UserId>,
) -> sqlx::Result<Option<Record>> {
    let mut query = QueryBuilder::new("SELECT * FROM records WHERE request_id = ");
    query.push_bind(request_id.as_str());
    if let Some(owner) = owner {
        query.push(" AND user_id = ").push_bind(owner.as_str());
    }
    query.build().fetch_optional(pool).await?.map(|row| record_from_row(&row)).transpose()
}

pub(in super::super) async fn list(pool: &DbPool, filter: &RecordFilter) -> sqlx::Result<Vec<Record>> {
    let before = match &filter.before {
        None => None,
        Some(request_id) => {
            let query = sqlx::query_as("SELECT created_at, seq FROM records WHERE request_id = $1");
            let position: Option<RecordCursor> = query.bind(request_id.as_str()).fetch_optional(pool).await?;
            // No record comes before a record that does not exist.
            let Some(position) = position else { return Ok(Vec::new()) };
            Some(position)
        }
    };
    let mut query = select_query(filter, before);
    query.build().fetch_all(pool).await?.iter().map(record_from_row).collect()
}

pub(in super::super::super) fn select_query(filter: &RecordFilter, before: Option<RecordCursor>) -> QueryBuilder<Db> {
    let value = sort_value(filter.sort.unwrap_or(RecordSort::Time));
    // No index has these values, so a bounded number of records is read for them.
    let is_bounded = value.is_some() || filter.size.is_some() || filter.quality.is_some();
    let mut query = QueryBuilder::new(if is_bounded { "SELECT * FROM (" } else { "" });
    query.push("SELECT * FROM records");
    push_index(&mut query, choose_index(filter));
    query.push(" WHERE ");
    push_state(&mut query, filter.state);
    if filter.is_unsuccessful {
        query.push(" AND ").push(UNSUCCESSFUL);
    }
    if let Some(owner) = &filter.owner {
        query.push(" AND user_id = ").push_bind(owner.to_string());
    }
    if let Some(key) = &filter.key {
        push_key_id(query.push(" AND key_id = "), key);
    }
    if let Some(user) = &filter.user {
        push_user_id(query.push(" AND user_id = "), user);
    }
    if let Some(group) = &filter.group {
        query.push(" AND group_name = ").push_bind(group.clone());
    }
    if let Some(end_user) = &filter.end_user {
        query.push(" AND end_user = ").push_bind(Record::truncate_text(end_user.clone()));
    }
    if let Some(model) = &filter.model {
        query.push(" AND model = ").push_bind(Record::truncate_text(model.clone()));
    }
    for (column, value) in
        [("account", &filter.account), ("error_code", &filter.error_code), ("error_reason", &filter.error_reason)]
    {
        if let Some(value) = value {
            query.push(" AND ").push(column).push(" = ").push_bind(value.clone());
        }
    }
    if let Some(since) = filter.since {
        query.push(" AND created_at >= ").push_bind(since.to_string());
    }
    if let Some(until) = filter.until {
        query.push(" AND created_at < ").push_bind(until.to_string());
    }
    if let Some((created_at, seq)) = before {
        query.push(" AND (created_at, seq) < (").push_bind(created_at).push(", ").push_bind(seq).push(")");
    }
    query.push(" ORDER BY created_at DESC, seq DESC LIMIT ");
    if is_bounded {
        query.push_bind(i64::from(RecordFilter::SORTED_MAX)).push(") AS newest WHERE true");
        for (condition, wanted) in [(" AND size = ", &filter.size), (" AND quality = ", &filter.quality)] {
            if let Some(wanted) = wanted {
                query.push(condition).push_bind(Record::truncate_text(wanted.clone()));
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

/// The expression by which records are sorted; `None` if an index has the order.
const fn sort_value(sort: RecordSort) -> Option<&'static str> {
    match sort {
        RecordSort::Time => None,
        RecordSort::Cost => Some("coalesce(cost_nano_usd, -1)"),
        RecordSort::Tokens => Some("coalesce(total_tokens, 0) + coalesce(host_total_tokens, 0)"),
        RecordSort::Latency => Some("coalesce(latency_ms, 0)"),
    }
}

/// Adds an SQL expression for the id of a key that is given by its id or its public id.
pub(in super::super) fn push_key_id(query: &mut QueryBuilder<Db>, key: &str) {
    query.push("coalesce((SELECT id FROM keys WHERE public_id = ").push_bind(key.to_owned());
    query.push("), ").push_bind(key.to_owned()).push(")");
}

/// Adds an SQL expression for the id of a user who is given by id or name. An id has priority, so that no user can pass
/// as another by using its id as a name.
pub(in super::super) fn push_user_id(query: &mut QueryBuilder<Db>, user: &str) {
    query.push("coalesce((SELECT id FROM users WHERE id = ").push_bind(user.to_owned());
    query.push("), (SELECT id FROM users WHERE name = ").push_bind(user.to_owned());
    query.push("), ").push_bind(user.to_owned()).push(")");
}

/// Returns the index that leaves the fewest records to read. Indexes also hold the other columns that a filter can name,
/// so that a record that does not pass is skipped without being read.
fn choose_index(filter: &RecordFilter) -> &'static str {
    let by_user = filter.owner.is_some() || filter.user.is_some();
    match filter.state {
        Some(JobState::Running) => "records_running",
        // Few records have an error, and these indexes also hold the state.
        _ if filter.error_reason.is_some() => "records_by_error_reason",
        _ if filter.error_code.is_some() => "records_by_error_code",
        // A busy key, user or end user has more records than all of them have unsuccessful ones.
        Some(JobState::Failed | JobState::Refused | JobState::Cancelled | JobState::Interrupted) => {
            "records_unsuccessful"
        }
        _ if filter.is_unsuccessful => "records_unsuccessful_by_time",
        // The index by account holds all of the following, but only it and those of errors hold accounts.
        Some(JobState::Succeeded) | None if filter.account.is_some() => "records_by_account",
        // One key can have many end users, but an end user rarely has many keys.
        Some(JobState::Succeeded) | None if filter.end_user.is_some() => "records_by_end_user",
        Some(JobState::Succeeded) | None if filter.key.is_some() => "records_by_key",
        Some(JobState::Succeeded) | None if by_user => "records_by_user",
        Some(JobState::Succeeded) | None if filter.model.is_some() => "records_by_model",
        Some(JobState::Succeeded) | None if filter.group.is_some() => "records_by_group",
        Some(JobState::Succeeded) | None => "records_by_time",
    }
}

/// Adds the condition on the state. SQLite uses a partial index only if its condition appears in the statement
/// literally. PostgreSQL, which plans a frequent statement once for all values, knows from a literal state how few records
/// have it.
fn push_state(query: &mut QueryBuilder<Db>, state: Option<JobState>) {
    match state {
        None => query.push("state <> 'running'"),
        Some(JobState::Running) => query.push("state = 'running'"),
        Some(JobState::Succeeded) => query.push("state = 'succeeded'"),
        Some(state) => query.push(UNSUCCESSFUL).push(" AND state = '").push(state.as_str()).push("'"),
    };
}

fn record_from_row(row: &DbRow) -> sqlx::Result<Record> {
    let mut record = Record {
        request_id: text(row, "request_id")?,
        created_at: parsed(row, "created_at")?,
        operation: text(row, "operation")?,
        model: row.try_get("model")?,
        stream: row.try_get("stream")?,
        state: parsed(row, "state")?,
        error_code: row.try_get("error_code")?,
        error_reason: row.try_get("error_reason")?,
        error_detail: row.try_get("error_detail")?,
        size: row.try_get("size")?,
        quality: row.try_get("quality")?,
        output_format: row.try_get("output_format")?,
        n: optional_count(row, "n")?,
        delivered: json_list(row, "delivered")?,
        usage: usage_from_row(row)?,
        cost_usd: optional_usd(row, "cost_nano_usd")?,
        latency_ms: optional_count(row, "latency_ms")?,
        first_byte_ms: optional_count(row, "first_byte_ms")?,
        attempts: json_list(row, "attempts")?,
        account: row.try_get("account")?,
        group: text(row, "group_name")?,
        user: text(row, "user_id")?,
        key: text(row, "key_id")?,
        end_user: row.try_get("end_user")?,
        fallback: row.try_get("fallback")?,
        injected_tool: row.try_get("injected_tool")?,
        bindings: Vec::new(),
        fingerprint: optional_hash(row, "fingerprint")?,
        missing: None,
        image_model: row.try_get("image_model")?,
        host_model: row.try_get("host_model")?,
        host_usage: host_usage_from_row(row)?,
        maybe_paid_twice: row.try_get("maybe_paid_twice")?,
        cost_basis: optional_parsed(row, "cost_basis")?,
        cost_reason: optional_parsed(row, "cost_reason")?,
        price_version: row.try_get("price_version")?,
        adapted: row.try_get("adapted")?,
        max_cost_usd: optional_usd(row, "max_cost_nano_usd")?,
        max_job_cost_usd: optional_usd(row, "max_job_cost_nano_usd")?,
        charges: AnswerCharges::default(),
    };
    record.missing = record.count_missing();
    Ok(record)
}

fn usage_from_row(row: &DbRow) -> sqlx::Result<Option<TokenUsage>> {
    let usage = TokenUsage {
        input_tokens: optional_count(row, "input_tokens")?,
        input_tokens_details: token_details_from_row(row, "input_image_tokens", "input_text_tokens")?,
        output_tokens: optional_count(row, "output_tokens")?,
        output_tokens_details: token_details_from_row(row, "output_image_tokens", "output_text_tokens")?,
        total_tokens: optional_count(row, "total_tokens")?,
        cached_tokens_details: token_details_from_row(row, "input_cached_image_tokens", "input_cached_text_tokens")?,
        ..TokenUsage::default()
    };
    Ok(Some(usage).filter(|usage| *usage != TokenUsage::default()))
}

/// Reads the tokens of the text model, which have no details: one count for the input and one for the output.
fn host_usage_from_row(row: &DbRow) -> sqlx::Result<Option<TokenUsage>> {
    let cached = optional_count(row, "host_input_cached_tokens")?;
    let usage = TokenUsage {
        input_tokens: optional_count(row, "host_input_tokens")?,
        output_tokens: optional_count(row, "host_output_tokens")?,
        total_tokens: optional_count(row, "host_total_tokens")?,
        cached_tokens_details: cached.map(|text| TokenDetails { image_tokens: None, text_tokens: Some(text) }),
        ..TokenUsage::default()
    };
    Ok(Some(usage).filter(|usage| *usage != TokenUsage::default()))
}

fn token_details_from_row(row: &DbRow, image: &str, text: &str) -> sqlx::Result<Option<TokenDetails>> {
    let details = TokenDetails { image_tokens: optional_count(row, image)?, text_tokens: optional_count(row, text)? };
    Ok(Some(details).filter(|details| *details != TokenDetails::default()))
}
