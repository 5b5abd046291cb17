//! Comma-separated values for spreadsheets, as in RFC 4180.
//!
//! Many texts here come from callers. A spreadsheet treats a cell that begins like a formula as a formula, which can
//! fetch an address or start a program. Such a text gets an apostrophe in front.

use crate::gateway::names;

use crate::gateway::money::Usd;
use crate::gateway::store::{CostBasis, CostReason, UsageGrouping};

use super::{DayCounts, NamedCounts, NamedRecord, UsageCounters, UsageGroup, UsageMeasure};

/// The columns of records. They have the names of the JSON fields; the name of a nested field has its object as prefix.
const RECORD_COLUMNS: [&str; 48] = [
    "request_id",
    "created_at",
    "operation",
    "model",
    "stream",
    "state",
    "error_code",
    "size",
    "quality",
    "output_format",
    "n",
    "delivered",
    "input_tokens",
    "input_image_tokens",
    "input_text_tokens",
    "output_tokens",
    "output_image_tokens",
    "output_text_tokens",
    "total_tokens",
    "cost_usd",
    "latency_ms",
    "first_byte_ms",
    "attempts",
    "account",
    "group",
    "user",
    "user_name",
    "key",
    "key_name",
    "end_user",
    "fallback",
    "injected_tool",
    "error_reason",
    "error_detail",
    "missing",
    "image_model",
    "host_model",
    "host_input_tokens",
    "host_output_tokens",
    "host_total_tokens",
    "maybe_paid_twice",
    "cost_basis",
    "cost_reason",
    "price_version",
    "input_cached_image_tokens",
    "input_cached_text_tokens",
    "host_input_cached_tokens",
    "adapted",
];

const COUNT_COLUMNS: [&str; 10] = [
    "requests",
    "succeeded",
    "failed",
    "images",
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "refused",
    "cost_usd",
    "cost_unknown",
];
const DETAIL_COLUMNS: [&str; 13] = [
    "input_text_tokens",
    "input_image_tokens",
    "input_cached_tokens",
    "output_text_tokens",
    "output_image_tokens",
    "host_input_tokens",
    "host_output_tokens",
    "replays",
    "replayed_images",
    "saved_usd",
    "saved_unknown",
    "p50_ms",
    "p95_ms",
];
const KEY_COLUMNS: [&str; 5] = ["key", "name", "user", "user_name", "group"];

/// Returns the line of column names for records.
pub(crate) fn record_heading() -> String {
    csv_line(RECORD_COLUMNS.map(str::to_owned))
}

/// Returns one line for each record.
pub(crate) fn records<'a>(records: impl IntoIterator<Item = &'a NamedRecord>) -> String {
    records.into_iter().map(|record| csv_line(record_fields(record))).collect()
}

/// Returns the line of column names, and one line for each day.
pub(crate) fn days(days: &[DayCounts]) -> String {
    let heading = csv_line(["day"].into_iter().chain(COUNT_COLUMNS).map(str::to_owned));
    let lines = days.iter().map(|day| csv_line([day.day.to_string()].into_iter().chain(count_fields(&day.counts))));
    [heading].into_iter().chain(lines).collect()
}

/// Returns the line of column names, and one line for each key.
pub(crate) fn keys(keys: &[NamedCounts]) -> String {
    let heading = csv_line(KEY_COLUMNS.into_iter().chain(COUNT_COLUMNS).map(str::to_owned));
    let lines = keys.iter().map(|NamedCounts { key_counts, name, user_name }| {
        let names = [
            key_counts.key.to_string(),
            optional_text(name),
            key_counts.user.to_string(),
            optional_text(user_name),
            without_formula(&key_counts.group),
        ];
        csv_line(names.into_iter().chain(count_fields(&key_counts.counts)))
    });
    [heading].into_iter().chain(lines).collect()
}

