//! Formats counts by day, key or another property, in each output format.

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};

use super::records::word;
use super::{UsageFormat, UsageGrouping, json_lines};
use crate::cli::failure::CommandFailure;
use crate::cli::managed_gateway::{ManagedGateway, view};
use crate::cli::output::{Column, cell, print_message, table};
use crate::client::admin::types;
use crate::gateway::money::Usd;
use crate::gateway::store::{self, KeyCounts, RefusalCount};
use crate::gateway::usage::{DayCounts, GroupingError, NamedCounts, UsageCounters, UsageFilter, UtcDay, csv};

/// The first day of counts without `--since`: before any gateway ran.
const FIRST_DAY: Option<NaiveDate> = NaiveDate::from_ymd_opt(1970, 1, 1);

/// Counts, as they are printed.
pub(super) enum UsageRows {
    /// The days, and their sum.
    Days(Vec<DayCounts>, UsageCounters),
    Keys(Vec<NamedCounts>),
    Groups {
        grouping: store::UsageGrouping,
        groups: Vec<GroupCounts>,
        /// About how many records are not counted yet.
        pending: u64,
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

/// The counts of the admin API.
#[derive(Deserialize)]
struct CountsView {
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
}

// === impl CountsView ===

impl CountsView {
    fn read(counts: &impl Serialize) -> Result<UsageCounters, CommandFailure> {
        let counts: Self = view(counts)?;
        Ok(UsageCounters {
            requests: counts.requests,
            succeeded: counts.succeeded,
            failed: counts.failed,
            refused: counts.refused,
            images: counts.images,
            input_tokens: counts.input_tokens,
            output_tokens: counts.output_tokens,
            total_tokens: counts.total_tokens,
            cost_usd: Usd::from_dollars(counts.cost_usd).unwrap_or_default(),
            cost_unknown: counts.cost_unknown,
        })
    }
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
            let day =
                |day: &types::UsageDay| Ok(DayCounts { day: UtcDay::from(day.day), counts: CountsView::read(day)? });
            let days = usage.days.iter().map(day).collect::<Result<_, CommandFailure>>()?;
            Ok(UsageRows::Days(days, CountsView::read(&usage.totals)?))
        }
        UsageGrouping::Key => {
            let usage = request.send().await?;
            Ok(UsageRows::Keys(usage.keys.iter().map(key_counts).collect::<Result<_, _>>()?))
        }
        grouping => {
            let stored = grouping.stored();
            let usage = request.group_by(word::<types::UsageGrouping>(stored.as_str())?).send().await?;
            let groups = usage.groups.iter().map(group_row).collect::<Result<_, _>>()?;
            Ok(UsageRows::Groups { grouping: stored, groups, pending: usage.pending_records.unwrap_or(0) })
        }
    }
}

fn key_counts(key: &types::UsageKey) -> Result<NamedCounts, CommandFailure> {
    let counts = CountsView::read(key)?;
    let (id, user, group) = (key.key.clone().into(), key.user.clone().into(), key.group.clone());
    let name = Some(key.name.clone()).filter(|name| !name.is_empty());
    let key_counts = KeyCounts { key: id, user, group, counts };
    Ok(NamedCounts { name, user_name: key.user_name.clone(), key_counts })
}

fn group_row(group: &types::UsageGroup) -> Result<GroupCounts, CommandFailure> {
    Ok(GroupCounts {
        value: group.value.clone(),
        name: group.name.clone(),
        counts: CountsView::read(group)?,
        p50_ms: group.p50_ms,
        p95_ms: group.p95_ms,
        saved: group.saved_usd.and_then(Usd::from_dollars),
        line: view(group)?,
    })
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
                    UsageFormat::Json => json_lines(groups.iter().map(|group| &group.line))?,
                    UsageFormat::Csv => csv::groups(groups.iter().map(|group| &group.line), *grouping)?,
                    UsageFormat::Table { cost } => group_table(groups, *grouping, cost),
                }
            }
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
