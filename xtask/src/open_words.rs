//! Open words: texts of answers of which the document lists the words that it knows. Clients must still read an answer
//! if a service returns another word: it describes an image that was made and paid for.
//!
//! A component with `x-extensible-enum` is open. In Rust, its type is `OpenWord` of the enumeration of these words. If
//! requests accept the same words and no others, there are two components: `Quality` of requests, and `OpenQuality`.
//!
//! The values of some components depend on the image model (`x-imagate-by-model`), and an operator can add models: the
//! rules of requests check them, so their types are open too.
//!
//! The operators' document lists the words of its own version, and its server answers with no others. Its client also
//! reads the answers of later versions, so for the client all words of answers are open.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::document::{MODEL_MARK, component_of};

/// The prefix of the names of components for open words.
pub(crate) const PREFIX: &str = "Open";
/// The keyword of open words. Several public specifications use it.
pub(crate) const KEYWORD: &str = "x-extensible-enum";

/// The open words of a document.
#[derive(Debug, Default)]
pub(crate) struct OpenWords {
    /// The components whose references become open.
    holders: BTreeSet<String>,
    /// The enumerations to which these references go.
    replaced: BTreeSet<String>,
    /// The enumerations that have an open type.
    words: BTreeSet<String>,
    /// The components that requests use.
    requests: BTreeSet<String>,
    /// The module with the types of the words.
    module: &'static str,
}

// === impl OpenWords ===

impl OpenWords {
    /// The words that the document declares open. `module` has their types.
    pub(crate) fn declared(document: &Value, module: &'static str) -> Self {
        let schemas = || document["components"]["schemas"].as_object().into_iter().flatten();
        let named =
            |is_named: fn(&Value) -> bool| schemas().filter(move |(_, schema)| is_named(schema)).map(|(name, _)| name);
        let open = || named(|schema| schema.get(KEYWORD).is_some());
        let by_model = || named(|schema| schema.get(MODEL_MARK).is_some() && is_word(schema));
        let words =
            open().map(|name| closed_words(document, name).unwrap_or(name)).chain(by_model().map(String::as_str));
        let words = words.map(str::to_owned).collect();
        let replaced =
            open().filter(|name| closed_words(document, name).is_none()).chain(by_model()).cloned().collect();
        let holders = schemas().map(|(name, _)| name.clone()).collect();
        Self { holders, replaced, words, module, requests: BTreeSet::new() }
    }

    /// All words of answers, also in the components that requests share with answers.
    pub(crate) fn of_answers(document: &Value, module: &'static str) -> Self {
        let items = || document["paths"].as_object().into_iter().flat_map(|paths| paths.values());
        let operations = || items().filter_map(Value::as_object).flat_map(|item| item.values());
        let requests = reachable_components(document, operations().map(|operation| &operation["requestBody"]));
        let answers = operations().map(|operation| &operation["responses"]["200"]);
        let holders = reachable_components(document, answers);
        let schemas = &document["components"]["schemas"];
        let words = holders.iter().flat_map(|name| references(&schemas[name]));
        let words: BTreeSet<_> = words.filter(|name| is_word(&schemas[name])).map(str::to_owned).collect();
        Self { holders, replaced: words.clone(), words, requests, module }
    }

    /// The name of each component of open words, and its Rust type.
    pub(crate) fn types(&self) -> impl Iterator<Item = (String, String)> {
        self.words
            .iter()
            .map(|name| (format!("{PREFIX}{name}"), format!("crate::wire::OpenWord<{}::{name}>", self.module)))
    }

    /// Adds the components of open words that the document does not have, and makes the answers refer to them.
    pub(crate) fn apply(&self, schemas: &mut Value) {
        for name in &self.holders {
            if let Some(schema) = schemas.get_mut(name) {
                self.replace_references(schema);
            }
        }
        for name in &self.words {
            schemas[format!("{PREFIX}{name}")] = json!({ "type": "string" });
            if let Some(list) = schemas[name].as_object_mut().and_then(|schema| schema.remove(KEYWORD)) {
                schemas[name]["enum"] = list;
            }
        }
    }

    /// Returns whether a component was added by [`OpenWords::apply`].
    pub(crate) fn is_added(&self, component: &str) -> bool {
        component.strip_prefix(PREFIX).is_some_and(|word| self.words.contains(word))
    }

    /// Returns whether requests use a component.
    pub(crate) fn is_in_request(&self, component: &str) -> bool {
        self.requests.contains(component)
    }

    /// Makes the components of answers keep members that the document does not name.
    pub(crate) fn keep_unknown_members(&self, schemas: &mut Value) {
        for name in &self.holders {
            if schemas[name]["additionalProperties"] == false {
                schemas[name]["additionalProperties"] = json!({});
            }
        }
    }

