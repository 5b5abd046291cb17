//! The response headers of the document are those that the code writes.
//!
//! The kit of the end-to-end tests checks every answer against the document. This test also finds a header that no
//! end-to-end test receives.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::limits::source_files;
use crate::{assert_mentions, assert_no_difference, document};

/// The headers of an answer with status 200, by operation.
const EXPECTED: [(&str, &[&str]); 7] = [
    ("create_image", &IMAGES),
    ("estimate_image", &["x-imagate-adapted", "x-request-id"]),
    ("edit_image", &IMAGES),
    (
        "create_response",
        &[
            "cache-control",
            "preference-applied",
            "x-accel-buffering",
            "x-imagate-adapted",
            "x-imagate-budget-remaining-usd",
            "x-imagate-delivered",
            "x-imagate-delivery",
            "x-imagate-replayed",
            "x-imagate-simulated",
            "x-ratelimit-limit-images",
            "x-ratelimit-limit-requests",
            "x-ratelimit-remaining-images",
            "x-ratelimit-remaining-requests",
            "x-ratelimit-reset-images",
            "x-ratelimit-reset-requests",
            "x-request-id",
        ],
    ),
    ("list_image_models", &["x-request-id"]),
    ("list_models", &["x-request-id"]),
    ("retrieve_model", &["x-request-id"]),
];

const IMAGES: [&str; 18] = [
    "cache-control",
    "preference-applied",
    "x-accel-buffering",
    "x-imagate-adapted",
    "x-imagate-budget-remaining-usd",
    "x-imagate-delivered",
    "x-imagate-delivery",
    "x-imagate-fallback",
    "x-imagate-missing",
    "x-imagate-replayed",
    "x-imagate-simulated",
    "x-ratelimit-limit-images",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-images",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-images",
    "x-ratelimit-reset-requests",
    "x-request-id",
];

/// One line for each header that only one side has.
fn check(document: &Value, written: &BTreeSet<String>) -> Vec<String> {
    let expected_of = |id: &Value| EXPECTED.iter().find(|(name, _)| id == name).map_or(&[][..], |(_, names)| names);
    let mut lines = Vec::new();
    let mut all = BTreeSet::new();
    let items = document["paths"].as_object().into_iter().flat_map(Map::values);
    for operation in items.filter_map(Value::as_object).flat_map(Map::values) {
        let declared = operation["responses"]["200"]["headers"].as_object().into_iter().flat_map(Map::keys);
        let declared: BTreeSet<&str> = declared.map(String::as_str).collect();
        let expected: BTreeSet<&str> = expected_of(&operation["operationId"]).iter().copied().collect();
        let differ = declared.symmetric_difference(&expected);
        lines.extend(differ.map(|name| format!("{}: '{name}' is on one side only", operation["operationId"])));
        all.extend(declared.into_iter().map(str::to_owned));
    }
    let own = all.into_iter().filter(|name| name.starts_with("x-imagate-")).collect::<BTreeSet<_>>();
    lines.extend(own.symmetric_difference(written).map(|name| format!("{name}: in the document or in the code only")));
    lines
}

/// The `x-imagate-` headers that the source of the gateway names.
fn written() -> BTreeSet<String> {
    let gateway = source_files().into_iter().filter(|(path, _)| path.starts_with("src/gateway"));
    let mut names = BTreeSet::new();
    for (_, code) in gateway {
        for text in code.split('"').filter(|text| text.starts_with("x-imagate-")) {
            let is_name = text.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-');
            names.extend(is_name.then(|| text.to_owned()));
        }
    }
    names
}

#[test]
fn the_declared_answer_headers_are_those_of_the_code() {
    assert_no_difference(&check(&document(), &written()));
}

#[test]
fn a_header_on_one_side_only_is_reported() {
    let mut changed = document();
    let headers = &mut changed["paths"]["/v1/images/generations"]["post"]["responses"]["200"]["headers"];
    headers.as_object_mut().expect("headers").remove("x-imagate-missing");
    let mut written = written();
    written.insert("x-imagate-mood".to_owned());
    let found = check(&changed, &written);
    assert_mentions(&found, "\"create_image\": 'x-imagate-missing' is on one side only");
    assert_mentions(&found, "x-imagate-mood: in the document or in the code only");
}
