//! The routes that the gateway serves: the operations of both documents, and the paths that no document has.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{admin_document, assert_mentions, assert_no_difference, document};

/// The operation, the method and the path of each route that no document has, except for those of the pages.
const OTHER_ROUTES: [[&str; 3]; 11] = [
    ["azure create_image", "POST", "/openai/deployments/{deployment}/images/generations"],
    ["azure edit_image", "POST", "/openai/deployments/{deployment}/images/edits"],
    ["azure v1 create_image", "POST", "/openai/v1/images/generations"],
    ["azure v1 edit_image", "POST", "/openai/v1/images/edits"],
    ["healthz", "GET", "/healthz"],
    ["image_files", "GET", "/v1/images/files/{token}"],
    ["mcp", "POST", "/mcp"],
    ["openapi", "GET", "/openapi.json"],
    ["readyz", "GET", "/readyz"],
    ["skills", "GET", "/.well-known/agent-skills/index.json"],
    ["skills", "GET", "/skills/*"],
];
/// The operation of all pages.
const PAGES: &str = "pages";

fn operations(document: &Value) -> Vec<[String; 3]> {
    let paths = document["paths"].as_object().expect("paths");
    let of_path = |(path, item): (&String, &Value)| {
        let operations = item.as_object().expect("operations").iter();
        let with_id = operations.filter_map(|(method, operation)| Some((operation["operationId"].as_str()?, method)));
        with_id.map(|(id, method)| [id.to_owned(), method.to_uppercase(), path.clone()]).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_path).collect()
}

/// The routes that only one side has: what is served, or the operations of these documents and the listed paths.
fn differences(documents: [&Value; 2]) -> Vec<String> {
    let is_documented = |[operation, _, _]: &[String; 3]| operation != PAGES;
    let served: BTreeSet<_> = imagate::served_routes().into_iter().filter(is_documented).collect();
    let mut expected = BTreeSet::from(OTHER_ROUTES.map(|route| route.map(str::to_owned)));
    expected.extend(documents.into_iter().flat_map(operations));
    let side = |route: &[String; 3]| if served.contains(route) { "only served" } else { "not served" };
    served.symmetric_difference(&expected).map(|route| format!("{}: {}", route.join(" "), side(route))).collect()
}

#[test]
fn the_gateway_serves_the_operations_of_the_documents_and_the_listed_paths() {
    assert_no_difference(&differences([&document(), &admin_document()]));
}

#[test]
fn an_operation_that_only_one_side_has_is_reported() {
    let mut changed = document();
    let item = changed["paths"]["/v1/models"].take();
    changed["paths"].as_object_mut().unwrap().remove("/v1/models");
    changed["paths"]["/v1/all-models"] = item;
    let found = differences([&changed, &admin_document()]);
    assert_mentions(&found, "list_models GET /v1/models: only served");
    assert_mentions(&found, "list_models GET /v1/all-models: not served");
}

#[test]
fn no_page_has_a_path_of_an_api() {
    for [operation, method, path] in imagate::served_routes() {
        let is_of_api = ["/v1/", "/admin/", "/openai/", "/mcp/"].iter().any(|prefix| path.starts_with(prefix));
        assert!(operation != PAGES || !is_of_api, "a page has the path {method} {path}");
    }
}
