//! The list of keys: its orders, and changes of several keys at once.

use serde_json::json;

use super::users::{make_key, sign_in_ada, sign_in_ben};
use super::visitor::{Form, Visitor, unescaped};
use crate::kit::{Answer, Call, Gateway, eventually, request};

/// The names of the keys in the list, and their ids.
fn listed(visitor: &mut Visitor<'_>, path: &str) -> Vec<(String, String)> {
    let html = visitor.get(path).text();
    let rows = html.split("name=\"key\" value=\"").skip(1);
    let row = |row: &str| {
        let id = row.split('"').next().unwrap_or_default().to_owned();
        let name = row.split("<bdi>").nth(1).and_then(|rest| rest.split('<').next()).unwrap_or_default();
        (unescaped(name), id)
    };
    rows.map(row).collect()
}

fn names(visitor: &mut Visitor<'_>, path: &str) -> Vec<String> {
    listed(visitor, path).into_iter().map(|(name, _)| name).collect()
}

/// Sends the form below the list for the keys with these ids.
fn submit_selection(visitor: &mut Visitor<'_>, list: &str, action: &str, ids: &[&str]) -> Answer {
    let mut form: Form = visitor.form(list, "/keys/selected");
    form.fields.retain(|(name, _)| name != "key" && name != "action");
    form.fields.extend(ids.iter().map(|id| ("key".to_owned(), (*id).to_owned())));
    form.fields.push(("action".to_owned(), action.to_owned()));
    visitor.post("/keys/selected", &form.fields)
}

#[test]
fn keys_are_sorted_by_name_use_and_counts() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let secrets = ["beta", "Alpha", "gamma"].map(|name| make_key(&mut ada, name).1);
    for (secret, count) in secrets.iter().zip([1, 0, 2]) {
        for _ in 0..count {
            assert_eq!(Call::generation().json(&request(json!({}))).key(secret).send(gateway.address()).status, 200);
        }
    }
    gateway.final_records(3);
    let own = |name: &String| ["beta", "Alpha", "gamma"].contains(&name.as_str());
    let mut sorted = |order: &str| -> Vec<String> {
        names(&mut ada, &format!("/keys?sort={order}")).into_iter().filter(own).collect()
    };
    assert_eq!(sorted("created"), ["gamma", "Alpha", "beta"]);
    assert_eq!(sorted("name"), ["Alpha", "beta", "gamma"]);
    for order in ["requests", "images"] {
        assert_eq!(sorted(order), ["gamma", "beta", "Alpha"], "{order}");
    }
    assert_eq!(
        sorted("cost"),
        sorted("created"),
        "the simulator costs nothing, and equal keys are listed newest first"
    );
    // The gateway collects uses for a moment before it stores them.
    eventually("a key without a use is the last one", || (sorted("last_used").last()? == "Alpha").then_some(()));
    let page = ada.get("/keys?sort=cost").text();
    assert_eq!(page.matches("aria-sort=\"descending\"").count(), 1, "{page}");
    // An unknown order is the default one.
    assert_eq!(names(&mut ada, "/keys?sort=size"), names(&mut ada, "/keys"));
}

#[test]
fn several_keys_are_disabled_enabled_and_deleted_at_once() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    for name in ["one", "two", "three"] {
        make_key(&mut ada, name);
    }
    let keys = listed(&mut ada, "/keys");
    let id = |name: &str| keys.iter().find(|(known, _)| known == name).map(|(_, id)| id.as_str()).expect("a key");
    let answer = submit_selection(&mut ada, "/keys?search=o", "disable", &[id("one"), id("two")]);
    assert_eq!(answer.status, 303, "{}", answer.text());
    let target = answer.header("location").expect("a target").to_owned();
    assert!(target.ends_with("&search=o"), "the filter stays: {target}");
    assert!(ada.get(&target).text().contains("Keys disabled."));
    let disabled = |ada: &mut Visitor<'_>| names(ada, "/keys?state=disabled&sort=name");
    assert_eq!(disabled(&mut ada), ["one", "two"]);
    assert_eq!(submit_selection(&mut ada, "/keys", "enable", &[id("one")]).status, 303);
    assert_eq!(disabled(&mut ada), ["two"]);

    // Deletion asks first, and says which keys.
    let question = submit_selection(&mut ada, "/keys", "delete", &[id("one"), id("two")]);
    assert_eq!(question.status, 200);
    assert!(question.text().contains("Delete these keys?") && question.text().contains("<bdi>one</bdi>"));
    assert!(names(&mut ada, "/keys").contains(&"one".to_owned()));
    let confirmation = super::visitor::forms(&question.text())
        .into_iter()
        .find(|form| form.action == "/keys/selected")
        .expect("a form");
    assert_eq!(ada.post("/keys/selected", &confirmation.fields).status, 303);
    let left = names(&mut ada, "/keys");
    assert!(
        left.contains(&"three".to_owned()) && !left.contains(&"one".to_owned()) && !left.contains(&"two".to_owned())
    );
    // The same form again finds nothing to delete.
    let again = ada.post("/keys/selected", &confirmation.fields);
    assert_eq!(again.status, 422);

    let nothing = submit_selection(&mut ada, "/keys", "disable", &[]);
    assert!(nothing.status == 422 && nothing.text().contains("No key is selected"));
    assert_eq!(submit_selection(&mut ada, "/keys", "explode", &[id("three")]).status, 404);
}

#[test]
fn a_member_changes_only_own_keys_and_learns_which_were_refused() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    make_key(&mut ada, "adas");
    let mut ben = sign_in_ben(&mut ada);
    for name in ["free", "locked"] {
        make_key(&mut ben, name);
    }
    let all = listed(&mut ada, "/keys");
    let id = |name: &str| all.iter().find(|(known, _)| known == name).map(|(_, id)| id.as_str()).expect("a key");
    // A key that an admin has disabled, its owner cannot enable.
    assert_eq!(submit_selection(&mut ada, "/keys", "disable", &[id("locked")]).status, 303);
    assert_eq!(submit_selection(&mut ben, "/keys", "disable", &[id("free"), id("adas")]).status, 303);
    let answer = submit_selection(&mut ben, "/keys", "enable", &[id("free"), id("locked"), id("adas")]);
    assert_eq!(answer.status, 422);
    let text = answer.text();
    assert!(text.contains("Not all keys were changed") && text.contains("<bdi>locked</bdi>"), "{text}");
    assert!(!text.contains("<bdi>free</bdi>") && !text.contains("adas"), "{text}");
    assert_eq!(
        names(&mut ada, "/keys?state=disabled"),
        ["locked"],
        "the other key is enabled, and Ada's was not touched"
    );
}
