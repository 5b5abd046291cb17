//! What a member can reach of what is not theirs: nothing, by any page and any form of an administrator.

use super::forgery::{every_form, every_page, trail};
use super::people::{ADA, ada, ben, make_key};
use crate::kit::{Call, Gateway, request};

/// Pages that only administrators have.
const THEIRS: [&str; 4] = ["/people", "/groups", "/audit", "/accounts"];
/// Forms that everybody has for themselves.
const OWN: [&str; 5] = ["/preferences", "/sign-out", "/profile/", "/keys", "/start"];

#[test]
fn no_page_of_an_administrator_opens_for_a_member() {
    let gateway = Gateway::simulated();
    let mut ada = ada(&gateway);
    let mut ben = ben(&mut ada);
    let (_, secret) = make_key(&mut ada, "hers!");
    Call::generation().key(&secret).json(&request(serde_json::json!({}))).send(gateway.address()).good();
    gateway.settled(1);
    let pages = every_page(&mut ada);
    let mine = every_page(&mut ben);
    assert!(pages.len() > mine.len() + 4, "{:?}", pages.keys());
    for path in pages.keys().filter(|path| !mine.contains_key(*path)) {
        let answer = ben.get(path);
        let wanted = if THEIRS.iter().any(|theirs| path.starts_with(theirs)) { 403 } else { 404 };
        assert_eq!(answer.status, wanted, "{path}: {}", answer.text());
        assert!(!answer.text().contains("hers!") && !answer.text().contains(ADA), "{path}: {}", answer.text());
    }
    for (path, html) in &mine {
        assert!(!html.contains("hers!") && !html.contains(ADA), "{path}: {html}");
    }
    for path in ["/usage.csv", "/records.csv"] {
        assert!(!ben.get(path).text().contains("hers!"), "{path}");
    }
    // Whatever a filter asks for, it asks it of what is one's own.
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
    let mut ada = ada(&gateway);
    let mut ben = ben(&mut ada);
    make_key(&mut ada, "hers!");
    let token = ben.form("/keys", "/keys").value("csrf").to_owned();
    let forms = every_form(&mut ada);
    let foreign: Vec<_> = forms
        .iter()
        .filter(|(action, _)| !OWN.iter().any(|own| action == own || own.ends_with('/') && action.starts_with(own)))
        .collect();
    assert!(foreign.len() >= 8, "{:?}", forms.keys());
    let before = trail(&mut ada);
    for (action, form) in foreign {
        let once = ben.form("/keys", "/keys").value("once").to_owned();
        let form = form.clone().with(&[("csrf", &token), ("once", &once), ("name", "forged"), ("role", "admin")]);
        let answer = ben.post(action, &form.fields);
        assert!([403, 404].contains(&answer.status), "{action}: {} {}", answer.status, answer.text());
    }
    let answer = ben.submit("/keys", "/keys", &[("name", "forged"), ("group", "nobodys")]);
    assert_eq!(answer.status, 422, "nobody allowed the group: {}", answer.text());
    assert_eq!(trail(&mut ada), before, "nothing was changed");
    drop(ben.submit("/keys", "/keys", &[("name", "forged"), ("user", ADA)]));
    let list = ada.get("/keys?search=forged").text();
    assert!(
        !list.contains(&format!("<bdi>{ADA}</bdi></a></td>")),
        "whose key it is, is not for a member to say: {list}"
    );
}