/// Returns the line of column names, and one line for each group. The first column has the name of the grouping.
pub(crate) fn groups(groups: &[UsageGroup], grouping: UsageGrouping) -> String {
    let columns = [grouping.as_str(), "name", "user_name"].into_iter().chain(COUNT_COLUMNS).chain(DETAIL_COLUMNS);
    let heading = csv_line(columns.map(str::to_owned));
    let lines = groups.iter().map(|group| {
        let names = [without_formula(&group.value), optional_text(&group.name), optional_text(&group.user_name)];
        csv_line(names.into_iter().chain(count_fields(&group.counts)).chain(detail_fields(group)))
    });
    [heading].into_iter().chain(lines).collect()
}

fn detail_fields(group: &UsageGroup) -> [String; DETAIL_COLUMNS.len()] {
    let Some(details) = &group.details else { return Default::default() };
    [
        details.input_text_tokens.to_string(),
        details.input_image_tokens.to_string(),
        details.input_cached_tokens.to_string(),
        details.output_text_tokens.to_string(),
        details.output_image_tokens.to_string(),
        details.host_input_tokens.to_string(),
        details.host_output_tokens.to_string(),
        details.replays.to_string(),
        details.replayed_images.to_string(),
        Usd::from_nanos(details.saved_nano_usd).to_string(),
        details.saved_unknown.to_string(),
        optional_number(UsageMeasure::P50.of_group(group)),
        optional_number(UsageMeasure::P95.of_group(group)),
    ]
}

fn record_fields(NamedRecord { record, key_name, user_name }: &NamedRecord) -> [String; RECORD_COLUMNS.len()] {
    let usage = record.usage.clone().unwrap_or_default();
    let host = record.host_usage.clone().unwrap_or_default();
    let input = usage.input_tokens_details.unwrap_or_default();
    let output = usage.output_tokens_details.unwrap_or_default();
    let cached = usage.cached_tokens_details.unwrap_or_default();
    [
        record.request_id.to_string(),
        record.created_at.to_string(),
        record.operation.clone(),
        optional_text(&record.model),
        record.stream.to_string(),
        record.state.as_str().to_owned(),
        optional_text(&record.error_code),
        optional_text(&record.size),
        optional_text(&record.quality),
        optional_text(&record.output_format),
        optional_number(record.n),
        record.delivered.len().to_string(),
        optional_number(usage.input_tokens),
        optional_number(input.image_tokens),
        optional_number(input.text_tokens),
        optional_number(usage.output_tokens),
        optional_number(output.image_tokens),
        optional_number(output.text_tokens),
        optional_number(usage.total_tokens),
        optional_number(record.cost_usd),
        optional_number(record.latency_ms),
        optional_number(record.first_byte_ms),
        record.attempts.len().to_string(),
        optional_text(&record.account),
        without_formula(&record.group),
        record.user.to_string(),
        optional_text(user_name),
        record.key.to_string(),
        optional_text(key_name),
        optional_text(&record.end_user),
        optional_text(&record.fallback),
        record.injected_tool.to_string(),
        optional_text(&record.error_reason),
        optional_text(&record.error_detail),
        optional_number(record.missing),
        optional_text(&record.image_model),
        optional_text(&record.host_model),
        optional_number(host.input_tokens),
        optional_number(host.output_tokens),
        optional_number(host.total_tokens),
        record.maybe_paid_twice.to_string(),
        optional_number(record.cost_basis.map(CostBasis::as_str)),
        optional_number(record.cost_reason.map(CostReason::as_str)),
        optional_text(&record.price_version),
        optional_number(cached.image_tokens),
        optional_number(cached.text_tokens),
        optional_number(host.cached_tokens_details.and_then(|details| details.text_tokens)),
        optional_text(&record.adapted),
    ]
}

