//! Checks every answer under `/v1` and `/admin/v1` that the kit's own client reads against `openapi/gateway.json` and
//! `openapi/admin.json`: status, headers, body and events.
//!
//! Only answers of gateways are checked, not those of fake upstreams. If an answer breaks off, its body is not checked.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::Value;

#[path = "../../drift/schema.rs"]
mod schema;

static CALLERS: LazyLock<ApiDocument> = LazyLock::new(|| ApiDocument::new(imagate::tables::OPENAPI));
static OPERATORS: LazyLock<ApiDocument> = LazyLock::new(|| ApiDocument::new(imagate::tables::ADMIN_OPENAPI));

/// Headers of HTTP itself, which the document does not declare.
const HTTP_HEADERS: [&str; 5] = ["connection", "content-length", "content-type", "date", "transfer-encoding"];
/// Larger bodies are not checked: that takes too long in a build without optimizations.
const MAX_CHECKED_BYTES: usize = 16 << 20;

/// A document, and the validators of the components that were needed so far.
#[derive(Debug)]
struct ApiDocument {
    value: Value,
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

/// The operation that a request asks for.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    document: &'static ApiDocument,
    name: String,
    /// `None` if the document has no such path or method.
    value: Option<&'static Value>,
}

// === impl Operation ===

impl Operation {
    /// The operation of a request; `None` if its path is not below `/v1/` or `/admin/v1/`.
    pub(crate) fn for_request(method: &str, path: &str) -> Option<Self> {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let document: &'static ApiDocument = if path.starts_with("/v1/") {
            &CALLERS
        } else if path.starts_with("/admin/v1/") {
            &OPERATORS
        } else {
            return None;
        };
        Some(Self { document, name: format!("{method} {path}"), value: document.find(method, path) })
    }

    /// Checks the status and the headers; panics if the document does not allow them.
    #[track_caller]
    pub(super) fn check_head(&self, status: u16, headers: &[(String, String)]) {
        let declared = &self.declared_answer(status)["headers"];
        for (name, value) in headers.iter().filter(|(name, _)| !HTTP_HEADERS.contains(&name.as_str())) {
            let header = self.document.resolve(&declared[name]);
            assert!(header.is_object(), "{} answered {status} with an undeclared header '{name}: {value}'", self.name);
            self.check_header(status, (name, value), &header["schema"]);
        }
        for (name, header) in declared.as_object().into_iter().flatten() {
            let is_there = headers.iter().any(|(sent, _)| sent == name);
            assert!(
                is_there || self.document.resolve(header)["required"] != true,
                "{} answered {status} without '{name}'",
                self.name
            );
        }
    }

    #[track_caller]
    fn check_header(&self, status: u16, (name, value): (&str, &str), schema: &Value) {
        let fits = match (schema["type"].as_str(), schema["format"].as_str()) {
            (Some("integer"), _) => value.parse::<i64>().is_ok_and(|number| {
                schema["minimum"].as_i64().is_none_or(|least| number >= least)
                    && schema["maximum"].as_i64().is_none_or(|most| number <= most)
            }),
            (_, Some("uuid")) => {
                value.len() == 36 && value.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
            }
            _ => true,
        };
        assert!(fits, "{} answered {status} with '{name}: {value}', and the document says {schema}", self.name);
    }

    /// Checks a whole body; one above [`MAX_CHECKED_BYTES`] is skipped.
    #[track_caller]
    pub(super) fn check_body(&self, status: u16, headers: &[(String, String)], body: &[u8]) {
        if body.len() > MAX_CHECKED_BYTES {
            return;
        }
        let kind =
            super::http::find_header(headers, "content-type").unwrap_or_default().split(';').next().unwrap_or_default();
        let schema = &self.declared_answer(status)["content"][kind]["schema"];
        let Some(component) = component(schema) else {
            panic!("{} answered {status} with an undeclared content type '{kind}'", self.name);
        };
        if kind == "text/event-stream" {
            let text = String::from_utf8_lossy(body);
            let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
            for event in data.filter_map(|data| serde_json::from_str::<Value>(data).ok()) {
                self.check_event(&event);
            }
            return;
        }
        match serde_json::from_slice(body) {
            Ok(value) => self.check(&format!("answered {status}"), component, &value),
            Err(error) => panic!("{} answered {status}: {error}: {:.300}", self.name, String::from_utf8_lossy(body)),
        }
    }

    /// Checks one event of a stream against the schema of its type.
    #[track_caller]
    pub(super) fn check_event(&self, event: &Value) {
        let kind = event["type"].as_str().unwrap_or_default();
        let union = component(&self.declared_answer(200)["content"]["text/event-stream"]["schema"]).expect("a stream");
        let union = &self.document.value["components"]["schemas"][union];
        let name = union["discriminator"]["mapping"][kind].as_str().and_then(|reference| reference.rsplit('/').next());
        match name {
            Some(name) => self.check(&format!("sent the event {kind}"), name, event),
            // Events of other tools are passed on as the upstream sends them.
            None => {
                assert!(self.name.ends_with("/v1/responses"), "{} sent an event of no known type: {kind}", self.name);
            }
        }
    }

    #[track_caller]
    fn check(&self, did: &str, component: &str, value: &Value) {
        let validator = self.document.validator(component);
        if validator.is_valid(value) {
            return;
        }
        let errors = validator.iter_errors(value).map(|error| format!("{}: {error:.200}", error.instance_path()));
        let errors: Vec<String> = errors.collect();
        panic!("{} {did}, which is no {component}:\n{}", self.name, errors.join("\n"));
    }

    /// The declaration of the document for this status. An address or a method that no operation has shares the
    /// declaration of errors.
    #[track_caller]
    fn declared_answer(&self, status: u16) -> &'static Value {
        match (status, self.value) {
            (200, Some(operation)) => self.document.resolve(&operation["responses"]["200"]),
            (400..=599, Some(operation)) if operation["responses"][status.to_string()].is_object() => {
                self.document.resolve(&operation["responses"][status.to_string()])
            }
            (404 | 405 | 426, _) | (400..=599, None) => {
                self.document.resolve(&self.document.value["components"]["responses"]["Error"])
            }
            _ => panic!("{} answered {status}, which the document does not have", self.name),
        }
    }
}

