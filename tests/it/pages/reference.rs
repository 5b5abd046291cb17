//! The reference: every operation and schema of the documents has a page, every link leads to one, and the playground
//! takes over what was typed there.

use std::collections::BTreeSet;

use serde_json::Value;

use super::browser::{Browser, WITHOUT_SCRIPT};
use super::users::{ADA, ADAS_PASSWORD, sign_in_ada, sign_in_at};
use super::visitor::{Visitor, unescaped};
use crate::kit::Gateway;

/// The paths below `/docs` to which a page leads.
fn links(html: &str) -> impl Iterator<Item = String> + '_ {
    let links = html.split("href=\"/docs").skip(1).filter_map(|rest| rest.split(['"', '#']).next());
    links.map(|rest| unescaped(&format!("/docs{rest}")))
}

#[test]
fn every_operation_and_schema_has_a_page_that_the_overview_leads_to() {
    let gateway = Gateway::simulated();
    // Without a session.
    let mut stranger = Visitor::new(&gateway);
    let (mut known, mut open) = (BTreeSet::new(), vec!["/docs".to_owned()]);
    while let Some(path) = open.pop() {
        if !known.insert(path.clone()) {
            continue;
        }
        let page = stranger.get(&path);
        assert_eq!(page.status, 200, "{path}");
        if path.ends_with(".json") {
            assert_eq!(page.header("content-type"), Some("application/json"));
            continue;
        }
        let html = page.text();
        assert!(html.len() < 150_000, "{path} has {} bytes", html.len());
        open.extend(links(&html));
    }
    let expect = |path: String| assert!(known.contains(&path), "no link leads to {path}");
    for name in ["gateway", "admin"] {
        let document: Value = stranger.get(&format!("/docs/{name}.json")).json();
        for schema in document["components"]["schemas"].as_object().expect("schemas").keys() {
            expect(format!("/docs/{name}/{schema}"));
        }
        for methods in document["paths"].as_object().expect("paths").values() {
            for operation in methods.as_object().expect("methods").values() {
                expect(format!("/docs/{name}/{}", operation["operationId"].as_str().expect("an id")));
            }
        }
    }
    for path in ["/docs/gateway", "/docs/other.json", "/docs/gateway/nothing", "/docs/other/create_image"] {
        assert_eq!(stranger.get(path).status, 404, "{path}");
    }
}

#[test]
fn a_page_of_an_operation_has_its_fields_answers_and_a_command_that_names_this_gateway() {
    let gateway = Gateway::simulated();
    let page = Visitor::new(&gateway).get("/docs/gateway/create_image").text();
    for text in ["POST", "/v1/images/generations", "output_compression", "0 ≤ x ≤ 100", "x-imagate-delivered", "4XX"]
    {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(page.contains(&format!("curl -sS http://{}/v1/images/generations", gateway.address())), "{page}");
    let words = Visitor::new(&gateway).get("/docs/gateway/OutputFormat").text();
    for word in ["<code>png</code>", "<code>jpeg</code>", "<code>webp</code>"] {
        assert!(words.contains(word), "{word}: {words}");
    }
}

#[test]
fn the_playground_takes_over_a_prompt_from_the_reference_and_sends_nothing_by_itself() {
    let gateway = Gateway::simulated();
    drop(sign_in_ada(&gateway));
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITHOUT_SCRIPT);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    tab.go("/docs/gateway/create_image");
    tab.fill("Prompt", "a lamp <b>& two</b> chairs");
    let seen = tab.follow("button", "Open in the playground");
    assert!(seen.path.starts_with("/studio"), "{seen:?}");
    let prompt = tab.evaluate("document.getElementById('prompt').value");
    assert_eq!(prompt, "a lamp <b>& two</b> chairs");
    assert!(gateway.final_records(0).is_empty());
    tab.close();
}
