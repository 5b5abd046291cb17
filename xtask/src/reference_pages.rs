//! The content of the reference that the gateway serves at `/docs`: what its pages say about each operation and schema.
//!
//! The result is JSON, which the pages read into types of their own. Texts in Markdown are HTML in it.

mod example;
mod markdown;
mod schema_view;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use crate::api::Api;
use crate::document::{Document, Operation};
use crate::print::normalise;

/// The file with the content of the pages.
pub(crate) const OUTPUT: &str = "generated/reference.json";
/// The operations for which the playground is the form.
const PLAYGROUND_OPERATIONS: [&str; 3] = ["create_image", "edit_image", "estimate_image"];

/// The document of one API, as the pages describe it.
#[derive(Clone, Copy)]
struct ReferenceSource<'a> {
    api: &'a Api,
    document: &'a Document,
}

/// Returns the content of the pages of these APIs.
pub(crate) fn generate(apis: [(&Api, &Document); 2]) -> Result<String> {
    let references = apis.into_iter().map(|(api, document)| ReferenceSource { api, document }.to_json());
    let references = references.collect::<Result<Vec<_>>>()?;
    Ok(normalise(&format!("{:#}", Value::Array(references))))
}

/// The texts of a Markdown description as HTML.
fn description(value: &Value) -> String {
    markdown::to_html(value["description"].as_str().unwrap_or_default())
}

/// The answers of an operation: the status, the name, and the answer or a reference to it. An answer that several
/// operations refer to has one name.
fn responses<'a>(operation: &Operation<'a>) -> impl Iterator<Item = (&'a String, String, &'a Value)> {
    let id = operation.id;
    let responses = operation.value["responses"].as_object().into_iter().flatten();
    responses.map(move |(status, response)| {
        let shared = response["$ref"].as_str().and_then(|path| path.rsplit('/').next());
        let name = shared.map_or_else(|| format!("{id} {status}"), str::to_owned);
        (status, name, response)
    })
}

// === impl ReferenceSource ===

impl<'a> ReferenceSource<'a> {
    fn to_json(self) -> Result<Value> {
        let mut tags = Vec::new();
        for tag in self.document.value()["tags"].as_array().context("tags")? {
            let operations = self.document.operations()?;
            let operations = operations.iter().filter(|operation| operation.value["tags"][0] == tag["name"]);
            let operations: Vec<_> = operations.map(|operation| self.operation(operation)).collect();
            tags.push(json!({ "description": tag["description"], "operations": operations }));
        }
        let schemas = self.document.components()?.into_iter();
        let schemas: Map<String, Value> =
            schemas.map(|(name, schema)| (name.to_owned(), schema_view::schema(self, schema))).collect();
        let operations = self.document.operations()?;
        let responses = operations.iter().flat_map(|operation| responses(operation));
        let responses: Map<String, Value> =
            responses.map(|(_, name, response)| (name, self.response(response))).collect();
        Ok(json!({
            "name": self.api.page,
            "description": description(&self.document.value()["info"]),
            "tags": tags,
            "schemas": schemas,
            "responses": responses,
        }))
    }

    /// Follows a reference to its target; returns any other value as it is.
    fn resolve(self, value: &'a Value) -> &'a Value {
        let target = value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        target.and_then(|pointer| self.document.value().pointer(pointer)).unwrap_or(value)
    }

    fn operation(self, operation: &Operation<'a>) -> Value {
        let parameters = operation.value["parameters"].as_array().into_iter().flatten();
        let names = responses(operation).map(|(status, name, _)| (status.clone(), Value::from(name)));
        let has_playground = PLAYGROUND_OPERATIONS.contains(&operation.id);
        let prompt = &self.document.value()["components"]["schemas"]["Prompt"]["example"];
        json!({
            "id": operation.id,
            "method": operation.method.to_uppercase(),
            "path": operation.path,
            "summary": operation.value["summary"],
            "description": description(operation.value),
            "call": example::curl(self, operation),
            "prompt": has_playground.then_some(prompt),
            "parameters": parameters.map(|parameter| schema_view::parameter(self, parameter)).collect::<Vec<_>>(),
            "bodies": self.request_bodies(&operation.value["requestBody"]),
            "responses": names.collect::<Map<_, _>>(),
        })
    }

    fn request_bodies(self, holder: &'a Value) -> Vec<Value> {
        let body = |(content_type, media): (&'a String, &'a Value)| {
            json!({
                "content_type": content_type,
                "parts": schema_view::type_parts(self, &media["schema"]),
                "fields": schema_view::fields(self, self.resolve(&media["schema"])),
            })
        };
        holder["content"].as_object().into_iter().flatten().map(body).collect()
    }

    fn response(self, response: &'a Value) -> Value {
        let response = self.resolve(response);
        let headers = response["headers"].as_object().into_iter().flatten();
        let body = |(content_type, media): (&'a String, &'a Value)| {
            json!({
                "content_type": content_type,
                "parts": schema_view::type_parts(self, &media["schema"]),
                "example": example::text(self, &media["schema"]),
            })
        };
        json!({
            "description": description(response),
            "headers": headers.map(|(name, header)| schema_view::header(self, name, header)).collect::<Vec<_>>(),
            "bodies": response["content"].as_object().into_iter().flatten().map(body).collect::<Vec<_>>(),
        })
    }
}
