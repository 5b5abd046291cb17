//! The policies of groups, as users set them with HTML forms.

use serde_json::json;

use super::users::sign_in_ada;
use super::visitor::{Visitor, unescaped};
use crate::kit::{Gateway, eventually};

#[test]
fn the_policy_of_a_group_is_set_and_changed_in_a_form() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let (page, action) = ("/groups/default", "/groups/default/change");
    let fields = [
        ("delivery", "fail"),
        ("image_deadline", "90s"),
        ("inject_image_tool", "yes"),
        ("no_tools", "yes"),
        ("words", "zeppelin\r\n\r\n  two words \r\n"),
        ("patterns", "\\bred <b>\r\nx{2}"),
    ];
    let answer = ada.submit(page, action, &fields);
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, Some("/groups/default?done=policy")),
        "{}",
        answer.text()
    );
    let form = ada.form("/groups/default?done=policy", action);
    for (name, value) in [
        ("delivery", "fail"),
        ("fallback", ""),
        ("image_deadline", "90s"),
        ("inject_image_tool", "yes"),
        ("tools", ""),
        ("no_tools", "yes"),
        ("words", "zeppelin\r\n  two words "),
        ("patterns", "\\bred <b>\r\nx{2}"),
        ("base_url", ""),
    ] {
        assert_eq!(form.value(name), value, "{name}");
    }
    let generate_status = |prompt: &str| gateway.generate(json!({ "prompt": prompt })).status;
    eventually("the filter is in force", || (generate_status("two words") == 502).then_some(()));
    assert_eq!((generate_status("xx"), generate_status("a boat")), (502, 200));
    // A form that is sent unchanged changes nothing.
    assert_eq!(ada.submit(page, action, &[]).status, 303);
    let trail = unescaped(&ada.get("/audit").text());
    assert_eq!(trail.matches("group.change").count(), 2, "{trail}");
    assert!(ada.get("/groups").text().contains("href=\"/groups/default\""));

    // The page shows an error beside its field, and the form keeps the value.
    for (name, value, message) in [
        ("patterns", "(", "unclosed group"),
        ("image_deadline", "2h", "must be from"),
        ("delivery", "sometimes", "must be"),
        ("api_key", "IMAGATE_MASTER_KEY", "MODERATION"),
    ] {
        let service: &[(&str, &str)] =
            if name == "api_key" { &[("base_url", "https://judge.example"), ("on_error", "closed")] } else { &[] };
        let answer = ada.submit(page, action, &[service, &[(name, value)]].concat());
        assert_eq!(answer.status, 422, "{name}: {}", answer.text());
        let text = answer.text();
        let error = text.split(&format!("id=\"{name}-error\">")).nth(1).unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(error.split("</span>").next().is_some_and(|error| error.contains(message)), "{name}: {error}");
    }
    assert_eq!(generate_status("two words"), 502, "a refused form changed the policy");
    let answer = ada.submit(page, action, &[("words", ""), ("patterns", ""), ("no_tools", "")]);
    assert_eq!(answer.status, 303, "{}", answer.text());
    eventually("nothing is filtered", || (generate_status("two words") == 200).then_some(()));
}

#[test]
fn a_new_group_opens_its_policy_and_a_configured_group_is_read_only() {
    let config = "[[groups]]\nname = \"written\"\ndelivery = \"fail\"\n[groups.filter]\nwords = [\"air <ship>\"]\n";
    let gateway = Gateway::with(config, &[]);
    let mut ada = sign_in_ada(&gateway);
    let made = ada.submit("/groups", "/groups", &[("name", "Design & co")]);
    assert_eq!(made.header("location"), Some("/groups/Design%20%26%20co?done=group"), "{}", made.text());
    let action = "/groups/Design%20%26%20co/change";
    assert_eq!(ada.submit("/groups/Design%20%26%20co", action, &[("words", "zeppelin")]).status, 303);
    assert_eq!(ada.form("/groups/Design%20%26%20co", action).value("words"), "zeppelin");
    let page = ada.get("/groups/written").text();
    assert!(!page.contains("/groups/written/change") && page.contains("air &#60;ship&#62;"), "{page}");
    let forged = ada.form("/groups/default", "/groups/default/change").with(&[("words", "other")]);
    let answer = ada.post("/groups/written/change", &forged.fields);
    assert_eq!(answer.status, 422, "{}", answer.text());
    assert!(ada.get("/groups/written").text().contains("air &#60;ship&#62;"));
    assert_eq!(ada.get("/groups/nobody").status, 404);
}

