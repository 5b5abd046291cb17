//! The document of the public API, as the gateway serves it. It is public, like the reference on the pages that is rendered
//! from it, and needs no API key.

use std::future::ready;
use std::sync::LazyLock;

use http::Method;

use super::skills::document_response;
use crate::gateway::CurrentGateway;
use crate::gateway::front::{Route, boxed_answer};
use crate::gateway::registry::PublishedDocument;
use crate::tables;

/// The document with its entity tag.
static DOCUMENT: LazyLock<PublishedDocument> =
    LazyLock::new(|| PublishedDocument::new(tables::OPENAPI.as_bytes().to_vec()));

/// Returns the route of the document.
pub(super) fn route() -> Route<CurrentGateway> {
    Route::new("openapi", Method::GET, "/openapi.json", |request| {
        boxed_answer(ready(document_response(&request.head, &DOCUMENT)))
    })
}
