//! An OpenAPI document: as JSON for the generators of this crate, and typed for progenitor.
//!
//! This module checks the rules of this project for documents: a construct for which a generator would silently write
//! wrong code is an error that names its location.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use openapiv3::OpenAPI;
use serde_json::{Map, Value, json};

use crate::{open_words, progenitor_copy};

/// The methods that an OpenAPI path item can carry, in the order in which operations are listed.
const METHODS: [&str; 6] = ["get", "head", "post", "put", "patch", "delete"];
/// The media types of request bodies that the generators of this crate support.
const BODIES: [&str; 2] = ["application/json", "multipart/form-data"];
/// The extension that marks the component of a pixel size.
const SIZE_MARK: &str = "x-imagate-size";
/// The extension that marks a component whose values depend on the image model: an operator can add models with others.
pub(crate) const MODEL_MARK: &str = "x-imagate-by-model";
/// The parts of bodies without a type that the SDK takes or returns.
const SDK_PARTS: [&str; 7] = [
    "ImageAction",
    "ImageUsage",
    "OpenOutputFormat",
    "ResolvedBackground",
    "ResolvedQuality",
    "ResponseToolUsage",
    "ResponseUsage",
];
/// The extension that lists the members of a request that stay on disk, and are read in pieces.
const DISK_MARK: &str = "x-imagate-on-disk";
/// The format of a component whose values are secret.
const SECRET_FORMAT: &str = "password";

/// A document that follows the rules of this project.
#[derive(Clone, Debug)]
pub struct Document {
    value: Value,
}

/// One operation of the document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) id: &'a str,
    /// In lower case, as in the document.
    pub(crate) method: &'static str,
    pub(crate) path: &'a str,
    pub(crate) value: &'a Value,
}

/// The kind of a component for which `src/` has a type written by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandWrittenType {
    /// An integer from the first to the second bound, inclusive.
    Bounded(i64, i64),
    /// A pixel size or `auto`.
    Size,
    /// A text that is never printed.
    Secret,
    /// A text whose form depends on the image model.
    Text,
}

// === impl Document ===

impl Document {
    /// Reads a document and checks it against the rules of this project.
    ///
    /// # Errors
    ///
    /// The text is not JSON, not OpenAPI 3.0, or breaks a rule of this project.
    pub fn parse(text: &str) -> Result<Self> {
        let document = Self { value: serde_json::from_str(text)? };
        let version = document.value["openapi"].as_str().unwrap_or_default();
        ensure!(version.starts_with("3.0."), "openapi: expected 3.0.x, found '{version}'");
        document.check_components()?;
        document.check_headers()?;
        document.check_operations()?;
        Ok(document)
    }

    /// The unchanged document.
    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// A copy for progenitor, after `edit` has changed it.
    pub(crate) fn to_openapi(&self, edit: impl FnOnce(&mut Value)) -> Result<OpenAPI> {
        let mut value = self.value.clone();
        progenitor_copy::lower(&mut value);
        edit(&mut value);
        serde_json::from_value(value).context("as OpenAPI 3.0")
    }

    /// The schema components, sorted by name.
    pub(crate) fn components(&self) -> Result<Vec<(&str, &Value)>> {
        let schemas = self.value["components"]["schemas"].as_object().context("components.schemas")?;
        let mut schemas: Vec<_> = schemas.iter().map(|(name, schema)| (name.as_str(), schema)).collect();
        schemas.sort_by_key(|(name, _)| *name);
        Ok(schemas)
    }

    /// The names of the components that a program reads or writes as JSON: those that the request or the answers of an
    /// operation refer to, directly or through others, and parts of other bodies that the SDK uses. The body of an
    /// operation that takes a form is read part by part, and events are written while they arrive, so neither has types.
    pub(crate) fn typed_components(&self) -> Result<BTreeSet<&str>> {
        let is_there = |name: &&str| self.value["components"]["schemas"].get(*name).is_some();
        let mut names = BTreeSet::new();
        SDK_PARTS.into_iter().filter(is_there).for_each(|name| self.add_component(name, &mut names));
        // Messages that the gateway sends.
        self.add_referred(&self.value["x-webhooks"], &mut names);
        let passed = self.passed_components()?;
        for operation in self.operations()? {
            let body = if operation.takes_form() { None } else { operation.request_component() };
            let components = self.answers(&operation).chain(body).filter(|name| !passed.contains(name));
            components.for_each(|name| self.add_component(name, &mut names));
            for parameter in operation.value["parameters"].as_array().into_iter().flatten() {
                self.add_referred(parameter, &mut names);
            }
        }
        Ok(names)
    }

