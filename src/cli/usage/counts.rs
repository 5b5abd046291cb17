//! Formats counts by day and by key, in each output format.

use super::{UsageFormat, UsageGrouping, json_lines};
use crate::cli::failure::CommandFailure;
use crate::cli::output::{cell, table};
use crate::gateway::store::RefusalCount;
use crate::gateway::usage::{DayCounts, NamedCounts, UsageCounters, UsageFilter, UsageReader, csv};

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
    })
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
