//! Cross-site request forgery: forms that another site or an attacker sends for a signed-in user.
//!
//! The tests find the forms on the pages, so that they also check forms that are added later.

use std::collections::BTreeMap;

use super::browser::{Browser, WITH_SCRIPT};
use super::users::{ADA, ADAS_PASSWORD, make_key, sign_in_ada, sign_in_at, sign_in_ben};
use super::visitor::{Form, Visitor, forms, post};
use crate::kit::{ForeignSite, Gateway};

/// The pages of a signed-in user that need no id. The tests find the pages of single items by links.
pub(super) const PAGES: [&str; 12] = [
    "/studio",
    "/start",
    "/keys",
    "/usage",
    "/records",
    "/people",
    "/groups",
    "/accounts",
    "/prices",
    "/audit",
    "/alerts",
    "/profile",
];

/// Every page that a user can reach by links, with its HTML.
#[track_caller]
pub(super) fn every_page(visitor: &mut Visitor<'_>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open_paths = vec!["/keys".to_owned(), "/profile".to_owned()];
    while let Some(path) = open_paths.pop() {
        let answer = visitor.get(&path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let html = answer.text();
        for link in html.split("href=\"/").skip(1).filter_map(|rest| rest.split(['"', '?', '#']).next()) {
            let link = format!("/{link}");
            let is_page = !link.starts_with("/assets/") && !link.ends_with(".csv") && link != "/";
            if is_page && link != path && !found.contains_key(&link) && !open_paths.contains(&link) {
                open_paths.push(link);
            }
        }
        found.insert(path, html);
    }
    found
}

/// Every form that a user can reach by links, by its action.
#[track_caller]
pub(super) fn every_form(visitor: &mut Visitor<'_>) -> BTreeMap<String, Form> {
    let pages = every_page(visitor);
    let found = pages.values().flat_map(|html| forms(html));
    found.map(|form| (form.action.clone(), form)).collect()
}

/// The number of rows of the audit trail. Every change adds a row.
#[track_caller]
pub(super) fn audit_row_count(visitor: &mut Visitor<'_>) -> usize {
    visitor.get("/audit").text().matches("<tr").count()
}

#[test]
fn no_form_is_accepted_without_its_token_or_from_another_origin() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let mut ben = sign_in_ben(&mut ada);
    make_key(&mut ada, "target");
    let bens_token = ben.form("/keys", "/keys").value("csrf").to_owned();
    let anonymous_token = Visitor::new(&gateway).form("/sign-in", "/sign-in").value("csrf").to_owned();
    let forms = every_form(&mut ada);
    for action in ["/keys", "/people", "/groups", "/profile/password", "/sign-out"] {
        assert!(forms.contains_key(action), "{action}: {:?}", forms.keys());
    }
    let rows_before = audit_row_count(&mut ada);
    let origin = ada.origin();
    let other_port = "http://127.0.0.1:1".to_owned();
    for (action, form) in forms.iter().filter(|(action, _)| *action != "/preferences") {
        let tokens = [None, Some(""), Some("x"), Some(bens_token.as_str()), Some(anonymous_token.as_str())];
        for token in tokens {
            let tokenless = form.clone().without("csrf");
            let form = token.map_or_else(|| tokenless.clone(), |token| tokenless.clone().with(&[("csrf", token)]));
            let answer = ada.post(action, &form.fields);
            assert_eq!(answer.status, 403, "{action} with the token {token:?}: {}", answer.text());
        }
        let header_sets: [&[(&str, &str)]; 8] = [
            &[],
            &[("origin", "null")],
            &[("origin", &other_port)],
            &[("origin", "https://127.0.0.1")],
            &[("origin", "http://evil.example")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "cross-site")],
            &[("origin", &other_port), ("sec-fetch-site", "same-origin")],
        ];
        for headers in header_sets {
            let call = post(action, &form.fields);
            let call = headers.iter().fold(call, |call, (name, value)| call.header(name, value));
            let answer = ada.send(call.header("referer", &origin));
            assert_eq!(answer.status, 403, "{action} with {headers:?}: {}", answer.text());
        }
    }
    assert_eq!(audit_row_count(&mut ada), rows_before, "a form was accepted");
    let form = ada.form("/keys", "/keys").with(&[("name", "meant")]);
    let answer = ada.send(post("/keys", &form.fields).header("sec-fetch-site", "same-origin"));
    assert_eq!(answer.status, 200, "a browser without `origin` sends `sec-fetch-site`: {}", answer.text());
}

/// The foreign site is on another port of the same host, so browsers send the gateway's cookies with its requests even
/// though they are `SameSite=Strict`.
#[test]
fn a_form_of_another_site_is_refused_even_with_the_right_token() {
    let gateway = Gateway::simulated();
    drop(sign_in_ada(&gateway));
    let browser = Browser::start();
    let victim = browser.tab(&gateway, WITH_SCRIPT);
    sign_in_at(&victim, ADA, ADAS_PASSWORD);
    let html = victim.go("/keys").html;
    let form = forms(&html).into_iter().find(|form| form.action == "/keys").expect("a form");
    let fields: String = form
        .with(&[("name", "forged")])
        .fields
        .iter()
        .map(|(name, value)| format!("<input type=hidden name=\"{name}\" value=\"{value}\">"))
        .collect();
    let target = format!("{}/keys", victim.origin());
    let page = format!(
        "<!doctype html><html lang=en><title>Prizes</title><form method=post action=\"{target}\">{fields}<button>Win</button></form>"
    );
    let site = ForeignSite::start(move |path| (path == "/").then(|| ("content-type: text/html", page.clone())));
    victim.close();
    let tab = browser.tab_beside(&gateway, WITH_SCRIPT, &[&site.origin()]);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    let keys_page = tab.go("/keys");
    let token = forms(&keys_page.html)
        .into_iter()
        .find(|form| form.action == "/keys")
        .expect("a form")
        .value("csrf")
        .to_owned();
    tab.go(&site.origin());
    // The strongest attacker: the page knows the form token of this session.
    tab.evaluate(&format!("document.querySelector('[name=csrf]').value = {token:?}"));
    let seen = tab.follow("button", "Win");
    assert_eq!(seen.status, 403, "{seen:?}");
    tab.go("/keys");
    tab.assert_no_text("forged");
    assert!(tab.cookies().iter().any(|cookie| cookie["sameSite"] == "Strict"), "{:?}", tab.cookies());
}
