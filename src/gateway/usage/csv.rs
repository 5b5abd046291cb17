//! Comma-separated values for spreadsheets, as in RFC 4180. A row is made of the JSON of a record or of counts, so that the
//! store, the admin API and a command have the same columns.
//!
//! Many texts here come from callers. A spreadsheet treats a cell that begins like a formula as a formula, which can
//! fetch an address or start a program. Such a text gets an apostrophe in front.

use serde::Serialize;
use serde_json::Value;

use crate::gateway::money::Usd;
use crate::gateway::names;
use crate::gateway::store::UsageGrouping;

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

/// The places of the columns of records that are in nested objects.
const NESTED_COLUMNS: [(&str, &str); 13] = [
    ("input_tokens", "/usage/input_tokens"),
    ("input_image_tokens", "/usage/input_tokens_details/image_tokens"),
    ("input_text_tokens", "/usage/input_tokens_details/text_tokens"),
    ("output_tokens", "/usage/output_tokens"),
    ("output_image_tokens", "/usage/output_tokens_details/image_tokens"),
    ("output_text_tokens", "/usage/output_tokens_details/text_tokens"),
    ("total_tokens", "/usage/total_tokens"),
    ("host_input_tokens", "/host_usage/input_tokens"),
    ("host_output_tokens", "/host_usage/output_tokens"),
    ("host_total_tokens", "/host_usage/total_tokens"),
    ("input_cached_image_tokens", "/usage/cached_tokens_details/image_tokens"),
    ("input_cached_text_tokens", "/usage/cached_tokens_details/text_tokens"),
    ("host_input_cached_tokens", "/host_usage/cached_tokens_details/text_tokens"),
];

/// A record with the names that its JSON does not have.
#[derive(Serialize)]
pub(crate) struct CsvRecord<'a, R> {
    #[serde(flatten)]
    pub(crate) record: &'a R,
    pub(crate) key_name: Option<&'a str>,
    pub(crate) user_name: Option<&'a str>,
}

/// Returns the line of column names, and one line for each record.
///
/// # Errors
///
/// Returns an error if a record is no JSON object.
pub(crate) fn records<'a, R: Serialize + 'a>(
    records: impl IntoIterator<Item = CsvRecord<'a, R>>,
) -> serde_json::Result<String> {
    csv_table(&RECORD_COLUMNS, records, |record, column| {
        let nested = NESTED_COLUMNS.iter().find(|(name, _)| *name == column);
        nested.map_or_else(|| record.get(column), |(_, pointer)| record.pointer(pointer))
    })
}

/// Returns the line of column names, and one line for each day.
///
/// # Errors
///
/// Returns an error if counts are no JSON object.
pub(crate) fn days<R: Serialize>(days: impl IntoIterator<Item = R>) -> serde_json::Result<String> {
    counts_table(&["day"], days)
}

/// Returns the line of column names, and one line for each key.
///
/// # Errors
///
/// The errors of [`days`].
pub(crate) fn keys<R: Serialize>(keys: impl IntoIterator<Item = R>) -> serde_json::Result<String> {
    counts_table(&KEY_COLUMNS, keys)
}

/// Returns the line of column names, and one line for each group. The first column has the name of the grouping.
///
/// # Errors
///
/// The errors of [`days`].
pub(crate) fn groups<R: Serialize>(
    groups: impl IntoIterator<Item = R>,
    grouping: UsageGrouping,
) -> serde_json::Result<String> {
    let columns = [&[grouping.as_str(), "name", "user_name"], &COUNT_COLUMNS[..], &DETAIL_COLUMNS].concat();
    csv_table(&columns, groups, |group, column| group.get(if column == grouping.as_str() { "value" } else { column }))
}

fn counts_table<R: Serialize>(columns: &[&str], rows: impl IntoIterator<Item = R>) -> serde_json::Result<String> {
    csv_table(&[columns, &COUNT_COLUMNS].concat(), rows, |row, column| row.get(column))
}

/// Returns the line of column names, and one line for each row; `value_of` finds the value of a column in a row.
fn csv_table<R: Serialize>(
    columns: &[&str],
    rows: impl IntoIterator<Item = R>,
    value_of: impl for<'a> Fn(&'a Value, &str) -> Option<&'a Value>,
) -> serde_json::Result<String> {
    let mut text = csv_line(columns.iter().map(|column| (*column).to_owned()));
    for row in rows {
        let row = serde_json::to_value(row)?;
        text.push_str(&csv_line(columns.iter().map(|column| value_of(&row, column).map(cell).unwrap_or_default())));
    }
    Ok(text)
}

/// Returns a value as text: an empty text if it is unknown, and the length of a list. Every number with decimals is an
/// amount of dollars.
fn cell(value: &Value) -> String {
    match value {
        Value::Null | Value::Object(_) => String::new(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()).and_then(Usd::from_dollars) {
            Some(dollars) => dollars.to_string(),
            None => number.to_string(),
        },
        Value::String(text) => without_formula(text),
        Value::Array(items) => items.len().to_string(),
    }
}

fn csv_line(fields: impl IntoIterator<Item = String>) -> String {
    let fields: Vec<String> = fields.into_iter().map(|field| quote_field(&field)).collect();
    fields.join(",") + "\r\n"
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
    use crate::gateway::usage::{DayCounts, NamedCounts, UsageGroup};

    #[test]
    fn a_field_is_quoted_only_if_necessary() {
        assert_eq!(quote_field("plain text"), "plain text");
        assert_eq!(quote_field("a,b"), "\"a,b\"");
        assert_eq!(quote_field("a \"b\"\nc"), "\"a \"\"b\"\"\nc\"");
    }

    #[test]
    fn a_table_without_rows_has_column_names() {
        assert_eq!(records::<Value>([]).unwrap().lines().count(), 1);
        assert_eq!(
            days::<DayCounts>([]).unwrap(),
            "day,requests,succeeded,failed,images,input_tokens,output_tokens,total_tokens,refused,\
             cost_usd,cost_unknown\r\n"
        );
        assert!(keys::<NamedCounts>([]).unwrap().starts_with("key,name,user,user_name,group,requests,"));
    }

    #[test]
    fn a_group_has_its_details_or_empty_cells() {
        let details =
            crate::gateway::store::UsageDetails { replays: 2, saved_nano_usd: 40_000_000, ..Default::default() };
        let of_model = |value: &str, details| UsageGroup { value: value.to_owned(), details, ..UsageGroup::default() };
        let rows = [of_model("=m", Some(details)), of_model("n", None)];
        let written = groups(rows.iter().map(UsageGroup::to_line), UsageGrouping::Model).unwrap();
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
            let (key_name, user_name) = (Some(formula), Some(formula));
            let written = records([CsvRecord { record: &record, key_name, user_name }]).unwrap();
            let guarded = quote_field(&format!("'{formula}"));
            assert_eq!(written.matches(&guarded).count(), 9, "{written}");
            assert_eq!(written.matches(formula).count(), 9, "{written}");
        }
        assert_eq!(without_formula("a=b"), "a=b");
    }
}
