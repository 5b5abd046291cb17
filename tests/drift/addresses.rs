//! Each registered route is an operation of a document or is listed here with a reason, and each address on a page has
//! a route.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use crate::prose::page_texts;
use crate::recording::{SERVED_ANSWERS, registered_routes};
use crate::{admin_document, assert_mentions, assert_no_difference, document};

/// Addresses that no document has, if they need a key, and the reason. One that ends with `*` stands for all that begin
/// like it.
const OTHERS: [(&str, bool, &str); 31] = [
    ("/", false, "the first page"),
    ("/.well-known/agent-skills/index.json", false, "the published skills"),
    ("/accounts/*", false, "a page, which asks for a session"),
    ("/admin/openapi.json", false, "the document itself"),
    ("/alerts/*", false, "a page, which asks for a session"),
    ("/assets/*", false, "the files of the pages"),
    ("/audit/*", false, "a page, which asks for a session"),
    ("/docs/*", false, "the reference"),
    ("/groups/*", false, "a page, which asks for a session"),
    ("/healthz", false, "health"),
    ("/invitation/*", false, "a page whose address is the secret"),
    ("/keys/*", false, "a page, which asks for a session"),
    ("/mcp", true, "agents (MCP): docs/mcp.md"),
    ("/openai/*", true, "the dialect `azure`: docs/dialects.md"),
    ("/openapi.json", false, "the document itself"),
    ("/people/*", false, "a page, which asks for a session"),
    ("/preferences/*", false, "a page, which asks for a session"),
    ("/prices/*", false, "a page, which asks for a session"),
    ("/profile/*", false, "a page, which asks for a session"),
    ("/readyz", false, "health"),
    ("/records.csv/*", false, "a page, which asks for a session"),
    ("/records/*", false, "a page, which asks for a session"),
    ("/setup/*", false, "a page whose address is the secret"),
    ("/sign-in/*", false, "the sign-in itself"),
    ("/sign-out/*", false, "the end of a session"),
    ("/skills/*", false, "the published skills"),
    ("/start/*", false, "a page, which asks for a session"),
    ("/studio/*", false, "a page, which asks for a session"),
    ("/usage.csv/*", false, "a page, which asks for a session"),
    ("/usage/*", false, "a page, which asks for a session"),
    ("/v1/images/files/*", false, "the dialect `url`: the address is the secret"),
];

/// Addresses of pages that are no routes of the main listener: of the other listener, relative to a base URL, and of
/// files.
const NO_ROUTES: [&str; 10] = [
    "/.well-known/openid-configuration",
    "/etc/*",
    "/images/edits",
    "/metrics",
    "/proc/*",
    "/run/*",
    "/tmp",
    "/usr/*",
    "/v2",
    "/var/*",
];

/// An address in a code span, with or without a method.
static ADDRESS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"`(?:(GET|HEAD|POST|PUT|PATCH|DELETE) )?(/[A-Za-z0-9_.{}/-]*)`").expect("a pattern"));

/// The operations of the documents, as `METHOD path`.
fn documented(documents: &[Value]) -> BTreeSet<String> {
    let paths = documents.iter().filter_map(|document| document["paths"].as_object()).flatten();
    let routes = paths.flat_map(|(path, item)| {
        let methods = item.as_object().into_iter().flat_map(Map::keys);
        methods.map(move |method| format!("{} {path}", method.to_uppercase()))
    });
    routes.collect()
}

fn is_listed(path: &str, listed: &str) -> bool {
    listed.strip_suffix('*').map_or(path == listed, |start| path.starts_with(start))
}

/// One line for each operation without a route, and each route that is neither an operation nor listed.
fn route_differences(documents: &[Value], routes: &BTreeSet<String>) -> Vec<String> {
    let documented = documented(documents);
    let absent = documented.difference(routes).map(|route| format!("{route}: only in a document"));
    let mut lines: Vec<String> = absent.collect();
    let path = |route: &str| route.split_once(' ').map_or_else(String::new, |(_, path)| path.to_owned());
    let unknown = routes
        .difference(&documented)
        .filter(|route| !OTHERS.iter().any(|(listed, ..)| is_listed(&path(route), listed)));
    lines.extend(unknown.map(|route| format!("{route}: only in the code")));
    let unused = OTHERS.iter().filter(|(listed, ..)| !routes.iter().any(|route| is_listed(&path(route), listed)));
    lines.extend(unused.map(|(listed, ..)| format!("{listed}: no longer a route")));
    lines
}

