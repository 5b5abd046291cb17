//! Formats records of requests: those of the store and those of the admin API alike.

use serde::{Deserialize, Serialize};

use crate::cli::failure::CommandFailure;
use crate::cli::output::{Column, cell, print, print_message, table};
use crate::gateway::money::Usd;
use crate::gateway::store::{CostBasis, DeliveredImageEntry, Record, Timestamp};

/// The maximum number of rows in a table; longer lists are for programs.
pub(super) const MAX_TABLE_ROWS: u32 = 100;

/// The values of a record that a table shows.
pub(super) struct RecordRow {
    pub(super) created_at: Timestamp,
    pub(super) state: String,
    pub(super) size: Option<String>,
    pub(super) quality: Option<String>,
    pub(super) output_format: Option<String>,
    pub(super) images: usize,
    pub(super) tokens: Option<u64>,
    pub(super) latency_ms: Option<u64>,
    pub(super) account: Option<String>,
    pub(super) request_id: String,
    pub(super) cost: Option<Usd>,
    pub(super) is_estimated: bool,
}

/// A record of the admin API as a line of JSON, with the fields of a record of the store. A word that this version does
/// not know is kept.
#[derive(Serialize, Deserialize)]
pub(super) struct RecordLine {
    request_id: String,
    created_at: Timestamp,
    operation: String,
    model: Option<String>,
    stream: bool,
    state: String,
    error_code: Option<String>,
    size: Option<String>,
    quality: Option<String>,
    output_format: Option<String>,
    n: Option<u64>,
    delivered: Vec<DeliveredImageEntry>,
    usage: Option<UsageLine>,
    cost_usd: Option<f64>,
    latency_ms: Option<u64>,
    first_byte_ms: Option<u64>,
    attempts: Vec<AttemptLine>,
    account: Option<String>,
    group: String,
    user: String,
    key: String,
    end_user: Option<String>,
    fallback: Option<String>,
    injected_tool: bool,
    error_reason: Option<String>,
    error_detail: Option<String>,
    missing: Option<u64>,
    image_model: Option<String>,
    host_model: Option<String>,
    host_usage: Option<UsageLine>,
    #[serde(default)]
    maybe_paid_twice: bool,
    cost_basis: Option<String>,
    cost_reason: Option<String>,
    price_version: Option<String>,
    adapted: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct UsageLine {
    input_tokens: Option<u64>,
    input_tokens_details: Option<TokensLine>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<TokensLine>,
    total_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_tokens_details: Option<TokensLine>,
}

#[derive(Serialize, Deserialize)]
struct TokensLine {
    image_tokens: Option<u64>,
    text_tokens: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct AttemptLine {
    #[serde(default)]
    account: String,
    class: Option<String>,
    status: Option<u64>,
    latency_ms: Option<u64>,
    upstream_request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fallback: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_cost_usd: Option<f64>,
}

// === impl RecordRow ===

impl RecordRow {
    fn cells(&self) -> [String; 10] {
        [
            self.created_at.to_string(),
            self.state.clone(),
            cell(self.size.as_ref()),
            cell(self.quality.as_ref()),
            cell(self.output_format.as_ref()),
            self.images.to_string(),
            cell(self.tokens),
            cell(self.latency_ms.map(|latency| format!("{}.{}", latency / 1000, latency % 1000 / 100))),
            cell(self.account.as_ref()),
            self.request_id.clone(),
        ]
    }

    /// Formats the cost; `~` marks an estimate.
    fn cost_cell(&self) -> String {
        cell(self.cost.map(|cost| if self.is_estimated { format!("~{cost}") } else { cost.to_string() }))
    }
}

impl From<&Record> for RecordRow {
    fn from(record: &Record) -> Self {
        let [.., tokens] = record.tokens();
        Self {
            created_at: record.created_at,
            state: record.state.as_str().to_owned(),
            size: record.size.clone(),
            quality: record.quality.clone(),
            output_format: record.output_format.clone(),
            images: record.delivered.len(),
            tokens,
            latency_ms: record.latency_ms,
            account: record.account.clone(),
            request_id: record.request_id.to_string(),
            cost: record.cost_usd,
            is_estimated: record.cost_basis == Some(CostBasis::Estimated),
        }
    }
}

pub(super) fn print_table(records: &[RecordRow], cost: bool) -> Result<(), CommandFailure> {
    print(&record_table(records, cost))?;
    if records.len() == MAX_TABLE_ROWS as usize {
        print_message(&format!("only the newest {MAX_TABLE_ROWS} records are shown; --json and --csv print all"));
    }
    Ok(())
}

pub(super) fn record_table(records: &[RecordRow], cost: bool) -> String {
    let [size, quality, format, images, tokens] = ["SIZE", "QUALITY", "FORMAT", "IMAGES", "TOKENS"].map(Column::from);
    let [created, state, account] = [Column::moment("CREATED"), Column::state("STATE"), Column::name("ACCOUNT")];
    let [seconds, request] = ["SECONDS", "REQUEST"].map(Column::from);
    if !cost {
        let columns = [created, state, size, quality, format, images, tokens, seconds, account, request];
        return table(columns, &records.iter().map(RecordRow::cells).collect::<Vec<_>>());
    }
    let cost = Column::from("COST USD");
    let columns = [created, state, size, quality, format, images, tokens, cost, seconds, account, request];
    let with_cost = records.iter().map(|record| {
        let [created, state, size, quality, format, images, tokens, seconds, account, request] = record.cells();
        [created, state, size, quality, format, images, tokens, record.cost_cell(), seconds, account, request]
    });
    table(columns, &with_cost.collect::<Vec<_>>())
}
