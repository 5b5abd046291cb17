//! The documentation tables of the settings: one for each table of the TOML file, from the schema of the settings.
//!
//! The schema is written by `imagate config schema`; its types and descriptions are the only list of settings.

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::pages::{cell, code_span, markdown};

/// The settings of one table of the file. `table_name` is its name, such as `uploads` or `groups.filter`; it is empty
/// for the settings outside of tables.
pub(crate) fn table(schema: &Value, table_name: &str) -> Result<String> {
    let mut holder = schema;
    for name in table_name.split('.').filter(|name| !name.is_empty()) {
        let property =
            holder["properties"].get(name).with_context(|| format!("no table '{table_name}' in the settings"))?;
        holder = resolve_reference(schema, property);
    }
    let properties =
        holder["properties"].as_object().with_context(|| format!("'{table_name}' is not a table of settings"))?;
    let required = |name: &str| {
        holder["required"].as_array().is_some_and(|names| names.iter().any(|required_name| required_name == name))
    };
    let mut rows = Vec::new();
    for (name, property) in properties {
        let full_name = if table_name.is_empty() { name.clone() } else { format!("{table_name}.{name}") };
        let suffix = if required(name) { ", required" } else { "" };
        rows.push([format!("`{name}`{suffix}"), accepts(schema, property, &full_name), meaning(schema, property)]);
    }
    rows.sort();
    Ok(markdown(["Setting", "Accepts", "Meaning"], &rows))
}

/// Resolves a reference, also that of the items of a list.
fn resolve_reference<'a>(schema: &'a Value, property: &'a Value) -> &'a Value {
    let part = property["allOf"].get(0).or_else(|| property.get("items")).unwrap_or(property);
    let name = part["$ref"].as_str().and_then(|reference| reference.strip_prefix("#/definitions/"));
    name.map_or(part, |name| &schema["definitions"][name])
}

/// The schemas of the words that a setting accepts, each with a description.
fn word_variants(schema: &Value) -> Vec<&Value> {
    let variants = schema["oneOf"].as_array().into_iter().flatten();
    variants.filter(|variant| variant["enum"][0].is_string()).collect()
}

fn accepts(schema: &Value, property: &Value, name: &str) -> String {
    let target = resolve_reference(schema, property);
    let is_list = property["type"] == "array";
    let list_prefix = if is_list { "a list of " } else { "" };
    if target.get("properties").is_some() {
        return if is_list { format!("tables `[[{name}]]`") } else { format!("a table `[{name}]`") };
    }
    if let Some(choices) = target["enum"].as_array() {
        return format!("{list_prefix}{}", choices.iter().map(code_span).collect::<Vec<_>>().join(", "));
    }
    let choices = word_variants(target);
    if !choices.is_empty() {
        return choices.into_iter().map(|choice| code_span(&choice["enum"][0])).collect::<Vec<_>>().join(", ");
    }
    if target.get("title").is_some() {
        // The reason after the comma is meant for error messages.
        let title = cell(target, "title");
        return title.split_once(", because").map_or(title.clone(), |(rule, _)| rule.to_owned());
    }
    match target["type"].as_str() {
        Some("boolean") => "`true`, `false`".to_owned(),
        Some("integer") => whole_number(target),
        Some("number") => format!("a number, {}", whole_number(target)),
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

/// The description of a setting, followed by the descriptions of the words that it accepts.
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
                    "share": { "type": "number", "minimum": 0.0, "maximum": 1.0, "description": "A share." },
                    "key": { "title": "a file, because it is safe", "description": "A key." }
                } }
            }
        })
    }

    fn rows(table_name: &str) -> Vec<String> {
        table(&schema(), table_name).unwrap().lines().skip(2).map(str::to_owned).collect()
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
        let uploads =
            ["| `disk` | 1 to 9 | Disk. |", "| `key` | a file | A key. |", "| `share` | a number, 0 to 1 | A share. |"];
        assert_eq!(rows("uploads"), uploads);
        assert_eq!(
            rows("groups"),
            [
                "| `mode` | `on`, `off` | The mode. `on`: It runs. `off`: It rests. |",
                "| `name`, required | text | Its name. |"
            ]
        );
    }

    #[test]
    fn an_unknown_table_is_an_error() {
        let refusal = |table_name| format!("{:#}", table(&schema(), table_name).unwrap_err());
        assert_eq!(refusal("wishes"), "no table 'wishes' in the settings");
        assert_eq!(refusal("listen"), "'listen' is not a table of settings");
    }
}
