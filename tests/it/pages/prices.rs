//! The prices of models, as admins set them with a form, and the costs on the pages of records and of the usage.

use serde_json::{Value, json};

use super::users::{make_key, sign_in_ada, sign_in_ben};
use super::visitor::{Visitor, forms, unescaped};
use crate::kit::{Call, FakeUpstream, Gateway, request};

/// A price that the form accepts.
const FIELDS: [(&str, &str); 5] = [
    ("model", "vendor/<b>\"&%2e"),
    ("from", "2026-01-31"),
    ("source", "the list of <2026>"),
    ("image_output", "12.5"),
    ("per_image", "0"),
];

/// The actions of all forms that delete a price.
fn delete_actions(html: &str) -> Vec<String> {
    forms(html).into_iter().map(|form| form.action).filter(|action| action.starts_with("/prices/")).collect()
}

/// The value of an item of the list of facts on a page.
#[track_caller]
fn fact<'a>(html: &'a str, term: &str) -> &'a str {
    let rest = html.split_once(&format!("<dt>{term}</dt><dd")).unwrap_or_else(|| panic!("no {term}: {html}")).1;
    rest.split("</dd>").next().unwrap_or_default()
}

/// Makes an image with a key; returns the id of its record.
#[track_caller]
fn make_image(gateway: &Gateway, secret: &str, count: usize) -> String {
    Call::generation().key(secret).json(&request(json!({}))).send(gateway.address()).ok_json();
    let records: Vec<Value> = gateway.final_records(count);
    records[count - 1]["request_id"].as_str().expect("an id").to_owned()
}

#[test]
fn an_admin_sets_and_deletes_a_price_in_a_form() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let page = ada.get("/prices").text();
    assert!(page.contains("gpt-image-2") && page.contains("Built in") && page.contains(">$30.00<"), "{page}");
    assert_eq!(delete_actions(&page), Vec::<String>::new(), "a price of the program cannot be deleted");
    let answer = ada.submit("/prices", "/prices", &FIELDS);
    assert_eq!((answer.status, answer.header("location")), (303, Some("/prices?done=price")), "{}", answer.text());
    let page = ada.get("/prices?done=price").text();
    for text in ["Price saved.", "2 prices", "Added here", ">2026-01-31<", ">$12.50<", ">$0.00<", ">–<"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("<b>") && unescaped(&page).contains(FIELDS[0].1), "{page}");
    assert!(unescaped(&page).contains("the list of <2026>"), "{page}");
    // A price of the same model and day is replaced.
    assert_eq!(ada.submit("/prices", "/prices", &[&FIELDS[..], &[("image_output", "13")]].concat()).status, 303);
    let page = ada.get("/prices").text();
    assert!(page.contains("2 prices") && page.contains(">$13.00<") && !page.contains(">$12.50<"), "{page}");
    let [action] = delete_actions(&page).try_into().expect("one form");
    let answer = ada.submit("/prices", &action, &[]);
    assert_eq!(answer.header("location"), Some("/prices?done=price-deleted"), "{action}: {}", answer.text());
    let page = ada.get("/prices?done=price-deleted").text();
    assert!(page.contains("Price deleted.") && page.contains("1 price<"), "{page}");
    let csrf = ada.form("/prices", "/prices").value("csrf").to_owned();
    assert_eq!(ada.post(&action, &[("csrf".to_owned(), csrf)]).status, 404);
    let trail = unescaped(&ada.get("/audit").text());
    assert!(trail.contains("price.set") && trail.contains("price.delete"), "{trail}");
}

#[test]
fn each_field_of_a_price_that_cannot_be_used_is_named() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let long = "x".repeat(257);
    for (name, value, message) in [
        ("text_input", "1,25", "Use a number"),
        ("text_input", "NaN", "Use a number"),
        ("cached_text_input", "-1", "Use a number"),
        ("image_input", "five", "Use a number"),
        ("cached_image_input", "inf", "Use a number"),
        ("image_output", "2000000", "Use a number"),
        ("text_output", "$5", "Use a number"),
        ("per_image", "1e300", "Use a number"),
        ("from", "soon", "Choose a date"),
        ("from", "", "required"),
        ("model", "two words", "without spaces"),
        ("model", "", "required"),
        ("source", long.as_str(), "256 bytes"),
    ] {
        let answer = ada.submit("/prices", "/prices", &[&FIELDS[..], &[(name, value)]].concat());
        assert_eq!(answer.status, 422, "{name}: {}", answer.text());
        let text = answer.text();
        let error = text.split(&format!("id=\"{name}-error\">")).nth(1).unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(error.split("</span>").next().is_some_and(|error| error.contains(message)), "{name}: {error}");
        assert_eq!(text.matches("class=\"error\"").count(), 1, "{name}: {text}");
        let form = forms(&text).into_iter().find(|form| form.action == "/prices").expect("the form");
        assert_eq!(form.value(name), value);
        assert!(text.contains("<details class=\"card reveal\" open>"), "{name}: {text}");
    }
    let answer = ada.submit("/prices", "/prices", &[("model", "m"), ("from", "2026-01-01")]);
    assert!(answer.status == 422 && answer.text().contains("Set at least one price."), "{}", answer.text());
    assert!(ada.get("/prices").text().contains("1 price<"), "a refused form set a price");
}