    fn replace_references(&self, schema: &mut Value) {
        let word = component_of(schema).filter(|name| self.replaced.contains(*name));
        if let Some(name) = word {
            schema["$ref"] = format!("#/components/schemas/{PREFIX}{name}").into();
            return;
        }
        match schema {
            Value::Object(members) => members.values_mut().for_each(|member| self.replace_references(member)),
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace_references(item)),
            _ => {}
        }
    }
}

/// The enumeration of requests whose words a component of open words repeats, if it has one: `Quality` of `OpenQuality`.
pub(crate) fn closed_words<'a>(document: &Value, name: &'a str) -> Option<&'a str> {
    let closed = name.strip_prefix(PREFIX)?;
    let schemas = &document["components"]["schemas"];
    (schemas[name].get(KEYWORD)? == schemas[closed].get("enum")?).then_some(closed)
}

/// Returns whether a schema is an enumeration of strings.
fn is_word(schema: &Value) -> bool {
    schema["type"] == "string" && schema["enum"].is_array()
}

/// Every component that can be reached from these parts of the document by references.
fn reachable_components<'a>(document: &'a Value, parts: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut pending: Vec<&str> = parts.flat_map(references).collect();
    while let Some(name) = pending.pop() {
        if found.insert(name.to_owned()) {
            pending.extend(references(&document["components"]["schemas"][name]));
        }
    }
    found
}

/// The components that a part of the document refers to.
fn references(part: &Value) -> Vec<&str> {
    let nested = match part {
        Value::Object(members) => members.values().flat_map(references).collect(),
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    };
    component_of(part).into_iter().chain(nested).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Value {
        let body = |name: &str| json!({"content": {"application/json": {"schema": reference(name)}}});
        json!({
            "paths": {"/x": {"post": {"requestBody": body("Wish"), "responses": {"200": body("Made"), "400": body("Fault")}}}},
            "components": {"schemas": {
                "Wish": {"properties": {"format": reference("Format"), "shared": reference("Shared")}},
                "Made": {"properties": {
                    "format": reference("OpenFormat"), "list": {"type": "array", "items": reference("Level")},
                    "object": reference("Constant"), "shared": reference("Shared"),
                }},
                "Fault": {"properties": {"code": reference("Code")}},
                "Shared": {"properties": {"format": reference("Format")}},
                "Format": {"type": "string", "enum": ["png", "jpeg"]},
                "OpenFormat": {"type": "string", KEYWORD: ["png", "jpeg"]},
                "Level": {"type": "string", KEYWORD: ["low", "high"]},
                "Constant": {"type": "string", "enum": ["made"]},
                "Code": {"type": "string", "enum": ["a", "b"]},
            }},
        })
    }

    fn reference(name: &str) -> Value {
        json!({"$ref": format!("#/components/schemas/{name}")})
    }

    #[test]
    fn declared_words_become_open_and_others_do_not() {
        let mut document = document();
        let words = OpenWords::declared(&document, "types");
        let names: Vec<String> = words.types().map(|(name, _)| name).collect();
        assert_eq!(names, ["OpenFormat", "OpenLevel"]);
        let before = document["components"]["schemas"].clone();
        words.apply(&mut document["components"]["schemas"]);
        let after = &document["components"]["schemas"];
        for name in ["Wish", "Shared", "Fault", "Format", "Constant", "Code"] {
            assert_eq!(after[name], before[name], "{name}");
        }
        let answer = &after["Made"]["properties"];
        assert_eq!((&answer["format"], &answer["list"]["items"]), (&reference("OpenFormat"), &reference("OpenLevel")));
        assert_eq!(after["Level"], json!({"type": "string", "enum": ["low", "high"]}));
        assert_eq!(
            (&after["OpenLevel"], &after["OpenFormat"]),
            (&json!({"type": "string"}), &json!({"type": "string"}))
        );
    }

    #[test]
    fn a_client_of_later_versions_has_open_words_also_in_shared_components() {
        let mut document = document();
        document["components"]["schemas"]["Shared"]["additionalProperties"] = false.into();
        document["components"]["schemas"]["Wish"]["additionalProperties"] = false.into();
        let words = OpenWords::of_answers(&document, "open");
        let types: Vec<_> = words.types().collect();
        assert_eq!(types[0], ("OpenConstant".to_owned(), "crate::wire::OpenWord<open::Constant>".to_owned()));
        let schemas = &mut document["components"]["schemas"];
        words.apply(schemas);
        words.keep_unknown_members(schemas);
        assert_eq!(schemas["Shared"]["properties"]["format"], reference("OpenFormat"));
        assert_eq!(schemas["Wish"]["properties"]["format"], reference("Format"));
        let is_strict = |name: &str| schemas[name]["additionalProperties"] == false;
        assert!(is_strict("Wish") && !is_strict("Shared"));
    }
}
