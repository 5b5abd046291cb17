//! The settings and the operators' document have the same words and bounds; the message of an alert and the values that
//! depend on the image model are those of the code.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Map, Value, json};

use crate::{admin_document, assert_mentions, assert_no_difference, document, folder, json, root};

/// The tables of the settings that share their bounds with a component.
const TABLES: [(&str, &str); 3] = [
    ("/definitions/RawAccount", "AccountSettings"),
    ("/definitions/RawGroup", "GroupPolicy"),
    ("/definitions/RawPrice", "NewPrice"),
];
const BOUNDS: [&str; 4] = ["minimum", "maximum", "maxItems", "maxLength"];

fn settings() -> Value {
    json("schemas/config.schema.json")
}

/// The component that a property refers to, or the property itself.
fn target<'a>(document: &'a Value, property: &'a Value) -> &'a Value {
    let inner = property["anyOf"].get(0).unwrap_or(property);
    let name = inner["$ref"].as_str().and_then(|reference| reference.strip_prefix("#/components/schemas/"));
    name.map_or(inner, |name| &document["components"]["schemas"][name])
}

/// One line for each bound, word and explanation that differs.
fn differences(settings: &Value, document: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for (table, component) in TABLES {
        let properties = document["components"]["schemas"][component]["properties"].as_object();
        for (name, property) in properties.into_iter().flatten() {
            let (stated, setting) =
                (target(document, property), &settings.pointer(table).expect("a table")["properties"][name]);
            let differs =
                |bound: &&str| stated.get(bound).and_then(Value::as_f64) != setting.get(bound).and_then(Value::as_f64);
            let other = BOUNDS.into_iter().filter(|_| setting.is_object()).filter(differs);
            lines.extend(other.map(|bound| format!("{component}.{name}: another {bound} than in the settings")));
        }
    }
    for (name, definition) in settings["definitions"].as_object().into_iter().flatten() {
        let component = &document["components"]["schemas"][name];
        if component["enum"].is_array() && explained(definition) != explained(component) {
            lines.push(format!("{name}: other words or explanations than in the settings"));
        }
    }
    lines
}

/// The words of a schema with their explanations.
fn explained(schema: &Value) -> Map<String, Value> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(words) = schema["oneOf"].as_array() {
        return words.iter().map(|one| (word(&one["enum"][0]), one["description"].clone())).collect();
    }
    let words = schema["enum"].as_array().into_iter().flatten();
    words.map(|one| (word(one), schema["x-enumDescriptions"][word(one)].clone())).collect()
}

#[test]
fn words_and_bounds_are_those_of_the_operators_document() {
    assert_no_difference(&differences(&settings(), &admin_document()));
    let mut changed = admin_document();
    let schemas = &mut changed["components"]["schemas"];
    schemas["GroupPolicy"]["properties"]["tools"]["maxItems"] = json!(5);
    schemas["NewPrice"]["properties"]["per_image"]["maximum"] = json!(5);
    schemas["BudgetMode"]["x-enumDescriptions"]["strict"] = json!("Never.");
    schemas["Dialect"]["enum"][0] = json!("shapes");
    let found = differences(&settings(), &changed);
    assert_mentions(&found, "GroupPolicy.tools: another maxItems");
    assert_mentions(&found, "NewPrice.per_image: another maximum");
    assert_mentions(&found, "BudgetMode: other words or explanations");
    assert_mentions(&found, "Dialect: other words or explanations");
}

/// The texts between quotation marks that follow `anchor` in a source file.
fn quoted_after(path: &str, anchor: &str) -> BTreeSet<String> {
    let source = fs::read_to_string(root().join(path)).expect("the source is there");
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let after = code.split(anchor).skip(1).filter_map(|rest| rest.split('"').next());
    after.map(str::to_owned).collect()
}

#[test]
fn the_headers_of_an_alert_are_those_of_its_document() {
    let sent = quoted_after("src/gateway/alerts/webhook.rs", "HeaderName::from_static(\"");
    let parameters = admin_document()["x-webhooks"]["alert"]["post"]["parameters"].take();
    let declared = parameters.as_array().into_iter().flatten().filter_map(|one| one["name"].as_str());
    assert_eq!(declared.map(str::to_owned).collect::<BTreeSet<_>>(), sent, "in {}", folder().display());
}

#[test]
fn the_values_that_depend_on_the_model_are_those_of_the_rules() {
    let source = fs::read_to_string(root().join("src/gateway/rules/models.rs")).expect("the source is there");
    let rules = source.split("fn restriction<").nth(1).expect("the rules by model");
    let rules = rules.split("_ => None").next().unwrap_or_default().lines();
    let by_words = rules.filter(|line| line.contains("=>") && !line.contains("AtMost"));
    let restricted: BTreeSet<String> = by_words.filter_map(|line| Some(line.split('"').nth(1)?.to_owned())).collect();
    let document = document();
    let properties = document["components"]["schemas"]["ImageGenerationRequest"]["properties"].as_object();
    let marked = properties
        .into_iter()
        .flatten()
        .filter(|(_, property)| target(&document, property).get("x-imagate-by-model").is_some());
    assert_eq!(marked.map(|(name, _)| name.clone()).collect::<BTreeSet<_>>(), restricted);
}
