//! The operators' document agrees with its code, and the errors that it shares with the public API mean the same in
//! both documents.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::facts::words;
use crate::values::{admin_values, check_admin};
use crate::{admin_document, assert_mentions, assert_no_difference, document, folder, root};

/// The words of an enumeration.
fn listed(document: &Value, component: &str) -> BTreeSet<String> {
    let words = words(document, component);
    words.map(|word| word.as_str().unwrap_or_default().to_owned()).collect()
}

/// The rows of the error table, with their codes.
fn table(document: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let rows = document["x-imagate-errors"].as_array().into_iter().flatten();
    rows.map(|row| (row["code"].as_str().unwrap_or_default(), row))
}

fn operations(document: &Value) -> impl Iterator<Item = Value> {
    let paths = document["paths"].as_object().cloned().unwrap_or_default();
    let items: Vec<Value> = paths.into_iter().map(|(_, item)| item).collect();
    items
        .into_iter()
        .filter_map(|mut item| item.as_object_mut().map(std::mem::take))
        .flatten()
        .map(|(_, operation)| operation)
}

/// One line for each error that the two documents describe differently.
fn error_differences(admin: &Value, public: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for component in ["ErrorType", "ErrorReason"] {
        let unknown = &listed(admin, component) - &listed(public, component);
        lines.extend(unknown.iter().map(|word| format!("{component}: the callers' document has no '{word}'")));
    }
    let admin_only: BTreeSet<String> = table(admin).map(|(code, _)| code.to_owned()).collect();
    let shared = listed(public, "ErrorCode");
    lines.extend((&admin_only & &shared).iter().map(|code| format!("ErrorCode: '{code}' stands in both tables")));
    let codes = listed(admin, "ErrorCode");
    let explained = &admin_only | &shared;
    lines.extend((&codes - &explained).iter().map(|code| format!("ErrorCode: '{code}' stands in no table")));
    lines.extend((&admin_only - &codes).iter().map(|code| format!("ErrorCode: '{code}' stands in the table alone")));
    let description = admin["components"]["schemas"]["ErrorCode"]["description"].as_str().unwrap_or_default();
    for (code, row) in table(public).chain(table(admin)).filter(|(code, _)| codes.contains(*code)) {
        if !description.contains(&format!("| `{code}` | {} |", row["status"])) {
            lines.push(format!("ErrorCode: the description has '{code}' with another status"));
        }
    }
    lines
}

#[test]
fn schema_and_type_of_operators_agree_on_every_value() {
    assert_no_difference(&check_admin(&admin_document(), &admin_values()));
}

#[test]
fn a_loosened_schema_of_operators_is_reported() {
    let mut changed = admin_document();
    changed["components"]["schemas"]["NewAccount"]["additionalProperties"] = json!({});
    assert_mentions(&check_admin(&changed, &admin_values()), "NewAccount: bad value");
}

#[test]
fn errors_mean_the_same_in_both_documents() {
    assert_no_difference(&error_differences(&admin_document(), &document()));
}

#[test]
fn an_error_in_only_one_document_is_reported() {
    let mut changed = admin_document();
    let schemas = &mut changed["components"]["schemas"];
    schemas["ErrorCode"]["enum"].as_array_mut().unwrap().push(json!("account_tired"));
    schemas["ErrorReason"]["enum"][0] = json!("because");
    let rows = changed["x-imagate-errors"].as_array_mut().unwrap();
    rows.iter_mut().find(|row| row["code"] == "account_exists").unwrap()["status"] = json!(400);
    let found = error_differences(&changed, &document());
    assert_mentions(&found, "ErrorCode: 'account_tired' stands in no table");
    assert_mentions(&found, "ErrorReason: the callers' document has no 'because'");
    assert_mentions(&found, "'account_exists' with another status");
}

#[test]
fn every_body_of_the_operators_api_is_capped() {
    let server = fs::read_to_string(folder().join("generated/admin_server.rs")).expect("the file exists");
    let cap = admin_document()["x-imagate-limits"][0]["value"].as_u64().expect("a limit");
    let bodies = operations(&admin_document()).filter(|operation| operation.get("requestBody").is_some()).count();
    assert_eq!(server.matches(&format!("request_body_max_bytes = {cap},")).count(), bodies);
    assert_eq!(server.matches(&format!("UnreadRequestBody::new(request.request, {cap})")).count(), bodies);
}

/// One line for each operation that the client, the trait or the table of roles lacks.
fn missing(document: &Value, client: &str, server: &str, rows: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for operation in operations(document) {
        let id = operation["operationId"].as_str().unwrap_or_default();
        if !client.contains(&format!("pub fn {id}(&self)")) {
            lines.push(format!("{id}: no method of the client"));
        }
        if !server.contains(&format!("    fn {id}(")) {
            lines.push(format!("{id}: no method of the trait"));
        }
        if rows.as_array().into_iter().flatten().all(|row| row["operation"] != id) {
            lines.push(format!("{id}: no row in the table of roles"));
        }
    }
    lines
}

#[test]
fn every_operation_has_a_client_a_server_and_a_row_in_the_table_of_roles() {
    let read = |path: &str| fs::read_to_string(folder().join(path)).expect("the file exists");
    let (client, server) = (read("generated/admin_client.rs"), read("generated/admin_server.rs"));
    let rows = fs::read_to_string(root().join("tests/cases/admin.json")).expect("the file exists");
    let rows: Value = serde_json::from_str(&rows).expect("the rows are JSON");
    assert_no_difference(&missing(&admin_document(), &client, &server, &rows));

    let mut changed = admin_document();
    changed["paths"]["/admin/v1/me"]["get"]["operationId"] = json!("whoami");
    let found = missing(&changed, &client, &server, &rows);
    for place in ["whoami: no method of the client", "whoami: no method of the trait", "whoami: no row"] {
        assert_mentions(&found, place);
    }
}