    /// The names of the components that pass through the gateway in pieces: the answer of an operation that may be a
    /// stream. They have no type with members.
    pub(crate) fn passed_components(&self) -> Result<BTreeSet<&str>> {
        let mut names = BTreeSet::new();
        for operation in self.operations()? {
            names.extend(operation.answer_component().filter(|_| operation.streams()));
        }
        Ok(names)
    }

    /// The components of the JSON bodies that handlers take and return.
    pub(crate) fn bodies(&self) -> Result<BTreeSet<&str>> {
        let mut names = BTreeSet::new();
        for operation in self.operations()? {
            names.extend(if operation.takes_form() { None } else { operation.request_component() });
            names.extend(self.answers(&operation));
        }
        Ok(names)
    }

    /// The components of the JSON answers of an operation.
    fn answers<'a>(&'a self, operation: &Operation<'a>) -> impl Iterator<Item = &'a str> {
        let answers = operation.value["responses"].as_object().into_iter().flat_map(Map::values);
        answers.map(|answer| self.resolve_answer(answer)).filter_map(json_component)
    }

    /// The schemas of [`Document::typed_components`], sorted by name.
    pub(crate) fn typed_schemas(&self) -> Result<Vec<(&str, &Value)>> {
        let typed = self.typed_components()?;
        Ok(self.components()?.into_iter().filter(|(name, _)| typed.contains(name)).collect())
    }

    /// The answer itself, or the one in `components` that it refers to.
    fn resolve_answer<'a>(&'a self, answer: &'a Value) -> &'a Value {
        let name = answer["$ref"].as_str().and_then(|path| path.strip_prefix("#/components/responses/"));
        name.map_or(answer, |name| &self.value["components"]["responses"][name])
    }

    /// Members that stay on disk have no types.
    fn add_component<'a>(&'a self, name: &'a str, names: &mut BTreeSet<&'a str>) {
        if !names.insert(name) {
            return;
        }
        let schema = &self.value["components"]["schemas"][name];
        let on_disk = members_on_disk(schema);
        if on_disk.is_empty() {
            return self.add_referred(schema, names);
        }
        let properties = schema["properties"].as_object().into_iter().flatten();
        let in_memory = properties.filter(|(name, _)| !on_disk.contains(&name.as_str()));
        in_memory.for_each(|(_, member)| self.add_referred(member, names));
    }

    /// Of a union, the type is that of its last component.
    fn add_referred<'a>(&'a self, schema: &'a Value, names: &mut BTreeSet<&'a str>) {
        if let Some(name) = union_stand_in(schema) {
            return self.add_component(name, names);
        }
        component_of(schema).into_iter().for_each(|name| self.add_component(name, names));
        let members = schema.as_object().into_iter().flat_map(Map::values);
        let elements = schema.as_array().into_iter().flatten();
        members.chain(elements).for_each(|part| self.add_referred(part, names));
    }

    /// The operations, sorted by path and then in the order of [`METHODS`].
    pub(crate) fn operations(&self) -> Result<Vec<Operation<'_>>> {
        let paths = self.value["paths"].as_object().context("paths")?;
        let mut operations = Vec::new();
        for (path, item) in paths {
            for method in METHODS {
                operations.extend(Operation::read(path, method, item)?);
            }
        }
        operations.sort_by_key(|operation| operation.path);
        Ok(operations)
    }

    /// The value of the limit with this name in `x-imagate-limits`.
    pub(crate) fn limit(&self, name: &str) -> Option<u64> {
        let rows = self.value["x-imagate-limits"].as_array()?;
        rows.iter().find(|row| row["name"] == name)?["value"].as_u64()
    }

    fn check_components(&self) -> Result<()> {
        for (name, schema) in self.components()? {
            let is_plain = name.starts_with(|first: char| first.is_ascii_uppercase())
                && name.chars().all(|letter| letter.is_ascii_alphanumeric());
            ensure!(is_plain, "component '{name}': expected a name like 'ImageCount'");
            check_nullable(name, schema)?;
            self.check_open_words(name, schema)?;
            check_inline(name, schema)?;
        }
        Ok(())
    }

    /// Checks that a component of open words has the words of the enumeration that its name states.
    fn check_open_words(&self, name: &str, schema: &Value) -> Result<()> {
        let Some(closed) = name.strip_prefix(open_words::PREFIX) else { return Ok(()) };
        let words = &self.value["components"]["schemas"][closed]["enum"];
        ensure!(schema[open_words::KEYWORD] == *words, "component '{name}': its words are not those of '{closed}'");
        Ok(())
    }

    /// Checks that header parameters, and no others, stand in `components.parameters`, and that they are optional: the
    /// generated server leaves them to the handlers.
    fn check_headers(&self) -> Result<()> {
        for (name, parameter) in self.value["components"]["parameters"].as_object().into_iter().flatten() {
            let is_optional_header = parameter["in"] == "header" && parameter["required"] != true;
            ensure!(is_optional_header, "parameter '{name}': expected an optional header");
        }
        for operation in self.operations()? {
            let is_inline = operation.parameters("header").next().is_some();
            ensure!(!is_inline, "{}: a header parameter must stand in `components.parameters`", operation.id);
        }
        Ok(())
    }

    fn check_operations(&self) -> Result<()> {
        for operation in self.operations()? {
            if let Some(unsupported) = operation.request_types().iter().find(|kind| !BODIES.contains(kind)) {
                bail!("{}: no generator for a request body of {unsupported}", operation.id);
            }
        }
        Ok(())
    }
}

