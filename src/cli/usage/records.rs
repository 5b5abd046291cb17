//! Reads and formats records of requests.

use std::str::FromStr;

use clap::Args;
use serde_json::Value;

use super::{UsageCommand, UsageFormat};
use crate::cli::failure::CommandFailure;
use crate::cli::managed_gateway::{ManagedGateway, page_size};
use crate::cli::moment_arg::MomentArg;
use crate::cli::output::{Column, cell, json_lines, print, print_message, table};
use crate::client::admin::types;
use crate::gateway::money::Usd;
use crate::gateway::store::{JobState, Timestamp};
use crate::gateway::usage::{RECORD_COLUMNS, RecordColumn, csv};
use crate::wire::admin::client::builder::ListRecords;

/// The maximum number of rows in a table; longer lists are for programs.
pub(super) const MAX_TABLE_ROWS: u32 = 100;

/// Filters of single requests, which counts do not have.
#[derive(Debug, Args)]
pub(super) struct RecordArgs {
    /// Only requests in this state, such as failed.
    #[arg(long, value_name = "STATE", value_parser = parse_state, conflicts_with = "by")]
    state: Option<JobState>,
    /// Only finished requests that did not succeed.
    #[arg(long, conflicts_with_all = ["by", "state"])]
    unsuccessful: bool,
    /// Only requests for this model.
    #[arg(long, value_name = "ID", conflicts_with = "by")]
    model: Option<String>,
    /// Only requests whose last call went to this account.
    #[arg(long, value_name = "NAME", conflicts_with = "by")]
    account: Option<String>,
    /// Only requests with this size, such as 1024x1024, among the newest 10,000 records that pass the other filters.
    #[arg(long, value_name = "WIDTHxHEIGHT", conflicts_with = "by")]
    size: Option<String>,
    /// Only requests with this quality, such as high, among the newest 10,000 records that pass the other filters.
    #[arg(long, value_name = "WORD", conflicts_with = "by")]
    quality: Option<String>,
    /// Only requests that got an error with this code, such as `upstream_error`.
    #[arg(long, value_name = "CODE", conflicts_with = "by")]
    error_code: Option<String>,
    /// Only requests that failed for this reason, such as quota.
    #[arg(long, value_name = "REASON", conflicts_with = "by")]
    error_reason: Option<String>,
}

/// The records that a command reads: those that pass its filters.
#[derive(Clone, Copy)]
pub(super) struct RecordRequest<'a> {
    pub(super) command: &'a UsageCommand,
    /// Only the records of requests that began at this time or later, in place of `--since`.
    pub(super) since: Option<Timestamp>,
    /// The newest records up to this number; `None` for all.
    pub(super) limit: Option<u32>,
}

/// Prints the records that match the filter.
pub(super) async fn list_records(
    gateway: &ManagedGateway,
    command: &UsageCommand,
    format: UsageFormat,
) -> Result<(), CommandFailure> {
    let limit = matches!(format, UsageFormat::Table { .. }).then_some(MAX_TABLE_ROWS);
    let records = read_records(gateway, RecordRequest { command, since: None, limit }).await?;
    print(&text_of(&records, format)?)?;
    if matches!(format, UsageFormat::Table { .. }) && records.len() == MAX_TABLE_ROWS as usize {
        print_message(&format!("only the newest {MAX_TABLE_ROWS} records are shown; --json and --csv print all"));
    }
    Ok(())
}

/// Returns the records as text in the output format.
pub(super) fn text_of(records: &[types::Record], format: UsageFormat) -> Result<String, CommandFailure> {
    Ok(match format {
        UsageFormat::Table { cost } => record_table(records, cost)?,
        UsageFormat::Json => json_lines(records)?,
        UsageFormat::Csv => csv::records(records)?,
    })
}

/// Returns the newest records up to the limit, or all, oldest first.
pub(super) async fn read_records(
    gateway: &ManagedGateway,
    wanted: RecordRequest<'_>,
) -> Result<Vec<types::Record>, CommandFailure> {
    let most = wanted.limit.map_or(usize::MAX, |limit| limit as usize);
    let mut records: Vec<types::Record> = Vec::new();
    loop {
        let request = wanted.filtered(gateway.admin.list_records().limit(page_size()?))?;
        let request = match records.last() {
            Some(last) => request.before(&last.request_id),
            None => request,
        };
        let page = request.send().await?;
        let has_more = page.has_more && !page.data.is_empty();
        records.extend(page.data);
        if !has_more || records.len() >= most {
            records.truncate(most);
            records.reverse();
            return Ok(records);
        }
    }
}

