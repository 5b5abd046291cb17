//! Each operation declares the statuses of the errors that it can have, with an example of each code, as the table of
//! errors says.
//!
//! A row without `operations` is an error of every operation. A row with an empty list is one of addresses and methods
//! that no operation has.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::facts::rows;
use crate::{assert_mentions, assert_no_difference, document};

fn operations(document: &Value) -> impl Iterator<Item = &Value> {
    document["paths"].as_object().into_iter().flat_map(Map::values).filter_map(Value::as_object).flat_map(Map::values)
}

fn is_error_of(row: &Value, operation: &Value) -> bool {
    row["operations"].as_array().is_none_or(|ids| ids.contains(&operation["operationId"]))
}

/// The examples of an answer that a range does not stand for: by code, the body.
fn examples(document: &Value, answer: &Value) -> Map<String, Value> {
    let reference = answer["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    let answer = reference.and_then(|pointer| document.pointer(pointer)).unwrap_or(answer);
    let examples = answer["content"]["application/json"]["examples"].as_object().into_iter().flatten();
    examples.map(|(code, example)| (code.clone(), example["value"].clone())).collect()
}

/// The examples that the table of errors gives for a status.
fn expected_examples(document: &Value, status: &str) -> Map<String, Value> {
    let has_operations = |row: &&Value| row["operations"].as_array().is_none_or(|ids| !ids.is_empty());
    let of_status = rows(document).filter(|row| row["status"].as_u64() == status.parse().ok()).filter(has_operations);
    let error =
        |row: &Value| json!({ "message": row["message"], "type": row["type"], "param": null, "code": row["code"] });
    let body = |row: &Value| json!({ "error": error(row) });
    of_status.map(|row| (row["code"].as_str().unwrap_or_default().to_owned(), body(row))).collect()
}

/// One line for each status that only an operation or only the table has, and for each example that differs.
fn differences(document: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for operation in operations(document) {
        let id = operation["operationId"].as_str().unwrap_or_default();
        let answers = operation["responses"].as_object().into_iter().flatten();
        let answers = answers.filter(|(status, _)| *status != "200" && !status.ends_with("XX"));
        let mut declared = BTreeSet::new();
        for (status, answer) in answers {
            declared.insert(status.clone());
            if examples(document, answer) != expected_examples(document, status) {
                lines.push(format!("{id}: the examples of {status} are not those of the table of errors"));
            }
        }
        let errors = rows(document).filter(|row| is_error_of(row, operation));
        let expected: BTreeSet<String> = errors.map(|row| row["status"].to_string()).collect();
        let differ = declared.symmetric_difference(&expected);
        lines.extend(differ.map(|status| format!("{id}: {status} is in the operation or in the table only")));
    }
    for row in rows(document) {
        for id in row["operations"].as_array().into_iter().flatten() {
            if !operations(document).any(|operation| operation["operationId"] == *id) {
                lines.push(format!("{}: there is no operation {id}", row["code"]));
            }
        }
    }
    lines
}

#[test]
fn every_operation_declares_the_statuses_of_its_errors() {
    assert_no_difference(&differences(&document()));
}

#[test]
fn a_changed_status_example_or_operation_is_reported() {
    let mut changed = document();
    let answers = changed["paths"]["/v1/models"]["get"]["responses"].as_object_mut().expect("answers");
    answers.remove("401");
    let conflict = &mut changed["components"]["responses"]["Conflict"]["content"]["application/json"]["examples"];
    conflict["image_in_progress"]["value"]["error"]["type"] = json!("rate_limit_error");
    let rows = changed["x-imagate-errors"].as_array_mut().expect("rows");
    rows.iter_mut().find(|row| row["code"] == "model_not_found").expect("a row")["operations"] = json!(["find_model"]);
    let found = differences(&changed);
    assert_mentions(&found, "list_models: 401 is in the operation or in the table only");
    assert_mentions(&found, "create_image: the examples of 409 are not those of the table of errors");
    assert_mentions(&found, "retrieve_model: 404 is in the operation or in the table only");
    assert_mentions(&found, "\"model_not_found\": there is no operation \"find_model\"");
}
