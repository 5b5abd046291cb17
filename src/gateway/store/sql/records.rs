//! The statements for records, except the writes, which each database makes in its own way.
//! The module [`record_queries`] reads records.

pub(in super::super) mod record_queries;

pub(super) use record_queries::{NO_LIMIT, find, list, push_key_id, push_user_id, running_jobs};

use super::decode::optional_usd;
use super::driver::SqlRow;
use super::statement::{SqlExecutor, sql};
use crate::gateway::store::{JobRecord, NodeId};
use record_queries::document_from_row;

/// The condition on the state is written exactly like that of the partial index.
pub(in super::super) const STATES_BY_FINGERPRINT: &str = "SELECT state FROM records \
    WHERE fingerprint = $1 AND created_at >= $2 AND state <> 'succeeded' \
    ORDER BY created_at DESC, seq DESC LIMIT $3";

/// The condition is written exactly like that of the partial index, so that a start reads only the running rows.
pub(in super::super) const RUNNING_OF_NODE: &str = "SELECT document, max_cost_nano_usd, max_job_cost_nano_usd FROM records \
     WHERE state = 'running' AND node = $1 ORDER BY seq";

/// Returns the records of a node that are running, closed as interrupted. The caller writes them, which changes those that
/// are still running then.
pub(in super::super) async fn interrupted_records<'c>(
    executor: impl Into<SqlExecutor<'c>>,
    node: &NodeId,
) -> sqlx::Result<Vec<JobRecord>> {
    let query = sql(RUNNING_OF_NODE).bind(node.as_str());
    let interrupted = |row: &SqlRow| {
        let mut record = JobRecord {
            document: document_from_row(row)?,
            max_cost: optional_usd(row, "max_cost_nano_usd")?,
            max_job_cost: optional_usd(row, "max_job_cost_nano_usd")?,
            ..JobRecord::default()
        };
        record.interrupt();
        Ok(record)
    };
    query.fetch_all(executor).await?.iter().map(interrupted).collect()
}
