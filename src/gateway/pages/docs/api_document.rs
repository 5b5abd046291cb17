//! An API document, and its operations and schemas.

use std::sync::LazyLock;

use serde_json::Value;

use crate::tables::{ADMIN_OPENAPI, OPENAPI};

/// The document of one API. Its values live as long as the program, so that pages can borrow from them.
pub(super) struct ApiDocument {
    /// The name of the document in addresses.
    pub(super) name: &'static str,
    /// The key of the text that names the API.
    pub(super) title: &'static str,
    /// The environment variable with the secret of a caller, in examples.
    pub(super) secret_variable: &'static str,
    /// The document as it is served.
    pub(super) text: &'static str,
    root: Value,
}

/// An operation of an API.
pub(super) struct ApiOperation {
    pub(super) id: &'static str,
    /// The method in capital letters.
    pub(super) method: String,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    pub(super) tag: &'static str,
    /// The operation as the document has it.
    pub(super) value: &'static Value,
}

static DOCUMENTS: LazyLock<[ApiDocument; 2]> = LazyLock::new(|| {
    [
        ApiDocument::new("gateway", "docs.gateway", "IMAGATE_API_KEY", OPENAPI),
        ApiDocument::new("admin", "docs.admin", "IMAGATE_ADMIN_TOKEN", ADMIN_OPENAPI),
    ]
});

// === impl ApiDocument ===

impl ApiDocument {
    fn new(name: &'static str, title: &'static str, secret_variable: &'static str, text: &'static str) -> Self {
        // A document that is not JSON fails in the build.
        Self { name, title, secret_variable, text, root: serde_json::from_str(text).unwrap_or_default() }
    }

    /// All documents.
    pub(super) fn all() -> impl Iterator<Item = &'static Self> {
        DOCUMENTS.iter()
    }

    /// The document with this name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        Self::all().find(|document| document.name == name)
    }

    /// The text at this JSON pointer; empty if there is none.
    pub(super) fn text_at(&'static self, pointer: &str) -> &'static str {
        self.root.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Follows a reference to its target; returns any other value as it is.
    pub(super) fn resolve(&'static self, value: &'static Value) -> &'static Value {
        let target = value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        target.and_then(|pointer| self.root.pointer(pointer)).unwrap_or(value)
    }

    /// The tags of operations, with their descriptions.
    pub(super) fn tags(&'static self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let word = |tag: &'static Value, name: &str| tag[name].as_str().unwrap_or_default();
        self.root["tags"].as_array().into_iter().flatten().map(move |tag| (word(tag, "name"), word(tag, "description")))
    }

    /// All operations, in the order of the document.
    pub(super) fn operations(&'static self) -> impl Iterator<Item = ApiOperation> {
        let paths = self.root["paths"].as_object().into_iter().flatten();
        paths.flat_map(|(path, methods)| {
            let methods = methods.as_object().into_iter().flatten();
            methods.map(move |(method, value)| ApiOperation::new(path, method, value))
        })
    }

    /// The operation with this id.
    pub(super) fn operation(&'static self, id: &str) -> Option<ApiOperation> {
        self.operations().find(|operation| operation.id == id)
    }

    /// All schemas with their names.
    pub(super) fn schemas(&'static self) -> impl Iterator<Item = (&'static str, &'static Value)> {
        let schemas = self.root["components"]["schemas"].as_object().into_iter().flatten();
        schemas.map(|(name, schema)| (name.as_str(), schema))
    }

    /// The schema with this name.
    pub(super) fn schema(&'static self, name: &str) -> Option<(&'static str, &'static Value)> {
        self.schemas().find(|(known, _)| *known == name)
    }
}

// === impl ApiOperation ===

impl ApiOperation {
    fn new(path: &'static str, method: &str, value: &'static Value) -> Self {
        let word = |name: &str| value[name].as_str().unwrap_or_default();
        Self {
            id: word("operationId"),
            method: method.to_ascii_uppercase(),
            path,
            summary: word("summary"),
            tag: value["tags"][0].as_str().unwrap_or_default(),
            value,
        }
    }

    /// The description, in Markdown.
    pub(super) fn description(&self) -> &'static str {
        self.value["description"].as_str().unwrap_or_default()
    }
}
