//! The parts of the schema of the settings that the document of the operators' API has: its API and the settings share
//! the words and bounds of groups, limits and prices.

use std::sync::LazyLock;

use schemars::schema::Schema;
use serde_json::{Map, Value, json};

use crate::tables;

/// The tables of the settings whose bounds are those of a component: the way to the table in the schema, and the name of
/// the component.
const TABLES: [(&[&str], &str); 4] = [
    (&["accounts"], "AccountSettings"),
    (&["groups"], "GroupPolicy"),
    (&["groups", "limits"], "RequestLimits"),
    (&["prices"], "NewPrice"),
];
/// The keywords of bounds.
const BOUNDS: [&str; 4] = ["minimum", "maximum", "maxItems", "maxLength"];

static COMPONENTS: LazyLock<Value> = LazyLock::new(|| {
    let document: Result<Value, _> = serde_json::from_str(tables::ADMIN_OPENAPI);
    // `build.rs` already refuses a document that is not JSON.
    document.map(|mut document| document["components"]["schemas"].take()).unwrap_or_default()
});

/// Returns the schema of a component of words, each with its description.
pub(super) fn words(component: &str) -> Schema {
    let component = &COMPONENTS[component];
    let words = component["enum"].as_array().into_iter().flatten();
    let described = |word: &Value| {
        let description = &component["x-enumDescriptions"][word.as_str()?];
        Some(json!({ "description": description, "type": "string", "enum": [word] }))
    };
    let schema = if component["x-enumDescriptions"].is_object() {
        json!({ "description": component["description"], "oneOf": words.filter_map(described).collect::<Vec<_>>() })
    } else {
        json!({ "description": component["description"], "type": "string", "enum": component["enum"] })
    };
    serde_json::from_value(schema).unwrap_or(Schema::Bool(true))
}

/// Adds the bounds of the document to a schema of the settings, with or without references.
pub(crate) fn add_bounds(schema: &mut Value) {
    for (way, component) in TABLES {
        let properties = COMPONENTS[component]["properties"].as_object().into_iter().flatten();
        let bounds: Vec<_> = properties.filter_map(|(name, property)| Some((name, bounds(property)?))).collect();
        let Some(pointer) = pointer_to_table(schema, way) else { continue };
        for (name, bounds) in bounds {
            let property = schema.pointer_mut(&format!("{pointer}/properties/{name}")).and_then(Value::as_object_mut);
            if let Some(property) = property {
                property.extend(bounds.clone());
            }
        }
    }
}

/// The bounds of a property; `None` if it has none.
fn bounds(property: &Value) -> Option<Map<String, Value>> {
    let target = property["anyOf"][0]["$ref"].as_str().or_else(|| property["$ref"].as_str());
    let name = target.and_then(|target| target.strip_prefix("#/components/schemas/"));
    let schema = name.map_or(property, |name| &COMPONENTS[name]);
    let bounds = BOUNDS.iter().filter_map(|name| Some(((*name).to_owned(), schema.get(*name)?.clone())));
    let bounds: Map<String, Value> = bounds.collect();
    (!bounds.is_empty()).then_some(bounds)
}

/// The JSON pointer of a table.
fn pointer_to_table(schema: &Value, way: &[&str]) -> Option<String> {
    let mut pointer = String::new();
    for name in way {
        pointer = format!("{pointer}/properties/{name}");
        let mut holder = schema.pointer(&pointer)?;
        for key in ["items", "allOf/0"] {
            if let Some(inner) = holder.pointer(&format!("/{key}")) {
                (holder, pointer) = (inner, format!("{pointer}/{key}"));
            }
        }
        if let Some(reference) = holder["$ref"].as_str() {
            pointer = reference.trim_start_matches('#').to_owned();
        }
    }
    Some(pointer)
}
