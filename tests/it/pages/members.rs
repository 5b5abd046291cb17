//! A member cannot reach the data of others by any page or form of an administrator.

use serde_json::json;

use super::forgery::{audit_row_count, every_form, every_page};
use super::users::{ADA, BEN, make_key, sign_in_ada, sign_in_ben};
use super::visitor::forms;
use crate::kit::{Call, Gateway, request};

/// The pages that only administrators have.
const ADMIN_PAGES: [&str; 6] = ["/people", "/groups", "/audit", "/accounts", "/prices", "/alerts"];
/// The actions of the forms that every user has.
const OWN_ACTIONS: [&str; 7] =
    ["/preferences", "/sign-out", "/profile/", "/keys", "/keys/selected", "/start", "/studio"];

#[test]
fn no_page_of_an_administrator_opens_for_a_member() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let mut ben = sign_in_ben(&mut ada);
    let (_, secret) = make_key(&mut ada, "hers!");
    Call::generation().key(&secret).json(&request(json!({}))).send(gateway.address()).ok_json();
    gateway.final_records(1);
    let pages = every_page(&mut ada);
    let bens_pages = every_page(&mut ben);
    assert!(pages.len() > bens_pages.len() + 4, "{:?}", pages.keys());
    for path in pages.keys().filter(|path| !bens_pages.contains_key(*path)) {
        let answer = ben.get(path);
        let expected = if ADMIN_PAGES.iter().any(|page| path.starts_with(page)) { 403 } else { 404 };
        assert_eq!(answer.status, expected, "{path}: {}", answer.text());
        assert!(!answer.text().contains("hers!") && !answer.text().contains(ADA), "{path}: {}", answer.text());
    }
    for (path, html) in &bens_pages {
        assert!(!html.contains("hers!") && !html.contains(ADA), "{path}: {html}");
    }
    for path in ["/usage.csv", "/records.csv"] {
        assert!(!ben.get(path).text().contains("hers!"), "{path}");
    }
    // A filter selects only among the member's own keys and records.
    let key = pages.keys().find_map(|path| path.strip_prefix("/keys/")).expect("a key");
    for path in [
        format!("/usage?key={key}"),
        format!("/records?key={key}"),
        "/records?user=ada%40desk".to_owned(),
        "/keys?search=hers%21".to_owned(),
    ] {
        let text = ben.get(&path).text();
        assert!(!text.contains(">hers!<") && !text.contains("\"/records/"), "{path}: {text}");
    }
}

#[test]
fn no_form_of_an_administrator_does_anything_for_a_member() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let mut ben = sign_in_ben(&mut ada);
    make_key(&mut ada, "hers!");
    let token = ben.form("/keys", "/keys").value("csrf").to_owned();
    let forms = every_form(&mut ada);
    let foreign: Vec<_> = forms
        .iter()
        .filter(|(action, _)| {
            !OWN_ACTIONS.iter().any(|own| action == own || own.ends_with('/') && action.starts_with(own))
        })
        .collect();
    assert!(foreign.len() >= 8, "{:?}", forms.keys());
    let rows_before = audit_row_count(&mut ada);
    for (action, form) in foreign {
        let nonce = ben.form("/keys", "/keys").value("nonce").to_owned();
        let form = form.clone().with(&[("csrf", &token), ("nonce", &nonce), ("name", "forged"), ("role", "admin")]);
        let answer = ben.post(action, &form.fields);
        assert!([403, 404].contains(&answer.status), "{action}: {} {}", answer.status, answer.text());
    }
    let answer = ben.submit("/keys", "/keys", &[("name", "forged"), ("group", "nobodys")]);
    assert_eq!(answer.status, 422, "the member may not use the group: {}", answer.text());
    assert_eq!(audit_row_count(&mut ada), rows_before, "a form changed something");
    drop(ben.submit("/keys", "/keys", &[("name", "forged"), ("user", ADA)]));
    let list = ada.get("/keys?search=forged").text();
    assert!(
        !list.contains(&format!("<bdi>{ADA}</bdi></a></td>")),
        "a member must not make a key for another user: {list}"
    );
}

#[test]
fn records_and_counts_are_filtered_by_end_user() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    for end_user in ["kim & co", "lee", "kim & co"] {
        gateway.generate(json!({"user": end_user, "quality": "low"})).ok_json();
    }
    let records = gateway.final_records(3);
    let of_lee = format!("/records/{}", records[1]["request_id"].as_str().expect("an id"));
    let page = ada.get("/records?state=&since=&until=&key=&user=&end_user=kim+%26+co").text();
    assert!(page.contains("name=\"end_user\" type=\"text\" value=\"kim &#38; co\""), "{page}");
    assert_eq!((page.matches("href=\"/records/").count(), page.contains(&of_lee)), (2, false), "{page}");
    let csv = ada.get("/records.csv?end_user=kim+%26+co").text();
    assert_eq!((csv.lines().count(), csv.matches(",kim & co,").count()), (3, 2), "{csv}");
    let counts = ada.get("/usage.csv?end_user=lee").text();
    assert!(counts.lines().nth(1).is_some_and(|day| day.contains(",1,1,0,1,")), "{counts}");
    // The page of a record links to the other records of its end user.
    assert!(ada.get(&of_lee).text().contains("href=\"/records?end_user=lee\""));
}

#[test]
fn a_refused_form_does_not_empty_the_other_form_of_its_page() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    drop(sign_in_ben(&mut ada));
    let (key, _) = make_key(&mut ada, "expires");
    let change = format!("{key}/change");
    assert_eq!(ada.submit(&key, &change, &[("expires_on", "2099-12-31")]).status, 303);
    let html = ada.get("/people").text();
    let link = html.split("href=\"").find(|link| link.contains(BEN) && link.starts_with("/people/"));
    let ben = link.and_then(|link| link.split('"').next()).expect("a link to ben").to_owned();
    for (page, other, field) in [(&key, "rotate", "expires_on"), (&ben, "reset", "groups")] {
        let change = format!("{page}/change");
        let stored = ada.form(page, &change).value(field).to_owned();
        assert!(!stored.is_empty(), "{page} has no {field}");
        let answer = ada.submit(page, &format!("{page}/{other}"), &[("nonce", "stale")]);
        assert_eq!(answer.status, 422, "{}", answer.text());
        let form = forms(&answer.text()).into_iter().find(|form| form.action == change).expect("the other form");
        assert_eq!(form.value(field), stored, "saving the form would remove {field}");
    }
}
