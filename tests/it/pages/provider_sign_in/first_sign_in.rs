//! Sign-ins of people who have not signed in before: the users that they become, and the reasons to refuse them.

use serde_json::{Value, json};

use super::super::users::{ADA, ADAS_PASSWORD, sign_in, sign_in_ada};
use super::super::visitor::{Visitor, unescaped};
use super::flow::{
    CALLBACK, CREATES_USERS, LABEL, START, assert_refused, assert_signed_in, begin, claims_of, gateway_for,
    has_session, is_connected, open_callback, redirect_of, settings, sign_in_as, sign_in_with, user, user_names,
};
use super::real_provider::{ProviderVisitor, RealProvider};
use crate::kit::{FakeProvider, Gateway};

#[test]
fn a_first_sign_in_creates_the_user_whom_later_ones_find() {
    let provider = RealProvider::start();
    let gateway = provider.gateway(CREATES_USERS);
    drop(sign_in_ada(&gateway));
    let mut kim = Visitor::new(&gateway);
    let page = kim.get("/sign-in?next=/usage").text();
    let link = page.split("href=\"").find(|rest| rest.starts_with(START)).unwrap_or_else(|| panic!("no link: {page}"));
    assert!(link.contains(LABEL), "{link}");
    let link = unescaped(link.split('"').next().unwrap_or_default());
    let request = redirect_of(&kim.get(&link));
    let path = ProviderVisitor::new(&provider).choose(&request, "kim");
    let answer = open_callback(&mut kim, &path);
    assert_signed_in(&mut kim, &answer, "/usage");
    assert!(kim.get("/profile").text().contains("kim"));
    let created = user(&gateway, "kim");
    assert_eq!((&created["role"], &created["groups"]), (&json!("member"), &json!(["default"])));
    assert_eq!(created["has_password"], json!(false));
    assert_eq!(kim.get("/people").status, 403, "a member is no admin");

    provider.set_claims("kim", &json!({"preferred_username": "kimberly", "email": "other@people.example"}));
    let count = user_names(&gateway).len();
    let mut elsewhere = Visitor::new(&gateway);
    let answer = sign_in_as(&mut elsewhere, &mut ProviderVisitor::new(&provider), "kim");
    assert_signed_in(&mut elsewhere, &answer, "/studio");
    assert_eq!(user(&gateway, "kim")["id"], created["id"], "the identity is the subject, not the name");
    assert_eq!(user_names(&gateway).len(), count);

    let mut noor = Visitor::new(&gateway);
    let answer = sign_in_as(&mut noor, &mut ProviderVisitor::new(&provider), "noor");
    assert_signed_in(&mut noor, &answer, "/studio");
    assert_ne!(user(&gateway, "noor")["id"], created["id"]);
}

#[test]
fn a_public_client_signs_in_without_a_secret() {
    let provider = RealProvider::for_public_client();
    let gateway = Gateway::with(&settings(provider.issuer(), false, CREATES_USERS), &[]);
    drop(sign_in_ada(&gateway));
    let mut kim = Visitor::new(&gateway);
    let answer = sign_in_as(&mut kim, &mut ProviderVisitor::new(&provider), "kim");
    assert_signed_in(&mut kim, &answer, "/studio");
}

#[test]
fn another_claim_can_have_the_name() {
    let provider = RealProvider::start();
    let gateway = provider.gateway("create_users = true\nname_claim = \"email\"");
    drop(sign_in_ada(&gateway));
    let mut kim = Visitor::new(&gateway);
    let answer = sign_in_as(&mut kim, &mut ProviderVisitor::new(&provider), "kim");
    assert_signed_in(&mut kim, &answer, "/studio");
    assert_eq!(user(&gateway, "kim@people.example")["role"], json!("member"));
}

#[test]
fn an_unknown_identity_is_refused_unless_users_are_created() {
    let provider = RealProvider::start();
    let gateway = provider.gateway("");
    drop(sign_in_ada(&gateway));
    let before = user_names(&gateway);
    let mut kim = Visitor::new(&gateway);
    let answer = sign_in_as(&mut kim, &mut ProviderVisitor::new(&provider), "kim");
    assert_refused(&mut kim, &answer, "an unknown identity");
    assert_eq!(user_names(&gateway), before);
    assert_eq!(sign_in(&mut kim, ADA, ADAS_PASSWORD).status, 303, "the form for the password still works");
}

#[test]
fn a_required_claim_lets_in_only_who_has_it() {
    let provider = RealProvider::start();
    let gateway = provider.gateway("create_users = true\nrequired_claim = { name = \"groups\", value = \"painters\" }");
    drop(sign_in_ada(&gateway));
    // The claim of one of them is a list, and that of the other is a text.
    for account in ["kim", "noor"] {
        let mut painter = Visitor::new(&gateway);
        let answer = sign_in_as(&mut painter, &mut ProviderVisitor::new(&provider), account);
        assert_signed_in(&mut painter, &answer, "/studio");
    }
    let count = user_names(&gateway).len();
    let others: [Value; 6] = [
        json!(["staff"]),
        json!(["painters and others", "house-painters"]),
        json!("house-painters"),
        json!({"painters": true}),
        json!([]),
        Value::Null,
    ];
    for groups in others {
        provider.set_claims("ada", &json!({"groups": groups}));
        let mut other = Visitor::new(&gateway);
        let answer = sign_in_as(&mut other, &mut ProviderVisitor::new(&provider), "ada");
        assert_refused(&mut other, &answer, &groups.to_string());
    }
    assert_eq!(user_names(&gateway).len(), count, "no user is created");

    provider.set_claims("kim", &json!({"groups": ["staff"]}));
    let mut kim = Visitor::new(&gateway);
    let answer = sign_in_as(&mut kim, &mut ProviderVisitor::new(&provider), "kim");
    assert_refused(&mut kim, &answer, "a user who is a painter no more");
}

