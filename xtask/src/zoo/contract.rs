//! `cargo xtask zoo --contract`: what the newest official SDK has and `openapi/gateway.json` does not have.
//!
//! It is a report, not a failure: the provider adds models, fields and words at any time. `tests/zoo/sdk_contract.py`
//! prints the contract of the SDK.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{DRIVERS, installation};
use crate::api::GATEWAY;
use crate::ci;

/// Compares the contracts, prints the report, and writes it below the target folder.
pub(super) fn report(root: &Path, target: &Path) -> Result<()> {
    let python = installation::newest_python_sdk(target)?;
    let printed = ci::stdout_of(Command::new(python).arg(root.join(DRIVERS).join("sdk_contract.py")))?;
    let sdk: Value = serde_json::from_str(&printed).context("the contract of the SDK")?;
    let document: Value = serde_json::from_str(&fs::read_to_string(root.join(GATEWAY.document))?)?;
    let mut text = format!("openai {} beside {}\n\n", sdk["version"].as_str().unwrap_or("?"), GATEWAY.document);
    let unknown = compare(&sdk, &document);
    text.push_str(if unknown.is_empty() { "nothing is unknown\n" } else { "unknown here:\n" });
    for line in unknown {
        text.push_str(&format!("  {line}\n"));
    }
    let path = target.join("contract.txt");
    fs::write(&path, &text)?;
    println!("{text}\n{}", path.display());
    Ok(())
}

/// One line for each place of the document that lacks something.
fn compare(sdk: &Value, document: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let ours = document["x-imagate-models"].as_array().into_iter().flatten();
    let ours: BTreeSet<&str> = ours.filter_map(|model| model["id"].as_str()).collect();
    push_missing(&mut lines, "models", strings(&sdk["models"]).filter(|name| !ours.contains(name)));
    for (kind, fields) in sdk["types"].as_object().into_iter().flatten() {
        let schema = &document["components"]["schemas"][kind];
        let fields = fields.as_object().into_iter().flatten();
        // A form has lists under names with brackets.
        let has = |name: &str| [name, &format!("{name}[]")].iter().any(|name| !schema["properties"][*name].is_null());
        let (known, unknown): (Vec<_>, Vec<_>) = fields.partition(|(name, _)| has(name));
        push_missing(&mut lines, &format!("{kind}, fields"), unknown.iter().map(|(name, _)| name.as_str()));
        for (name, words) in known.into_iter().filter(|(name, _)| *name != "model") {
            let ours = words_of(document, &schema["properties"][name.as_str()]);
            // A field without a list of words takes every word.
            let missing = strings(words).filter(|word| !ours.is_empty() && !ours.contains(word));
            push_missing(&mut lines, &format!("{kind}.{name}, words"), missing);
        }
    }
    lines
}

fn push_missing<'a>(lines: &mut Vec<String>, place: &str, missing: impl Iterator<Item = &'a str>) {
    let missing: BTreeSet<&str> = missing.collect();
    if !missing.is_empty() {
        lines.push(format!("{place}: {}", missing.into_iter().collect::<Vec<_>>().join(", ")));
    }
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The words that a schema lists, wherever they are in it.
fn words_of<'a>(document: &'a Value, schema: &'a Value) -> BTreeSet<&'a str> {
    let mut words: BTreeSet<&str> = strings(&schema["enum"]).collect();
    if let Some(pointer) = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) {
        words.extend(document.pointer(pointer).map(|target| words_of(document, target)).unwrap_or_default());
    }
    for member in ["allOf", "anyOf", "oneOf"] {
        let parts = schema[member].as_array().into_iter().flatten();
        words.extend(parts.flat_map(|part| words_of(document, part)));
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_models_fields_and_words_are_named() {
        let document = json!({
            "x-imagate-models": [{"id": "gpt-image-2"}],
            "components": {"schemas": {
                "Quality": {"type": "string", "enum": ["low", "high"]},
                "Request": {"properties": {
                    "model": {"type": "string"}, "quality": {"allOf": [{"$ref": "#/components/schemas/Quality"}]},
                    "size": {"type": "string"},
                }},
            }},
        });
        let fields = json!({"model": ["x"], "quality": ["low", "xhigh"], "size": ["512x512"], "svg": []});
        let sdk = json!({"models": ["gpt-image-2", "gpt-image-3"], "types": {"Request": fields}});
        let expected = ["models: gpt-image-3", "Request, fields: svg", "Request.quality, words: xhigh"];
        assert_eq!(compare(&sdk, &document), expected);
    }
}
