//! The row of a record in the database: its document, and beside it the values that are searched, sorted or summed.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::record::{all_tokens, to_sql_integer};
use super::{JobRecord, JobState, NodeId, Timestamp};
use crate::gateway::money::Usd;

/// The values of a row of `records`. The values of a statement of PostgreSQL have it as a JSON object with the names of the
/// columns.
#[derive(Debug, Serialize)]
pub(super) struct RecordRow {
    pub(super) request_id: String,
    pub(super) node: String,
    pub(super) created_at: String,
    pub(super) operation: String,
    pub(super) state: JobState,
    pub(super) model: Option<String>,
    pub(super) account: Option<String>,
    pub(super) group_name: String,
    pub(super) user_id: String,
    pub(super) key_id: String,
    pub(super) end_user: Option<String>,
    pub(super) error_code: Option<String>,
    pub(super) error_reason: Option<String>,
    /// In hexadecimal digits after `\x`: the text form of bytes in PostgreSQL.
    pub(super) fingerprint: Option<String>,
    pub(super) latency_ms: Option<i64>,
    pub(super) images: i64,
    /// The tokens of both models together, like the next two.
    pub(super) input_tokens: Option<i64>,
    pub(super) output_tokens: Option<i64>,
    pub(super) total_tokens: Option<i64>,
    pub(super) cost_nano_usd: Option<i64>,
    pub(super) max_cost_nano_usd: Option<i64>,
    pub(super) max_job_cost_nano_usd: Option<i64>,
    pub(super) document: Box<RawValue>,
}

// === impl RecordRow ===

impl RecordRow {
    pub(super) fn new(node: &NodeId, record: &JobRecord) -> serde_json::Result<Self> {
        let document = &record.document;
        let [input_tokens, output_tokens, total_tokens] = all_tokens(document).map(to_sql_integer);
        let nanos = |cost: Option<Usd>| to_sql_integer(cost.map(Usd::nanos));
        Ok(Self {
            request_id: document.request_id.clone(),
            node: node.as_str().to_owned(),
            created_at: Timestamp::from(document.created_at).to_string(),
            operation: document.operation.clone(),
            state: document.state,
            model: document.model.clone(),
            account: document.account.clone(),
            group_name: document.group.clone(),
            user_id: document.user.clone(),
            key_id: document.key.clone(),
            end_user: document.end_user.clone(),
            error_code: document.error_code.clone(),
            error_reason: document.error_reason.map(|reason| reason.as_str().to_owned()),
            fingerprint: record.fingerprint.map(|bytes| format!("\\x{}", hex::encode(bytes))),
            latency_ms: to_sql_integer(document.latency_ms),
            images: i64::try_from(document.delivered.len()).unwrap_or(i64::MAX),
            input_tokens,
            output_tokens,
            total_tokens,
            cost_nano_usd: nanos(record.cost),
            max_cost_nano_usd: nanos(record.max_cost),
            max_job_cost_nano_usd: nanos(record.max_job_cost),
            document: to_raw_value(document)?,
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state != JobState::Running
    }
}
