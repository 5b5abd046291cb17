//! The tables of the settings: one for each table of the TOML file, from the schema of the settings.
//!
//! The schema is written by `imagate config schema`; its types and descriptions are the only list of settings.

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::pages::{cell, code_span, markdown};

/// The settings of one table of the file: `place` is its name, such as `uploads` or `groups.filter`, and empty for those
/// above all tables.
pub(crate) fn table(schema: &Value, place: &str) -> Result<String> {
    let mut holder = schema;
    for name in place.split('.').filter(|name| !name.is_empty()) {
        let property = holder["properties"].get(name).with_context(|| format!("no table '{place}' in the settings"))?;
        holder = resolve_reference(schema, property);
    }
    let properties = holder["properties"].as_object().with_context(|| format!("'{place}' is no table of settings"))?;
    let required = |name: &str| holder["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name));
    let mut rows = Vec::new();
    for (name, property) in properties {
        let whole = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
        let must = if required(name) { ", required" } else { "" };
        rows.push([format!("`{name}`{must}"), accepts(schema, property, &whole), meaning(schema, property)]);
    }
    rows.sort();
    Ok(markdown(["Setting", "Accepts", "Meaning"], &rows))
}

/// The schema behind a reference, also of the items of a list.
fn resolve_reference<'a>(schema: &'a Value, property: &'a Value) -> &'a Value {
    let part = property["allOf"].get(0).or_else(|| property.get("items")).unwrap_or(property);
    let name = part["$ref"].as_str().and_then(|reference| reference.strip_prefix("#/definitions/"));
    name.map_or(part, |name| &schema["definitions"][name])
}

/// The words that a setting takes, each with its own schema.
fn word_variants(schema: &Value) -> Vec<&Value> {
    let variants = schema["oneOf"].as_array().into_iter().flatten();
    variants.filter(|variant| variant["enum"][0].is_string()).collect()
}

fn accepts(schema: &Value, property: &Value, name: &str) -> String {
    let target = resolve_reference(schema, property);
    let is_list = property["type"] == "array";
    let of = if is_list { "a list of " } else { "" };
    if target.get("properties").is_some() {
        return if is_list { format!("tables `[[{name}]]`") } else { format!("a table `[{name}]`") };
    }
    if let Some(choices) = target["enum"].as_array() {
        return format!("{of}{}", choices.iter().map(code_span).collect::<Vec<_>>().join(", "));
    }
    let choices = word_variants(target);
    if !choices.is_empty() {
        return choices.into_iter().map(|choice| code_span(&choice["enum"][0])).collect::<Vec<_>>().join(", ");
    }
    if target.get("title").is_some() {
        // The reason behind the comma is for messages.
        let title = cell(target, "title");
        return title.split_once(", because").map_or(title.clone(), |(what, _)| what.to_owned());
    }
    match target["type"].as_str() {
        Some("boolean") => "`true`, `false`".to_owned(),
        Some("integer") => whole_number(target),
        Some("object") => "a table".to_owned(),
        _ if is_list => "a list of texts".to_owned(),
        _ => "text".to_owned(),
    }
}

fn whole_number(schema: &Value) -> String {
    match (schema["minimum"].as_f64(), schema["maximum"].as_f64()) {
        (Some(min), Some(max)) => format!("{min} to {max}"),
        (Some(min), None) => format!("{min} or more"),
        _ => "a whole number".to_owned(),
    }
}

/// The description, with those of the words that the setting takes.
fn meaning(schema: &Value, property: &Value) -> String {
    let mut text = cell(property, "description");
    for word in word_variants(resolve_reference(schema, property)) {
        text.push_str(&format!(" {}: {}", code_span(&word["enum"][0]), cell(word, "description")));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "properties": {
                "listen": { "type": "string", "description": "The address." },
                "groups": { "type": "array", "items": { "$ref": "#/definitions/Group" }, "description": "All groups." },
                "uploads": { "allOf": [{ "$ref": "#/definitions/Uploads" }], "description": "The bytes." }
            },
            "definitions": {
                "Group": { "required": ["name"], "properties": {
                    "name": { "type": "string", "description": "Its name." },
                    "mode": { "allOf": [{ "$ref": "#/definitions/Mode" }], "description": "The mode." }
                } },
                "Mode": { "oneOf": [
                    { "type": "string", "enum": ["on"], "description": "It runs." },
                    { "type": "string", "enum": ["off"], "description": "It rests." }
                ] },
                "Uploads": { "properties": {
                    "disk": { "type": "integer", "minimum": 1.0, "maximum": 9.0, "description": "Disk." },
                    "key": { "title": "a file, because it is safe", "description": "A key." }
                } }
            }
        })
    }

    fn rows(place: &str) -> Vec<String> {
        table(&schema(), place).unwrap().lines().skip(2).map(str::to_owned).collect()
    }

    #[test]
    fn each_table_of_the_file_has_its_settings() {
        assert_eq!(
            rows(""),
            [
                "| `groups` | tables `[[groups]]` | All groups. |",
                "| `listen` | text | The address. |",
                "| `uploads` | a table `[uploads]` | The bytes. |",
            ]
        );
        assert_eq!(rows("uploads"), ["| `disk` | 1 to 9 | Disk. |", "| `key` | a file | A key. |"]);
        assert_eq!(
            rows("groups"),
            [
                "| `mode` | `on`, `off` | The mode. `on`: It runs. `off`: It rests. |",
                "| `name`, required | text | Its name. |"
            ]
        );
    }

    #[test]
    fn a_table_that_the_file_does_not_have_is_refused() {
        let refusal = |place| format!("{:#}", table(&schema(), place).unwrap_err());
        assert_eq!(refusal("wishes"), "no table 'wishes' in the settings");
        assert_eq!(refusal("listen"), "'listen' is no table of settings");
    }
}
