//! The tables of the pages under `docs/` and of the published API reference. The text between two markers is generated
//! from the documents.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::document::{Document, HandWrittenType, component_of, hand_written_type};
use crate::print::normalise;
use crate::settings;

/// The beginning of a marked table.
pub(crate) const BEGIN: &str = "<!-- table:";
const END: &str = "<!-- /table -->";

/// The documents that tables come from.
#[derive(Clone, Copy)]
pub(crate) struct TableSources<'a> {
    /// The public API.
    pub(crate) document: &'a Document,
    /// The schema of the settings.
    pub(crate) settings: &'a Value,
}

/// Returns the page with each of its marked tables generated again.
pub(crate) fn generate(sources: TableSources<'_>, page: &str) -> Result<String> {
    let page = page.replace("\r\n", "\n");
    let mut out = String::new();
    let mut rest = page.as_str();
    while let Some(start) = rest.find(BEGIN) {
        let (before, marked) = rest.split_at(start);
        let (marker, after) = marked.split_once("-->").context("a table marker that does not end")?;
        let name = marker.trim_start_matches(BEGIN).trim();
        let (_, following) = after.split_once(END).with_context(|| format!("table:{name} has no `{END}`"))?;
        out.push_str(&format!("{before}{BEGIN}{name} -->\n\n{}\n{END}", table(sources, name)?));
        rest = following;
    }
    out.push_str(rest);
    Ok(if out.is_empty() { out } else { normalise(&out) })
}

fn table(sources: TableSources<'_>, name: &str) -> Result<String> {
    let document = sources.document;
    if let Some(table_name) = name.strip_prefix("settings") {
        return settings::table(sources.settings, table_name.trim_start_matches(':'));
    }
    match name {
        "limits" => limits(document.value()),
        "errors" => errors(document.value()),
        "operations" => operations(document),
        "parameters" => parameters(document.value()),
        "models" => models(document.value()),
        unknown => {
            bail!("no table '{unknown}'; the names are limits, errors, models, operations, parameters and settings")
        }
    }
}

fn limits(document: &Value) -> Result<String> {
    let mut rows = Vec::new();
    for row in document["x-imagate-limits"].as_array().context("x-imagate-limits")? {
        let value = row["value"].as_u64().context("a limit without a value")?;
        let unit = cell(row, "unit");
        rows.push([format!("`{}`", cell(row, "name")), amount(value, &unit), cell(row, "applies_to")]);
    }
    Ok(markdown(["Limit", "Value", "Applies to"], &rows))
}

fn errors(document: &Value) -> Result<String> {
    let mut rows = Vec::new();
    for row in document["x-imagate-errors"].as_array().context("x-imagate-errors")? {
        let retry = match row["should_retry"].as_bool() {
            Some(true) => "yes",
            Some(false) => "no",
            None => "depends",
        };
        let status = row["status"].to_string();
        rows.push([
            status,
            format!("`{}`", cell(row, "code")),
            cell(row, "cause"),
            cell(row, "action"),
            retry.to_owned(),
        ]);
    }
    Ok(markdown(["Status", "`code`", "Cause", "What to do", "Send again?"], &rows))
}

fn operations(document: &Document) -> Result<String> {
    let mut rows = Vec::new();
    for operation in document.operations()? {
        let request = format!("`{} {}`", operation.method.to_uppercase(), operation.path);
        rows.push([request, format!("`{}`", operation.id), cell(operation.value, "summary")]);
    }
    Ok(markdown(["Request", "Operation", "What it does"], &rows))
}

fn models(document: &Value) -> Result<String> {
    let rows = document["x-imagate-models"].as_array().context("x-imagate-models")?;
    let model_row = |row: &Value| {
        let name = row["snapshot_of"].as_str();
        let rules = name.map_or(Some(row), |name| rows.iter().find(|row| row["id"] == name));
        let rules = rules.with_context(|| format!("{} is a snapshot of no model", row["id"]))?;
        let words = |field: &str| {
            let words = rules[field].as_array().map(|words| words.iter().map(code_span).collect::<Vec<_>>().join(", "));
            words.unwrap_or_else(|| "by the size rules".to_owned())
        };
        let maximum = |field: &str| rules[field].to_string();
        let (sizes, qualities) = (words("sizes"), words("qualities"));
        let (formats, backgrounds) = (words("formats"), words("backgrounds"));
        Ok([
            code_span(&row["id"]),
            sizes,
            qualities,
            formats,
            backgrounds,
            maximum("max_images"),
            maximum("max_partial_images"),
        ])
    };
    let rows: Vec<_> = rows.iter().map(model_row).collect::<Result<_>>()?;
    Ok(markdown(["Model", "Sizes", "Qualities", "Formats", "Backgrounds", "Images", "Intermediate images"], &rows))
}

