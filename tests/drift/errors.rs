//! The code and the documents have the same error codes, with the same status and type.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::difference::differences;
use crate::facts::words;
use crate::{admin_document, assert_mentions, assert_no_difference, document};

/// The error codes of the gateway, compiled from the file that declares them.
#[path = "../../src/error/code.rs"]
mod code;

/// The status and type of each error code in the tables of both documents.
fn documented(documents: [&Value; 2]) -> Value {
    let rows = documents.into_iter().flat_map(|document| document["x-imagate-errors"].as_array().into_iter().flatten());
    rows.map(|row| (word(&row["code"]), json!({ "status": row["status"], "type": row["type"] }))).collect()
}

/// The status and type of each error code in the code.
fn coded() -> Value {
    let rows = code::ApiErrorCode::ALL.iter();
    rows.map(|code| (code.as_str().to_owned(), json!({ "status": code.status(), "type": code.kind() }))).collect()
}

/// One line for each word that only an enumeration (`ErrorCode`, `ErrorType`, `ErrorReason`) or only the error table
/// has.
fn enumeration_differences(document: &Value) -> Vec<String> {
    let rows: Vec<&Value> = document["x-imagate-errors"].as_array().into_iter().flatten().collect();
    let reasons = rows.iter().flat_map(|row| row["reasons"].as_array().into_iter().flatten());
    let mut lines = Vec::new();
    lines.extend(unmatched_words(document, "ErrorCode", rows.iter().map(|row| word(&row["code"]))));
    lines.extend(unmatched_words(document, "ErrorType", rows.iter().map(|row| word(&row["type"]))));
    lines.extend(unmatched_words(document, "ErrorReason", reasons.map(|row| word(&row["reason"]))));
    lines
}

/// One line for each word that only the component or only the table has.
fn unmatched_words(document: &Value, component: &str, table: impl Iterator<Item = String>) -> Vec<String> {
    let listed = words(document, component);
    let (listed, table): (BTreeSet<String>, BTreeSet<String>) = (listed.map(word).collect(), table.collect());
    let line = |word: &String| format!("{component}: '{word}' stands only in one of the component and the error table");
    listed.symmetric_difference(&table).map(line).collect()
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn check(document: &Value) -> Vec<String> {
    let mut lines = differences(&documented([document, &admin_document()]), &coded());
    lines.extend(enumeration_differences(document));
    lines
}

fn row<'a>(document: &'a mut Value, code: &str) -> &'a mut Value {
    let rows = document["x-imagate-errors"].as_array_mut().unwrap();
    rows.iter_mut().find(|row| row["code"] == code).unwrap()
}

#[test]
fn every_error_code_stands_in_the_document_and_the_other_way_round() {
    assert_no_difference(&check(&document()));
}

#[test]
fn every_error_code_has_a_default_message() {
    for code in code::ApiErrorCode::ALL {
        assert!(!code.message().is_empty() && code.message() != "The request failed", "{}", code.as_str());
    }
}

#[test]
fn a_code_in_only_the_document_is_reported() {
    let mut changed = document();
    row(&mut changed, "upstream_error")["code"] = json!("upstream_fault");
    let found = check(&changed);
    assert_mentions(&found, "upstream_fault: only in the document");
    assert_mentions(&found, "upstream_error: only in the code");
    assert_mentions(&found, "ErrorCode: 'upstream_fault'");
}

#[test]
fn a_changed_status_is_reported() {
    let mut changed = document();
    row(&mut changed, "request_too_large")["status"] = json!(400);
    assert_mentions(&check(&changed), "request_too_large › status: document=400 code=413");
}

#[test]
fn a_reason_that_no_component_lists_is_reported() {
    let mut changed = document();
    row(&mut changed, "upstream_error")["reasons"][1]["reason"] = json!("refused");
    let found = check(&changed);
    assert_mentions(&found, "ErrorReason: 'refused'");
    assert_mentions(&found, "ErrorReason: 'content_refused'");
}