#[test]
fn a_form_does_not_overwrite_a_later_change() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let (page, action) = ("/groups/default", "/groups/default/change");
    let old = ada.form(page, action).with(&[("words", "mine")]);
    assert_eq!(ada.submit(page, action, &[("words", "theirs")]).status, 303);
    let answer = ada.post(action, &old.fields);
    assert_eq!(answer.status, 409, "{}", answer.text());
    let text = unescaped(&answer.text());
    assert!(text.contains("\"theirs\"") && text.contains("mine"), "{text}");
    assert_eq!(ada.form(page, action).value("words"), "theirs");
}

#[test]
fn a_policy_the_form_cannot_show_is_replaced_only_after_confirmation() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let (page, action) = ("/groups/default", "/groups/default/change");
    assert_eq!(ada.submit(page, action, &[("words", "zeppelin")]).status, 303);
    let stored = "UPDATE groups SET policy = '{\"colour\": \"red\", \"filter\": {\"words\": [\"zeppelin\"]}}'";
    gateway.execute_sql(stored);
    let text = unescaped(&ada.get(page).text());
    assert!(text.contains("\"colour\": \"red\""), "{text}");
    assert_eq!(ada.submit(page, action, &[]).status, 422);
    assert!(ada.get(page).text().contains("colour"));
    assert_eq!(ada.submit(page, action, &[("replace", "yes")]).status, 303);
    assert!(!ada.get(page).text().contains("colour"));
    assert_eq!(ada.form(page, action).value("words"), "zeppelin");
}

/// Adds an account of the store in a form, and returns the path of its page.
#[track_caller]
fn add_account(ada: &mut Visitor<'_>, name: &str) -> String {
    let fields = [("name", name), ("kind", "simulator"), ("groups", "default")];
    let answer = ada.submit("/accounts", "/accounts", &fields);
    assert_eq!(answer.status, 303, "{}", answer.text());
    let location = answer.header("location").unwrap_or_default();
    location.split('?').next().unwrap_or_default().to_owned()
}

#[test]
fn accounts_are_assigned_on_the_page_of_a_group_and_a_group_without_service_is_warned_of() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let fields = [("name", "art"), ("delivery", "fail"), ("limit_images_per_day", "5"), ("limit_budget_usd", "2")];
    let made = ada.submit("/groups", "/groups", &fields);
    assert_eq!(made.header("location"), Some("/groups/art?done=group"), "{}", made.text());
    assert_eq!(ada.form("/groups/art", "/groups/art/change").value("limit_images_per_day"), "5");
    let wrong = ada.submit("/groups", "/groups", &[("name", "other"), ("limit_images_per_day", "many")]);
    assert!(wrong.status == 422 && wrong.text().contains("id=\"limit_images_per_day-error\""), "{}", wrong.text());
    assert_eq!(ada.get("/groups/other").status, 404, "a refused form made the group");

    let first = add_account(&mut ada, "brush");
    let id = first.rsplit('/').next().unwrap_or_default();
    let page = ada.get("/groups/art").text();
    assert!(page.contains("No enabled account serves this group") && page.contains("$0.00 of $2.00"), "{page}");
    let action = "/groups/art/accounts";
    let assign = |ada: &mut Visitor<'_>, fields: &[(&str, &str)]| ada.submit("/groups/art", action, fields);
    let assigned = assign(&mut ada, &[("accounts", id)]);
    assert_eq!(assigned.header("location"), Some("/groups/art?done=group-accounts"), "{}", assigned.text());
    let page = ada.get("/groups/art").text();
    assert!(page.contains(&format!("href=\"{first}\"")) && !page.contains("No enabled account serves"), "{page}");
    assert!(ada.get(&first).text().contains("value=\"art\" checked"), "the account has the group");

    // The removal of the last account needs a consent.
    let refused = assign(&mut ada, &[("accounts", "")]);
    assert!(refused.status == 422 && refused.text().contains("name=\"unserved\""), "{}", refused.text());
    let page = ada.get("/groups/art").text();
    assert!(!page.contains("No enabled account serves"), "a refused form changed the account: {page}");
    assert_eq!(assign(&mut ada, &[("accounts", ""), ("unserved", "yes")]).status, 303);
    assert!(ada.get("/groups/art").text().contains("No enabled account serves"));

    // The last group of an account stays.
    let refused = ada.submit("/groups/default", "/groups/default/accounts", &[("accounts", ""), ("unserved", "yes")]);
    let text = refused.text();
    assert!(refused.status == 422 && text.contains("An account must serve at least one group"), "{text}");
}
