//! The table of image models is the one that is compiled in, and allows only values that a request can have.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::difference::differences;
use crate::{assert_mentions, assert_no_difference, document, tables};

/// A column of the table, and the component that lists its words.
const WORDS: [(&str, &str); 3] = [("qualities", "Quality"), ("formats", "OutputFormat"), ("backgrounds", "Background")];
/// A column of the table, and the component whose maximum is the greatest number in it.
const NUMBERS: [(&str, &str); 2] = [("max_images", "ImageCount"), ("max_partial_images", "PartialImages")];

fn rows(document: &Value) -> Vec<Value> {
    document["x-imagate-models"].as_array().cloned().unwrap_or_default()
}

/// Each row by its id. A snapshot has the rules of its model.
fn documented(document: &Value) -> Value {
    let rows = rows(document);
    let expand = |row: &Value| {
        let name = row.get("snapshot_of").unwrap_or(&row["id"]);
        let mut rules = rows.iter().find(|row| row["id"] == *name).cloned().unwrap_or_default();
        rules["name"] = name.clone();
        if let Some(rules) = rules.as_object_mut() {
            rules.remove("id");
        }
        (row["id"].as_str().unwrap_or_default().to_owned(), rules)
    };
    rows.iter().map(expand).collect()
}

fn compiled() -> Value {
    let rules = |row: &tables::ModelRow| {
        json!({
            "name": row.name,
            "sizes": row.sizes.map_or(json!("rules"), |sizes| json!(sizes)),
            "qualities": row.qualities,
            "formats": row.formats,
            "backgrounds": row.backgrounds,
            "max_images": row.max_images,
            "max_partial_images": row.max_partial_images,
            "compression": row.compression,
        })
    };
    tables::IMAGE_MODELS.iter().map(|row| (row.id.to_owned(), rules(row))).collect()
}

fn words(value: &Value) -> BTreeSet<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// One line for each word or number in which the table and the components differ: the models together must allow what
/// the components allow.
fn mismatches(document: &Value) -> Vec<String> {
    let schemas = &document["components"]["schemas"];
    let rows = rows(document);
    let mut lines = Vec::new();
    let ids: BTreeSet<String> = rows.iter().filter_map(|row| row["id"].as_str()).map(str::to_owned).collect();
    if ids != words(&schemas["ImageModel"]["enum"]) {
        lines.push(format!("ids: {ids:?} are not the words of ImageModel"));
    }
    for (column, component) in WORDS {
        let all: BTreeSet<String> = rows.iter().flat_map(|row| words(&row[column])).collect();
        if all != words(&schemas[component]["enum"]) {
            lines.push(format!("{column}: {all:?} are not the words of {component}"));
        }
    }
    for (column, component) in NUMBERS {
        let maximum = rows.iter().filter_map(|row| row[column].as_u64()).max();
        if maximum != schemas[component]["maximum"].as_u64() {
            lines.push(format!("{column}: {maximum:?} is not the maximum of {component}"));
        }
    }
    lines
}

#[test]
fn the_models_compiled_in_are_those_of_the_document() {
    assert_no_difference(&differences(&documented(&document()), &compiled()));
}

#[test]
fn the_table_of_models_says_what_the_components_say() {
    assert_no_difference(&mismatches(&document()));
}

#[test]
fn a_changed_model_rule_is_reported() {
    let mut changed = document();
    changed["x-imagate-models"][0]["max_images"] = json!(4);
    assert_mentions(&differences(&documented(&changed), &compiled()), "max_images: document=4 code=10");
    assert_mentions(&mismatches(&changed), "max_images: Some(4) is not the maximum of ImageCount");
}

#[test]
fn a_word_on_one_side_only_is_reported() {
    let mut changed = document();
    changed["x-imagate-models"][0]["qualities"] = json!(["low", "ultra"]);
    changed["x-imagate-models"][1]["id"] = json!("gpt-image-3");
    let found = mismatches(&changed);
    assert_mentions(&found, "qualities:");
    assert_mentions(&found, "ids:");
}
