//! Records: intents in, outcomes over them, lists out.

use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Connection, Row, Sqlite, SqliteConnection, SqlitePool};

use super::decode::{count, list as json_list, parsed, text};
use crate::gateway::store::{NodeId, Record, RecordFilter, RecordWrite, TokenDetails, Usage, Written};

const OPEN: &str = "INSERT INTO records (request_id, node, created_at, operation, model, stream, state, size, quality, \
    output_format, n, account, group_name, user_id, key_id, end_user, injected_tool) \
    VALUES ($1, $2, $3, $4, $5, $6, 'running', $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ON CONFLICT DO NOTHING";

const CLOSE: &str = "UPDATE records SET state = $2, error_code = $3, delivered = $4, input_tokens = $5, \
    input_image_tokens = $6, input_text_tokens = $7, output_tokens = $8, output_image_tokens = $9, \
    output_text_tokens = $10, total_tokens = $11, cost_usd = $12, latency_ms = $13, first_byte_ms = $14, \
    attempts = $15, account = $16, fallback = $17 \
    WHERE request_id = $1 AND state = 'running'";

/// Without a limit SQLite wants a number all the same; a negative one means all.
const NO_LIMIT: i64 = -1;

macro_rules! select_newest {
    ($condition:literal) => {
        concat!(
            "SELECT * FROM (SELECT * FROM records WHERE state <> 'running' AND ",
            $condition,
            " ORDER BY created_at DESC, seq DESC LIMIT $2) ORDER BY created_at, seq"
        )
    };
}

