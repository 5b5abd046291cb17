//! Reads and formats records of requests.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{UsageFormat, json_lines};
use crate::cli::failure::CommandFailure;
use crate::cli::managed_gateway::{ManagedGateway, page_size, view};
use crate::cli::output::{Column, cell, print, print_message, table};
use crate::client::admin::types;
use crate::gateway::money::Usd;
use crate::gateway::store::{DeliveredImageEntry, RecordFilter, Timestamp};
use crate::gateway::usage::csv::{self, CsvRecord};
use crate::wire::admin::client::builder::ListRecords;

/// The maximum number of rows in a table; longer lists are for programs.
pub(super) const MAX_TABLE_ROWS: u32 = 100;

/// The values of a record that a table shows.
struct RecordRow {
    created_at: Timestamp,
    state: String,
    size: Option<String>,
    quality: Option<String>,
    output_format: Option<String>,
    images: usize,
    tokens: Option<u64>,
    latency_ms: Option<u64>,
    account: Option<String>,
    request_id: String,
    cost: Option<Usd>,
    is_estimated: bool,
}

/// A record as a line of JSON, with the fields of a record of the store. A word that this version does
/// not know is kept.
#[derive(Serialize, Deserialize)]
struct RecordLine {
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

impl From<&types::Record> for RecordRow {
    fn from(record: &types::Record) -> Self {
        let total = |usage: &Option<types::RecordUsage>| usage.as_ref().and_then(|usage| usage.total_tokens);
        let tokens =
            [total(&record.usage), total(&record.host_usage)].into_iter().flatten().reduce(u64::saturating_add);
        Self {
            created_at: Timestamp::from(record.created_at),
            state: record.state.to_string(),
            size: record.size.clone(),
            quality: record.quality.clone(),
            output_format: record.output_format.clone(),
            images: record.delivered.len(),
            tokens,
            latency_ms: record.latency_ms,
            account: record.account.clone(),
            request_id: record.request_id.clone(),
            cost: record.cost_usd.and_then(Usd::from_dollars),
            is_estimated: record.cost_basis.as_ref().is_some_and(|basis| *basis == types::CostBasis::Estimated),
        }
    }
}

/// Prints the records that match the filter.
pub(super) async fn list_records(
    gateway: &ManagedGateway,
    filter: &RecordFilter,
    format: UsageFormat,
) -> Result<(), CommandFailure> {
    let records = read_records(gateway, filter).await?;
    print(&text_of(&records, format)?)?;
    if matches!(format, UsageFormat::Table { .. }) && records.len() == MAX_TABLE_ROWS as usize {
        print_message(&format!("only the newest {MAX_TABLE_ROWS} records are shown; --json and --csv print all"));
    }
    Ok(())
}

/// Returns the records as text in the output format.
pub(super) fn text_of(records: &[types::Record], format: UsageFormat) -> Result<String, CommandFailure> {
    if let UsageFormat::Table { cost } = format {
        return Ok(record_table(&records.iter().map(RecordRow::from).collect::<Vec<_>>(), cost));
    }
    let lines: Vec<RecordLine> = records.iter().map(view).collect::<Result<_, _>>()?;
    if format == UsageFormat::Json {
        return Ok(json_lines(&lines)?);
    }
    let rows = records.iter().zip(&lines).map(|(names, record)| CsvRecord {
        record,
        key_name: names.key_name.as_deref(),
        user_name: names.user_name.as_deref(),
    });
    Ok(csv::records(rows)?)
}

/// Returns the newest records up to the limit of the filter, or all, oldest first.
pub(super) async fn read_records(
    gateway: &ManagedGateway,
    filter: &RecordFilter,
) -> Result<Vec<types::Record>, CommandFailure> {
    let wanted = filter.limit.map_or(usize::MAX, |limit| limit as usize);
    let mut records: Vec<types::Record> = Vec::new();
    loop {
        let request = filtered(gateway.admin.list_records().limit(page_size()?), filter)?;
        let request = match records.last() {
            Some(last) => request.before(&last.request_id),
            None => request,
        };
        let page = request.send().await?;
        let has_more = page.has_more && !page.data.is_empty();
        records.extend(page.data);
        if !has_more || records.len() >= wanted {
            records.truncate(wanted);
            records.reverse();
            return Ok(records);
        }
    }
}

/// Adds a parameter for each filter.
fn filtered<'a>(mut request: ListRecords<'a>, filter: &RecordFilter) -> Result<ListRecords<'a>, CommandFailure> {
    let RecordFilter { key, user, group, end_user, model, account, size, quality, .. } = filter;
    macro_rules! set {
        ($($name:ident: $value:expr),+ $(,)?) => {
            $(if let Some(value) = $value { request = request.$name(value); })+
        };
    }
    set!(key: key, user: user, group: group, end_user: end_user, model: model, account: account, size: size);
    set!(quality: quality, error_code: &filter.error_code);
    set!(since: filter.since.map(chrono::DateTime::from), until: filter.until.map(chrono::DateTime::from));
    if filter.is_unsuccessful {
        request = request.outcome(types::RecordOutcome::Unsuccessful);
    }
    if let Some(state) = filter.state {
        request = request.state(word::<types::RecordState>(state.as_str())?);
    }
    if let Some(reason) = &filter.error_reason {
        request = request.error_reason(word::<types::RecordReason>(reason)?);
    }
    Ok(request)
}

/// Reads a word of a request.
pub(super) fn word<T: FromStr>(text: &str) -> Result<T, CommandFailure> {
    text.parse().map_err(|_| CommandFailure::Usage(format!("`{text}` is not one of the words that the admin API has")))
}

fn record_table(records: &[RecordRow], cost: bool) -> String {
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