// === impl Operation ===

impl<'a> Operation<'a> {
    /// The operation of a path item, if it has this method.
    fn read(path: &'a str, method: &'static str, item: &'a Value) -> Result<Option<Self>> {
        let Some(value) = item.get(method) else { return Ok(None) };
        let id = value["operationId"].as_str().with_context(|| format!("{method} {path}: no operationId"))?;
        Ok(Some(Self { id, method, path, value }))
    }

    /// The content types of the request body, in the order of the document.
    pub(crate) fn request_types(&self) -> Vec<&'a str> {
        content(&self.value["requestBody"]).map(|(name, _)| name).collect()
    }

    /// Returns whether the body may be a form, which progenitor cannot generate.
    pub(crate) fn takes_form(&self) -> bool {
        self.request_types().contains(&"multipart/form-data")
    }

    /// Returns whether the answer may be a stream of events.
    pub(crate) fn streams(&self) -> bool {
        content(&self.value["responses"]["200"]).any(|(name, _)| name == "text/event-stream")
    }

    /// The component of the JSON request body.
    pub(crate) fn request_component(&self) -> Option<&'a str> {
        json_component(&self.value["requestBody"])
    }

    /// The component of the JSON answer of the 200.
    pub(crate) fn answer_component(&self) -> Option<&'a str> {
        json_component(&self.value["responses"]["200"])
    }

    /// The parameters at `location`: `path` or `query`. Headers are references; see [`header_reference`].
    pub(crate) fn parameters(&self, location: &'static str) -> impl Iterator<Item = &'a Value> {
        let parameters = self.value["parameters"].as_array().into_iter().flatten();
        parameters.filter(move |parameter| parameter["in"] == location)
    }
}

/// Returns the name of the component that a parameter of an operation refers to. These components are headers.
pub(crate) fn header_reference(parameter: &Value) -> Option<&str> {
    parameter["$ref"].as_str()?.strip_prefix("#/components/parameters/")
}

