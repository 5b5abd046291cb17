//! The statements for records, except the writes of intents and outcomes, which each database makes in its own way.
//! The module [`record_queries`] reads records.

pub(in super::super) mod record_queries;

pub(super) use record_queries::{NO_LIMIT, find, list, push_key_id, push_user_id};

use super::dialect::{DbPool, most_of_attempts, unknown_attempt_json};
use crate::gateway::store::NodeId;

/// The condition is written exactly like that of the partial index, so that a start reads only the running rows. If no
/// attempt was recorded, the row gets one for the account that the intent names, because it is unknown whether that
/// account was called.
/// The cost is the most that the recorded attempts can cost. Such an outcome is provisional: it has no duration.
pub(in super::super) const INTERRUPT: &str = concat!(
    "UPDATE records SET state = 'interrupted', \
     attempts = CASE WHEN attempts = '[]' AND account IS NOT NULL \
     THEN ",
    unknown_attempt_json!(),
    " \
     ELSE attempts END, \
     cost_nano_usd = CASE WHEN max_cost_nano_usd IS NULL THEN NULL ELSE ",
    most_of_attempts!(),
    " END, cost_reason = 'interrupted', \
     cost_basis = CASE WHEN max_cost_nano_usd IS NULL THEN 'unknown' ELSE 'estimated' END \
     WHERE state = 'running' AND node = $1"
);

/// The condition on the state is written exactly like that of the partial index.
pub(in super::super) const STATES_BY_FINGERPRINT: &str = "SELECT state FROM records \
    WHERE fingerprint = $1 AND created_at >= $2 AND state <> 'succeeded' \
    ORDER BY created_at DESC, seq DESC LIMIT $3";

pub(in super::super) async fn interrupt_running(pool: &DbPool, node: &NodeId) -> sqlx::Result<u64> {
    Ok(sqlx::query(INTERRUPT).bind(node.as_str()).execute(pool).await?.rows_affected())
}
