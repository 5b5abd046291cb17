//! Every property and enumeration word of a component has a test value, and every field of a request has a rule and a
//! test case.

use std::collections::BTreeSet;

use imagate::tables;
use serde_json::{Map, Value, json};

use crate::facts::words;
use crate::values::{admin_values, expand, values};
use crate::{admin_document, assert_mentions, assert_no_difference, document, root};

/// The requests whose fields need test cases: the component, and the word for its operation in the `on` of a case.
const REQUESTS: [(&str, &str); 3] =
    [("ImageGenerationRequest", "create"), ("ImageEditRequest", "edit"), ("ImageEditForm", "form")];

/// The field table that the rules read for each component.
const RULES: [(&str, &[tables::Field]); 3] = [
    ("ImageGenerationRequest", tables::IMAGE_GENERATION_FIELDS),
    ("ImageEditRequest", tables::IMAGE_EDIT_FIELDS),
    ("ImageGenerationTool", tables::IMAGE_TOOL_FIELDS),
];

fn cases() -> Value {
    let text = std::fs::read_to_string(root().join("tests/cases/images.json")).expect("the cases exist");
    serde_json::from_str(&text).expect("the cases are JSON")
}

fn properties<'a>(document: &'a Value, component: &str) -> impl Iterator<Item = &'a String> {
    document["components"]["schemas"][component]["properties"].as_object().into_iter().flat_map(Map::keys)
}

/// One line for each property that no good value has, each word that no good value is, and each optional property that
/// every good value has.
fn untested(document: &Value, values: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let components = document["components"]["schemas"].as_object().into_iter().flatten();
    for (name, schema) in components {
        let good = values[name]["good"].as_array().into_iter().flatten();
        let good: Vec<Value> = good.map(|value| expand(values, value)).collect();
        for property in properties(document, name) {
            if good.iter().all(|value| value[property].is_null()) {
                lines.push(format!("{name}.{property}: no good value has it"));
            }
        }
        for word in words(document, name) {
            if !good.contains(word) {
                lines.push(format!("{name}: no good value is {word}"));
            }
        }
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for property in properties(document, name).filter(|property| !required.contains(&json!(property))) {
            if good.iter().all(|value| value.get(property).is_some()) {
                lines.push(format!("{name}.{property}: every good value has it, although it is optional"));
            }
        }
    }
    lines
}

/// One line for each field of a request that no case covers.
fn without_case(document: &Value, cases: &Value) -> Vec<String> {
    let rows: Vec<&Value> = cases.as_array().into_iter().flatten().collect();
    let mut lines = Vec::new();
    for (component, operation) in REQUESTS {
        let covers_operation = |row: &Value| {
            row["on"] == operation || row["on"].as_array().is_some_and(|on| on.contains(&json!(operation)))
        };
        for field in properties(document, component) {
            if !rows.iter().any(|row| covers_operation(row) && row["field"] == **field) {
                lines.push(format!("{component}.{field}: no row of tests/cases/images.json for '{operation}'"));
            }
        }
    }
    lines
}

/// One line for each field that only the document or only the rules have.
fn without_rule(document: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for (component, table) in RULES {
        let in_rules: BTreeSet<&str> = table.iter().map(|field| field.name).collect();
        let documented: BTreeSet<&str> = properties(document, component).map(String::as_str).collect();
        let differ = in_rules.symmetric_difference(&documented);
        lines.extend(differ.map(|field| format!("{component}.{field}: in the document or in the rules only")));
    }
    lines
}

#[test]
fn every_property_and_word_has_a_test_value() {
    assert_no_difference(&untested(&document(), &values()));
    assert_no_difference(&untested(&admin_document(), &admin_values()));
}

#[test]
fn every_field_of_a_request_has_a_case() {
    assert_no_difference(&without_case(&document(), &cases()));
}

#[test]
fn the_fields_compiled_in_are_those_of_the_document() {
    assert_no_difference(&without_rule(&document()));
}

#[test]
fn a_new_optional_field_is_reported() {
    let mut changed = document();
    let schemas = &mut changed["components"]["schemas"];
    schemas["ImageGenerationRequest"]["properties"]["watermark"] = json!({ "type": "string", "nullable": true });
    schemas["ImagesResponse"]["properties"]["seed"] = json!({ "type": "integer" });
    schemas["Moderation"]["enum"].as_array_mut().expect("an enumeration").push(json!("strict"));
    let found = untested(&changed, &values());
    assert_mentions(&found, "ImageGenerationRequest.watermark: no good value has it");
    assert_mentions(&found, "ImagesResponse.seed: no good value has it");
    assert_mentions(&found, "Moderation: no good value is \"strict\"");
    assert_mentions(&without_case(&changed, &cases()), "ImageGenerationRequest.watermark: no row of tests/cases");
    assert_mentions(&without_rule(&changed), "ImageGenerationRequest.watermark: in the document or in the rules only");
}

#[test]
fn an_optional_field_that_every_value_has_is_reported() {
    let mut changed = document();
    let schema = &mut changed["components"]["schemas"]["ImageInputTokensDetails"];
    schema["required"] = json!(["text_tokens"]);
    assert_mentions(&untested(&changed, &values()), "ImageInputTokensDetails.image_tokens: every good value has it");
}
