//! Records as comma-separated values, as RFC 4180 has them.

use crate::gateway::ledger::Record;

/// The names are those of the JSON records; what is nested there is named with both words.
const COLUMNS: [&str; 27] = [
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
    "total_tokens",
    "cost_usd",
    "latency_ms",
    "first_byte_ms",
    "account",
    "group",
    "user",
    "key",
    "end_user",
    "fallback",
    "injected_tool",
];

/// A heading, and one line for each record.
pub(super) fn page(records: &[Record]) -> String {
    let heading = COLUMNS.map(str::to_owned);
    let lines = [heading].into_iter().chain(records.iter().map(fields));
    lines.map(|fields| fields.map(|field| quoted(&field)).join(",") + "\r\n").collect()
}

fn fields(record: &Record) -> [String; COLUMNS.len()] {
    let usage = record.usage.clone().unwrap_or_default();
    let input = usage.input_tokens_details.unwrap_or_default();
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    [
        record.request_id.to_string(),
        record.created_at.to_string(),
        record.operation.clone(),
        text(&record.model),
        record.stream.to_string(),
        record.state.as_str().to_owned(),
        text(&record.error_code),
        text(&record.size),
        text(&record.quality),
        text(&record.output_format),
        number(record.n),
        record.delivered.len().to_string(),
        number(usage.input_tokens),
        number(input.image_tokens),
        number(input.text_tokens),
        number(usage.output_tokens),
        number(usage.total_tokens),
        number(record.cost_usd),
        number(record.latency_ms),
        number(record.first_byte_ms),
        text(&record.account),
        record.group.clone(),
        record.user.to_string(),
        record.key.to_string(),
        text(&record.end_user),
        text(&record.fallback),
        record.injected_tool.to_string(),
    ]
}

/// What is unknown is empty, and not 0.
fn number(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_quoted_only_where_it_must_be() {
        assert_eq!(quoted("plain text"), "plain text");
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("a \"b\"\nc"), "\"a \"\"b\"\"\nc\"");
    }

    #[test]
    fn without_records_there_is_still_a_heading() {
        assert_eq!(page(&[]).lines().count(), 1);
    }
}