#[test]
fn a_name_that_exists_is_refused_and_takes_over_nobody() {
    let provider = RealProvider::start();
    let gateway = provider.gateway(CREATES_USERS);
    let mut ada = sign_in_ada(&gateway);
    provider.set_claims("noor", &json!({"preferred_username": ADA}));
    let before = user_names(&gateway);
    let mut noor = Visitor::new(&gateway);
    let answer = sign_in_as(&mut noor, &mut ProviderVisitor::new(&provider), "noor");
    assert_refused(&mut noor, &answer, "the name of Ada");
    assert_eq!(user_names(&gateway), before);
    assert!(has_session(&mut ada) && !is_connected(&mut ada));

    provider.set_claims("noor", &json!({"preferred_username": "noor"}));
    let answer = sign_in_as(&mut noor, &mut ProviderVisitor::new(&provider), "noor");
    assert_signed_in(&mut noor, &answer, "/studio");
}

#[test]
fn a_disabled_user_is_refused() {
    let provider = RealProvider::start();
    let gateway = provider.gateway(CREATES_USERS);
    drop(sign_in_ada(&gateway));
    let mut kim = Visitor::new(&gateway);
    let answer = sign_in_as(&mut kim, &mut ProviderVisitor::new(&provider), "kim");
    assert_signed_in(&mut kim, &answer, "/studio");
    gateway.run_command(&["user", "disable", "kim"]).ok_stdout();
    let count = user_names(&gateway).len();
    let mut again = Visitor::new(&gateway);
    let answer = sign_in_as(&mut again, &mut ProviderVisitor::new(&provider), "kim");
    assert_refused(&mut again, &answer, "a disabled user");
    assert_eq!(user_names(&gateway).len(), count);
    gateway.run_command(&["user", "enable", "kim"]).ok_stdout();
    let answer = sign_in_as(&mut again, &mut ProviderVisitor::new(&provider), "kim");
    assert_signed_in(&mut again, &answer, "/studio");
}

#[test]
fn no_user_is_created_without_a_valid_name() {
    let provider = FakeProvider::start();
    let gateway = gateway_for(provider.issuer(), CREATES_USERS);
    gateway.watch_provider(&provider);
    drop(sign_in_ada(&gateway));
    let before = user_names(&gateway);
    let names = [
        Value::Null,
        json!(""),
        json!(7),
        json!(["kim"]),
        json!("k".repeat(129)),
        json!("ki\u{202e}m"),
        json!("two\nlines"),
        json!("p\u{430}inter"),
    ];
    for (number, name) in (2..).zip(names) {
        let mut visitor = Visitor::at_address(&gateway, number);
        let answer =
            sign_in_with(&mut visitor, &provider, &json!({"sub": "subject-of-kim", "preferred_username": name}));
        assert_refused(&mut visitor, &answer, &name.to_string());
    }
    let mut visitor = Visitor::at_address(&gateway, 100);
    let answer = sign_in_with(&mut visitor, &provider, &json!({"sub": "subject-of-kim"}));
    assert_refused(&mut visitor, &answer, "without the claim");
    assert_eq!(user_names(&gateway), before);

    let answer = sign_in_with(&mut visitor, &provider, &claims_of("kim <b>& co"));
    assert_signed_in(&mut visitor, &answer, "/studio");
    let page = visitor.get("/profile").text();
    assert!(!page.contains("<b>&") && page.contains("kim &#60;b&#62;"), "{page}");
}

#[test]
fn the_request_to_the_provider_is_complete_and_new_each_time() {
    let provider = FakeProvider::start();
    let gateway = gateway_for(provider.issuer(), "");
    drop(sign_in_ada(&gateway));
    let mut visitor = Visitor::new(&gateway);
    let answer = visitor.get(&format!("{START}?next=/usage"));
    let mut cookies = answer.headers.iter().filter(|(name, _)| name == "set-cookie");
    let is_hidden = |cookie: &str| cookie.contains("httponly") && cookie.contains("samesite=lax");
    assert!(cookies.any(|(_, cookie)| is_hidden(&cookie.to_ascii_lowercase())), "{:?}", answer.headers);
    let first = redirect_of(&answer);
    let second = begin(&mut visitor, "/usage");
    assert!(first.url.starts_with(&format!("{}/authorize?", provider.issuer())), "{}", first.url);
    let redirect_uri = format!("{}{}", visitor.origin(), CALLBACK);
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", "imagate"),
        ("scope", "openid profile email"),
        ("code_challenge_method", "S256"),
        ("max_age", "604800"),
        ("redirect_uri", redirect_uri.as_str()),
    ] {
        assert_eq!(first.field(name), value);
    }
    assert_eq!(first.field("code_challenge").len(), 43, "a SHA-256 in base64");
    for name in ["state", "nonce", "code_challenge"] {
        assert!(first.field(name).len() >= 16, "{name}");
        assert_ne!(first.field(name), second.field(name), "{name}");
    }
    for name in ["client_secret", "prompt"] {
        assert!(!first.fields.contains_key(name), "{name}");
    }
}

#[test]
fn without_a_provider_there_is_no_link_and_no_route() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    assert!(!ada.get("/profile").text().contains("provider-title"));
    let mut visitor = Visitor::new(&gateway);
    assert!(!visitor.get("/sign-in").text().contains(START));
    for path in [START, CALLBACK] {
        assert_eq!(visitor.get(path).status, 404, "{path}");
    }
}
