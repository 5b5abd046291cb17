//! A schema as a page shows it: its type, its limits, its words and its fields.

use serde_json::Value;

use super::api_document::ApiDocument;
use super::example;
use super::markdown::MarkdownHtml;

/// A schema.
pub(super) struct SchemaView {
    pub(super) description: MarkdownHtml,
    pub(super) parts: Vec<TypePart>,
    pub(super) limits: Vec<String>,
    /// The possible words, if the schema lists them.
    pub(super) words: Vec<&'static str>,
    pub(super) fields: Vec<FieldView>,
    /// An example, as JSON.
    pub(super) example: Option<String>,
}

/// A field of an object, a parameter or a header.
pub(super) struct FieldView {
    pub(super) name: &'static str,
    pub(super) parts: Vec<TypePart>,
    pub(super) is_required: bool,
    pub(super) description: MarkdownHtml,
    pub(super) limits: Vec<String>,
    pub(super) words: Vec<&'static str>,
}

/// A piece of the name of a type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TypePart {
    pub(super) text: String,
    /// The path of the page of the schema that the piece names.
    pub(super) link: Option<String>,
}

/// Returns the name of the type of a schema, such as `array of Image`, with links to the schemas that it names.
pub(super) fn type_parts(document: &'static ApiDocument, schema: &'static Value) -> Vec<TypePart> {
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        return vec![TypePart { text: name.to_owned(), link: Some(format!("/docs/{}/{name}", document.name)) }];
    }
    if let Some(variants) = ["allOf", "oneOf", "anyOf"].iter().find_map(|key| schema[*key].as_array()) {
        let mut parts = Vec::new();
        for variant in variants {
            if !parts.is_empty() {
                parts.push(TypePart::plain(", "));
            }
            let is_null = |variant: &Value| variant["enum"].as_array().is_some_and(|words| words == &[Value::Null]);
            parts.extend(if is_null(variant) { vec![TypePart::plain("null")] } else { type_parts(document, variant) });
        }
        return parts;
    }
    match schema["type"].as_str() {
        Some("array") => {
            let mut parts = vec![TypePart::plain("array of ")];
            parts.extend(type_parts(document, &schema["items"]));
            parts
        }
        Some("object") if schema["additionalProperties"]["type"].is_string() => {
            let mut parts = vec![TypePart::plain("map of ")];
            parts.extend(type_parts(document, &schema["additionalProperties"]));
            parts
        }
        Some(word) => vec![TypePart::plain(word)],
        None => vec![TypePart::plain("any")],
    }
}

/// The limits of a schema, in signs that need no translation.
fn limits(schema: &Value) -> Vec<String> {
    let mut limits = Vec::new();
    let range = |min: &Value, max: &Value, of: &str| match (min.is_null(), max.is_null()) {
        (true, true) => None,
        (false, true) => Some(format!("{of} ≥ {min}")),
        (true, false) => Some(format!("{of} ≤ {max}")),
        (false, false) => Some(format!("{min} ≤ {of} ≤ {max}")),
    };
    limits.extend(range(&schema["minimum"], &schema["maximum"], "x"));
    limits.extend(range(&schema["minLength"], &schema["maxLength"], "length"));
    limits.extend(range(&schema["minItems"], &schema["maxItems"], "items"));
    limits.extend(schema["format"].as_str().filter(|format| !is_width(format)).map(str::to_owned));
    limits.extend(schema["pattern"].as_str().map(str::to_owned));
    if !schema["default"].is_null() {
        limits.push(format!("default {}", schema["default"]));
    }
    if schema["nullable"] == true {
        limits.push("or null".to_owned());
    }
    if !schema["x-extensible-enum"].is_null() {
        limits.push("or another word".to_owned());
    }
    limits
}

/// True for formats that only say how many bits a number has.
fn is_width(format: &str) -> bool {
    matches!(format, "uint8" | "uint16" | "uint32" | "uint64" | "int32" | "int64" | "double" | "float")
}

fn words(schema: &'static Value) -> Vec<&'static str> {
    let lists = ["enum", "x-extensible-enum"].iter().filter_map(|key| schema[*key].as_array());
    lists.flatten().filter_map(Value::as_str).collect()
}

fn description(schema: &'static Value) -> &'static str {
    schema["description"].as_str().unwrap_or_default()
}

// === impl SchemaView ===

impl SchemaView {
    pub(super) fn new(document: &'static ApiDocument, schema: &'static Value) -> Self {
        let required = &schema["required"];
        let is_required = |name: &str| required.as_array().is_some_and(|names| names.iter().any(|known| known == name));
        let fields = schema["properties"].as_object().into_iter().flatten();
        let field = |(name, value): (&'static String, &'static Value)| FieldView {
            is_required: is_required(name),
            ..FieldView::new(document, name, value)
        };
        let mut fields: Vec<_> = fields.map(field).collect();
        fields.sort_by_key(|field| !field.is_required);
        Self {
            description: MarkdownHtml::new(description(schema)),
            parts: type_parts(document, schema),
            limits: limits(schema),
            words: words(schema),
            fields,
            example: example::of_schema(document, schema, 0).map(|value| format!("{value:#}")),
        }
    }
}

// === impl FieldView ===

impl FieldView {
    fn new(document: &'static ApiDocument, name: &'static str, schema: &'static Value) -> Self {
        // A field that describes a named schema in its own words refers to it inside of a list with one entry.
        let inner = ["allOf", "anyOf"].iter().find_map(|key| schema[*key].get(0)).unwrap_or(schema);
        let target = document.resolve(inner);
        let mut all_limits = limits(target);
        all_limits.extend(limits(schema).into_iter().filter(|_| !std::ptr::eq(target, schema)));
        let text = if description(schema).is_empty() { description(target) } else { description(schema) };
        Self {
            name,
            parts: type_parts(document, schema),
            is_required: false,
            description: MarkdownHtml::new(text),
            limits: all_limits,
            words: words(target),
        }
    }

    /// A parameter of an operation.
    pub(super) fn of_parameter(document: &'static ApiDocument, parameter: &'static Value) -> Self {
        let parameter = document.resolve(parameter);
        let name = parameter["name"].as_str().unwrap_or_default();
        Self {
            is_required: parameter["required"] == true,
            description: MarkdownHtml::new(description(parameter)),
            ..Self::new(document, name, &parameter["schema"])
        }
    }

    /// A header of an answer.
    pub(super) fn of_header(document: &'static ApiDocument, name: &'static str, header: &'static Value) -> Self {
        let header = document.resolve(header);
        Self {
            is_required: header["required"] == true,
            description: MarkdownHtml::new(description(header)),
            ..Self::new(document, name, &header["schema"])
        }
    }
}

// === impl TypePart ===

impl TypePart {
    fn plain(text: &str) -> Self {
        Self { text: text.to_owned(), link: None }
    }
}
