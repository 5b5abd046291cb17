//! A schema as a page shows it: its type, its limits, its words and its fields.

use serde_json::{Value, json};

use super::{ReferenceSource, description, example};
use crate::document::is_null_choice;

/// Returns the content of the page of a schema.
pub(super) fn schema<'a>(reference: ReferenceSource<'a>, schema: &'a Value) -> Value {
    json!({
        "description": description(schema),
        "parts": type_parts(reference, schema),
        "limits": limits(schema),
        "words": words(schema),
        "fields": fields(reference, schema),
        "example": example::text(reference, schema),
    })
}

/// Returns the fields of an object; the required ones come first.
pub(super) fn fields<'a>(reference: ReferenceSource<'a>, schema: &'a Value) -> Vec<Value> {
    let required = &schema["required"];
    let is_required = |name: &str| required.as_array().is_some_and(|names| names.iter().any(|known| known == name));
    let fields = schema["properties"].as_object().into_iter().flatten();
    let mut fields: Vec<_> = fields.map(|(name, value)| (!is_required(name), name, value)).collect();
    fields.sort_by_key(|(is_optional, ..)| *is_optional);
    let fields = fields.into_iter();
    fields.map(|(is_optional, name, value)| field(reference, name, value, (!is_optional, ""))).collect()
}

/// Returns a parameter of an operation.
pub(super) fn parameter<'a>(reference: ReferenceSource<'a>, parameter: &'a Value) -> Value {
    let parameter = reference.resolve(parameter);
    header(reference, parameter["name"].as_str().unwrap_or_default(), parameter)
}

/// Returns a header of an answer.
pub(super) fn header<'a>(reference: ReferenceSource<'a>, name: &str, header: &'a Value) -> Value {
    let header = reference.resolve(header);
    let text = header["description"].as_str().unwrap_or_default();
    field(reference, name, &header["schema"], (header["required"] == true, text))
}

/// Returns a field with its description, which is that of its schema if there is no text.
fn field<'a>(
    reference: ReferenceSource<'a>,
    name: &str,
    schema: &'a Value,
    (is_required, text): (bool, &str),
) -> Value {
    // A field that describes a named schema in its own words refers to it inside of a list with one entry.
    let inner = ["allOf", "anyOf"].iter().find_map(|key| schema[*key].get(0)).unwrap_or(schema);
    let target = reference.resolve(inner);
    let mut all_limits = limits(target);
    all_limits.extend(limits(schema).into_iter().filter(|_| !std::ptr::eq(target, schema)));
    let mut html = super::markdown::to_html(text);
    for described in [schema, target] {
        if html.is_empty() {
            html = description(described);
        }
    }
    json!({
        "name": name,
        "parts": type_parts(reference, schema),
        "required": is_required,
        "description": html,
        "limits": all_limits,
        "words": words(target),
    })
}

/// Returns the name of the type of a schema, such as `array of Image`, in pieces with links to the schemas that it
/// names.
pub(super) fn type_parts<'a>(reference: ReferenceSource<'a>, schema: &'a Value) -> Vec<Value> {
    let plain = |text: &str| json!({ "text": text });
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        return vec![json!({ "text": name, "link": format!("/docs/{}/{name}", reference.api.page) })];
    }
    if let Some(variants) = ["allOf", "oneOf", "anyOf"].iter().find_map(|key| schema[*key].as_array()) {
        let mut parts = Vec::new();
        for variant in variants {
            if !parts.is_empty() {
                parts.push(plain(", "));
            }
            parts.extend(if is_null_choice(variant) { vec![plain("null")] } else { type_parts(reference, variant) });
        }
        return parts;
    }
    let of = |text: &str, inner: &'a Value| {
        let mut parts = vec![plain(text)];
        parts.extend(type_parts(reference, inner));
        parts
    };
    match schema["type"].as_str() {
        Some("array") => of("array of ", &schema["items"]),
        Some("object") if schema["additionalProperties"]["type"].is_string() => {
            of("map of ", &schema["additionalProperties"])
        }
        Some(word) => vec![plain(word)],
        None => vec![plain("any")],
    }
}

/// The limits of a schema, in signs that need no translation.
fn limits(schema: &Value) -> Vec<String> {
    let mut limits = Vec::new();
    let range = |min: &Value, max: &Value, of: &str| match (min.is_null(), max.is_null()) {
        (true, true) => None,
        (false, true) => Some(format!("{of} ≥ {min}")),
        (true, false) => Some(format!("{of} ≤ {max}")),
        (false, false) => Some(format!("{min} ≤ {of} ≤ {max}")),
    };
    limits.extend(range(&schema["minimum"], &schema["maximum"], "x"));
    limits.extend(range(&schema["minLength"], &schema["maxLength"], "length"));
    limits.extend(range(&schema["minItems"], &schema["maxItems"], "items"));
    limits.extend(schema["format"].as_str().filter(|format| !is_width(format)).map(str::to_owned));
    limits.extend(schema["pattern"].as_str().map(str::to_owned));
    if !schema["default"].is_null() {
        limits.push(format!("default {}", schema["default"]));
    }
    if schema["nullable"] == true {
        limits.push("or null".to_owned());
    }
    if !schema["x-extensible-enum"].is_null() {
        limits.push("or another word".to_owned());
    }
    limits
}

/// True for formats that only say how many bits a number has.
fn is_width(format: &str) -> bool {
    matches!(format, "uint8" | "uint16" | "uint32" | "uint64" | "int32" | "int64" | "double" | "float")
}

fn words(schema: &Value) -> Vec<&str> {
    let lists = ["enum", "x-extensible-enum"].iter().filter_map(|key| schema[*key].as_array());
    lists.flatten().filter_map(Value::as_str).collect()
}
