//! The command `imagate usage` on a gateway that is managed through its admin API.

use std::str::FromStr;

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};

use super::counts::{GroupCounts, NO_CSV, UsageRows};
use super::records::{RecordLine, RecordRow};
use super::{UsageFormat, UsageGrouping, json_lines};
use crate::cli::failure::CommandFailure;
use crate::cli::remote::{RemoteGateway, only_local, page_size, view};
use crate::client::admin::types;
use crate::gateway::money::Usd;
use crate::gateway::store::{KeyCounts, RecordFilter, Timestamp};
use crate::gateway::usage::{DayCounts, NamedCounts, UsageCounters, UsageFilter, UtcDay};
use crate::wire::admin::client::builder::ListRecords;

/// The first day of counts without `--since`: before any gateway ran.
const FIRST_DAY: Option<NaiveDate> = NaiveDate::from_ymd_opt(1970, 1, 1);

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
    gateway: &RemoteGateway,
    grouping: UsageGrouping,
    filter: &UsageFilter,
) -> Result<UsageRows, CommandFailure> {
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
            Ok(UsageRows::Groups { grouping: stored, groups, pending: usage.pending_records.unwrap_or(0), csv: None })
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

/// Prints the records that match the filter.
pub(super) async fn list_records(
    gateway: &RemoteGateway,
    filter: &RecordFilter,
    format: UsageFormat,
) -> Result<(), CommandFailure> {
    if format == UsageFormat::Csv {
        return Err(only_local("usage --csv", NO_CSV));
    }
    let records = read_records(gateway, filter).await?;
    match format {
        UsageFormat::Table { cost } => {
            super::records::print_table(&records.iter().map(record_row).collect::<Vec<_>>(), cost)
        }
        _ => {
            let lines: Vec<RecordLine> = records.iter().map(view).collect::<Result<_, _>>()?;
            Ok(crate::cli::output::print(&json_lines(&lines)?)?)
        }
    }
}

/// Returns the newest records up to the limit of the filter, or all, oldest first.
async fn read_records(gateway: &RemoteGateway, filter: &RecordFilter) -> Result<Vec<types::Record>, CommandFailure> {
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
fn word<T: FromStr>(text: &str) -> Result<T, CommandFailure> {
    text.parse().map_err(|_| CommandFailure::Usage(format!("`{text}` is not one of the words that the admin API has")))
}

fn record_row(record: &types::Record) -> RecordRow {
    let total = |usage: &Option<types::RecordUsage>| usage.as_ref().and_then(|usage| usage.total_tokens);
    let tokens = [total(&record.usage), total(&record.host_usage)].into_iter().flatten().reduce(u64::saturating_add);
    RecordRow {
        created_at: Timestamp::from(record.created_at),
        state: record.state.to_string(),
        size: record.size.clone(),
        quality: record.quality.clone(),
        output_format: record.output_format.clone(),
        images: record.delivered.len(),
        tokens,
        latency_ms: record.latency_ms,
        account: record.account.clone(),
        request_id: record.request_id.clone(),
        cost: record.cost_usd.and_then(Usd::from_dollars),
        is_estimated: record.cost_basis.as_ref().is_some_and(|basis| *basis == types::CostBasis::Estimated),
    }
}