/// One line for each route without a document that is answered with 401 and needs no key by the list, or the other way
/// round.
fn key_differences<'a>(statuses: impl Iterator<Item = (&'a String, &'a u16)>) -> Vec<String> {
    let mut lines = Vec::new();
    for (route, status) in statuses {
        let path = route.split_once(' ').map_or("", |(_, path)| path);
        let listed = OTHERS.iter().find(|(listed, ..)| is_listed(path, listed));
        if let Some((_, needs_key, _)) = listed.filter(|(_, needs_key, _)| *needs_key != (*status == 401)) {
            lines.push(format!("{route}: status {status} without a key, but the list has {needs_key}"));
        }
    }
    lines
}

/// One line for each address on a page that no route has.
fn address_differences(pages: &[(String, String)], routes: &BTreeSet<String>) -> Vec<String> {
    let mut lines = Vec::new();
    for (page, text) in pages {
        for found in ADDRESS.captures_iter(text) {
            let (method, path) = (found.get(1).map(|method| method.as_str()), &found[2]);
            let has_route = routes.iter().any(|route| {
                let (of_route, template) = route.split_once(' ').unwrap_or_default();
                method.is_none_or(|method| method == of_route) && fits(path, template, method.is_none())
            });
            if !has_route && !NO_ROUTES.iter().any(|listed| is_listed(path, listed)) {
                lines.push(format!("{page}: {} has no route", &found[0]));
            }
        }
    }
    lines
}

/// Returns whether a path of a page is one of a route, or the beginning of one if that is allowed.
fn fits(path: &str, template: &str, may_be_beginning: bool) -> bool {
    let is_parameter = |part: &str| part.starts_with('{') || part == "*";
    let (parts, templates): (Vec<&str>, Vec<&str>) = (path.split('/').collect(), template.split('/').collect());
    let has_rest = templates.last().is_some_and(|last| last.contains(":.*") || *last == "*");
    let same = parts
        .iter()
        .zip(&templates)
        .all(|(part, template)| part.is_empty() || part == template || is_parameter(template));
    same && (parts.len() == templates.len()
        || has_rest && parts.len() + 1 >= templates.len()
        || may_be_beginning && parts.len() <= templates.len())
}

fn routes() -> BTreeSet<String> {
    registered_routes().collect()
}

#[test]
fn each_route_is_an_operation_or_has_a_reason() {
    assert_no_difference(&route_differences(&[document(), admin_document()], &routes()));
}

#[test]
fn each_route_without_a_document_demands_a_key_as_listed() {
    assert_no_difference(&key_differences(SERVED_ANSWERS.statuses_without_key.iter()));
}

#[test]
fn each_address_on_a_page_has_a_route() {
    assert_no_difference(&address_differences(&page_texts(), &routes()));
}

#[test]
fn a_route_on_one_side_only_is_reported() {
    let mut routes = routes();
    routes.remove("POST /v1/images/estimate");
    routes.insert("POST /v1/images/variations".to_owned());
    let found = route_differences(&[document(), admin_document()], &routes);
    assert_mentions(&found, "POST /v1/images/estimate: only in a document");
    assert_mentions(&found, "POST /v1/images/variations: only in the code");
}

#[test]
fn another_address_on_a_page_is_reported() {
    let page = |text: &str| address_differences(&[("docs/page.md".to_owned(), text.to_owned())], &routes());
    assert_eq!(page("`GET /v1/models/{model}`, `/admin/v1/keys/key_1/rotate`, `/admin/v1` and `/docs/`"), [""; 0]);
    assert_eq!(page("`POST /v1/models`"), ["docs/page.md: `POST /v1/models` has no route"]);
    assert_eq!(page("`/v1/image/edits`"), ["docs/page.md: `/v1/image/edits` has no route"]);
}
