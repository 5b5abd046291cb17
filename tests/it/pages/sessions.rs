//! Sessions: what a cookie is like, whose it is, and when it is nobody's any more.

use super::browser::{Browser, WITH_SCRIPT};
use super::people::{
    ADA, ADAS_PASSWORD, BEN, BENS_PASSWORD, ada, ben, guard_cookies, guard_passwords, invite, setup_path, sign_in,
    sign_in_at,
};
use super::visitor::Visitor;
use crate::kit::{Answer, Call, Gateway, eventually};

const COOKIE: &str = "imagate_session";
/// Of a gateway that is reached by an encrypted way.
const SECURE_COOKIE: &str = "__Host-imagate";

/// The attributes of a cookie that an answer sets.
fn attributes(answer: &Answer, name: &str) -> Vec<String> {
    let set =
        answer.headers.iter().find(|(header, value)| header == "set-cookie" && value.starts_with(&format!("{name}=")));
    let (_, line) = set.unwrap_or_else(|| panic!("no cookie {name}: {:?}", answer.headers));
    line.split(';').skip(1).map(|attribute| attribute.trim().to_ascii_lowercase()).collect()
}

fn is_in(visitor: &mut Visitor<'_>) -> bool {
    visitor.get("/keys").status == 200
}

#[test]
fn a_cookie_is_for_no_script_and_no_other_site() {
    let gateway = Gateway::simulated();
    drop(ada(&gateway));
    let answer = sign_in(&mut Visitor::to(&gateway), ADA, ADAS_PASSWORD);
    let attributes = attributes(&answer, COOKIE);
    for wanted in ["httponly", "samesite=strict", "path=/"] {
        assert!(attributes.contains(&wanted.to_owned()), "{wanted}: {attributes:?}");
    }
    assert!(!attributes.iter().any(|attribute| attribute.starts_with("domain")), "{attributes:?}");
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    assert_eq!(tab.evaluate("document.cookie"), "");
}

#[test]
fn behind_an_encrypted_address_a_cookie_never_goes_another_way() {
    let gateway = Gateway::with("public_url = \"https://images.example\"", &[]);
    guard_passwords(&gateway);
    let printed = gateway.output();
    let path = setup_path(&gateway);
    assert!(printed.contains(&format!("https://images.example{path}")), "the link has the public address");
    let mut ada = Visitor::to_host(&gateway, "images.example", "https://images.example");
    let fields = [("name", ADA), ("password", ADAS_PASSWORD), ("again", ADAS_PASSWORD)];
    let answer = ada.submit(&path, &path, &fields);
    assert_eq!(answer.status, 303, "{}", answer.text());
    let attributes = attributes(&answer, SECURE_COOKIE);
    for wanted in ["secure", "httponly", "samesite=strict", "path=/"] {
        assert!(attributes.contains(&wanted.to_owned()), "{wanted}: {attributes:?}");
    }
    guard_cookies(&gateway, &ada.cookies);
    assert!(is_in(&mut ada));
}

#[test]
fn a_cookie_that_somebody_planted_is_never_the_cookie_of_a_session() {
    let gateway = Gateway::simulated();
    let mut ada = ada(&gateway);
    let mut ben = ben(&mut ada);
    let bens = ben.cookies[COOKIE].clone();
    for planted in ["chosen-by-an-attacker-0123456789abcdefghi", bens.as_str()] {
        let mut victim = Visitor::to(&gateway);
        victim.cookies.insert(COOKIE.to_owned(), planted.to_owned());
        let page = victim.get("/sign-in");
        victim.cookies.insert(COOKIE.to_owned(), planted.to_owned());
        if page.status == 303 {
            // Whoever is signed in already signs out first.
            victim.submit("/keys", "/sign-out", &[]);
        }
        let answer = sign_in(&mut victim, ADA, ADAS_PASSWORD);
        assert_eq!(answer.status, 303, "{}", answer.text());
        assert_ne!(victim.cookies[COOKIE], planted);
        let mut attacker = Visitor::to(&gateway);
        attacker.cookies.insert(COOKIE.to_owned(), planted.to_owned());
        assert!(!attacker.get("/keys").text().contains(ADA), "{planted} opens the session of somebody else");
    }
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    tab.give_cookie(COOKIE, "chosen-by-an-attacker-0123456789abcdefghi");
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    let cookies = tab.cookies();
    assert!(cookies.iter().any(|cookie| cookie["name"] == COOKIE), "{cookies:?}");
    assert!(
        !cookies.iter().any(|cookie| cookie["value"].as_str().is_some_and(|value| value.starts_with("chosen"))),
        "{cookies:?}"
    );
    drop(sign_in(&mut ben, BEN, BENS_PASSWORD));
}

