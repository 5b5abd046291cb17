//! The reference of the APIs: an overview, a page for each operation, and a page for each schema.
//!
//! `cargo xtask generate` turns the two documents into `generated/reference.json`, with their Markdown as HTML; this
//! module puts the content of a page into its template. The pages describe the version that runs, and need no session,
//! because the documents are public.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use askama::Template;
use askama::filters::HtmlSafe;
use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;

use super::http_messages::PageResponse;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use crate::tables::{ADMIN_OPENAPI, OPENAPI};

/// The place of the address of the gateway in an example.
const ORIGIN: &str = "{origin}";

/// The content of all pages. The file is compiled into the program, so a test finds one of another form.
static REFERENCE: LazyLock<Vec<ApiReference>> = LazyLock::new(|| {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/generated/reference.json"));
    serde_json::from_str(text).unwrap_or_else(|error| {
        tracing::error!(%error, "the pages of the reference cannot be read");
        Vec::new()
    })
});

/// One API.
#[derive(Deserialize)]
struct ApiReference {
    /// The name of the document in addresses.
    name: String,
    description: GeneratedHtml,
    tags: Vec<TagReference>,
    schemas: BTreeMap<String, SchemaReference>,
    responses: BTreeMap<String, ResponseReference>,
}

/// The operations with one tag.
#[derive(Deserialize)]
struct TagReference {
    description: String,
    operations: Vec<OperationReference>,
}

/// An operation of an API.
#[derive(Deserialize)]
struct OperationReference {
    id: String,
    /// The method in capital letters.
    method: String,
    path: String,
    summary: String,
    description: GeneratedHtml,
    /// The request as a command line, with [`ORIGIN`] in place of the address.
    call: String,
    /// The prompt of the example, if the playground can send the request.
    prompt: Option<String>,
    parameters: Vec<FieldReference>,
    bodies: Vec<BodyReference>,
    /// The names of the answers, by status.
    responses: BTreeMap<String, String>,
}

/// An answer, which many operations can share.
#[derive(Deserialize)]
struct ResponseReference {
    description: GeneratedHtml,
    headers: Vec<FieldReference>,
    bodies: Vec<BodyReference>,
}

/// The body of a request or an answer in one content type.
#[derive(Deserialize)]
struct BodyReference {
    content_type: String,
    /// The types of the body, with the links of their pages.
    parts: Vec<TypePart>,
    /// The fields of the body of a request.
    #[serde(default)]
    fields: Vec<FieldReference>,
    /// An example of the body of an answer, as JSON.
    example: Option<String>,
}

/// A schema: its type, its limits, its words and its fields.
#[derive(Deserialize)]
struct SchemaReference {
    description: GeneratedHtml,
    parts: Vec<TypePart>,
    limits: Vec<String>,
    /// The possible words, if the schema lists them.
    words: Vec<String>,
    fields: Vec<FieldReference>,
    /// An example, as JSON.
    example: Option<String>,
}

/// A field of an object, a parameter or a header.
#[derive(Deserialize)]
struct FieldReference {
    name: String,
    parts: Vec<TypePart>,
    #[serde(rename = "required")]
    is_required: bool,
    description: GeneratedHtml,
    limits: Vec<String>,
    words: Vec<String>,
}

/// A piece of the name of a type.
#[derive(Deserialize)]
struct TypePart {
    text: String,
    /// The path of the page of the schema that the piece names.
    link: Option<String>,
}

/// HTML that the generator made from the Markdown of a document. Only text that is compiled into the program is read
/// into this type, so a template may write it without escaping.
#[derive(Deserialize)]
struct GeneratedHtml(String);

impl HtmlSafe for GeneratedHtml {}

impl fmt::Display for GeneratedHtml {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[derive(Template)]
#[template(path = "docs.html", config = "src/gateway/pages/askama.toml")]
struct OverviewPage<'a> {
    page: PageLayout,
    documents: &'a [ApiReference],
    origin: &'a str,
}

#[derive(Template)]
#[template(path = "docs_operation.html", config = "src/gateway/pages/askama.toml")]
struct OperationPage<'a> {
    page: PageLayout,
    operation: &'a OperationReference,
    /// The request as a command line.
    call: String,
    responses: Vec<(&'a str, &'a ResponseReference)>,
}

#[derive(Template)]
#[template(path = "docs_schema.html", config = "src/gateway/pages/askama.toml")]
struct SchemaPage<'a> {
    page: PageLayout,
    document: &'a str,
    name: &'a str,
    view: &'a SchemaReference,
}

/// Shows the overview.
pub(super) fn show_overview(context: &PageContext<'_>) -> PageResponse {
    let template = OverviewPage { page: context.layout("docs"), documents: &REFERENCE, origin: context.site.origin() };
    render(StatusCode::OK, &template)
}

/// Returns a document as JSON.
pub(super) fn send_document(name: &str) -> Result<PageResponse, PageError> {
    let text = match name {
        "gateway.json" => OPENAPI,
        "admin.json" => ADMIN_OPENAPI,
        _ => return Err(PageError::NotFound),
    };
    Ok(PageResponse::new(StatusCode::OK, "application/json", Bytes::from_static(text.as_bytes())))
}

/// Shows the page of an operation or a schema.
pub(super) fn show_entry(context: &PageContext<'_>, document: &str, name: &str) -> Result<PageResponse, PageError> {
    let api = REFERENCE.iter().find(|api| api.name == document).ok_or(PageError::NotFound)?;
    let mut operations = api.tags.iter().flat_map(|tag| &tag.operations);
    if let Some(operation) = operations.find(|operation| operation.id == name) {
        let call = operation.call.replacen(ORIGIN, context.site.origin(), 1);
        let responses = operation.responses.iter();
        let responses = responses.filter_map(|(status, name)| Some((status.as_str(), api.responses.get(name)?)));
        let page = context.layout("docs");
        return Ok(render(StatusCode::OK, &OperationPage { page, operation, call, responses: responses.collect() }));
    }
    let view = api.schemas.get(name).ok_or(PageError::NotFound)?;
    Ok(render(StatusCode::OK, &SchemaPage { page: context.layout("docs"), document, name, view }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generated_reference_has_both_apis_and_the_address_in_each_example() {
        let names: Vec<_> = REFERENCE.iter().map(|api| api.name.as_str()).collect();
        assert_eq!(names, ["gateway", "admin"]);
        for operation in REFERENCE.iter().flat_map(|api| &api.tags).flat_map(|tag| &tag.operations) {
            assert_eq!(operation.call.matches(ORIGIN).count(), 1, "{}", operation.id);
        }
        for api in REFERENCE.iter() {
            let operations = api.tags.iter().flat_map(|tag| &tag.operations);
            for name in operations.flat_map(|operation| operation.responses.values()) {
                assert!(api.responses.contains_key(name), "{name}");
            }
        }
    }
}