pub(super) async fn write(pool: &SqlitePool, node: &NodeId, writes: &[RecordWrite<'_>]) -> sqlx::Result<Vec<Written>> {
    let mut connection = pool.acquire().await?;
    // A single statement is a transaction by itself: two round trips less where nothing has gathered.
    if let [write] = writes {
        return Ok(vec![write_one(&mut connection, node, *write).await?]);
    }
    let written = write_all(&mut connection, node, writes).await;
    if written.is_err() {
        // On a full disk SQLite ends a transaction by itself, which the driver does not notice: from then on it would
        // refuse every new one on this connection.
        let _ = connection.close().await;
    }
    written
}

async fn write_all(
    connection: &mut SqliteConnection,
    node: &NodeId,
    writes: &[RecordWrite<'_>],
) -> sqlx::Result<Vec<Written>> {
    // Taking the write lock first: a transaction that begins by reading cannot wait for it later.
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let mut written = Vec::with_capacity(writes.len());
    for write in writes {
        written.push(write_one(&mut transaction, node, *write).await?);
    }
    transaction.commit().await?;
    Ok(written)
}

async fn write_one(connection: &mut SqliteConnection, node: &NodeId, write: RecordWrite<'_>) -> sqlx::Result<Written> {
    let query = match write {
        RecordWrite::Open(record) => open(node, record),
        RecordWrite::Close(record) => close(record)?,
    };
    let changed = query.execute(connection).await?.rows_affected();
    Ok(if changed == 1 { Written::Done } else { Written::NoEffect })
}

fn open<'q>(node: &'q NodeId, record: &'q Record) -> Query<'q, Sqlite, SqliteArguments> {
    sqlx::query(OPEN)
        .bind(record.request_id.as_str())
        .bind(node.as_str())
        .bind(record.created_at.to_string())
        .bind(&record.operation)
        .bind(&record.model)
        .bind(record.stream)
        .bind(&record.size)
        .bind(&record.quality)
        .bind(&record.output_format)
        .bind(record.n)
        .bind(&record.account)
        .bind(&record.group)
        .bind(record.user.as_str())
        .bind(record.key.as_str())
        .bind(&record.end_user)
        .bind(record.injected_tool)
}

fn close(record: &Record) -> sqlx::Result<Query<'_, Sqlite, SqliteArguments>> {
    let usage = record.usage.clone().unwrap_or_default();
    let input = usage.input_tokens_details.unwrap_or_default();
    let output = usage.output_tokens_details.unwrap_or_default();
    Ok(sqlx::query(CLOSE)
        .bind(record.request_id.as_str())
        .bind(record.state.as_str())
        .bind(&record.error_code)
        .bind(json(&record.delivered)?)
        .bind(number(usage.input_tokens))
        .bind(number(input.image_tokens))
        .bind(number(input.text_tokens))
        .bind(number(usage.output_tokens))
        .bind(number(output.image_tokens))
        .bind(number(output.text_tokens))
        .bind(number(usage.total_tokens))
        .bind(record.cost_usd)
        .bind(number(record.latency_ms))
        .bind(number(record.first_byte_ms))
        .bind(json(&record.attempts)?)
        .bind(&record.account)
        .bind(&record.fallback))
}

pub(super) async fn interrupt_running(pool: &SqlitePool, node: &NodeId) -> sqlx::Result<u64> {
    let query = sqlx::query("UPDATE records SET state = 'interrupted' WHERE state = 'running' AND node = $1");
    Ok(query.bind(node.as_str()).execute(pool).await?.rows_affected())
}

pub(super) async fn list(pool: &SqlitePool, filter: &RecordFilter) -> sqlx::Result<Vec<Record>> {
    // Two statements and no `$2 IS NULL OR`: each must find its index.
    let query = match &filter.key {
        None => sqlx::query(select_newest!("created_at >= $1")),
        Some(_) => sqlx::query(select_newest!(
            "created_at >= $1 AND key_id = coalesce((SELECT id FROM keys WHERE public_id = $3), $3)"
        )),
    };
    let query = query
        // Every moment sorts after the empty text.
        .bind(filter.since.map(|moment| moment.to_string()).unwrap_or_default())
        .bind(filter.limit.map_or(NO_LIMIT, i64::from));
    let query = match &filter.key {
        None => query,
        Some(key) => query.bind(key),
    };
    query.fetch_all(pool).await?.iter().map(record).collect()
}

fn record(row: &SqliteRow) -> sqlx::Result<Record> {
    Ok(Record {
        request_id: text(row, "request_id")?,
        created_at: parsed(row, "created_at")?,
        operation: text(row, "operation")?,
        model: row.try_get("model")?,
        stream: row.try_get("stream")?,
        state: parsed(row, "state")?,
        error_code: row.try_get("error_code")?,
        size: row.try_get("size")?,
        quality: row.try_get("quality")?,
        output_format: row.try_get("output_format")?,
        n: count(row, "n")?,
        delivered: json_list(row, "delivered")?,
        usage: usage(row)?,
        cost_usd: row.try_get("cost_usd")?,
        latency_ms: count(row, "latency_ms")?,
        first_byte_ms: count(row, "first_byte_ms")?,
        attempts: json_list(row, "attempts")?,
        account: row.try_get("account")?,
        group: text(row, "group_name")?,
        user: text(row, "user_id")?,
        key: text(row, "key_id")?,
        end_user: row.try_get("end_user")?,
        fallback: row.try_get("fallback")?,
        injected_tool: row.try_get("injected_tool")?,
    })
}

fn usage(row: &SqliteRow) -> sqlx::Result<Option<Usage>> {
    let usage = Usage {
        input_tokens: count(row, "input_tokens")?,
        input_tokens_details: details(row, "input_image_tokens", "input_text_tokens")?,
        output_tokens: count(row, "output_tokens")?,
        output_tokens_details: details(row, "output_image_tokens", "output_text_tokens")?,
        total_tokens: count(row, "total_tokens")?,
    };
    Ok(Some(usage).filter(|usage| *usage != Usage::default()))
}

fn details(row: &SqliteRow, image: &str, text: &str) -> sqlx::Result<Option<TokenDetails>> {
    let details = TokenDetails { image_tokens: count(row, image)?, text_tokens: count(row, text)? };
    Ok(Some(details).filter(|details| *details != TokenDetails::default()))
}

/// The database counts to 2^63; an upstream that claims more is believed as far as that.
fn number(value: Option<u64>) -> Option<i64> {
    value.map(|value| i64::try_from(value).unwrap_or(i64::MAX))
}

fn json<T: serde::Serialize>(list: &[T]) -> sqlx::Result<String> {
    serde_json::to_string(list).map_err(|error| sqlx::Error::Encode(error.into()))
}