#[test]
fn a_session_ends_where_its_owner_leaves_changes_the_password_or_is_disabled() {
    let gateway = Gateway::simulated();
    let mut ada = ada(&gateway);
    let mut ben = ben(&mut ada);
    let mut elsewhere = Visitor::to(&gateway);
    sign_in(&mut elsewhere, BEN, BENS_PASSWORD);
    let mut stolen = elsewhere.clone();
    elsewhere.submit("/keys", "/sign-out", &[]);
    assert!(!is_in(&mut stolen) && is_in(&mut ben), "only that session is over");

    sign_in(&mut elsewhere, BEN, BENS_PASSWORD);
    ben.submit("/profile", "/profile/sign-out", &[]);
    assert!(!is_in(&mut ben) && !is_in(&mut elsewhere), "all are over");

    for visitor in [&mut ben, &mut elsewhere] {
        sign_in(visitor, BEN, BENS_PASSWORD);
    }
    let next = "canary-of-ben-moults-in-june";
    gateway.watch_secret("a password", next, &[]);
    let fields = [("old", BENS_PASSWORD), ("password", next), ("again", next)];
    let answer = ben.submit("/profile", "/profile/password", &fields);
    assert_eq!(answer.status, 303, "{}", answer.text());
    guard_cookies(&gateway, &ben.cookies);
    assert!(is_in(&mut ben) && !is_in(&mut elsewhere), "the others are over");
    assert_ne!(sign_in(&mut elsewhere, BEN, BENS_PASSWORD).status, 303, "the old password is over");
    assert_eq!(sign_in(&mut elsewhere, BEN, next).status, 303);

    let people = ada.get("/people").text();
    let path = people.split("href=\"").find(|link| link.contains(BEN) && link.starts_with("/people/")).expect("a link");
    let path = path.split('"').next().expect("a path").to_owned();
    let answer = ada.submit(&path, &format!("{path}/disable"), &[]);
    assert_eq!(answer.status, 303, "{}", answer.text());
    assert!(!is_in(&mut ben) && !is_in(&mut elsewhere), "somebody who is disabled is out");
    assert_ne!(sign_in(&mut elsewhere, BEN, next).status, 303);
}

#[test]
fn a_link_works_once_also_where_two_browsers_race_for_it() {
    let gateway = Gateway::simulated();
    guard_passwords(&gateway);
    let path = setup_path(&gateway);
    let mut visitors = [Visitor::to(&gateway), Visitor::to(&gateway)];
    let names = [ADA, "eve@desk"];
    let won = race(&mut visitors, &path, &[&[("name", names[0])], &[("name", names[1])]]);
    let people = visitors[won].get("/people").text();
    let named = |name: &str| people.contains(&format!(">{name}<"));
    assert!(named(names[won]) && !named(names[1 - won]), "there is one administrator: {people}");
    let late = Visitor::to(&gateway).get(&path);
    assert!(
        [404, 410].contains(&late.status) && !late.text().contains("<form method=\"post\" action=\"/setup"),
        "{late:?}"
    );

    let ada = &mut visitors[won];
    let invitation = invite(ada, BEN, "member");
    let mut visitors = [Visitor::to(&gateway), Visitor::to(&gateway)];
    let won = race(&mut visitors, &invitation, &[&[], &[]]);
    assert!(is_in(&mut visitors[won]) && !is_in(&mut visitors[1 - won]));
    assert!([404, 410].contains(&Visitor::to(&gateway).get(&invitation).status));
}

/// A program's interface takes no cookie: a page of another site could make a browser send it.
#[test]
fn the_cookie_of_a_page_opens_nothing_but_pages() {
    let gateway = Gateway::simulated();
    let mut ada = ada(&gateway);
    for path in ["/admin/v1/me", "/admin/v1/keys", "/v1/models"] {
        assert_eq!(ada.send(Call::get(path)).error_object(401)["code"], "INVALID_API_KEY", "{path}");
    }
    assert!(is_in(&mut ada));
}

/// The kit looks through the log when the gateway ends.
#[test]
fn what_no_page_answers_brings_no_link_into_the_log() {
    let gateway = Gateway::simulated();
    let path = setup_path(&gateway);
    assert_eq!(Call::get(&format!("{path}/more")).send(gateway.address()).status, 404);
    assert_eq!(Call::with_method("PROPFIND", &path).send(gateway.address()).status, 405);
    eventually("it is logged", || gateway.output().contains("PROPFIND").then_some(()));
}

/// Both have the form before either sends it. Who got in; exactly one does.
#[track_caller]
fn race(visitors: &mut [Visitor<'_>; 2], path: &str, fields: &[&[(&str, &str)]; 2]) -> usize {
    let password = [("password", ADAS_PASSWORD), ("again", ADAS_PASSWORD)];
    let forms: Vec<_> = visitors
        .iter_mut()
        .zip(fields)
        .map(|(visitor, fields)| visitor.form(path, path).with(&password).with(fields))
        .collect();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let racing: Vec<_> = visitors
            .iter_mut()
            .zip(&forms)
            .map(|(visitor, form)| scope.spawn(|| visitor.post(path, &form.fields).status))
            .collect();
        racing.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 303).count(), 1, "{statuses:?}");
    guard_cookies(visitors[0].gateway, visitors.iter().flat_map(|visitor| &visitor.cookies));
    statuses.iter().position(|status| *status == 303).expect("a winner")
}
