//! Pages that were loaded before somebody else changed what they show: their forms undo nothing.

use super::accounts::account_path;
use super::request_limits::person_path;
use super::users::{BEN, invite, make_key, sign_in_ada};
use super::visitor::{Form, Visitor, forms};
use crate::kit::{Answer, FakeUpstream, Gateway};

const SECRET: &str = "canary-secret-of-the-first-address";
const OTHER_SECRET: &str = "canary-secret-of-the-second-address";

/// Sends a form whose values were changed in the meantime, and returns the page that refuses it.
#[track_caller]
fn assert_refused(visitor: &mut Visitor<'_>, stale: &Form) -> Answer {
    let refused = visitor.post(&stale.action, &stale.fields);
    let text = refused.text();
    assert!(refused.status == 409 && text.contains("changed in the meantime"), "{} {text}", refused.status);
    refused
}

#[track_caller]
fn assert_saved(answer: &Answer) {
    assert_eq!(answer.status, 303, "{}", answer.text());
}

#[test]
fn an_old_page_of_a_user_gives_no_rights_back() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    drop(invite(&mut ada, BEN, "admin"));
    let page = person_path(&mut ada, BEN);
    let (change, limit) = (format!("{page}/change"), format!("{page}/limit"));
    let rights = ada.form(&page, &change).with(&[("role", "admin")]);
    let limits = ada.form(&page, &limit);
    assert_saved(&ada.submit(&page, &limit, &[("limit_images_per_day", "5")]));
    let demoted = ada.form(&page, &change).with(&[("role", "member")]).without("groups");
    assert_saved(&ada.post(&change, &demoted.fields));
    let is_member = |ada: &mut Visitor<'_>| {
        let html = ada.get(&page).text();
        html.contains("value=\"member\" checked") && !html.contains("value=\"default\" checked")
    };

    let refused = assert_refused(&mut ada, &rights);
    assert!(is_member(&mut ada), "the old page gave rights back");
    drop(assert_refused(&mut ada, &limits));
    assert_eq!(ada.form(&page, &limit).value("limit_images_per_day"), "5");

    // The page of the refusal shows what was entered, and saves it with the next click.
    let text = refused.text();
    let [again] = forms(&text).into_iter().filter(|form| form.action == change).collect::<Vec<_>>().try_into().unwrap();
    assert!(text.contains("value=\"admin\" checked"), "{text}");
    assert_saved(&ada.post(&change, &again.with(&[("role", "admin")]).fields));
    assert!(!is_member(&mut ada));
}

#[test]
fn an_old_page_of_a_key_undoes_no_expiry_and_no_limits() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let (page, _) = make_key(&mut ada, "laptop");
    for (form, field, value) in [
        ("change", "expires_on", "2099-12-31"),
        ("limit", "limit_images_per_day", "5"),
        ("dialects", "dialects", "sizes"),
    ] {
        let action = format!("{page}/{form}");
        let stale = ada.form(&page, &action);
        assert_saved(&ada.submit(&page, &action, &[(field, value)]));
        drop(assert_refused(&mut ada, &stale));
        assert_eq!(ada.form(&page, &action).value(field), value);
    }
    // A change of other values of the key does not concern a form.
    let limits = ada.form(&page, &format!("{page}/limit"));
    assert_saved(&ada.submit(&page, &format!("{page}/change"), &[("name", "desktop")]));
    assert_saved(&ada.post(&limits.action, &limits.fields));
}

#[test]
fn an_old_page_of_an_account_sends_no_new_secret_to_the_earlier_address() {
    let (main, old, new) = (FakeUpstream::start(), FakeUpstream::start(), FakeUpstream::start());
    let gateway = Gateway::with_upstream(&main);
    for secret in [SECRET, OTHER_SECRET] {
        gateway.watch_secret("the secret of an account", secret, &[]);
    }
    let mut ada = sign_in_ada(&gateway);
    let (old_url, new_url) = (old.base_url(), new.base_url());
    let account = [("name", "moving"), ("kind", "api_key"), ("base_url", old_url.as_str()), ("api_key", SECRET)];
    assert_saved(&ada.submit("/accounts", "/accounts", &account));
    let page = account_path(&mut ada, "moving");
    let action = format!("{page}/secret");
    let stale = ada.form(&page, &action).with(&[("api_key", OTHER_SECRET)]);
    let move_away = ada.form(&page, &action).with(&[("base_url", &new_url), ("api_key", OTHER_SECRET)]);
    assert_saved(&ada.post(&action, &move_away.fields));

    drop(assert_refused(&mut ada, &stale));
    assert_eq!(ada.form(&page, &action).value("base_url"), new_url);
    let tested = ada.submit(&page, &format!("{page}/test"), &[]);
    assert_eq!(tested.status, 200);
    assert_eq!((old.accepted(), new.accepted()), (0, 1), "the earlier address got a call");
    assert_eq!(new.received_attempts()[0].token, OTHER_SECRET);
    // The form that was sent twice is named as such.
    let again = ada.post(&action, &move_away.fields);
    assert!(again.status == 409 && again.text().contains("were not saved again"), "{}", again.text());
    // A refused form can be sent again with a new look at the address.
    assert_saved(&ada.submit(&page, &action, &[("api_key", OTHER_SECRET)]));
}
