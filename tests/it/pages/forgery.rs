//! Forms that nobody has meant to send: from the page of somebody else, and byte by byte.
//!
//! Which forms there are is not written down here: they are found on the pages, so that a new one is tried as well.

use std::collections::BTreeMap;

use super::browser::{Browser, WITH_SCRIPT};
use super::people::{ADA, ADAS_PASSWORD, ada, ben, make_key, sign_in_at};
use super::visitor::{Form, Visitor, forms, post};
use crate::kit::{ForeignSite, Gateway};

/// Where somebody who is signed in finds the forms; pages of single things are found by their links.
pub(super) const PAGES: [&str; 9] =
    ["/start", "/keys", "/usage", "/records", "/people", "/groups", "/audit", "/accounts", "/profile"];

/// Every page that somebody can find, with what is on it.
#[track_caller]
pub(super) fn every_page(visitor: &mut Visitor<'_>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut ways = vec!["/keys".to_owned(), "/profile".to_owned()];
    while let Some(way) = ways.pop() {
        let answer = visitor.get(&way);
        assert_eq!(answer.status, 200, "{way}: {}", answer.text());
        let html = answer.text();
        for link in html.split("href=\"/").skip(1).filter_map(|rest| rest.split(['"', '?', '#']).next()) {
            let link = format!("/{link}");
            let is_page = !link.starts_with("/assets/") && !link.ends_with(".csv") && link != "/";
            if is_page && link != way && !found.contains_key(&link) && !ways.contains(&link) {
                ways.push(link);
            }
        }
        found.insert(way, html);
    }
    found
}

/// Every form that somebody can find, by its action.
#[track_caller]
pub(super) fn every_form(visitor: &mut Visitor<'_>) -> BTreeMap<String, Form> {
    let pages = every_page(visitor);
    let found = pages.values().flat_map(|html| forms(html));
    found.map(|form| (form.action.clone(), form)).collect()
}

/// How many lines the trail has: nothing may be changed without one.
#[track_caller]
pub(super) fn trail(visitor: &mut Visitor<'_>) -> usize {
    visitor.get("/audit").text().matches("<tr").count()
}

#[test]
fn no_form_is_taken_without_its_token_or_from_another_address() {
    let gateway = Gateway::simulated();
    let mut ada = ada(&gateway);
    let mut ben = ben(&mut ada);
    make_key(&mut ada, "target");
    let theirs = ben.form("/keys", "/keys").value("csrf").to_owned();
    let before_sign_in = Visitor::to(&gateway).form("/sign-in", "/sign-in").value("csrf").to_owned();
    let forms = every_form(&mut ada);
    for action in ["/keys", "/people", "/groups", "/profile/password", "/sign-out"] {
        assert!(forms.contains_key(action), "{action}: {:?}", forms.keys());
    }
    let before = trail(&mut ada);
    let home = ada.origin();
    let other_port = "http://127.0.0.1:1".to_owned();
    for (action, form) in forms.iter().filter(|(action, _)| *action != "/preferences") {
        let tokens = [None, Some(""), Some("x"), Some(theirs.as_str()), Some(before_sign_in.as_str())];
        for token in tokens {
            let bare = form.clone().without("csrf");
            let form = token.map_or_else(|| bare.clone(), |token| bare.clone().with(&[("csrf", token)]));
            let answer = ada.post(action, &form.fields);
            assert_eq!(answer.status, 403, "{action} with the token {token:?}: {}", answer.text());
        }
        let said: [&[(&str, &str)]; 8] = [
            &[],
            &[("origin", "null")],
            &[("origin", &other_port)],
            &[("origin", "https://127.0.0.1")],
            &[("origin", "http://evil.example")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "cross-site")],
            &[("origin", &other_port), ("sec-fetch-site", "same-origin")],
        ];
        for headers in said {
            let call = post(action, &form.fields);
            let call = headers.iter().fold(call, |call, (name, value)| call.header(name, value));
            let answer = ada.send(call.header("referer", &home));
            assert_eq!(answer.status, 403, "{action} with {headers:?}: {}", answer.text());
        }
    }
    assert_eq!(trail(&mut ada), before, "nothing was changed");
    let form = ada.form("/keys", "/keys").with(&[("name", "meant")]);
    let answer = ada.send(post("/keys", &form.fields).header("sec-fetch-site", "same-origin"));
    assert_eq!(answer.status, 200, "a browser that says no origin says that: {}", answer.text());
}

/// A site on another port of the same machine: browsers send it every cookie of ours, however strict.
#[test]
fn a_page_of_somebody_else_sends_a_form_in_vain_even_with_the_right_token() {
    let gateway = Gateway::simulated();
    drop(ada(&gateway));
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
    let mine = tab.go("/keys");
    let token =
        forms(&mine.html).into_iter().find(|form| form.action == "/keys").expect("a form").value("csrf").to_owned();
    tab.go(&site.origin());
    // The page has guessed the token of this very session, which it never can.
    tab.evaluate(&format!("document.querySelector('[name=csrf]').value = {token:?}"));
    let seen = tab.follow("button", "Win");
    assert_eq!(seen.status, 403, "{seen:?}");
    tab.go("/keys");
    tab.does_not_say("forged");
    assert!(tab.cookies().iter().any(|cookie| cookie["sameSite"] == "Strict"), "{:?}", tab.cookies());
}
