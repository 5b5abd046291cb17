//! The statements for records, except the writes of intents and outcomes, which each database makes in its own way.
//! The module [`record_queries`] reads records.

pub(in super::super) mod record_queries;

pub(super) use record_queries::{NO_LIMIT, find, list, push_key_id, push_user_id, running_jobs};

use super::decode::optional_usd;
use super::driver::{SqlConnection, SqlPool};
use super::statement::{SqlText, sql, sql_text, with_json_cells};
use super::transaction::transact;
use crate::gateway::money::Usd;
use crate::gateway::store::record::to_sql_integer;
use crate::gateway::store::{JobRecord, NodeId};
use record_queries::document_from_row;

/// The condition on the state is written exactly like that of the partial index.
pub(in super::super) const STATES_BY_FINGERPRINT: &str = "SELECT state FROM records \
    WHERE fingerprint = $1 AND created_at >= $2 AND state <> 'succeeded' \
    ORDER BY created_at DESC, seq DESC LIMIT $3";

/// The condition is written exactly like that of the partial index, so that a start reads only the running rows.
/// They are locked until the end of the transaction; in SQLite, it has the only lock for writes.
pub(in super::super) const RUNNING_OF_NODE: SqlText = sql_text!(
    "SELECT seq, document, max_cost_nano_usd, max_job_cost_nano_usd FROM records \
     WHERE state = 'running' AND node = $1 ORDER BY seq",
    ["", " FOR UPDATE"],
    ""
);

/// Closes the records of a JSON list, in one statement: the counts of all of them are locked in one order.
const INTERRUPT: SqlText = with_json_cells!(
    "UPDATE records SET state = 'interrupted', cost_nano_usd = CAST(cells.value ->> 1 AS BIGINT), \
     document = cells.value ->> 2 FROM ",
    " WHERE records.seq = CAST(cells.value ->> 0 AS BIGINT) AND records.state = 'running'"
);

/// Closes the running records of a node, and returns their number.
pub(in super::super) async fn interrupt_running(pool: &SqlPool, node: &NodeId) -> sqlx::Result<u64> {
    transact!(pool.begin_change(), |transaction| interrupt_in_transaction(transaction, node).await?)
}

/// The same in a transaction that has begun.
pub(in super::super) async fn interrupt_in_transaction(
    connection: &mut SqlConnection,
    node: &NodeId,
) -> sqlx::Result<u64> {
    let query = sql(RUNNING_OF_NODE).bind(node.as_str());
    let mut closed = Vec::new();
    for row in query.fetch_all(&mut *connection).await? {
        let mut record = JobRecord {
            document: document_from_row(&row)?,
            max_cost: optional_usd(&row, "max_cost_nano_usd")?,
            max_job_cost: optional_usd(&row, "max_job_cost_nano_usd")?,
            ..JobRecord::default()
        };
        record.interrupt();
        let cost = to_sql_integer(record.cost.map(Usd::nanos));
        closed.push((row.try_get::<i64, _>("seq")?, cost, to_json(&record.document)?));
    }
    if closed.is_empty() {
        return Ok(0);
    }
    sql(INTERRUPT).bind(to_json(&closed)?).execute(connection).await
}

fn to_json(value: &impl serde::Serialize) -> sqlx::Result<String> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}
