//! The error table of the API document has the words of its enumerations. The code of the gateway is generated from that
//! table; `answers` compares the answers of a gateway with it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::facts::words;
use crate::{assert_mentions, assert_no_difference, document};

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

fn row<'a>(document: &'a mut Value, code: &str) -> &'a mut Value {
    let rows = document["x-imagate-errors"].as_array_mut().unwrap();
    rows.iter_mut().find(|row| row["code"] == code).unwrap()
}

#[test]
fn the_error_table_has_all_codes_types_and_reasons() {
    assert_no_difference(&enumeration_differences(&document()));
}

#[test]
fn a_code_in_only_the_table_is_reported() {
    let mut changed = document();
    row(&mut changed, "upstream_error")["code"] = json!("upstream_fault");
    let found = enumeration_differences(&changed);
    assert_mentions(&found, "ErrorCode: 'upstream_fault'");
    assert_mentions(&found, "ErrorCode: 'upstream_error'");
}

#[test]
fn a_reason_that_no_component_lists_is_reported() {
    let mut changed = document();
    row(&mut changed, "upstream_error")["reasons"][1]["reason"] = json!("refused");
    let found = enumeration_differences(&changed);
    assert_mentions(&found, "ErrorReason: 'refused'");
    assert_mentions(&found, "ErrorReason: 'content_refused'");
}
