//! The documents of the public API and of the admin API, as this gateway serves them. They are public, like the reference
//! on the pages that is rendered from them, and need no API key.
//!
//! A document has the address of this gateway, and that of the public API what its settings and keys add. With `?canonical=1`, both
//! are those of the repository, byte for byte.

mod deployment_document;

use std::future::ready;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use dropshot::Body;
use http::{Method, Response};
use serde_json::Value;

use self::deployment_document::describe_deployment;
use super::skills::document_response;
use crate::gateway::config::{Config, DialectSet};
use crate::gateway::flow::{base_url, read_host};
use crate::gateway::front::{RequestHead, Route, boxed_answer};
use crate::gateway::registry::PublishedDocument;
use crate::gateway::{CurrentGateway, Gateway};
use crate::tables;

type DocumentRequest = RequestHead<CurrentGateway>;

/// The name under which answers are counted.
const OPERATION: &str = "openapi";
/// The query that asks for the document of the repository.
const CANONICAL: &str = "canonical=1";
/// The address of the gateway in the documents of the repository.
const DOCUMENT_ORIGIN: &str = "http://127.0.0.1:8080";

/// The documents of the repository with their entity tags.
static CANONICAL_GATEWAY: LazyLock<PublishedDocument> = LazyLock::new(|| publish(tables::OPENAPI));
static CANONICAL_ADMIN: LazyLock<PublishedDocument> = LazyLock::new(|| publish(tables::ADMIN_OPENAPI));
/// The last text that was made from settings, because making it takes longer than any other part of the answer.
static LAST_DESCRIPTION: Mutex<Option<GatewayDescription>> = Mutex::new(None);

/// The text of the document of the public API for one gateway, and its sources.
struct GatewayDescription {
    config: Weak<Config>,
    key_dialects: DialectSet,
    text: Arc<str>,
}

/// Returns the routes of the documents.
pub(super) fn routes() -> [Route<CurrentGateway>; 2] {
    [
        Route::new(OPERATION, Method::GET, "/openapi.json", |request| boxed_answer(ready(serve(&request.head)))),
        Route::new(OPERATION, Method::GET, "/admin/openapi.json", |request| {
            boxed_answer(ready(serve_admin(&request.head)))
        }),
    ]
}

fn serve(head: &DocumentRequest) -> Response<Body> {
    if is_canonical(head) {
        return document_response(head, &CANONICAL_GATEWAY);
    }
    let gateway = head.server().get();
    let document =
        with_origin(head, &gateway, &description(&gateway.settings().config, gateway.images.keys.dialects()));
    document_response(head, &document)
}

fn serve_admin(head: &DocumentRequest) -> Response<Body> {
    if is_canonical(head) {
        return document_response(head, &CANONICAL_ADMIN);
    }
    let document = with_origin(head, &head.server().get(), tables::ADMIN_OPENAPI);
    document_response(head, &document)
}

fn is_canonical(head: &DocumentRequest) -> bool {
    head.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == CANONICAL))
}

/// Returns the document of the public API with what these settings and dialects of keys add.
fn description(config: &Arc<Config>, key_dialects: DialectSet) -> Arc<str> {
    let mut last = LAST_DESCRIPTION.lock().unwrap_or_else(PoisonError::into_inner);
    let is_current = |last: &&GatewayDescription| {
        Weak::as_ptr(&last.config) == Arc::as_ptr(config) && last.key_dialects == key_dialects
    };
    if let Some(current) = last.as_ref().filter(is_current) {
        return Arc::clone(&current.text);
    }
    let text: Arc<str> = describe_deployment(tables::OPENAPI, config, key_dialects).into();
    *last = Some(GatewayDescription { config: Arc::downgrade(config), key_dialects, text: Arc::clone(&text) });
    text
}

/// Returns the document with the address of this gateway: `public_url`, or else the host of the request.
fn with_origin(head: &DocumentRequest, gateway: &Gateway, document: &str) -> PublishedDocument {
    let origin = base_url(gateway.settings().config.public_url.as_ref(), read_host(head.headers()).as_deref());
    if origin.is_empty() {
        return publish(document);
    }
    let escaped = Value::from(origin).to_string();
    publish(&document.replace(DOCUMENT_ORIGIN, escaped.trim_matches('"')))
}

fn publish(text: &str) -> PublishedDocument {
    PublishedDocument::new(text.as_bytes().to_vec())
}