/// The table of the fields of an image generation request.
fn parameters(document: &Value) -> Result<String> {
    let request = &document["components"]["schemas"]["ImageGenerationRequest"];
    let required = request["required"].as_array().context("required")?;
    let mut rows = Vec::new();
    for (name, property) in request["properties"].as_object().context("properties")? {
        let schema = resolve(document, property);
        let is_required = required.iter().any(|required_name| required_name == name);
        let default =
            if is_required { "required".to_owned() } else { schema.get("default").map(code_span).unwrap_or_default() };
        let about = if property.get("description").is_some() { property } else { schema };
        rows.push((
            !is_required,
            [code_span(&name.as_str().into()), accepts(schema), default, first_sentence(&cell(about, "description"))],
        ));
    }
    // Required fields come first. Not every JSON parser keeps the order of the document, so the rows are sorted.
    rows.sort();
    let rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
    Ok(markdown(["Parameter", "Accepts", "Default", "Meaning"], &rows))
}

/// Resolves a reference, also inside an `allOf` with a description, or an `anyOf` that makes it nullable.
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let inner = ["allOf", "anyOf"].iter().find_map(|key| schema[*key].get(0)).unwrap_or(schema);
    component_of(inner).map_or(inner, |name| &document["components"]["schemas"][name])
}

fn accepts(schema: &Value) -> String {
    if let Some(choices) = schema["enum"].as_array() {
        return choices.iter().map(code_span).collect::<Vec<_>>().join(", ");
    }
    match (hand_written_type(schema), schema["type"].as_str()) {
        (Some(HandWrittenType::Bounded(min, max)), _) => format!("{min} to {max}"),
        (Some(HandWrittenType::Size), _) => "`auto`, `<width>x<height>`".to_owned(),
        (Some(HandWrittenType::Secret), _) => "a secret".to_owned(),
        (None, Some("boolean")) => "`true`, `false`".to_owned(),
        (None | Some(HandWrittenType::Text), _) => {
            match (schema["minLength"].as_u64().unwrap_or(0), schema["maxLength"].as_u64()) {
                (_, Some(0)) => "nothing".to_owned(),
                (min, Some(max)) => format!("{min} to {max} characters"),
                (_, None) => "text".to_owned(),
            }
        }
    }
}

pub(crate) fn code_span(value: &Value) -> String {
    value.as_str().map_or_else(|| format!("`{value}`"), |text| format!("`{text}`"))
}

fn first_sentence(text: &str) -> String {
    text.split_once(". ").map_or(text, |(first, _)| first).trim_end_matches('.').to_owned()
}

/// Formats an amount; whole KiB and MiB are not written in bytes: `52428800 bytes` becomes `50 MiB`.
fn amount(value: u64, unit: &str) -> String {
    const MIB: u64 = 1024 * 1024;
    match unit {
        "bytes" if value >= MIB && value.is_multiple_of(MIB) => format!("{} MiB", value / MIB),
        "bytes" if value >= 1024 && value.is_multiple_of(1024) => format!("{} KiB", value / 1024),
        _ => format!("{value} {unit}"),
    }
}

/// A member of a row as the text of a Markdown cell: line breaks and `|` are replaced.
pub(crate) fn cell(row: &Value, name: &str) -> String {
    row[name].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}

pub(crate) fn markdown<const COLUMNS: usize>(head: [&str; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut out = line(&head.map(str::to_owned));
    out.push_str(&line(&[const { String::new() }; COLUMNS].map(|_| "---".to_owned())));
    out.extend(rows.iter().map(|row| line(row)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Result<String> {
        let document = r#"{
            "openapi": "3.0.3", "paths": {}, "components": { "schemas": {} },
            "x-imagate-limits": [{ "name": "max_bytes", "value": 3145728, "unit": "bytes", "applies_to": "one | other" }]
        }"#;
        generate(TableSources { document: &Document::parse(document)?, settings: &Value::Null }, text)
    }

    #[test]
    fn only_the_text_between_markers_is_replaced() {
        let text = "before\r\n<!-- table:limits -->old<!-- /table -->\r\nafter";
        let expected = "before\n<!-- table:limits -->\n\n| Limit | Value | Applies to |\n| --- | --- | --- |\n\
            | `max_bytes` | 3 MiB | one \\| other |\n\n<!-- /table -->\nafter\n";
        assert_eq!(page(text).unwrap(), expected);
        assert_eq!(page(expected).unwrap(), expected, "a second run changes nothing");
    }

    #[test]
    fn an_incomplete_or_unknown_table_is_an_error_with_its_name() {
        let refusal = |text| format!("{:#}", page(text).unwrap_err());
        assert_eq!(refusal("<!-- table:limits --> and no end"), "table:limits has no `<!-- /table -->`");
        assert!(refusal("<!-- table:wishes --><!-- /table -->").starts_with("no table 'wishes'"));
    }

    #[test]
    fn amounts_are_written_in_the_largest_unit_that_fits() {
        assert_eq!(amount(52_428_800, "bytes"), "50 MiB");
        assert_eq!(amount(65_536, "bytes"), "64 KiB");
        assert_eq!(amount(1_000, "bytes"), "1000 bytes");
        assert_eq!(amount(60, "seconds"), "60 seconds");
    }
}