// === impl RecordRequest ===

impl RecordRequest<'_> {
    /// Adds a parameter for each filter.
    fn filtered<'a>(self, mut request: ListRecords<'a>) -> Result<ListRecords<'a>, CommandFailure> {
        let UsageCommand { since, until, key, user, group, end_user, records, .. } = self.command;
        let RecordArgs { state, unsuccessful, model, account, size, quality, error_code, error_reason } = records;
        let since = self.since.or(since.map(MomentArg::moment)).map(chrono::DateTime::from);
        let until = until.map(MomentArg::moment).map(chrono::DateTime::from);
        macro_rules! set {
            ($($name:ident),+) => {
                $(if let Some(value) = $name { request = request.$name(value); })+
            };
        }
        set!(key, user, group, end_user, model, account, size, quality, error_code, since, until);
        if *unsuccessful {
            request = request.outcome(types::RecordOutcome::Unsuccessful);
        }
        if let Some(state) = state {
            request = request.state(word::<types::RecordState>(state.as_str())?);
        }
        if let Some(reason) = error_reason {
            request = request.error_reason(word::<types::RecordReason>(reason)?);
        }
        Ok(request)
    }
}

/// Reads a word of a request.
pub(super) fn word<T: FromStr>(text: &str) -> Result<T, CommandFailure> {
    text.parse().map_err(|_| CommandFailure::Usage(format!("`{text}` is not one of the words that the admin API has")))
}

fn record_table(records: &[types::Record], cost: bool) -> serde_json::Result<String> {
    let columns: Vec<_> = RECORD_COLUMNS
        .iter()
        .filter(|column| cost || column.name != COST)
        .filter_map(|column| Some((column, column.heading?)))
        .collect();
    let rows = records.iter().map(|record| {
        let json = serde_json::to_value(record)?;
        Ok(columns.iter().map(|(column, _)| record_cell(record, column, &json)).collect())
    });
    let rows: Vec<Vec<String>> = rows.collect::<serde_json::Result<_>>()?;
    Ok(table(columns.iter().map(|(column, heading)| table_column(column.name, heading)), &rows))
}

/// The name of the column that only `--cost` shows.
const COST: &str = "cost_usd";

/// Returns the column of the table: one with times, states or names is shown in its own way.
fn table_column(name: &str, heading: &'static str) -> Column<'static> {
    match name {
        "created_at" => Column::moment(heading),
        "state" => Column::state(heading),
        "account" => Column::name(heading),
        _ => heading.into(),
    }
}

/// Returns a cell: in a form of its own, or as the text of the JSON of the record.
fn record_cell(record: &types::Record, column: &RecordColumn, json: &Value) -> String {
    match column.name {
        "created_at" => Timestamp::from(record.created_at).to_string(),
        "total_tokens" => {
            let total = |usage: &Option<types::RecordUsage>| usage.as_ref().and_then(|usage| usage.total_tokens);
            let both = [total(&record.usage), total(&record.host_usage)].into_iter().flatten();
            cell(both.reduce(u64::saturating_add))
        }
        "latency_ms" => cell(record.latency_ms.map(|latency| format!("{}.{}", latency / 1000, latency % 1000 / 100))),
        COST => {
            let is_estimated = record.cost_basis.as_ref().is_some_and(|basis| *basis == types::CostBasis::Estimated);
            let mark = if is_estimated { "~" } else { "" };
            cell(record.cost_usd.and_then(Usd::from_dollars).map(|cost| format!("{mark}{cost}")))
        }
        _ => match column.value(json) {
            Some(Value::Array(items)) => items.len().to_string(),
            Some(Value::String(text)) => text.clone(),
            value => cell(value.filter(|value| !value.is_null())),
        },
    }
}

fn parse_state(word: &str) -> Result<JobState, String> {
    word.parse().map_err(|_| format!("`{word}` is not the state of a record"))
}