fn count_fields(counts: &UsageCounters) -> [String; COUNT_COLUMNS.len()] {
    let UsageCounters { requests, succeeded, failed, refused, images, .. } = counts;
    let UsageCounters { input_tokens, output_tokens, total_tokens, cost_usd, cost_unknown, .. } = counts;
    [
        requests.to_string(),
        succeeded.to_string(),
        failed.to_string(),
        images.to_string(),
        input_tokens.to_string(),
        output_tokens.to_string(),
        total_tokens.to_string(),
        refused.to_string(),
        cost_usd.to_string(),
        cost_unknown.to_string(),
    ]
}

fn csv_line(fields: impl IntoIterator<Item = String>) -> String {
    let fields: Vec<String> = fields.into_iter().map(|field| quote_field(&field)).collect();
    fields.join(",") + "\r\n"
}

/// Returns the value as text, or an empty text if it is unknown.
fn optional_number(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

#[expect(clippy::ref_option, reason = "callers pass the fields of records")]
fn optional_text(value: &Option<String>) -> String {
    value.as_deref().map(without_formula).unwrap_or_default()
}

/// Escapes hidden characters, and returns a text that no spreadsheet treats as a formula. Some spreadsheets also treat
/// the full-width characters as the start of a formula.
fn without_formula(text: &str) -> String {
    let text = names::escape_hidden_except(text, |letter| matches!(letter, '\t' | '\r' | '\n'));
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠']);
    if is_formula { format!("'{text}") } else { text.into_owned() }
}

fn quote_field(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::store::testing::finished_record;

    #[test]
    fn a_field_is_quoted_only_if_necessary() {
        assert_eq!(quote_field("plain text"), "plain text");
        assert_eq!(quote_field("a,b"), "\"a,b\"");
        assert_eq!(quote_field("a \"b\"\nc"), "\"a \"\"b\"\"\nc\"");
    }

    #[test]
    fn a_table_without_rows_has_column_names() {
        assert_eq!((record_heading() + &records([])).lines().count(), 1);
        assert_eq!(
            days(&[]),
            "day,requests,succeeded,failed,images,input_tokens,output_tokens,total_tokens,refused,\
             cost_usd,cost_unknown\r\n"
        );
        assert!(keys(&[]).starts_with("key,name,user,user_name,group,requests,"));
    }

    #[test]
    fn a_group_has_its_details_or_empty_cells() {
        let details =
            crate::gateway::store::UsageDetails { replays: 2, saved_nano_usd: 40_000_000, ..Default::default() };
        let of_model = |value: &str, details| UsageGroup { value: value.to_owned(), details, ..UsageGroup::default() };
        let written = groups(&[of_model("=m", Some(details)), of_model("n", None)], UsageGrouping::Model);
        let lines: Vec<&str> = written.lines().collect();
        assert!(lines[0].starts_with("model,name,user_name,requests,") && lines[0].ends_with(",p50_ms,p95_ms"));
        assert!(lines[1].starts_with("'=m,,,0,") && lines[1].ends_with(",2,0,0.04,0,,"), "{written}");
        assert!(lines[2].ends_with(",,,,,,,,,,,,,"), "{written}");
    }

    #[test]
    fn no_text_of_a_caller_becomes_a_formula() {
        for formula in ["=1+1", "+a", "-a", "@SUM(A1)", "\t=a", "\r=a", "\n=a", "＝a"] {
            let mut record = finished_record("r1");
            let hostile = || Some(formula.to_owned());
            (record.model, record.end_user, record.size, record.fallback) =
                (hostile(), hostile(), hostile(), hostile());
            (record.image_model, record.host_model) = (hostile(), hostile());
            formula.clone_into(&mut record.group);
            let record = NamedRecord { record, key_name: hostile(), user_name: hostile() };
            let written = records([&record]);
            let guarded = quote_field(&format!("'{formula}"));
            assert_eq!(written.matches(&guarded).count(), 9, "{written}");
            assert_eq!(written.matches(formula).count(), 9, "{written}");
        }
        assert_eq!(without_formula("a=b"), "a=b");
    }
}
