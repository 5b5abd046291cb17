//! Dropshot's description of the generated trait has the operations of the document.
//!
//! This test does not compare schemas: the description takes them from the document. `values` compares the types with
//! the schemas.

use serde_json::{Map, Value, json};

use crate::difference::differences;
use crate::{admin_document, assert_mentions, assert_no_difference, document};

/// A part of the document that dropshot cannot describe: the reason, and a function that removes the part.
pub(crate) struct Exception {
    pub(crate) reason: &'static str,
    pub(crate) remove: fn(&mut Value),
}

/// The single statuses of errors, in both documents.
pub(crate) const ERROR_RANGES: Exception = Exception {
    reason: "dropshot describes errors by the ranges 4XX and 5XX alone",
    remove: |document| {
        for operation in operations_mut(document) {
            if let Some(answers) = operation.get_mut("responses").and_then(Value::as_object_mut) {
                answers.retain(|status, _| status == "200" || status.ends_with("XX"));
            }
        }
    },
};

/// The parts of the document that the served description lacks.
const EXCEPTIONS: [Exception; 4] = [
    Exception {
        reason: "dropshot describes every form as one binary text, and a body in one encoding only",
        remove: |document| {
            document["paths"]["/v1/images/edits"]["post"]["requestBody"]["content"] =
                json!({ "multipart/form-data": { "schema": { "type": "string", "format": "binary" } } });
        },
    },
    Exception {
        reason: "dropshot describes one content type for each answer, so the events of a stream are left out",
        remove: |document| {
            for operation in operations_mut(document) {
                if let Some(content) = operation.pointer_mut("/responses/200/content").and_then(Value::as_object_mut) {
                    content.remove("text/event-stream");
                }
            }
        },
    },
    Exception {
        reason: "dropshot describes no headers of requests: a handler reads them from the request itself",
        remove: |document| {
            for operation in operations_mut(document) {
                if let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
                    parameters.retain(|parameter| parameter["$ref"].is_null());
                }
            }
        },
    },
    ERROR_RANGES,
];

fn operations_mut(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    let paths = document["paths"].as_object_mut().into_iter().flat_map(Map::values_mut);
    paths.filter_map(Value::as_object_mut).flat_map(Map::values_mut)
}

/// The parts of a description that clients depend on, by operation.
fn project(document: &Value) -> Value {
    let mut operations = Map::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            operations.insert(format!("{} {path}", method.to_uppercase()), project_operation(document, operation));
        }
    }
    Value::Object(operations)
}

fn project_operation(document: &Value, operation: &Value) -> Value {
    let mut answers = Map::new();
    for (status, answer) in operation["responses"].as_object().into_iter().flatten() {
        answers.insert(status.clone(), schemas_by_type(target(document, answer)));
    }
    let parameters: Vec<Value> = operation["parameters"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|parameter| {
            let column = |name: &str| parameter[name].clone();
            // An absent `required` means `false`.
            let required = parameter["required"] == true;
            json!({ "in": column("in"), "name": column("name"), "required": required, "schema": column("schema") })
        })
        .collect();
    json!({
        "operationId": operation["operationId"],
        "summary": operation["summary"],
        "tags": operation["tags"],
        "parameters": parameters,
        "required": operation["requestBody"]["required"],
        "request": schemas_by_type(&operation["requestBody"]),
        "answers": answers,
    })
}

fn schemas_by_type(holder: &Value) -> Value {
    let content = holder["content"].as_object().into_iter().flatten();
    content.map(|(name, content)| (name.clone(), content["schema"].clone())).collect::<Map<_, _>>().into()
}

/// The target of a reference, or the value itself.
fn target<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let reference = value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    reference.and_then(|pointer| document.pointer(pointer)).unwrap_or(value)
}

fn served() -> Value {
    imagate::served_description().expect("the trait describes itself")
}

/// The differences that no exception explains.
pub(crate) fn unexplained_differences<'a>(
    mut document: Value,
    served: &Value,
    exceptions: impl IntoIterator<Item = &'a Exception>,
) -> Vec<String> {
    for exception in exceptions {
        (exception.remove)(&mut document);
    }
    differences(&project(&document), &project(served))
}

fn unexplained<'a>(document: Value, exceptions: impl IntoIterator<Item = &'a Exception>) -> Vec<String> {
    unexplained_differences(document, &served(), exceptions)
}

#[test]
fn the_gateway_serves_what_the_document_says() {
    assert_no_difference(&unexplained(document(), &EXCEPTIONS));
}

/// The operations that are marked as deprecated.
fn deprecated(document: &Value) -> Vec<String> {
    let items = document["paths"].as_object().into_iter().flat_map(Map::values);
    let operations = items.filter_map(Value::as_object).flat_map(Map::values);
    let marked = operations.filter(|operation| operation["deprecated"] == true);
    marked.map(|operation| operation["operationId"].to_string()).collect()
}

#[test]
fn the_same_operations_are_deprecated() {
    assert_eq!(deprecated(&document()), deprecated(&served()));
    let served = imagate::served_admin_description().expect("the trait describes itself");
    assert_eq!(deprecated(&admin_document()), deprecated(&served));
    let mut changed = document();
    changed["paths"]["/v1/models"]["get"]["deprecated"] = json!(true);
    assert_eq!(deprecated(&changed), ["\"list_models\""]);
}

#[test]
fn every_exception_is_still_needed() {
    for left_out in &EXCEPTIONS {
        let others = EXCEPTIONS.iter().filter(|exception| !std::ptr::eq(*exception, left_out));
        assert!(!unexplained(document(), others).is_empty(), "no longer needed: {}", left_out.reason);
    }
}

#[test]
fn a_changed_operation_id_is_reported() {
    let mut changed = document();
    changed["paths"]["/v1/images/generations"]["post"]["operationId"] = json!("createImage");
    let place = r#"POST /v1/images/generations › operationId: document="createImage" code="create_image""#;
    assert_mentions(&unexplained(changed, &EXCEPTIONS), place);
}

#[test]
fn a_changed_path_is_reported_from_both_sides() {
    let mut changed = document();
    let item = changed["paths"]["/v1/models"].take();
    changed["paths"].as_object_mut().unwrap().remove("/v1/models");
    changed["paths"]["/v1/all-models"] = item;
    let found = unexplained(changed, &EXCEPTIONS);
    assert_mentions(&found, "GET /v1/all-models: only in the document");
    assert_mentions(&found, "GET /v1/models: only in the code");
}

#[test]
fn a_changed_answer_is_reported() {
    let mut changed = document();
    changed["paths"]["/v1/models"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"] =
        json!("#/components/schemas/Model");
    assert_mentions(&unexplained(changed, &EXCEPTIONS), "GET /v1/models › answers › 200 › application/json › $ref");
}

#[test]
fn a_changed_parameter_is_reported() {
    let mut changed = document();
    changed["paths"]["/v1/models/{model}"]["get"]["parameters"][0]["name"] = json!("id");
    assert_mentions(&unexplained(changed, &EXCEPTIONS), "parameters[0] › name");
}
