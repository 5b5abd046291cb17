//! Each operation declares the statuses of the errors that it can have, with an example of each code, as the table of
//! errors says.
//!
//! A row without `operations` is an error of every operation. A row with an empty list is one of addresses and methods
//! that no operation has. The operators' document shares rows with that of the callers; those that name operations there
//! are about bodies.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::facts::{rows, words};
use crate::{admin_document, assert_mentions, assert_no_difference, document};

fn operations(document: &Value) -> impl Iterator<Item = &Value> {
    document["paths"].as_object().into_iter().flat_map(Map::values).filter_map(Value::as_object).flat_map(Map::values)
}

/// The rows of the operators' document: its own, and those that it shares with that of the callers.
fn admin_rows(document: &Value) -> Vec<Value> {
    let with_body = operations(document).filter(|operation| operation.get("requestBody").is_some());
    let with_body: Vec<&Value> = with_body.map(|operation| &operation["operationId"]).collect();
    let callers = crate::document();
    let shared = rows(&callers).filter(|row| words(document, "ErrorCode").any(|code| *code == row["code"]));
    let shared = shared.map(|row| {
        let mut row = row.clone();
        if row["operations"].as_array().is_some_and(|ids| !ids.is_empty()) {
            row["operations"] = json!(with_body);
        }
        row
    });
    rows(document).cloned().chain(shared).collect()
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
fn expected_examples(rows: &[Value], status: &str) -> Map<String, Value> {
    let has_operations = |row: &&Value| row["operations"].as_array().is_none_or(|ids| !ids.is_empty());
    let of_status = rows.iter().filter(|row| row["status"].as_u64() == status.parse().ok()).filter(has_operations);
    let error =
        |row: &Value| json!({ "message": row["message"], "type": row["type"], "param": null, "code": row["code"] });
    let body = |row: &Value| json!({ "error": error(row) });
    of_status.map(|row| (row["code"].as_str().unwrap_or_default().to_owned(), body(row))).collect()
}

/// One line for each status that only an operation or only the table has, and for each example that differs.
fn differences(document: &Value, rows: &[Value]) -> Vec<String> {
    let mut lines = Vec::new();
    for operation in operations(document) {
        let id = operation["operationId"].as_str().unwrap_or_default();
        let answers = operation["responses"].as_object().into_iter().flatten();
        let answers = answers.filter(|(status, _)| *status != "200" && !status.ends_with("XX"));
        let mut declared = BTreeSet::new();
        for (status, answer) in answers {
            declared.insert(status.clone());
            if examples(document, answer) != expected_examples(rows, status) {
                lines.push(format!("{id}: the examples of {status} are not those of the table of errors"));
            }
        }
        let errors = rows.iter().filter(|row| is_error_of(row, operation));
        let expected: BTreeSet<String> = errors.map(|row| row["status"].to_string()).collect();
        let differ = declared.symmetric_difference(&expected);
        lines.extend(differ.map(|status| format!("{id}: {status} is in the operation or in the table only")));
    }
    for row in rows {
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
    let (callers, admin) = (document(), admin_document());
    assert_no_difference(&differences(&callers, &rows(&callers).cloned().collect::<Vec<_>>()));
    assert_no_difference(&differences(&admin, &admin_rows(&admin)));
}

#[test]
fn a_changed_status_example_or_operation_is_reported() {
    let mut changed = document();
    let answers = changed["paths"]["/v1/models"]["get"]["responses"].as_object_mut().expect("answers");
    answers.remove("401");
    let conflict = &mut changed["components"]["responses"]["Conflict"]["content"]["application/json"]["examples"];
    conflict["image_in_progress"]["value"]["error"]["type"] = json!("rate_limit_error");
    let errors = changed["x-imagate-errors"].as_array_mut().expect("rows");
    errors.iter_mut().find(|row| row["code"] == "model_not_found").expect("a row")["operations"] =
        json!(["find_model"]);
    let found = differences(&changed, &rows(&changed).cloned().collect::<Vec<_>>());
    assert_mentions(&found, "list_models: 401 is in the operation or in the table only");
    assert_mentions(&found, "create_image: the examples of 409 are not those of the table of errors");
    assert_mentions(&found, "retrieve_model: 404 is in the operation or in the table only");
    assert_mentions(&found, "\"model_not_found\": there is no operation \"find_model\"");

    let mut changed = admin_document();
    changed["paths"]["/admin/v1/alerts"]["get"]["responses"].as_object_mut().expect("answers").remove("403");
    changed["paths"]["/admin/v1/me"]["get"]["responses"]["413"] = json!({});
    let found = differences(&changed, &admin_rows(&changed));
    assert_mentions(&found, "list_alerts: 403 is in the operation or in the table only");
    assert_mentions(&found, "retrieve_me: 413 is in the operation or in the table only");
}
