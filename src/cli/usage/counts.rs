//! Formats counts by day, key or another property, in each output format.

use chrono::NaiveDate;

use super::records::word;
use super::{UsageFormat, UsageGrouping};
use crate::cli::failure::CommandFailure;
use crate::cli::managed_gateway::ManagedGateway;
use crate::cli::output::{Column, cell, json_lines, print_message, table};
use crate::client::admin::types;
use crate::gateway::money::Usd;
use crate::gateway::store;
use crate::gateway::usage::{GroupingError, UsageFilter, csv};

/// The first day of counts without `--since`: before any gateway ran.
const FIRST_DAY: Option<NaiveDate> = NaiveDate::from_ymd_opt(1970, 1, 1);

/// Counts, as they are printed.
pub(super) enum UsageRows {
    /// The days, and their sum.
    Days(Vec<types::UsageDay>, types::UsageCounts),
    Keys(Vec<types::UsageKey>),
    Groups {
        grouping: store::UsageGrouping,
        groups: Vec<types::UsageGroup>,
        /// About how many records are not counted yet.
        pending: u64,
    },
}

/// Returns the counts of a row of the admin API, of which there are several types, as cells.
macro_rules! count_cells {
    ($row:expr) => {
        [$row.requests, $row.failed, $row.refused, $row.images, $row.input_tokens, $row.output_tokens]
            .map(|count| count.to_string())
    };
}

/// Returns the known cost of a row, and the number of requests whose cost is unknown, as cells.
macro_rules! cost_cells {
    ($row:expr) => {
        [dollars($row.cost_usd).unwrap_or_default().to_string(), $row.cost_unknown.unwrap_or_default().to_string()]
    };
}

/// Reads the counts that match the filter.
pub(super) async fn read_counts(
    gateway: &ManagedGateway,
    grouping: UsageGrouping,
    filter: &UsageFilter,
) -> Result<UsageRows, CommandFailure> {
    check_grouping(grouping, filter)?;
    let since = filter.since.map(NaiveDate::from).or(FIRST_DAY);
    let mut request = gateway.admin.retrieve_usage();
    if let Some(since) = since {
        request = request.since(since);
    }
    if let Some(until) = filter.until {
        request = request.until(NaiveDate::from(until));
    }
    if let Some(key) = &filter.key {
        request = request.key(key);
    }
    if let Some(user) = &filter.user {
        request = request.user(user);
    }
    if let Some(group) = &filter.group {
        request = request.group(group);
    }
    if let Some(end_user) = &filter.end_user {
        request = request.end_user(end_user);
    }
    match grouping {
        UsageGrouping::Day => {
            let usage = request.send().await?;
            Ok(UsageRows::Days(usage.days, usage.totals))
        }
        UsageGrouping::Key => Ok(UsageRows::Keys(request.send().await?.keys)),
        grouping => {
            let stored = grouping.stored();
            let usage = request.group_by(word::<types::UsageGrouping>(stored.as_str())?).send().await?;
            let pending = usage.pending_records.unwrap_or(0);
            Ok(UsageRows::Groups { grouping: stored, groups: usage.groups, pending })
        }
    }
}

/// Refuses a grouping that does not fit the filter, with the name of the argument.
fn check_grouping(grouping: UsageGrouping, filter: &UsageFilter) -> Result<(), CommandFailure> {
    if matches!(grouping, UsageGrouping::Day | UsageGrouping::Key) {
        return Ok(());
    }
    GroupingError::check(grouping.stored(), filter).map_err(|error| {
        let hint = if error == GroupingError::TooManyHours { ": give a later `--since`" } else { "" };
        CommandFailure::Usage(format!("{error}{hint}"))
    })
}

// === impl UsageRows ===

impl UsageRows {
    /// Returns the counts as text in the output format.
    pub(super) fn render(&self, format: UsageFormat) -> Result<String, CommandFailure> {
        Ok(match (self, format) {
            (Self::Days(days, _), UsageFormat::Json) => json_lines(days)?,
            (Self::Days(days, _), UsageFormat::Csv) => csv::days(days)?,
            (Self::Days(days, totals), UsageFormat::Table { cost }) => day_table(days, totals, cost),
            (Self::Keys(keys), UsageFormat::Json) => json_lines(keys)?,
            (Self::Keys(keys), UsageFormat::Csv) => csv::keys(keys)?,
            (Self::Keys(keys), UsageFormat::Table { cost }) => key_table(keys, cost),
            (Self::Groups { grouping, groups, pending }, format) => {
                if *pending > 0 {
                    print_message(&format!("{pending} records are still being counted, and are missing here"));
                }
                match format {
                    UsageFormat::Json => json_lines(groups)?,
                    UsageFormat::Csv => csv::groups(groups, *grouping)?,
                    UsageFormat::Table { cost } => group_table(groups, *grouping, cost),
                }
            }
        })
    }
}

