//! Makes a JSON Schema validator of a component. The kit of the end-to-end tests uses this file, too.

use jsonschema::Validator;
use serde_json::{Value, json};

/// The validator of a component of the document.
pub(crate) fn validator(document: &Value, name: &str) -> Validator {
    let mut components = document["components"].clone();
    replace_nullable(&mut components);
    let schema = json!({ "allOf": [{ "$ref": format!("#/components/schemas/{name}") }], "components": components });
    jsonschema::draft7::new(&schema).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Replaces the keyword `nullable` of OpenAPI 3.0 by a JSON Schema that also accepts null.
fn replace_nullable(schema: &mut Value) {
    if let Some(members) = schema.as_object_mut() {
        members.values_mut().for_each(replace_nullable);
        if members.remove("nullable") == Some(Value::Bool(true)) {
            *schema = json!({ "anyOf": [{ "type": "null" }, schema.take()] });
        }
    } else if let Some(items) = schema.as_array_mut() {
        items.iter_mut().for_each(replace_nullable);
    }
}