// === impl ApiDocument ===

impl ApiDocument {
    fn new(text: &str) -> Self {
        Self { value: serde_json::from_str(text).expect("the document is JSON"), validators: Mutex::default() }
    }

    fn find(&'static self, method: &str, path: &str) -> Option<&'static Value> {
        let fits = |template: &str| {
            let (template, path): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
            template.len() == path.len()
                && template.iter().zip(path).all(|(part, sent)| part.starts_with('{') || *part == sent)
        };
        let (_, item) = self.value["paths"].as_object()?.iter().find(|(template, _)| fits(template))?;
        item.get(method.to_lowercase())
    }

    fn resolve(&'static self, value: &'static Value) -> &'static Value {
        let target = value["$ref"].as_str().and_then(|reference| self.value.pointer(reference.trim_start_matches('#')));
        target.unwrap_or(value)
    }

    fn validator(&self, component: &str) -> Arc<Validator> {
        let mut validators = self.validators.lock().unwrap_or_else(PoisonError::into_inner);
        let known = validators.entry(component.to_owned());
        Arc::clone(known.or_insert_with(|| Arc::new(schema::validator(&self.value, component))))
    }
}

fn component(schema: &'static Value) -> Option<&'static str> {
    schema["$ref"].as_str()?.strip_prefix("#/components/schemas/")
}

#[test]
fn an_answer_that_differs_from_the_document_panics() {
    let head = |headers: &[(&str, &str)]| -> Vec<(String, String)> {
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let id = ("x-request-id", "0193527c-1f7a-4cc0-8000-000000000000");
    let models = Operation::for_request("GET", "/v1/models").expect("an operation");
    let json = head(&[id, ("content-type", "application/json")]);
    models.check_head(200, &json);
    models.check_body(200, &json, br#"{"object": "list", "data": []}"#);
    let images = Operation::for_request("POST", "/v1/images/generations?a=b").expect("an operation");
    let panic_message = |work: &dyn Fn()| {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).expect_err("a panic");
        panic.downcast_ref::<String>().expect("a text").clone()
    };
    let cases: [(&dyn Fn(), &str); 8] = [
        (
            &|| models.check_head(200, &head(&[id, ("x-mood", "good")])),
            "GET /v1/models answered 200 with an undeclared",
        ),
        (&|| models.check_head(200, &[]), "answered 200 without 'x-request-id'"),
        (&|| models.check_head(204, &json), "answered 204, which the document does not have"),
        (
            &|| models.check_head(429, &head(&[id, ("x-should-retry", "true"), ("retry-after", "61")])),
            "'retry-after: 61'",
        ),
        (&|| models.check_body(200, &json, br#"{"object": "list"}"#), "\"data\" is a required property"),
        (&|| models.check_body(404, &json, br#"{"error": {}}"#), "answered 404, which is no ErrorResponse"),
        (&|| models.check_body(200, &head(&[id, ("content-type", "text/html")]), b""), "undeclared content type"),
        (&|| images.check_event(&serde_json::json!({"type": "image_generation.begun"})), "an event of no known type"),
    ];
    for (work, expected) in cases {
        let text = panic_message(work);
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(Operation::for_request("GET", "/healthz").is_none());
    let me = Operation::for_request("GET", "/admin/v1/me").expect("an operation");
    let text = panic_message(&|| me.check_head(403, &json));
    assert!(text.contains("GET /admin/v1/me answered 403, which the document does not have"), "{text}");
}