fn group_table(groups: &[types::UsageGroup], grouping: store::UsageGrouping, cost: bool) -> String {
    let value = grouping.as_str().to_uppercase();
    let seconds = |time: Option<u64>| cell(time.map(|time| format!("{}.{}", time / 1000, time % 1000 / 100)));
    let row = |group: &types::UsageGroup| {
        let [requests, failed, _, images, input, output] = count_cells!(group);
        let shown = Some(group.name.as_ref().unwrap_or(&group.value)).filter(|text| !text.is_empty());
        [cell(shown), requests, failed, images, input, output, seconds(group.p50_ms), seconds(group.p95_ms)]
    };
    let rows: Vec<[String; 8]> = groups.iter().map(row).collect();
    if !cost {
        let headings = [&*value, "REQUESTS", "FAILED", "IMAGES", "TOKENS IN", "TOKENS OUT", "P50 S", "P95 S"];
        return table(headings, &rows);
    }
    let with_cost = rows.into_iter().zip(groups).map(|(row, group)| {
        let [value, requests, failed, images, input, output, p50, p95] = row;
        let [cost, unknown] = cost_cells!(group);
        let saved = cell(dollars(group.saved_usd));
        [value, requests, failed, images, input, output, p50, p95, cost, unknown, saved]
    });
    let headings = [
        &*value,
        "REQUESTS",
        "FAILED",
        "IMAGES",
        "TOKENS IN",
        "TOKENS OUT",
        "P50 S",
        "P95 S",
        "COST USD",
        "COST UNKNOWN",
        "SAVED USD",
    ];
    table(headings, &with_cost.collect::<Vec<_>>())
}

fn day_table(days: &[types::UsageDay], totals: &types::UsageCounts, cost: bool) -> String {
    let rows = days.iter().map(|day| (day.day.to_string(), count_cells!(day), cost_cells!(day)));
    let rows = rows.chain([("total".to_owned(), count_cells!(totals), cost_cells!(totals))]);
    if cost {
        let row = |(day, counts, costs): (String, [String; 6], [String; 2])| {
            let ([requests, failed, refused, images, input, output], [cost, unknown]) = (counts, costs);
            [day, requests, failed, refused, images, input, output, cost, unknown]
        };
        let headings =
            ["DAY", "REQUESTS", "FAILED", "REFUSED", "IMAGES", "TOKENS IN", "TOKENS OUT", "COST USD", "COST UNKNOWN"];
        return table(headings, &rows.map(row).collect::<Vec<_>>());
    }
    let row = |(day, [requests, failed, refused, images, input, output], _): (String, [String; 6], [String; 2])| {
        [day, requests, failed, refused, images, input, output]
    };
    let headings = ["DAY", "REQUESTS", "FAILED", "REFUSED", "IMAGES", "TOKENS IN", "TOKENS OUT"];
    table(headings, &rows.map(row).collect::<Vec<_>>())
}

fn key_table(keys: &[types::UsageKey], cost: bool) -> String {
    // Requests without a key have no id, and deleted keys no name.
    let id_and_name =
        |key: &types::UsageKey| [&key.key, &key.name].map(|text| cell(Some(text).filter(|text| !text.is_empty())));
    let [key, requests, failed, refused] = ["KEY", "REQUESTS", "FAILED", "REFUSED"].map(Column::from);
    let [name, user, group] = ["NAME", "USER", "GROUP"].map(Column::name);
    if cost {
        let row = |key: &types::UsageKey| {
            let ([id, name], group, [cost, unknown]) = (id_and_name(key), key.group.clone(), cost_cells!(key));
            let [requests, failed, refused, images, ..] = count_cells!(key);
            [id, name, group, requests, failed, refused, images, cost, unknown]
        };
        let [images, cost, unknown] = ["IMAGES", "COST USD", "COST UNKNOWN"].map(Column::from);
        return table(
            [key, name, group, requests, failed, refused, images, cost, unknown],
            &keys.iter().map(row).collect::<Vec<_>>(),
        );
    }
    let row = |key: &types::UsageKey| {
        let ([id, name], user, group) = (id_and_name(key), cell(key.user_name.as_ref()), key.group.clone());
        let [requests, failed, refused, images, input, output] = count_cells!(key);
        [id, name, user, group, requests, failed, refused, images, input, output]
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    let [images, input, output] = ["IMAGES", "TOKENS IN", "TOKENS OUT"].map(Column::from);
    table([key, name, user, group, requests, failed, refused, images, input, output], &rows)
}

fn dollars(amount: Option<f64>) -> Option<Usd> {
    amount.and_then(Usd::from_dollars)
}
