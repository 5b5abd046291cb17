//! The copy of a document that progenitor reads, in which constructs that it does not support are replaced.
//!
//! The document is for every generator of clients, and says in the words of OpenAPI that a component may be `null`, and
//! that an item is one of several components. Progenitor makes better types of the simpler forms.

use serde_json::{Value, json};

use crate::document::{is_header_reference, is_null_choice, union_stand_in};

/// Replaces the constructs that progenitor does not support.
pub(crate) fn lower(document: &mut Value) {
    lower_operations(&mut document["paths"]);
    let schemas = document["components"]["schemas"].as_object().cloned().unwrap_or_default();
    let unions: Vec<(String, String)> =
        schemas.iter().filter_map(|(name, schema)| Some((name.clone(), union_stand_in(schema)?.to_owned()))).collect();
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        schemas.retain(|name, _| unions.iter().all(|(union, _)| union != name));
    }
    lower_schema(document, &unions);
}

/// Removes header parameters: the client sets them by itself, together with its retries. Of the statuses of errors, the
/// ranges stay, because an operation of the client has one type of error.
fn lower_operations(paths: &mut Value) {
    let items = paths.as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    for operation in items.filter_map(Value::as_object_mut).flat_map(|item| item.values_mut()) {
        if let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
            parameters.retain(|parameter| !is_header_reference(parameter));
        }
        if let Some(answers) = operation.get_mut("responses").and_then(Value::as_object_mut) {
            answers.retain(|status, _| status.starts_with('2') || status.ends_with("XX"));
        }
    }
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
    fn header_parameters_and_single_statuses_of_errors_are_removed() {
        let header = json!({ "$ref": "#/components/parameters/Mood" });
        let query = json!({ "in": "query", "name": "limit" });
        let mut document = json!({ "components": { "schemas": {} }, "paths": { "/pets": { "get": {
            "parameters": [header, query], "responses": { "200": {}, "401": {}, "4XX": {}, "5XX": {} },
        } } } });
        lower(&mut document);
        let expected = json!({ "parameters": [query], "responses": { "200": {}, "4XX": {}, "5XX": {} } });
        assert_eq!(document["paths"]["/pets"]["get"], expected);
    }
}
