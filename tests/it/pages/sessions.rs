//! Sessions: the attributes of their cookies, their owners and their ends.

use super::browser::{Browser, WITH_SCRIPT};
use super::users::{
    ADA, ADAS_PASSWORD, BEN, BENS_PASSWORD, invite, setup_path, sign_in, sign_in_ada, sign_in_at, sign_in_ben,
    watch_cookies, watch_passwords,
};
use super::visitor::Visitor;
use crate::kit::{Answer, Call, Gateway, eventually};

/// The name of the session cookie over plain HTTP, which has the port.
fn session_cookie(gateway: &Gateway) -> String {
    format!("imagate_session_{}", gateway.address().port())
}

/// The name of the session cookie if the gateway's public URL is `https`.
const SECURE_COOKIE: &str = "__Host-imagate";

/// The attributes of a cookie that an answer sets.
fn attributes(answer: &Answer, name: &str) -> Vec<String> {
    let set =
        answer.headers.iter().find(|(header, value)| header == "set-cookie" && value.starts_with(&format!("{name}=")));
    let (_, line) = set.unwrap_or_else(|| panic!("no cookie {name}: {:?}", answer.headers));
    line.split(';').skip(1).map(|attribute| attribute.trim().to_ascii_lowercase()).collect()
}

fn is_signed_in(visitor: &mut Visitor<'_>) -> bool {
    visitor.get("/keys").status == 200
}

#[test]
fn a_session_cookie_is_hidden_from_scripts_and_other_sites() {
    let gateway = Gateway::simulated();
    drop(sign_in_ada(&gateway));
    let answer = sign_in(&mut Visitor::new(&gateway), ADA, ADAS_PASSWORD);
    let attributes = attributes(&answer, &session_cookie(&gateway));
    for expected in ["httponly", "samesite=lax", "path=/"] {
        assert!(attributes.contains(&expected.to_owned()), "{expected}: {attributes:?}");
    }
    assert!(!attributes.iter().any(|attribute| attribute.starts_with("domain")), "{attributes:?}");
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    assert_eq!(tab.evaluate("document.cookie"), "");
}

#[test]
fn with_an_https_address_the_cookie_is_secure() {
    let gateway = Gateway::with("public_url = \"https://images.example\"", &[]);
    watch_passwords(&gateway);
    let printed = gateway.output();
    let path = setup_path(&gateway);
    assert!(printed.contains(&format!("https://images.example{path}")), "the link does not have the public address");
    let mut ada = Visitor::to_host(&gateway, "images.example", "https://images.example");
    let fields = [("name", ADA), ("password", ADAS_PASSWORD), ("again", ADAS_PASSWORD)];
    let answer = ada.submit(&path, &path, &fields);
    assert_eq!(answer.status, 303, "{}", answer.text());
    let attributes = attributes(&answer, SECURE_COOKIE);
    for expected in ["secure", "httponly", "samesite=lax", "path=/"] {
        assert!(attributes.contains(&expected.to_owned()), "{expected}: {attributes:?}");
    }
    watch_cookies(&gateway, &ada.cookies);
    assert!(is_signed_in(&mut ada));
    let page = ada.get("/keys");
    assert_eq!(page.header("strict-transport-security"), Some("max-age=31536000"));
}

#[test]
fn a_planted_cookie_never_becomes_a_session_cookie() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let mut ben = sign_in_ben(&mut ada);
    let bens_cookie = ben.cookies[&session_cookie(&gateway)].clone();
    for planted in ["chosen-by-an-attacker-0123456789abcdefghi", bens_cookie.as_str()] {
        let mut victim = Visitor::new(&gateway);
        victim.cookies.insert(session_cookie(&gateway), planted.to_owned());
        let page = victim.get("/sign-in");
        victim.cookies.insert(session_cookie(&gateway), planted.to_owned());
        if page.status == 303 {
            // The planted cookie belongs to a session, so the victim signs out first.
            victim.submit("/keys", "/sign-out", &[]);
        }
        let answer = sign_in(&mut victim, ADA, ADAS_PASSWORD);
        assert_eq!(answer.status, 303, "{}", answer.text());
        assert_ne!(victim.cookies[&session_cookie(&gateway)], planted);
        let mut attacker = Visitor::new(&gateway);
        attacker.cookies.insert(session_cookie(&gateway), planted.to_owned());
        assert!(!attacker.get("/keys").text().contains(ADA), "{planted} opens the session of the victim");
    }
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    tab.give_cookie(&session_cookie(&gateway), "chosen-by-an-attacker-0123456789abcdefghi");
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    let cookies = tab.cookies();
    assert!(cookies.iter().any(|cookie| cookie["name"] == session_cookie(&gateway)), "{cookies:?}");
    assert!(
        !cookies.iter().any(|cookie| cookie["value"].as_str().is_some_and(|value| value.starts_with("chosen"))),
        "{cookies:?}"
    );
    drop(sign_in(&mut ben, BEN, BENS_PASSWORD));
}

