//! The schema of a component as a validator. Shared with the kit of the end-to-end tests.

use jsonschema::Validator;
use serde_json::{Value, json};

/// The validator of a component of the document.
pub(crate) fn validator(document: &Value, name: &str) -> Validator {
    let mut components = document["components"].clone();
    plain(&mut components);
    let schema = json!({ "allOf": [{ "$ref": format!("#/components/schemas/{name}") }], "components": components });
    jsonschema::draft7::new(&schema).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// `nullable` is a word of OpenAPI; JSON Schema says the same in another way.
fn plain(schema: &mut Value) {
    if let Some(members) = schema.as_object_mut() {
        members.values_mut().for_each(plain);
        if members.remove("nullable") == Some(Value::Bool(true)) {
            *schema = json!({ "anyOf": [{ "type": "null" }, schema.take()] });
        }
    } else if let Some(items) = schema.as_array_mut() {
        items.iter_mut().for_each(plain);
    }
}
