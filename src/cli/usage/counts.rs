//! Formats counts by day, key or another property, in each output format.

use super::{UsageFormat, UsageGrouping, json_lines};
use crate::cli::failure::CommandFailure;
use crate::cli::output::{cell, print_message, table};
use crate::gateway::money::Usd;
use crate::gateway::store;
use crate::gateway::store::RefusalCount;
use crate::gateway::usage::{
    DayCounts, GroupingError, NamedCounts, UsageCounters, UsageFilter, UsageGroup, UsageMeasure, UsageReader, csv,
};

/// Returns the counts that match the filter as text in the output format.
pub(super) async fn render_counts(
    usage: &UsageReader,
    grouping: UsageGrouping,
    filter: &UsageFilter,
    format: UsageFormat,
) -> Result<String, CommandFailure> {
    Ok(match grouping {
        UsageGrouping::Day => {
            let days = usage.days(filter).await?;
            match format {
                UsageFormat::Json => json_lines(&days)?,
                UsageFormat::Csv => csv::days(&days),
                UsageFormat::Table { cost } => day_table(&days, &usage.totals(filter).await?, cost),
            }
        }
        UsageGrouping::Key => {
            let keys = usage.by_key(filter, None).await?;
            match format {
                UsageFormat::Json => json_lines(&keys)?,
                UsageFormat::Csv => csv::keys(&keys),
                UsageFormat::Table { cost } => key_table(&keys, cost),
            }
        }
        UsageGrouping::Hour => render_groups(usage, store::UsageGrouping::Hour, filter, format).await?,
        UsageGrouping::User => render_groups(usage, store::UsageGrouping::User, filter, format).await?,
        UsageGrouping::Group => render_groups(usage, store::UsageGrouping::Group, filter, format).await?,
        UsageGrouping::Account => render_groups(usage, store::UsageGrouping::Account, filter, format).await?,
        UsageGrouping::Model => render_groups(usage, store::UsageGrouping::Model, filter, format).await?,
        UsageGrouping::Size => render_groups(usage, store::UsageGrouping::Size, filter, format).await?,
        UsageGrouping::Quality => render_groups(usage, store::UsageGrouping::Quality, filter, format).await?,
        UsageGrouping::Reason => render_groups(usage, store::UsageGrouping::Reason, filter, format).await?,
    })
}

async fn render_groups(
    usage: &UsageReader,
    grouping: store::UsageGrouping,
    filter: &UsageFilter,
    format: UsageFormat,
) -> Result<String, CommandFailure> {
    GroupingError::check(grouping, filter).map_err(|error| {
        let hint = if error == GroupingError::TooManyHours { ": give a later `--since`" } else { "" };
        CommandFailure::Usage(format!("{error}{hint}"))
    })?;
    let grouped = usage.groups(filter, grouping, UsageMeasure::Requests, None).await?;
    if grouped.pending_records > 0 {
        print_message(&format!("{} records are still being counted, and are missing here", grouped.pending_records));
    }
    Ok(match format {
        UsageFormat::Json => json_lines(grouped.groups.iter().map(UsageGroup::to_line))?,
        UsageFormat::Csv => csv::groups(&grouped.groups, grouping),
        UsageFormat::Table { cost } => group_table(&grouped.groups, grouping, cost),
    })
}

fn group_table(groups: &[UsageGroup], grouping: store::UsageGrouping, cost: bool) -> String {
    let value = grouping.as_str().to_uppercase();
    let seconds = |group: &UsageGroup, measure: UsageMeasure| {
        cell(measure.of_group(group).map(|time| format!("{}.{}", time / 1000, time % 1000 / 100)))
    };
    let row = |group: &UsageGroup| {
        let [requests, failed, _, images, input, output] = columns(&group.counts);
        let shown = Some(group.name.clone().unwrap_or_else(|| group.value.clone())).filter(|text| !text.is_empty());
        let times = [seconds(group, UsageMeasure::P50), seconds(group, UsageMeasure::P95)];
        let [p50, p95] = times;
        [cell(shown), requests, failed, images, input, output, p50, p95]
    };
    let rows: Vec<[String; 8]> = groups.iter().map(row).collect();
    if !cost {
        let headings = [&*value, "REQUESTS", "FAILED", "IMAGES", "TOKENS IN", "TOKENS OUT", "P50 S", "P95 S"];
        return table(headings, &rows);
    }
    let with_cost = rows.into_iter().zip(groups).map(|(row, group)| {
        let [value, requests, failed, images, input, output, p50, p95] = row;
        let [cost, unknown] = cost_columns(&group.counts);
        let saved = cell(group.details.as_ref().map(|details| Usd::from_nanos(details.saved_nano_usd)));
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
        let headings = ["KEY", "NAME", "GROUP", "REQUESTS", "FAILED", "REFUSED", "IMAGES", "COST USD", "COST UNKNOWN"];
        return table(headings, &keys.iter().map(row).collect::<Vec<_>>());
    }
    let row = |NamedCounts { key_counts, name, user_name }: &NamedCounts| {
        let [requests, failed, refused, images, input, output] = columns(&key_counts.counts);
        let (name, user) = (cell(name.as_ref()), cell(user_name.as_ref()));
        let key = Some(key_counts.key.as_str()).filter(|key| *key != RefusalCount::NO_KEY);
        [cell(key), name, user, key_counts.group.clone(), requests, failed, refused, images, input, output]
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    let headings =
        ["KEY", "NAME", "USER", "GROUP", "REQUESTS", "FAILED", "REFUSED", "IMAGES", "TOKENS IN", "TOKENS OUT"];
    table(headings, &rows)
}

/// Returns the known cost, and the number of requests whose cost is unknown.
fn cost_columns(counts: &UsageCounters) -> [String; 2] {
    [counts.cost_usd.to_string(), counts.cost_unknown.to_string()]
}

fn columns(counts: &UsageCounters) -> [String; 6] {
    let UsageCounters { requests, failed, refused, images, input_tokens, output_tokens, .. } = counts;
    [requests, failed, refused, images, input_tokens, output_tokens].map(u64::to_string)
}
