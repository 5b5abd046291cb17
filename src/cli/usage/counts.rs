//! Counts by day and by key, in whichever form.

use super::{By, Form, json_lines};
use crate::cli::failure::Failure;
use crate::cli::output::{cell, table};
use crate::gateway::store::RefusalCount;
use crate::gateway::usage::{Counts, DayCounts, NamedCounts, Usage, UsageFilter, csv};

pub(super) async fn page(usage: &Usage, by: By, filter: &UsageFilter, form: Form) -> Result<String, Failure> {
    Ok(match by {
        By::Day => {
            let days = usage.days(filter).await?;
            match form {
                Form::Json => json_lines(&days)?,
                Form::Csv => csv::days(&days),
                Form::Table => by_day(&days, &usage.totals(filter).await?),
            }
        }
        By::Key => {
            let keys = usage.by_key(filter, None).await?;
            match form {
                Form::Json => json_lines(&keys)?,
                Form::Csv => csv::keys(&keys),
                Form::Table => by_key(&keys),
            }
        }
    })
}

fn by_day(days: &[DayCounts], totals: &Counts) -> String {
    let row = |day: String, counts: &Counts| {
        let [requests, failed, refused, images, input, output] = columns(counts);
        [day, requests, failed, refused, images, input, output]
    };
    let mut rows: Vec<_> = days.iter().map(|of| row(of.day.to_string(), &of.counts)).collect();
    rows.push(row("total".to_owned(), totals));
    table(["DAY", "REQUESTS", "FAILED", "REFUSED", "IMAGES", "TOKENS IN", "TOKENS OUT"], &rows)
}

fn by_key(keys: &[NamedCounts]) -> String {
    let row = |NamedCounts { of, name, user_name }: &NamedCounts| {
        let [requests, failed, refused, images, input, output] = columns(&of.counts);
        let (name, user) = (cell(name.as_ref()), cell(user_name.as_ref()));
        let known = Some(of.key.as_str()).filter(|key| *key != RefusalCount::NO_KEY);
        [cell(known), name, user, of.group.clone(), requests, failed, refused, images, input, output]
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    let headings =
        ["KEY", "NAME", "USER", "GROUP", "REQUESTS", "FAILED", "REFUSED", "IMAGES", "TOKENS IN", "TOKENS OUT"];
    table(headings, &rows)
}

fn columns(counts: &Counts) -> [String; 6] {
    let Counts { requests, failed, refused, images, input_tokens, output_tokens, .. } = counts;
    [requests, failed, refused, images, input_tokens, output_tokens].map(u64::to_string)
}
