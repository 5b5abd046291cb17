//! Open words: the string enumerations of answers. Clients must still read an answer if a service returns a value that
//! the document does not list.
//!
//! In a request, an enumeration lists the values that the service accepts. In an answer, a value describes an image
//! that was made and paid for, so its type has to accept any string. The document uses one component for both; this
//! module gives the answers components of their own.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::document::component_of;

/// The prefix of the names of components for open words.
const PREFIX: &str = "Open";
/// Components of answers to which no schema refers, because the schema at their place allows any value.
const UNTYPED: [&str; 1] = ["ImageGenerationCall"];

/// The open words of a document.
#[derive(Debug, Default)]
pub(crate) struct OpenWords {
    /// The components that answers use and requests do not.
    answers: BTreeSet<String>,
    /// The string enumerations to which these components refer.
    words: BTreeSet<String>,
    /// The components that requests use.
    requests: BTreeSet<String>,
    /// The module with the types of the words.
    module: &'static str,
}

/// The components that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenComponents {
    /// Those of answers alone: a component that requests share has a type of the server, which is strict.
    Answers,
    /// Those of answers, and those that requests share with them. Their constants are open too, and they keep unknown
    /// members.
    AnswersAndShared,
}

// === impl OpenWords ===

impl OpenWords {
    /// `module` has the types of the words.
    pub(crate) fn from_document(document: &Value, open: OpenComponents, module: &'static str) -> Self {
        let items = || document["paths"].as_object().into_iter().flat_map(|paths| paths.values());
        let operations = || items().filter_map(Value::as_object).flat_map(|item| item.values());
        let requests = reachable_components(document, operations().map(|operation| &operation["requestBody"]));
        let schemas = &document["components"]["schemas"];
        let untyped = UNTYPED.iter().map(|name| &schemas[*name]);
        let answers = operations().map(|operation| &operation["responses"]["200"]).chain(untyped);
        let mut answers = reachable_components(document, answers);
        answers.extend(UNTYPED.iter().filter(|name| schemas[**name].is_object()).map(|name| (*name).to_owned()));
        answers.retain(|name| open == OpenComponents::AnswersAndShared || !requests.contains(name));
        let least = if open == OpenComponents::Answers { 2 } else { 1 };
        let words = answers.iter().flat_map(|name| references(&schemas[name]));
        let words = words.filter(|name| is_word(&schemas[name], least)).map(str::to_owned).collect();
        Self { answers, words, requests, module }
    }

    /// The name of each new component, and its Rust type.
    pub(crate) fn types(&self) -> impl Iterator<Item = (String, String)> {
        self.words
            .iter()
            .map(|name| (format!("{PREFIX}{name}"), format!("crate::wire::OpenWord<{}::{name}>", self.module)))
    }

    /// Adds the new components and makes the answers refer to them.
    pub(crate) fn apply(&self, schemas: &mut Value) {
        for name in &self.answers {
            self.replace_references(&mut schemas[name]);
        }
        for name in &self.words {
            schemas[format!("{PREFIX}{name}")] = json!({ "type": "string" });
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
        for name in &self.answers {
            if schemas[name]["additionalProperties"] == false {
                schemas[name]["additionalProperties"] = json!({});
            }
        }
    }

    fn replace_references(&self, schema: &mut Value) {
        let word = component_of(schema).filter(|name| self.words.contains(*name));
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

/// Returns whether a schema is an enumeration of at least this number of strings. An enumeration of one string is a
/// constant that identifies the kind of an object.
fn is_word(schema: &Value, least: usize) -> bool {
    schema["type"] == "string" && schema["enum"].as_array().is_some_and(|words| words.len() >= least)
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
                    "format": reference("Format"), "list": {"type": "array", "items": reference("Level")},
                    "object": reference("Constant"), "shared": reference("Shared"),
                }},
                "Fault": {"properties": {"code": reference("Code")}},
                "ImageGenerationCall": {"properties": {"status": reference("Status")}},
                "Shared": {"properties": {"format": reference("Format")}},
                "Format": {"type": "string", "enum": ["png", "jpeg"]},
                "Level": {"type": "string", "enum": ["low", "high"]},
                "Constant": {"type": "string", "enum": ["made"]},
                "Code": {"type": "string", "enum": ["a", "b"]},
                "Status": {"type": "string", "enum": ["begun", "done"]},
            }},
        })
    }

    fn reference(name: &str) -> Value {
        json!({"$ref": format!("#/components/schemas/{name}")})
    }

    #[test]
    fn words_of_answers_become_open_and_words_of_requests_do_not() {
        let mut document = document();
        let words = OpenWords::from_document(&document, OpenComponents::Answers, "types");
        let names: Vec<String> = words.types().map(|(name, _)| name).collect();
        assert_eq!(names, ["OpenFormat", "OpenLevel", "OpenStatus"]);
        let before = document["components"]["schemas"].clone();
        words.apply(&mut document["components"]["schemas"]);
        let after = &document["components"]["schemas"];
        for name in ["Wish", "Shared", "Fault", "Format", "Level", "Constant", "Code"] {
            assert_eq!(after[name], before[name], "{name}");
        }
        let answer = &after["Made"]["properties"];
        assert_eq!((&answer["format"], &answer["list"]["items"]), (&reference("OpenFormat"), &reference("OpenLevel")));
        assert_eq!((&answer["object"], &answer["shared"]), (&reference("Constant"), &reference("Shared")));
        assert_eq!(after["ImageGenerationCall"]["properties"]["status"], reference("OpenStatus"));
        assert_eq!(after["OpenLevel"], json!({"type": "string"}));
    }

    #[test]
    fn a_client_with_types_of_its_own_has_open_words_also_in_shared_components() {
        let mut document = document();
        document["components"]["schemas"]["Shared"]["additionalProperties"] = false.into();
        document["components"]["schemas"]["Wish"]["additionalProperties"] = false.into();
        let words = OpenWords::from_document(&document, OpenComponents::AnswersAndShared, "open");
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
