//! The limits of keys and users, as admins set them with forms, and as members see them.

use super::users::{make_key, sign_in_ada, sign_in_ben};
use super::visitor::{Visitor, unescaped};
use crate::kit::Gateway;

/// The path of the page of a user, found on the list of users.
#[track_caller]
pub(super) fn person_path(ada: &mut Visitor<'_>, name: &str) -> String {
    let html = unescaped(&ada.get("/people").text());
    let links = html.split("<a href=\"/people/").skip(1);
    let link = links.into_iter().find(|link| link.split("</a>").next().is_some_and(|link| link.contains(name)));
    let link = link.unwrap_or_else(|| panic!("no {name}: {html}"));
    format!("/people/{}", link.split('"').next().unwrap_or_default())
}

#[track_caller]
fn assert_limits_are_set_in_a_form(ada: &mut Visitor<'_>, page: &str) {
    let action = format!("{page}/limit");
    let fields = [
        ("limit_requests_per_minute", "60"),
        ("limit_images_per_day", "5"),
        ("limit_max_size", "2048x2048"),
        ("limit_max_quality", "medium"),
        ("limit_models", "gpt-image-2\r\n\r\nsketch-1\r\n"),
        ("limit_budget_usd", "2.5"),
        ("limit_budget_period", "week"),
    ];
    let answer = ada.submit(page, &action, &fields);
    let saved = format!("{page}?done=saved");
    assert_eq!((answer.status, answer.header("location")), (303, Some(saved.as_str())), "{}", answer.text());
    let form = ada.form(&saved, &action);
    for (name, value) in [
        ("limit_requests_per_minute", "60"),
        ("limit_images_per_minute", ""),
        ("limit_concurrent_jobs", ""),
        ("limit_images_per_day", "5"),
        ("limit_max_size", "2048x2048"),
        ("limit_max_quality", "medium"),
        ("limit_models", "gpt-image-2\nsketch-1"),
        ("limit_budget_usd", "2.5"),
        ("limit_budget_period", "week"),
        ("limit_budget_alert", ""),
    ] {
        assert_eq!(form.value(name).replace("\r\n", "\n"), value, "{name}");
    }
    // A form that is sent unchanged changes nothing, and the other forms of the page keep the limits.
    assert_eq!(ada.submit(page, &action, &[]).status, 303);
    assert_eq!(ada.submit(page, &format!("{page}/change"), &[]).status, 303);
    assert_eq!(ada.form(page, &action).value("limit_images_per_day"), "5");

    // The page shows an error beside its field, and the form keeps the value.
    for (name, value) in [
        ("limit_requests_per_minute", "many"),
        ("limit_images_per_minute", "0"),
        ("limit_concurrent_jobs", "-1"),
        ("limit_images_per_day", "1.5"),
        ("limit_max_size", "wide"),
        ("limit_max_quality", "best"),
        ("limit_models", "two words"),
        ("limit_budget_usd", "1,50"),
        ("limit_budget_period", "year"),
        ("limit_budget_alert", "2"),
    ] {
        let answer = ada.submit(page, &action, &[(name, value)]);
        let html = answer.text();
        assert_eq!(answer.status, 422, "{name}: {html}");
        assert!(html.contains(&format!("id=\"{name}-error\">")), "{name}: {html}");
        assert!(name == "limit_max_quality" || name == "limit_budget_period" || html.contains(value), "{name}: {html}");
    }
    assert_eq!(ada.form(page, &action).value("limit_images_per_day"), "5", "a refused form changed the limits");
}

#[test]
fn the_limits_of_a_key_are_set_in_a_form() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let (page, _) = make_key(&mut ada, "limited");
    assert_limits_are_set_in_a_form(&mut ada, &page);
    let trail = unescaped(&ada.get("/audit").text());
    assert_eq!(trail.matches("key.limit").count(), 1, "{trail}");
    let html = ada.get(&page).text();
    for text in ["Limits now", "0 of 60", "0 of 5", "$0.00 of $2.50", "alert at $2.00", "Enough left"] {
        assert!(html.contains(text), "{text}: {html}");
    }
    assert_eq!(html.matches("<svg class=\"limit-bar good\"").count(), 3, "{html}");
    let list = ada.get("/keys").text();
    assert_eq!(list.matches("<svg class=\"limit-bar").count(), 1, "the tightest limit: {list}");
}

#[test]
fn the_limits_of_a_user_are_set_in_a_form_and_shown_to_the_user() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let mut ben = sign_in_ben(&mut ada);
    assert!(!ben.get("/profile").text().contains("Limits of all your keys together"));
    let page = person_path(&mut ada, "ben@desk");
    assert_limits_are_set_in_a_form(&mut ada, &page);
    let profile = ben.get("/profile").text();
    for text in ["Limits of all your keys together", "2048x2048", "sketch-1", "2.5", "Images per day (UTC)", "0 of 5"] {
        assert!(profile.contains(text), "{text}: {profile}");
    }
    assert!(!profile.contains("Images per minute"), "a limit that is not set: {profile}");
}

#[test]
fn a_member_sees_the_limits_of_a_key_and_has_no_form_for_them() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let mut ben = sign_in_ben(&mut ada);
    let (page, _) = make_key(&mut ben, "his");
    let action = format!("{page}/limit");
    assert!(!ben.get(&page).text().contains("Limits of the key"));
    assert_eq!(ada.submit(&page, &action, &[("limit_images_per_day", "5")]).status, 303);
    let html = ben.get(&page).text();
    assert!(html.contains("Limits of the key") && html.contains("Images per day (UTC)"), "{html}");
    assert!(!html.contains(&action), "{html}");
    let token = ben.form(&page, &format!("{page}/change")).value("csrf").to_owned();
    for action in [action, format!("{}/limit", person_path(&mut ada, "ben@desk"))] {
        let refused = ben.post(&action, &[("csrf".to_owned(), token.clone())]);
        assert_eq!(refused.status, 403, "{action}: {}", refused.text());
    }
    assert_eq!(ada.form(&page, &format!("{page}/limit")).value("limit_images_per_day"), "5");
}
