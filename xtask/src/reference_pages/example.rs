//! Examples of requests and answers, made from the examples of the documents.

use serde_json::{Map, Value};

use super::ReferenceSource;
use crate::document::Operation;

/// The deepest level to which an example goes: deeper levels are the same in all requests of the documents.
const DEPTH_MAX: u8 = 5;

/// Returns the example of a schema as text.
pub(super) fn text<'a>(reference: ReferenceSource<'a>, schema: &'a Value) -> Option<String> {
    of_schema(reference, schema, 0).map(|value| format!("{value:#}"))
}

/// Returns the example of a schema: its own, or one of the examples of its fields.
fn of_schema<'a>(reference: ReferenceSource<'a>, schema: &'a Value, depth: u8) -> Option<Value> {
    let schema = reference.resolve(schema);
    if !schema["example"].is_null() {
        return Some(schema["example"].clone());
    }
    if depth >= DEPTH_MAX {
        return None;
    }
    if let Some(first) = ["allOf", "oneOf", "anyOf"].iter().find_map(|key| schema[*key].get(0)) {
        return of_schema(reference, first, depth + 1);
    }
    if schema["type"] == "array" {
        return of_schema(reference, &schema["items"], depth + 1).map(|item| Value::Array(vec![item]));
    }
    let fields = schema["properties"].as_object()?.iter();
    let example = fields.filter_map(|(name, field)| Some((name.clone(), of_schema(reference, field, depth + 1)?)));
    let example: Map<String, Value> = example.collect();
    (!example.is_empty()).then_some(Value::Object(example))
}

/// Returns a request of this operation as a command line of curl, with `{origin}` in place of the address.
pub(super) fn curl<'a>(reference: ReferenceSource<'a>, operation: &Operation<'a>) -> String {
    let method = operation.method.to_uppercase();
    let mut lines = vec![format!("curl -sS {{origin}}{}", operation.path)];
    if method != "GET" && operation.value["requestBody"].is_null() {
        lines.push(format!("-X {method}"));
    }
    lines.push(format!("-H \"Authorization: Bearer ${}\"", reference.api.secret_variable));
    let content = &operation.value["requestBody"]["content"];
    if !content["application/json"].is_null() {
        if method != "POST" {
            lines.push(format!("-X {method}"));
        }
        let body = of_schema(reference, &content["application/json"]["schema"], 0).unwrap_or_default();
        // A single quote ends the argument.
        let body = body.to_string().replace('\'', "'\\''");
        lines.extend(["-H 'Content-Type: application/json'".to_owned(), format!("-d '{body}'")]);
    }
    lines.join(" \\\n  ")
}