/// Returns the members of a request that stay on disk.
pub(crate) fn members_on_disk(schema: &Value) -> Vec<&str> {
    schema[DISK_MARK].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Checks the inline parts of a schema: their generated types would lose a maximum or the name of an enumeration.
fn check_inline(path: &str, schema: &Value) -> Result<()> {
    let parts = schema["properties"].as_object().into_iter().flat_map(Map::iter);
    let parts = parts.map(|(name, part)| (name.as_str(), part));
    for (name, part) in parts.chain(schema.get("items").map(|items| ("items", items))) {
        let location = format!("{path}.{name}");
        let has_maximum = part["type"] == "integer" && part.get("maximum").is_some();
        ensure!(!has_maximum, "{location}: an integer with a maximum must be a named component");
        // An enumeration of one value is a constant that identifies an event.
        let choices = part["enum"].as_array().map_or(0, Vec::len);
        ensure!(choices <= 1, "{location}: an enumeration must be a named component");
        check_inline(&location, part)?;
    }
    Ok(())
}

/// Checks that `nullable` stands beside `type`, where alone it has an effect, and that no `allOf` takes it back.
fn check_nullable(path: &str, schema: &Value) -> Result<()> {
    match schema {
        Value::Object(members) => {
            let has_effect = members.contains_key("type") && !members.contains_key("allOf");
            // A member named `nullable` may also be a property, whose value is a schema.
            let is_keyword = members.get("nullable").is_some_and(Value::is_boolean);
            ensure!(!is_keyword || has_effect, "{path}: `nullable` must stand beside `type`, and not beside `allOf`");
            members.iter().try_for_each(|(name, member)| check_nullable(&format!("{path}.{name}"), member))
        }
        Value::Array(items) => items.iter().try_for_each(|item| check_nullable(path, item)),
        _ => Ok(()),
    }
}

/// The type written by hand for a component, if it is of that kind.
pub(crate) fn hand_written_type(schema: &Value) -> Option<HandWrittenType> {
    if schema.get(SIZE_MARK).is_some() {
        return Some(HandWrittenType::Size);
    }
    if schema["format"] == SECRET_FORMAT {
        return Some(HandWrittenType::Secret);
    }
    if schema.get(MODEL_MARK).is_some() && schema.get("enum").is_none() {
        return Some(HandWrittenType::Text);
    }
    if schema["type"] != "integer" {
        return None;
    }
    Some(HandWrittenType::Bounded(schema["minimum"].as_i64()?, schema["maximum"].as_i64()?))
}

/// Returns whether a schema allows `null` and nothing else. An `anyOf` of a component and this schema is the nullable
/// component.
pub(crate) fn is_null_choice(schema: &Value) -> bool {
    schema["enum"] == json!([null])
}

/// The component that stands in generated Rust types for a union: its last choice, which accepts the values of the
/// others.
pub(crate) fn union_stand_in(schema: &Value) -> Option<&str> {
    component_of(schema["anyOf"].as_array()?.last()?)
}

/// The component that a schema refers to.
pub(crate) fn component_of(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/components/schemas/")
}

/// The entries of `content` of a request body or response: media type and value.
fn content(holder: &Value) -> impl Iterator<Item = (&str, &Value)> {
    holder["content"].as_object().into_iter().flatten().map(|(name, content)| (name.as_str(), content))
}

fn json_component(holder: &Value) -> Option<&str> {
    let (_, json) = content(holder).find(|(name, _)| *name == "application/json")?;
    component_of(&json["schema"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(components: &Value) -> String {
        let document = json!({ "openapi": "3.0.3", "paths": {}, "components": components });
        Document::parse(&document.to_string()).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn a_nullable_that_has_no_effect_is_refused() {
        let size = json!({ "nullable": true, "allOf": [{ "$ref": "#/components/schemas/Size" }] });
        let expected = "Pet.properties.size: `nullable` must stand beside `type`, and not beside `allOf`";
        assert_eq!(refusal(&json!({ "schemas": { "Pet": { "properties": { "size": size } } } })), expected);
        let mut typed = size;
        typed["type"] = json!("string");
        assert_eq!(refusal(&json!({ "schemas": { "Pet": { "properties": { "size": typed } } } })), expected);
    }

    #[test]
    fn open_words_that_differ_from_those_of_requests_are_refused() {
        let open = json!({ "type": "string", "x-extensible-enum": ["small"] });
        let size = json!({ "type": "string", "enum": ["small", "large"] });
        let expected = "component 'OpenSize': its words are not those of 'Size'";
        assert_eq!(refusal(&json!({ "schemas": { "OpenSize": open, "Size": size } })), expected);
    }

    #[test]
    fn a_header_that_is_required_or_inline_is_refused() {
        let required = json!({ "in": "header", "name": "x-mood", "required": true });
        let expected = "parameter 'Mood': expected an optional header";
        assert_eq!(refusal(&json!({ "schemas": {}, "parameters": { "Mood": required } })), expected);
        let path =
            json!({ "get": { "operationId": "list_pets", "parameters": [{ "in": "header", "name": "x-mood" }] } });
        let document = json!({ "openapi": "3.0.3", "paths": { "/pets": path }, "components": { "schemas": {} } });
        let refused = Document::parse(&document.to_string()).map(|_| ()).unwrap_err().to_string();
        assert_eq!(refused, "list_pets: a header parameter must stand in `components.parameters`");
    }
}
