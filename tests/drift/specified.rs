//! The tables of the specification agree with the documents: fields of a generation with their words and bounds, and the
//! fields of skills and API references.

use std::collections::BTreeSet;
use std::fs;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use crate::{assert_mentions, assert_no_difference, document, folder, json};

/// The text of the specification.
const TEXT: &str = "tests/specification/text.md";

static RANGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^([0-9]+) to ([0-9]+)$").expect("a pattern"));
static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new("`([a-z0-9-]+)`").expect("a pattern"));

/// A row of a table: name, type, and the further cells.
type TableRow = Vec<String>;

pub(crate) fn specified() -> String {
    fs::read_to_string(folder().join(TEXT)).expect("the specification")
}

/// The rows of the first table after these words, without its head.
fn table(text: &str, start: &str) -> Vec<TableRow> {
    let tail = text.split_once(start).unwrap_or_else(|| panic!("{TEXT}: no '{start}'")).1;
    let rows = tail.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect();
    rows.skip(2).map(cells).collect()
}

/// The schema of a member, or its component.
fn member<'a>(document: &'a Value, holder: &'a Value, name: &str) -> &'a Value {
    let schema = &holder["properties"][name];
    // The other choice is `null`.
    let inner = schema["anyOf"].get(0).unwrap_or(schema);
    let pointer = inner["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    pointer.and_then(|pointer| document.pointer(pointer)).unwrap_or(inner)
}

fn is_required(holder: &Value, name: &str) -> bool {
    holder["required"].as_array().is_some_and(|names| names.contains(&json!(name)))
}

/// One line for each field of a generation that the document describes in another way than the specification.
fn request_differences(document: &Value, text: &str) -> Vec<String> {
    let request = &document["components"]["schemas"]["ImageGenerationRequest"];
    let mut lines = Vec::new();
    for row in table(text, "### Generation request") {
        let [name, kind, required, values, ..] = row.as_slice() else { panic!("{TEXT}: {row:?}") };
        let schema = member(document, request, name);
        let kinds: &[&str] = if kind == "number" { &["integer", "number"] } else { &[kind] };
        if !kinds.iter().any(|kind| schema["type"] == *kind) {
            lines.push(format!("{name}: the type is {}, not {kind}", schema["type"]));
        }
        if is_required(request, name) != (required == "yes") {
            lines.push(format!("{name}: required by one side only"));
        }
        if let Some(range) = RANGE.captures(values) {
            let bounds = json!([schema["minimum"].as_f64(), schema["maximum"].as_f64()]);
            if bounds != json!([range[1].parse::<f64>().ok(), range[2].parse::<f64>().ok()]) {
                lines.push(format!("{name}: from {bounds}, not {values}"));
            }
        }
        // A cell without its outer backticks.
        let cell = format!("`{values}`");
        let specified: BTreeSet<&str> = WORD.captures_iter(&cell).map(|word| word.extract::<1>().1[0]).collect();
        let words: BTreeSet<&str> = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !words.is_empty() && words != specified {
            lines.push(format!("{name}: the words are {words:?}, not {specified:?}"));
        }
    }
    lines
}

/// One line for each field of a manifest that the schema describes in another way than the specification.
fn manifest_differences(schema: &Value, text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for (start, component) in [("`skills[]` items:", "Skill"), ("`apis[]` items:", "ApiReference")] {
        let holder = &schema["$defs"][component];
        let rows = table(text, start);
        for row in &rows {
            let [name, kind, required] = row.as_slice() else { panic!("{TEXT}: {row:?}") };
            let found = &holder["properties"][name];
            let expected = match kind.as_str() {
                "array of string" => json!(["array", { "type": "string" }]),
                "array" => json!(["array", true]),
                kind => json!([kind, null]),
            };
            if json!([found["type"], found["items"]]) != expected {
                lines.push(format!("{component}.{name}: {}, not {kind}", found["type"]));
            }
            if is_required(holder, name) != (required == "yes") {
                lines.push(format!("{component}.{name}: required by one side only"));
            }
        }
        let names: BTreeSet<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        let others = holder["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let others = others.filter(|name| !names.contains(name));
        lines.extend(others.map(|name| format!("{component}.{name}: not in the specification")));
    }
    lines
}

fn manifest_schema() -> Value {
    json("schemas/skills-registry.schema.json")
}

#[test]
fn a_generation_has_the_fields_of_the_specification() {
    assert_no_difference(&request_differences(&document(), &specified()));
}

#[test]
fn a_manifest_has_the_fields_of_the_specification() {
    assert_no_difference(&manifest_differences(&manifest_schema(), &specified()));
}

#[test]
fn another_word_bound_or_type_is_reported() {
    let mut changed = document();
    changed["components"]["schemas"]["ImageCount"]["maximum"] = json!(8);
    changed["components"]["schemas"]["Quality"]["enum"] = json!(["low", "high"]);
    changed["components"]["schemas"]["ImageGenerationRequest"]["required"] = json!(["prompt"]);
    let found = request_differences(&changed, &specified());
    assert_mentions(&found, "n: from [1.0,8.0], not 1 to 10");
    assert_mentions(&found, "quality: the words are {\"high\", \"low\"}");
    assert_mentions(&found, "model: required by one side only");
    let mut changed = manifest_schema();
    changed["$defs"]["Skill"]["properties"]["agents"]["items"] = json!(true);
    changed["$defs"]["ApiReference"]["properties"]["author"] = json!({ "type": "string" });
    let found = manifest_differences(&changed, &specified());
    assert_mentions(&found, "Skill.agents: \"array\", not array of string");
    assert_mentions(&found, "ApiReference.author: not in the specification");
}
