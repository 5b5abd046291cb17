//! The schemas that dropshot shows, taken from the documents, and the resulting descriptions.
//!
//! A schema that is derived from a Rust type would lose bounds and patterns, so each type returns its component of the
//! document unchanged.

use dropshot::semver::Version;
use std::sync::LazyLock;

use schemars::r#gen::SchemaGenerator;
use schemars::schema::Schema;
use serde_json::Value;

use crate::tables;

/// The title of the description. The drift test does not compare the title.
const TITLE: &str = "imagate";

static COMPONENTS: LazyLock<SchemaComponents> = LazyLock::new(|| SchemaComponents::from_document(tables::OPENAPI));

/// The schema components of a document.
pub(super) struct SchemaComponents(Value);

/// Returns the component with this name, and defines the components that it refers to in the generator.
pub(crate) fn component(name: &str, generator: &mut SchemaGenerator) -> Schema {
    COMPONENTS.component(name, generator)
}

/// Returns the schema that `json`, a text in generated code, contains, and defines the components that it refers to.
pub(crate) fn schema(json: &str, generator: &mut SchemaGenerator) -> Schema {
    COMPONENTS.schema(json, generator)
}

// === impl SchemaComponents ===

impl SchemaComponents {
    /// Takes the components from this document.
    pub(super) fn from_document(document: &str) -> Self {
        let document: Result<Value, _> = serde_json::from_str(document);
        // `build.rs` already refuses a document that is not JSON. If it did not, the drift test would find no schema.
        Self(document.map(|mut document| document["components"]["schemas"].take()).unwrap_or_default())
    }

    pub(super) fn component(&self, name: &str, generator: &mut SchemaGenerator) -> Schema {
        self.schema_of(&self.0[name], generator)
    }

    pub(super) fn schema(&self, json: &str, generator: &mut SchemaGenerator) -> Schema {
        self.schema_of(&serde_json::from_str(json).unwrap_or_default(), generator)
    }

    fn schema_of(&self, value: &Value, generator: &mut SchemaGenerator) -> Schema {
        self.define_references(value, generator);
        serde_json::from_value(value.clone()).unwrap_or(Schema::Bool(true))
    }

    /// Defines every component to which the value refers, directly or indirectly, each of them once.
    fn define_references(&self, value: &Value, generator: &mut SchemaGenerator) {
        match value {
            Value::Object(members) => {
                let reference = members.get("$ref").and_then(Value::as_str);
                if let Some(name) = reference.and_then(|reference| reference.strip_prefix("#/components/schemas/")) {
                    self.define(name, generator);
                }
                members.values().for_each(|member| self.define_references(member, generator));
            }
            Value::Array(items) => {
                for item in items {
                    self.define_references(item, generator);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn define(&self, name: &str, generator: &mut SchemaGenerator) {
        if generator.definitions().contains_key(name) {
            return;
        }
        // The name is defined before its references are followed, because a component may refer to itself.
        generator.definitions_mut().insert(name.to_owned(), Schema::Bool(true));
        let schema = self.component(name, generator);
        generator.definitions_mut().insert(name.to_owned(), schema);
    }
}

/// Returns dropshot's description of the public API, for the drift test. `None` if dropshot rejects the API.
#[must_use]
pub fn served_description() -> Option<Value> {
    describe_api(&super::server::gateway_api_mod::stub_api_description().ok()?)
}

/// Returns dropshot's description of the admin API, for the drift test. `None` if dropshot rejects the API.
#[must_use]
pub fn served_admin_description() -> Option<Value> {
    describe_api(&super::admin::server::admin_api_mod::stub_api_description().ok()?)
}

fn describe_api(api: &dropshot::ApiDescription<dropshot::StubContext>) -> Option<Value> {
    let version = Version::new(1, 0, 0);
    api.openapi(TITLE, version).json().ok()
}
