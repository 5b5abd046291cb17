//! Reads and formats records of requests.

use std::str::FromStr;

use serde_json::Value;

use super::UsageFormat;
use crate::cli::failure::CommandFailure;
use crate::cli::managed_gateway::{ManagedGateway, page_size};
use crate::cli::output::{Column, cell, json_lines, print, print_message, table};
use crate::client::admin::types;
use crate::gateway::money::Usd;
use crate::gateway::store::{RecordFilter, Timestamp};
use crate::gateway::usage::{RECORD_COLUMNS, RecordColumn, csv};
use crate::wire::admin::client::builder::ListRecords;

/// The maximum number of rows in a table; longer lists are for programs.
pub(super) const MAX_TABLE_ROWS: u32 = 100;

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
    Ok(match format {
        UsageFormat::Table { cost } => record_table(records, cost)?,
        UsageFormat::Json => json_lines(records)?,
        UsageFormat::Csv => csv::records(records)?,
    })
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