#[test]
fn a_price_of_the_configuration_file_is_not_changed_by_a_form() {
    let config = "[[prices]]\nmodel = \"gpt-image-2\"\nfrom = \"2026-01-01\"\nimage_output = 25.0\n";
    let gateway = Gateway::with(config, &[]);
    let mut ada = sign_in_ada(&gateway);
    let page = ada.get("/prices").text();
    assert!(page.contains("Configuration file") && page.contains(">$25.00<"), "{page}");
    assert_eq!(delete_actions(&page), Vec::<String>::new());
    let fields = [("model", "gpt-image-2"), ("from", "2026-01-01"), ("image_output", "1")];
    let csrf = ada.form("/prices", "/prices").value("csrf").to_owned();
    for answer in [
        ada.submit("/prices", "/prices", &fields),
        ada.post("/prices/gpt-image-2/2026-01-01/delete", &[("csrf".to_owned(), csrf)]),
    ] {
        assert_eq!(answer.status, 422, "{}", answer.text());
        assert!(answer.text().contains("is defined in the configuration file"), "{}", answer.text());
    }
    assert!(ada.get("/prices").text().contains(">$25.00<"));
}

#[test]
fn a_member_is_refused_the_page_of_the_prices_and_its_forms() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let mut ben = sign_in_ben(&mut ada);
    assert_eq!(ada.submit("/prices", "/prices", &FIELDS).status, 303);
    let [delete] = delete_actions(&ada.get("/prices").text()).try_into().expect("one form");
    let denied = ben.get("/groups");
    let csrf = ben.form("/keys", "/keys").value("csrf").to_owned();
    let fields: Vec<_> = [("csrf", csrf.as_str())]
        .iter()
        .chain(&FIELDS)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let unreadable = [("csrf".to_owned(), csrf.clone()), ("text_input".to_owned(), "five".to_owned())];
    for answer in
        [ben.get("/prices"), ben.post("/prices", &fields), ben.post("/prices", &unreadable), ben.post(&delete, &fields)]
    {
        assert_eq!(answer.status, 403, "{}", answer.text());
        assert!(answer.text().contains("Admins only") && denied.text().contains("Admins only"), "{}", answer.text());
    }
    assert!(!ben.get("/keys").text().contains("href=\"/prices\""));
    assert!(ada.get("/prices").text().contains(">$12.50<"), "a member changed a price");
}

#[test]
fn a_record_with_an_unknown_cost_says_so() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let mut ada = sign_in_ada(&gateway);
    let mut ben = sign_in_ben(&mut ada);
    let (_, secret) = make_key(&mut ben, "his");
    let usage_cost = |visitor: &mut Visitor<'_>| fact(&visitor.get("/usage").text(), "Cost").to_owned();
    // The price of the program does not apply to a model that has another one, and that is not yet in force.
    let later = [("model", "gpt-image-2"), ("from", "2999-01-01"), ("image_output", "1")];
    assert_eq!(ada.submit("/prices", "/prices", &later).status, 303);
    let unknown = make_image(&gateway, &secret, 1);
    for visitor in [&mut ada, &mut ben] {
        let page = visitor.get(&format!("/records/{unknown}")).text();
        let cost = fact(&page, "Cost");
        assert!(cost.contains("unknown") && cost.contains("no price on that day") && !cost.contains('$'), "{cost}");
        let list = visitor.get("/records").text();
        assert!(list.contains("brief\">–</td>"), "{list}");
        let cost = usage_cost(visitor);
        assert!(cost.contains('–') && cost.contains("For 1 request the cost is unknown."), "{cost}");
    }
    let [delete] = delete_actions(&ada.get("/prices").text()).try_into().expect("one form");
    assert_eq!(ada.submit("/prices", &delete, &[]).status, 303);
    let known = make_image(&gateway, &secret, 2);
    let page = ada.get(&format!("/records/{known}")).text();
    let cost = fact(&page, "Cost").to_owned();
    assert!(cost.contains('$') && cost.contains("· exact"), "{cost}");
    assert!(fact(&page, "Price version").contains("gpt-image-2@2026-04-21#"), "{page}");
    let page = ben.get(&format!("/records/{known}")).text();
    assert_eq!(fact(&page, "Cost"), cost);
    assert!(!page.contains("Price version") && !page.contains("2026-04-21"), "{page}");
    let list = ben.get("/records").text();
    assert!(list.contains("brief\">$0."), "{list}");
    let total = usage_cost(&mut ben);
    assert!(total.contains('$') && total.contains("For 1 request the cost is unknown."), "{total}");
    assert!(ben.get("/usage").text().contains("+ 1 unknown"));
}
