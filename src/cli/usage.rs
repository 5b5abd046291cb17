//! The command `imagate usage`.

mod counts;
mod since;

use std::sync::Arc;

use clap::{Args, ValueEnum};

use super::failure::CommandFailure;
use super::installation::InstallationArgs;
use super::output::{cell, print, print_message, table};
use crate::gateway::money::Usd;
use crate::gateway::store::{CostBasis, JobState, UsageStore};
use crate::gateway::usage::{self, NamedRecord, RecordFilter, UsageFilter, csv};
use since::SinceArg;

/// The maximum number of rows in a table; longer lists are for programs.
const MAX_TABLE_ROWS: u32 = 100;

/// Arguments of `usage`.
#[derive(Debug, Args)]
pub(super) struct UsageCommand {
    #[command(flatten)]
    installation: InstallationArgs,
    /// Print counts by day (in UTC), key or another property instead of single requests.
    #[arg(long, visible_alias = "group-by", value_name = "WHAT")]
    by: Option<UsageGrouping>,
    /// Only requests that began at this time or later: a date, a date and time such as 2026-11-21T03:00:00Z, or a
    /// duration before now such as 24h or 7d.
    #[arg(long, value_name = "T")]
    since: Option<SinceArg>,
    /// Only requests of this key.
    #[arg(long, value_name = "ID")]
    key: Option<String>,
    /// Only requests of the user with this name or id.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only requests in this group.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Only requests on behalf of this end user, as given in `safety_identifier` or `user`.
    #[arg(long, value_name = "ID")]
    end_user: Option<String>,
    #[command(flatten)]
    records: RecordArgs,
    /// Show the cost in US dollars in tables. JSON and comma-separated values always have it.
    #[arg(long)]
    cost: bool,
    /// Print one JSON object per line.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values.
    #[arg(long)]
    csv: bool,
}

/// Filters of single requests, which counts do not have.
#[derive(Debug, Args)]
struct RecordArgs {
    /// Only requests in this state, such as failed.
    #[arg(long, value_name = "STATE", conflicts_with = "by")]
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

/// The unit that counts are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UsageGrouping {
    /// The day on which a request began.
    Day,
    /// The hour in UTC, for at most 31 days.
    Hour,
    /// The key of a request.
    Key,
    /// The user who owned the key.
    User,
    /// The group in which the key was served.
    Group,
    /// The account of the last call.
    Account,
    /// The requested model.
    Model,
    /// The requested size.
    Size,
    /// The requested quality.
    Quality,
    /// The reason of a failure.
    Reason,
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UsageFormat {
    Table {
        /// True if there are columns for the cost.
        cost: bool,
    },
    Json,
    Csv,
}

// === impl UsageCommand ===

impl UsageCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { installation, by, since, key, user, group, end_user, records, cost, json, csv } = self;
        let format = match (json, csv) {
            (true, _) => UsageFormat::Json,
            (_, true) => UsageFormat::Csv,
            _ => UsageFormat::Table { cost },
        };
        let since = since.map(SinceArg::moment);
        installation.with_store(async |_, store| {
            let usage = usage::UsageReader::new(Arc::clone(store) as Arc<dyn UsageStore>);
            if let Some(by) = by {
                // Counts cover whole days.
                let since = since.map(usage::UtcDay::from);
                let filter = UsageFilter { key, user, group, end_user, since, ..UsageFilter::default() };
                return Ok(print(&counts::render_counts(&usage, by, &filter, format).await?)?);
            }
            let limit = matches!(format, UsageFormat::Table { .. }).then_some(MAX_TABLE_ROWS);
            let RecordArgs { state, unsuccessful, model, account, size, quality, error_code, error_reason } = records;
            let filter = RecordFilter {
                key,
                user,
                group,
                end_user,
                model,
                account,
                size,
                quality,
                error_code,
                error_reason,
                state,
                is_unsuccessful: unsuccessful,
                since,
                limit,
                ..RecordFilter::default()
            };
            list(&usage.all_records(&filter).await?, format)
        })
    }
}

fn list(records: &[NamedRecord], format: UsageFormat) -> Result<(), CommandFailure> {
    match format {
        UsageFormat::Json => print(&json_lines(records.iter().map(|named| &named.record))?)?,
        UsageFormat::Csv => print(&(csv::record_heading() + &csv::records(records)))?,
        UsageFormat::Table { cost } => print(&record_table(records, cost))?,
    }
    if matches!(format, UsageFormat::Table { .. }) && records.len() == MAX_TABLE_ROWS as usize {
        print_message(&format!("only the newest {MAX_TABLE_ROWS} records are shown; --json and --csv print all"));
    }
    Ok(())
}

fn json_lines<T: serde::Serialize>(rows: impl IntoIterator<Item = T>) -> serde_json::Result<String> {
    let mut text = String::new();
    for row in rows {
        text.push_str(&serde_json::to_string(&row)?);
        text.push('\n');
    }
    Ok(text)
}

fn record_table(records: &[NamedRecord], cost: bool) -> String {
    const HEADINGS: [&str; 10] =
        ["CREATED", "STATE", "SIZE", "QUALITY", "FORMAT", "IMAGES", "TOKENS", "SECONDS", "ACCOUNT", "REQUEST"];
    let rows: Vec<[String; 10]> = records.iter().map(table_row).collect();
    if !cost {
        return table(HEADINGS, &rows);
    }
    let [created, state, size, quality, format, images, tokens, seconds, account, request] = HEADINGS;
    let headings = [created, state, size, quality, format, images, tokens, "COST USD", seconds, account, request];
    let with_cost = rows.into_iter().zip(records).map(|(row, NamedRecord { record, .. })| {
        let [created, state, size, quality, format, images, tokens, seconds, account, request] = row;
        let cost = cost_cell(record.cost_usd, record.cost_basis == Some(CostBasis::Estimated));
        [created, state, size, quality, format, images, tokens, cost, seconds, account, request]
    });
    table(headings, &with_cost.collect::<Vec<_>>())
}

/// Formats a cost; `~` marks an estimate.
fn cost_cell(cost: Option<Usd>, is_estimated: bool) -> String {
    cell(cost.map(|cost| if is_estimated { format!("~{cost}") } else { cost.to_string() }))
}

fn table_row(NamedRecord { record, .. }: &NamedRecord) -> [String; 10] {
    let [.., tokens] = record.tokens();
    [
        record.created_at.to_string(),
        record.state.as_str().to_owned(),
        cell(record.size.as_ref()),
        cell(record.quality.as_ref()),
        cell(record.output_format.as_ref()),
        record.delivered.len().to_string(),
        cell(tokens),
        cell(record.latency_ms.map(|latency| format!("{}.{}", latency / 1000, latency % 1000 / 100))),
        cell(record.account.as_ref()),
        record.request_id.to_string(),
    ]
}
