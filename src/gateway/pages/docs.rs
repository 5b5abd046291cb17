//! The reference of the APIs: an overview, a page for each operation, and a page for each schema.
//!
//! The pages are rendered from the two documents that are compiled into the program, so they describe the version that
//! runs. They need no session, because the documents are public.

mod api_document;
mod example;
mod markdown;
mod schema_view;

use askama::Template;
use http::StatusCode;
use serde_json::Value;

use super::http_messages::PageResponse;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use api_document::{ApiDocument, ApiOperation};
use markdown::MarkdownHtml;
use schema_view::{FieldView, SchemaView, TypePart};

/// The operations for which the playground is the form: each with the fields that a link passes on.
const PLAYGROUND_OPERATIONS: [&str; 3] = ["create_image", "edit_image", "estimate_image"];

#[derive(Template)]
#[template(path = "docs.html", config = "src/gateway/pages/askama.toml")]
struct OverviewPage {
    page: PageLayout,
    documents: Vec<DocumentSummary>,
    origin: String,
}

/// One API in the overview.
struct DocumentSummary {
    document: &'static ApiDocument,
    description: MarkdownHtml,
    tags: Vec<TagSummary>,
    schemas: Vec<&'static str>,
}

/// The operations with one tag.
struct TagSummary {
    description: &'static str,
    operations: Vec<ApiOperation>,
}

#[derive(Template)]
#[template(path = "docs_operation.html", config = "src/gateway/pages/askama.toml")]
struct OperationPage {
    page: PageLayout,
    operation: ApiOperation,
    description: MarkdownHtml,
    parameters: Vec<FieldView>,
    bodies: Vec<BodyView>,
    responses: Vec<ResponseView>,
    /// The request as a command line.
    call: String,
    /// True if the playground can send the request.
    has_playground: bool,
    prompt: &'static str,
}

#[derive(Template)]
#[template(path = "docs_schema.html", config = "src/gateway/pages/askama.toml")]
struct SchemaPage {
    page: PageLayout,
    document: &'static ApiDocument,
    name: &'static str,
    view: SchemaView,
}

/// The body of a request or an answer in one content type.
struct BodyView {
    content_type: &'static str,
    view: SchemaView,
    /// The types of the body, with the links of their pages.
    parts: Vec<TypePart>,
}

/// One answer of an operation.
struct ResponseView {
    status: &'static str,
    description: MarkdownHtml,
    headers: Vec<FieldView>,
    bodies: Vec<BodyView>,
}

/// Shows the overview.
pub(super) fn show_overview(context: &PageContext<'_>) -> PageResponse {
    let template = OverviewPage {
        page: context.layout("docs"),
        documents: ApiDocument::all().map(DocumentSummary::new).collect(),
        origin: context.site.origin().to_owned(),
    };
    render(StatusCode::OK, &template)
}

/// Returns a document as JSON.
pub(super) fn send_document(name: &str) -> Result<PageResponse, PageError> {
    let document = ApiDocument::find(name.strip_suffix(".json").unwrap_or_default()).ok_or(PageError::NotFound)?;
    Ok(PageResponse::new(StatusCode::OK, "application/json", bytes::Bytes::from_static(document.text.as_bytes())))
}

/// Shows the page of an operation or a schema.
pub(super) fn show_entry(context: &PageContext<'_>, document: &str, name: &str) -> Result<PageResponse, PageError> {
    let document = ApiDocument::find(document).ok_or(PageError::NotFound)?;
    if let Some(operation) = document.operation(name) {
        return Ok(render(StatusCode::OK, &OperationPage::new(context, document, operation)));
    }
    let (name, schema) = document.schema(name).ok_or(PageError::NotFound)?;
    let template = SchemaPage { page: context.layout("docs"), document, name, view: SchemaView::new(document, schema) };
    Ok(render(StatusCode::OK, &template))
}

fn bodies(document: &'static ApiDocument, holder: &'static Value) -> Vec<BodyView> {
    let content = holder["content"].as_object().into_iter().flatten();
    let body = |(content_type, media): (&'static String, &'static Value)| BodyView {
        content_type,
        view: SchemaView::new(document, document.resolve(&media["schema"])),
        parts: schema_view::type_parts(document, &media["schema"]),
    };
    content.map(body).collect()
}

// === impl DocumentSummary ===

impl DocumentSummary {
    fn new(document: &'static ApiDocument) -> Self {
        let tag = |(name, description): (&'static str, &'static str)| TagSummary {
            description,
            operations: document.operations().filter(|operation| operation.tag == name).collect(),
        };
        Self {
            document,
            description: MarkdownHtml::new(document.text_at("/info/description")),
            tags: document.tags().map(tag).collect(),
            schemas: document.schemas().map(|(name, _)| name).collect(),
        }
    }
}

// === impl OperationPage ===

impl OperationPage {
    fn new(context: &PageContext<'_>, document: &'static ApiDocument, operation: ApiOperation) -> Self {
        let parameters = operation.value["parameters"].as_array().into_iter().flatten();
        let responses = operation.value["responses"].as_object().into_iter().flatten();
        Self {
            page: context.layout("docs"),
            description: MarkdownHtml::new(operation.description()),
            parameters: parameters.map(|parameter| FieldView::of_parameter(document, parameter)).collect(),
            bodies: bodies(document, &operation.value["requestBody"]),
            responses: responses.map(|(status, value)| ResponseView::new(document, status, value)).collect(),
            call: example::curl(document, &operation, context.site.origin()),
            has_playground: PLAYGROUND_OPERATIONS.contains(&operation.id),
            prompt: document.text_at("/components/schemas/Prompt/example"),
            operation,
        }
    }
}

// === impl ResponseView ===

impl ResponseView {
    fn new(document: &'static ApiDocument, status: &'static str, response: &'static Value) -> Self {
        let response = document.resolve(response);
        let headers = response["headers"].as_object().into_iter().flatten();
        Self {
            status,
            description: MarkdownHtml::new(response["description"].as_str().unwrap_or_default()),
            headers: headers.map(|(name, header)| FieldView::of_header(document, name, header)).collect(),
            bodies: bodies(document, response),
        }
    }
}
