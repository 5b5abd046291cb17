//! Formats counts by day, key or another property, in each output format.

use serde::{Deserialize, Serialize};

use super::{UsageFormat, UsageGrouping, json_lines};
use crate::cli::failure::CommandFailure;
use crate::cli::output::{Column, cell, print_message, table};
use crate::cli::remote::{only_local, view};
use crate::gateway::money::Usd;
use crate::gateway::store::{self, RefusalCount};
use crate::gateway::usage::{
    DayCounts, GroupingError, NamedCounts, UsageCounters, UsageFilter, UsageGroup, UsageMeasure, UsageReader, csv,
};

/// The reason why a gateway that is managed through its admin API has no values separated by commas here.
pub(super) const NO_CSV: &str = "the admin API has them only as JSON";

/// Counts, of the store or of the admin API.
pub(super) enum UsageRows {
    /// The days, and their sum.
    Days(Vec<DayCounts>, UsageCounters),
    Keys(Vec<NamedCounts>),
    Groups {
        grouping: store::UsageGrouping,
        groups: Vec<GroupCounts>,
        /// About how many records are not counted yet.
        pending: u64,
        /// The groups as comma-separated values, which only the store can make.
        csv: Option<String>,
    },
}

/// The counts of one value of a property.
pub(super) struct GroupCounts {
    pub(super) value: String,
    pub(super) name: Option<String>,
    pub(super) counts: UsageCounters,
    pub(super) p50_ms: Option<u64>,
    pub(super) p95_ms: Option<u64>,
    pub(super) saved: Option<Usd>,
    /// The line of JSON.
    pub(super) line: GroupLine,
}

/// A group as a line of JSON, with the fields of the admin API. Scripts rely on the fields and their order.
#[derive(Serialize, Deserialize)]
pub(super) struct GroupLine {
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_name: Option<String>,
    requests: u64,
    succeeded: u64,
    failed: u64,
    refused: u64,
    images: u64,
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
    #[serde(default)]
    cost_usd: f64,
    #[serde(default)]
    cost_unknown: u64,
    #[serde(flatten)]
    details: Option<DetailsLine>,
}

/// The details of a line, if they are kept.
#[derive(Serialize, Deserialize)]
struct DetailsLine {
    input_text_tokens: u64,
    input_image_tokens: u64,
    input_cached_tokens: u64,
    output_text_tokens: u64,
    output_image_tokens: u64,
    host_input_tokens: u64,
    host_output_tokens: u64,
    replays: u64,
    replayed_images: u64,
    saved_usd: f64,
    saved_unknown: u64,
    p50_ms: Option<u64>,
    p95_ms: Option<u64>,
}

/// Reads the counts of the store that match the filter.
pub(super) async fn read_counts(
    usage: &UsageReader,
    grouping: UsageGrouping,
    filter: &UsageFilter,
) -> Result<UsageRows, CommandFailure> {
    Ok(match grouping {
        UsageGrouping::Day => UsageRows::Days(usage.days(filter).await?, usage.totals(filter).await?),
        UsageGrouping::Key => UsageRows::Keys(usage.by_key(filter, None).await?),
        grouping => read_groups(usage, grouping.stored(), filter).await?,
    })
}

async fn read_groups(
    usage: &UsageReader,
    grouping: store::UsageGrouping,
    filter: &UsageFilter,
) -> Result<UsageRows, CommandFailure> {
    GroupingError::check(grouping, filter).map_err(|error| {
        let hint = if error == GroupingError::TooManyHours { ": give a later `--since`" } else { "" };
        CommandFailure::Usage(format!("{error}{hint}"))
    })?;
    let grouped = usage.groups(filter, grouping, UsageMeasure::Requests, None).await?;
    let groups = grouped.groups.iter().map(GroupCounts::from_store).collect::<Result<_, _>>()?;
    let csv = Some(csv::groups(&grouped.groups, grouping));
    Ok(UsageRows::Groups { grouping, groups, pending: grouped.pending_records, csv })
}

// === impl UsageRows ===

impl UsageRows {
    /// Returns the counts as text in the output format.
    pub(super) fn render(&self, format: UsageFormat) -> Result<String, CommandFailure> {
        Ok(match (self, format) {
            (Self::Days(days, _), UsageFormat::Json) => json_lines(days)?,
            (Self::Days(days, _), UsageFormat::Csv) => csv::days(days),
            (Self::Days(days, totals), UsageFormat::Table { cost }) => day_table(days, totals, cost),
            (Self::Keys(keys), UsageFormat::Json) => json_lines(keys)?,
            (Self::Keys(keys), UsageFormat::Csv) => csv::keys(keys),
            (Self::Keys(keys), UsageFormat::Table { cost }) => key_table(keys, cost),
            (Self::Groups { grouping, groups, pending, csv }, format) => {
                if *pending > 0 {
                    print_message(&format!("{pending} records are still being counted, and are missing here"));
                }
                match format {
                    UsageFormat::Json => json_lines(groups.iter().map(|group| &group.line))?,
                    UsageFormat::Csv => csv.clone().ok_or_else(|| only_local("usage --csv", NO_CSV))?,
                    UsageFormat::Table { cost } => group_table(groups, *grouping, cost),
                }
            }
        })
    }
}

// === impl GroupCounts ===

