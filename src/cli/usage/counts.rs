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
                UsageFormat::Table => day_table(&days, &usage.totals(filter).await?),
            }
        }
        UsageGrouping::Key => {
            let keys = usage.by_key(filter, None).await?;
            match format {
                UsageFormat::Json => json_lines(&keys)?,
                UsageFormat::Csv => csv::keys(&keys),
                UsageFormat::Table => key_table(&keys),
            }
        }
    })
}

fn day_table(days: &[DayCounts], totals: &UsageCounters) -> String {
    let row = |day: String, counts: &UsageCounters| {
        let [requests, failed, refused, images, input, output] = columns(counts);
        [day, requests, failed, refused, images, input, output]
    };
    let mut rows: Vec<_> = days.iter().map(|day| row(day.day.to_string(), &day.counts)).collect();
    rows.push(row("total".to_owned(), totals));
    table(["DAY", "REQUESTS", "FAILED", "REFUSED", "IMAGES", "TOKENS IN", "TOKENS OUT"], &rows)
}

fn key_table(keys: &[NamedCounts]) -> String {
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

fn columns(counts: &UsageCounters) -> [String; 6] {
    let UsageCounters { requests, failed, refused, images, input_tokens, output_tokens, .. } = counts;
    [requests, failed, refused, images, input_tokens, output_tokens].map(u64::to_string)
}
