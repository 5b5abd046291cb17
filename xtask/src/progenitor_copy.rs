//! The copy of a document that progenitor reads, in which constructs that it does not support are replaced.
//!
//! The document is for every generator of clients, and says in the words of OpenAPI that a component may be `null`, and
//! that an item is one of several components. Progenitor makes better types of the simpler forms.

use serde_json::{Value, json};

use crate::document::{header_reference, is_null_choice, members_on_disk, union_stand_in};

/// The header parameters that the SDK states by itself, which are arguments of the calls. A program can add the others
/// to its requests as any header.
const SDK_HEADERS: [&str; 3] = ["IdempotencyKey", "ImageFallback", "RetryCount"];

/// Replaces the constructs that progenitor does not support.
pub(crate) fn lower(document: &mut Value) {
    lower_operations(&mut document["paths"]);
    let headers = document.pointer_mut("/components/parameters").and_then(Value::as_object_mut);
    headers.into_iter().flat_map(|headers| headers.values_mut()).for_each(lower_header);
    let schemas = document["components"]["schemas"].as_object().cloned().unwrap_or_default();
    let unions: Vec<(String, String)> =
        schemas.iter().filter_map(|(name, schema)| Some((name.clone(), union_stand_in(schema)?.to_owned()))).collect();
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        schemas.retain(|name, _| unions.iter().all(|(union, _)| union != name));
        schemas.values_mut().for_each(remove_members_on_disk);
    }
    lower_schema(document, &unions);
}

/// Removes the header parameters that the SDK does not state. Of the statuses of errors, the ranges stay, because an
/// operation of the client has one type of error.
fn lower_operations(paths: &mut Value) {
    let items = paths.as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    for operation in items.filter_map(Value::as_object_mut).flat_map(|item| item.values_mut()) {
        if let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
            parameters.retain(|parameter| header_reference(parameter).is_none_or(|name| SDK_HEADERS.contains(&name)));
        }
        if let Some(answers) = operation.get_mut("responses").and_then(Value::as_object_mut) {
            answers.retain(|status, _| status.starts_with('2') || status.ends_with("XX"));
        }
    }
}

/// Reduces the schema of a header to its type: the builders of the SDK check the values, and each call would get a type of
/// its own for the same header.
fn lower_header(header: &mut Value) {
    if let Some(schema) = header.get_mut("schema").and_then(Value::as_object_mut) {
        schema.retain(|keyword, value| {
            !value.is_array() && !["minLength", "maxLength", "pattern"].contains(&keyword.as_str())
        });
    }
}

/// Removes the members of a request that stay on disk: its type has those that are read into memory.
fn remove_members_on_disk(schema: &mut Value) {
    let on_disk: Vec<String> = members_on_disk(schema).into_iter().map(str::to_owned).collect();
    if on_disk.is_empty() {
        return;
    }
    let is_in_memory = |name: &str| on_disk.iter().all(|other| other != name);
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.retain(|name, _| is_in_memory(name));
    }
    if let Some(required) = schema["required"].as_array_mut() {
        required.retain(|name| name.as_str().is_some_and(is_in_memory));
    }
    let about = schema["description"].as_str().unwrap_or_default();
    schema["description"] = format!("{about}\n\nThe members that stay on disk are not fields of this type.").into();
}

fn lower_schema(schema: &mut Value, unions: &[(String, String)]) {
    match schema {
        Value::Object(members) => {
            let union = members.get("$ref").and_then(Value::as_str).and_then(|reference| {
                unions.iter().find(|(union, _)| reference.strip_prefix("#/components/schemas/") == Some(union))
            });
            if let Some((_, stand_in)) = union {
                members.insert("$ref".to_owned(), format!("#/components/schemas/{stand_in}").into());
            }
            if let Some([component, null]) = members.get("anyOf").and_then(Value::as_array).map(Vec::as_slice)
                && is_null_choice(null)
            {
                let all_of = json!([component]);
                members.remove("anyOf");
                members.insert("nullable".to_owned(), true.into());
                members.insert("allOf".to_owned(), all_of);
            }
            members.values_mut().for_each(|member| lower_schema(member, unions));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| lower_schema(item, unions)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nullable_component_and_a_union_get_a_simpler_form() {
        let reference = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
        let absent = json!({ "type": "string", "nullable": true, "enum": [null] });
        let mut document = json!({ "paths": {}, "components": { "schemas": {
            "AnyPet": { "anyOf": [reference("Cat"), reference("Pet")] },
            "Cat": { "type": "object" },
            "Owner": { "properties": {
                "pets": { "type": "array", "items": reference("AnyPet") },
                "first": { "anyOf": [reference("Pet"), absent], "description": "The first." },
            } },
            "Pet": { "type": "object" },
        } } });
        lower(&mut document);
        let expected = json!({
            "Cat": { "type": "object" },
            "Owner": { "properties": {
                "pets": { "type": "array", "items": reference("Pet") },
                "first": { "nullable": true, "allOf": [reference("Pet")], "description": "The first." },
            } },
            "Pet": { "type": "object" },
        });
        assert_eq!(document["components"]["schemas"], expected);
    }

    #[test]
    fn the_members_that_stay_on_disk_have_no_type() {
        let film = json!({ "type": "string" });
        let mut schema = json!({ "description": "A reel.", "required": ["name", "film"], "x-imagate-on-disk": ["film"],
            "properties": { "name": { "type": "string" }, "film": film } });
        remove_members_on_disk(&mut schema);
        let description = "A reel.\n\nThe members that stay on disk are not fields of this type.";
        let properties = json!({ "name": { "type": "string" } });
        let expected = json!({ "description": description, "required": ["name"], "x-imagate-on-disk": ["film"],
            "properties": properties });
        assert_eq!(schema, expected);
    }

    #[test]
    fn headers_of_the_sdk_stay_as_texts_and_single_statuses_of_errors_are_removed() {
        let reference = |name: &str| json!({ "$ref": format!("#/components/parameters/{name}") });
        let query = json!({ "in": "query", "name": "limit" });
        let header = |schema: Value| json!({ "in": "header", "name": "a-header", "schema": schema });
        let words = json!({ "type": "string", "enum": ["never", "always"] });
        let number = json!({ "type": "integer", "minimum": 0, "maximum": 9 });
        let parameters = json!({ "ImageFallback": header(words), "RetryCount": header(number.clone()) });
        let mut document = json!({
            "components": { "schemas": {}, "parameters": parameters },
            "paths": { "/pets": { "get": {
                "parameters": [reference("Mood"), reference("ImageFallback"), reference("RetryCount"), query],
                "responses": { "200": {}, "401": {}, "4XX": {}, "5XX": {} },
            } } },
        });
        lower(&mut document);
        let expected = json!({
            "parameters": [reference("ImageFallback"), reference("RetryCount"), query],
            "responses": { "200": {}, "4XX": {}, "5XX": {} },
        });
        assert_eq!(document["paths"]["/pets"]["get"], expected);
        let expected = json!({ "ImageFallback": header(json!({ "type": "string" })), "RetryCount": header(number) });
        assert_eq!(document["components"]["parameters"], expected);
    }
}