impl GroupCounts {
    fn from_store(group: &UsageGroup) -> Result<Self, CommandFailure> {
        Ok(Self {
            value: group.value.clone(),
            name: group.name.clone(),
            counts: group.counts,
            p50_ms: UsageMeasure::P50.of_group(group),
            p95_ms: UsageMeasure::P95.of_group(group),
            saved: group.details.as_ref().map(|details| Usd::from_nanos(details.saved_nano_usd)),
            line: view(&group.to_line())?,
        })
    }
}

fn group_table(groups: &[GroupCounts], grouping: store::UsageGrouping, cost: bool) -> String {
    let value = grouping.as_str().to_uppercase();
    let seconds = |time: Option<u64>| cell(time.map(|time| format!("{}.{}", time / 1000, time % 1000 / 100)));
    let row = |group: &GroupCounts| {
        let [requests, failed, _, images, input, output] = columns(&group.counts);
        let shown = Some(group.name.clone().unwrap_or_else(|| group.value.clone())).filter(|text| !text.is_empty());
        [cell(shown), requests, failed, images, input, output, seconds(group.p50_ms), seconds(group.p95_ms)]
    };
    let rows: Vec<[String; 8]> = groups.iter().map(row).collect();
    if !cost {
        let headings = [&*value, "REQUESTS", "FAILED", "IMAGES", "TOKENS IN", "TOKENS OUT", "P50 S", "P95 S"];
        return table(headings, &rows);
    }
    let with_cost = rows.into_iter().zip(groups).map(|(row, group)| {
        let [value, requests, failed, images, input, output, p50, p95] = row;
        let [cost, unknown] = cost_columns(&group.counts);
        [value, requests, failed, images, input, output, p50, p95, cost, unknown, cell(group.saved)]
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

fn day_table(days: &[DayCounts], totals: &UsageCounters, cost: bool) -> String {
    let days = days.iter().map(|day| (day.day.to_string(), &day.counts));
    let rows: Vec<_> = days.chain([("total".to_owned(), totals)]).collect();
    if cost {
        let row = |(day, counts): &(String, &UsageCounters)| {
            let [requests, failed, refused, images, input, output] = columns(counts);
            let [cost, unknown] = cost_columns(counts);
            [day.clone(), requests, failed, refused, images, input, output, cost, unknown]
        };
        let headings =
            ["DAY", "REQUESTS", "FAILED", "REFUSED", "IMAGES", "TOKENS IN", "TOKENS OUT", "COST USD", "COST UNKNOWN"];
        return table(headings, &rows.iter().map(row).collect::<Vec<_>>());
    }
    let row = |(day, counts): &(String, &UsageCounters)| {
        let [requests, failed, refused, images, input, output] = columns(counts);
        [day.clone(), requests, failed, refused, images, input, output]
    };
    let headings = ["DAY", "REQUESTS", "FAILED", "REFUSED", "IMAGES", "TOKENS IN", "TOKENS OUT"];
    table(headings, &rows.iter().map(row).collect::<Vec<_>>())
}

fn key_table(keys: &[NamedCounts], cost: bool) -> String {
    if cost {
        let row = |NamedCounts { key_counts, name, .. }: &NamedCounts| {
            let [requests, failed, refused, images, ..] = columns(&key_counts.counts);
            let [cost, unknown] = cost_columns(&key_counts.counts);
            let key = Some(key_counts.key.as_str()).filter(|key| *key != RefusalCount::NO_KEY);
            let (key, name, group) = (cell(key), cell(name.as_ref()), key_counts.group.clone());
            [key, name, group, requests, failed, refused, images, cost, unknown]
        };
        let [key, requests, failed, refused] = ["KEY", "REQUESTS", "FAILED", "REFUSED"].map(Column::from);
        let [name, group] = ["NAME", "GROUP"].map(Column::name);
        let [images, cost, unknown] = ["IMAGES", "COST USD", "COST UNKNOWN"].map(Column::from);
        return table(
            [key, name, group, requests, failed, refused, images, cost, unknown],
            &keys.iter().map(row).collect::<Vec<_>>(),
        );
    }
    let row = |NamedCounts { key_counts, name, user_name }: &NamedCounts| {
        let [requests, failed, refused, images, input, output] = columns(&key_counts.counts);
        let (name, user) = (cell(name.as_ref()), cell(user_name.as_ref()));
        let key = Some(key_counts.key.as_str()).filter(|key| *key != RefusalCount::NO_KEY);
        [cell(key), name, user, key_counts.group.clone(), requests, failed, refused, images, input, output]
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    let [key, requests, failed, refused] = ["KEY", "REQUESTS", "FAILED", "REFUSED"].map(Column::from);
    let [name, user, group] = ["NAME", "USER", "GROUP"].map(Column::name);
    let [images, input, output] = ["IMAGES", "TOKENS IN", "TOKENS OUT"].map(Column::from);
    table([key, name, user, group, requests, failed, refused, images, input, output], &rows)
}

/// Returns the known cost, and the number of requests whose cost is unknown.
fn cost_columns(counts: &UsageCounters) -> [String; 2] {
    [counts.cost_usd.to_string(), counts.cost_unknown.to_string()]
}

fn columns(counts: &UsageCounters) -> [String; 6] {
    let UsageCounters { requests, failed, refused, images, input_tokens, output_tokens, .. } = counts;
    [requests, failed, refused, images, input_tokens, output_tokens].map(u64::to_string)
}