#[test]
fn sign_out_password_change_and_disabling_end_sessions() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let mut ben = sign_in_ben(&mut ada);
    let mut elsewhere = Visitor::new(&gateway);
    sign_in(&mut elsewhere, BEN, BENS_PASSWORD);
    let mut stolen = elsewhere.clone();
    elsewhere.submit("/keys", "/sign-out", &[]);
    assert!(!is_signed_in(&mut stolen) && is_signed_in(&mut ben), "the sign-out must end only its own session");

    sign_in(&mut elsewhere, BEN, BENS_PASSWORD);
    ben.submit("/profile", "/profile/sign-out", &[]);
    assert!(!is_signed_in(&mut ben) && !is_signed_in(&mut elsewhere), "the sign-out must end all sessions");

    for visitor in [&mut ben, &mut elsewhere] {
        sign_in(visitor, BEN, BENS_PASSWORD);
    }
    let new_password = "canary-of-ben-moults-in-june";
    gateway.watch_secret("a password", new_password, &[]);
    let fields = [("old", BENS_PASSWORD), ("password", new_password), ("again", new_password)];
    let answer = ben.submit("/profile", "/profile/password", &fields);
    assert_eq!(answer.status, 303, "{}", answer.text());
    watch_cookies(&gateway, &ben.cookies);
    assert!(is_signed_in(&mut ben) && !is_signed_in(&mut elsewhere), "a new password must end the other sessions");
    assert_ne!(sign_in(&mut elsewhere, BEN, BENS_PASSWORD).status, 303, "the old password must be refused");
    assert_eq!(sign_in(&mut elsewhere, BEN, new_password).status, 303);

    let people = ada.get("/people").text();
    let path = people.split("href=\"").find(|link| link.contains(BEN) && link.starts_with("/people/")).expect("a link");
    let path = path.split('"').next().expect("a path").to_owned();
    let answer = ada.submit(&path, &format!("{path}/disable"), &[]);
    assert_eq!(answer.status, 303, "{}", answer.text());
    assert!(!is_signed_in(&mut ben) && !is_signed_in(&mut elsewhere), "the sessions of a disabled user must end");
    assert_ne!(sign_in(&mut elsewhere, BEN, new_password).status, 303);
}

#[test]
fn a_one_time_link_works_once_even_for_two_parallel_browsers() {
    let gateway = Gateway::simulated();
    watch_passwords(&gateway);
    let path = setup_path(&gateway);
    let mut visitors = [Visitor::new(&gateway), Visitor::new(&gateway)];
    let names = [ADA, "eve@desk"];
    let winner = race(&mut visitors, &path, &[&[("name", names[0])], &[("name", names[1])]]);
    let people = visitors[winner].get("/people").text();
    let is_listed = |name: &str| people.contains(&format!(">{name}<"));
    assert!(is_listed(names[winner]) && !is_listed(names[1 - winner]), "there must be one administrator: {people}");
    let late_answer = Visitor::new(&gateway).get(&path);
    assert!(
        [404, 410].contains(&late_answer.status)
            && !late_answer.text().contains("<form method=\"post\" action=\"/setup"),
        "{late_answer:?}"
    );

    let ada = &mut visitors[winner];
    let invitation = invite(ada, BEN, "member");
    let mut visitors = [Visitor::new(&gateway), Visitor::new(&gateway)];
    let winner = race(&mut visitors, &invitation, &[&[], &[]]);
    assert!(is_signed_in(&mut visitors[winner]) && !is_signed_in(&mut visitors[1 - winner]));
    assert!([404, 410].contains(&Visitor::new(&gateway).get(&invitation).status));
}

/// The APIs accept no cookie, because a page of another site could make a browser send it.
#[test]
fn a_session_cookie_opens_only_pages() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    for path in ["/admin/v1/me", "/admin/v1/keys", "/v1/models"] {
        assert_eq!(ada.send(Call::get(path)).error_object(401)["code"], "INVALID_API_KEY", "{path}");
    }
    assert!(is_signed_in(&mut ada));
}

/// The test kit searches the log for watched secrets when the gateway ends.
#[test]
fn refused_requests_write_no_one_time_link_to_the_log() {
    let gateway = Gateway::simulated();
    let path = setup_path(&gateway);
    assert_eq!(Call::get(&format!("{path}/more")).send(gateway.address()).status, 404);
    assert_eq!(Call::with_method("PROPFIND", &path).send(gateway.address()).status, 405);
    eventually("the request is logged", || gateway.output().contains("PROPFIND").then_some(()));
}

/// Lets two visitors send the same form at once, and returns the index of the only visitor who succeeds.
#[track_caller]
fn race(visitors: &mut [Visitor<'_>; 2], path: &str, fields: &[&[(&str, &str)]; 2]) -> usize {
    let password = [("password", ADAS_PASSWORD), ("again", ADAS_PASSWORD)];
    let forms: Vec<_> = visitors
        .iter_mut()
        .zip(fields)
        .map(|(visitor, fields)| visitor.form(path, path).with(&password).with(fields))
        .collect();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = visitors
            .iter_mut()
            .zip(&forms)
            .map(|(visitor, form)| scope.spawn(|| visitor.post(path, &form.fields).status))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 303).count(), 1, "{statuses:?}");
    watch_cookies(visitors[0].gateway, visitors.iter().flat_map(|visitor| &visitor.cookies));
    statuses.iter().position(|status| *status == 303).expect("a winner")
}
