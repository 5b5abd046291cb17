//! The parts of the schema of the settings that the document of the operators' API has: its API and the settings share
//! the words and bounds of groups, limits and prices.

use std::sync::LazyLock;

use schemars::schema::Schema;
use serde_json::{Map, Value, json};

use crate::tables;

/// The tables of the settings whose bounds are those of a component: the way to the table in the schema, and the name of
/// the component.
const TABLES: [(&[&str], &str); 3] =
    [(&["accounts"], "AccountSettings"), (&["groups"], "GroupPolicy"), (&["prices"], "NewPrice")];
/// The keywords of bounds.
const BOUNDS: [&str; 4] = ["minimum", "maximum", "maxItems", "maxLength"];

static COMPONENTS: LazyLock<Value> = LazyLock::new(|| {
    let document: Result<Value, _> = serde_json::from_str(tables::ADMIN_OPENAPI);
    // `build.rs` already refuses a document that is not JSON.
    document.map(|mut document| document["components"]["schemas"].take()).unwrap_or_default()
});

/// Returns the schema of a component of words, each with its description.
pub(super) fn words(component: &str) -> Schema {
    serde_json::from_value(words_schema(&COMPONENTS[component])).unwrap_or(Schema::Bool(true))
}

fn words_schema(component: &Value) -> Value {
    let description = &component["description"];
    let Some(descriptions) = component["x-enumDescriptions"].as_object() else {
        return json!({ "description": description, "type": "string", "enum": component["enum"] });
    };
    let words = component["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let described = words.map(|word| json!({ "description": descriptions[word], "type": "string", "enum": [word] }));
    json!({ "description": description, "oneOf": described.collect::<Vec<_>>() })
}

/// Returns the schema of a component that a table of the settings has in common with the API.
pub(super) fn table(component: &str) -> Schema {
    serde_json::from_value(settings_schema(&COMPONENTS[component])).unwrap_or(Schema::Bool(true))
}

/// Returns a schema of the document without references and without `null`, which TOML does not have.
fn settings_schema(schema: &Value) -> Value {
    let target = referenced(schema);
    let target = if target["enum"].is_array() { words_schema(target) } else { target.clone() };
    let Value::Object(mut members) = target else { return target };
    if let Some(description) = schema.get("description") {
        members.insert("description".to_owned(), description.clone());
    }
    members.retain(|name, _| !["nullable", "example"].contains(&name.as_str()) && !name.starts_with("x-"));
    for property in members.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        *property = settings_schema(property);
    }
    if let Some(items) = members.get_mut("items") {
        *items = settings_schema(items);
    }
    members.into()
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
    let schema = referenced(property);
    let bounds = BOUNDS.iter().filter_map(|name| Some(((*name).to_owned(), schema.get(*name)?.clone())));
    let bounds: Map<String, Value> = bounds.collect();
    (!bounds.is_empty()).then_some(bounds)
}

/// The component to which a schema refers, alone or beside `null`; the schema itself if it refers to none.
fn referenced(schema: &Value) -> &Value {
    let target = schema["anyOf"][0]["$ref"].as_str().or_else(|| schema["$ref"].as_str());
    let name = target.and_then(|target| target.strip_prefix("#/components/schemas/"));
    name.map_or(schema, |name| &COMPONENTS[name])
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
