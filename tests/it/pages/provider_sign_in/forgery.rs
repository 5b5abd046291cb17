//! Callbacks that an attacker makes or changes, or carries to another browser; and redirects to other sites.

use super::super::users::{ADA, ADAS_PASSWORD, BEN, BENS_PASSWORD, sign_in, sign_in_ada, sign_in_ben};
use super::super::visitor::Visitor;
use super::flow::{
    AuthorizationRequest, CALLBACK, CONNECT, CREATES_USERS, DISCONNECT, alert_on, assert_connected, assert_refused,
    assert_signed_in, begin, begin_connection, callback_fields, callback_path, claims_of, is_connected, open_callback,
    start, user_names,
};
use super::real_provider::{ProviderVisitor, RealProvider};
use crate::kit::Gateway;

/// The cookies of a visitor without the session: those of a request to the provider.
fn cookies_of_request(visitor: &Visitor<'_>) -> Vec<(String, String)> {
    let cookies = visitor.cookies.iter().filter(|(name, _)| !name.contains("imagate_session"));
    cookies.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[test]
fn a_callback_belongs_to_the_browser_that_began() {
    let (provider, gateway) = start();
    let mut kim = Visitor::at_address(&gateway, 2);
    let request = begin(&mut kim, "/studio");
    let path = request.answer_of(&provider, &claims_of("kim"));
    let mut without_cookie = Visitor::at_address(&gateway, 3);
    let answer = open_callback(&mut without_cookie, &path);
    assert_refused(&mut without_cookie, &answer, "a browser that has begun nothing");

    let mut victim = Visitor::at_address(&gateway, 4);
    begin(&mut victim, "/studio");
    let answer = open_callback(&mut victim, &path);
    assert_refused(&mut victim, &answer, "a browser that has begun another sign-in");
    // The victim's own state, and the attacker's code.
    let own = begin(&mut victim, "/studio");
    let stolen = begin(&mut kim, "/studio");
    let code = provider.issue_code(&stolen.fields, &claims_of("kim"));
    let answer = open_callback(&mut victim, &own.callback(&code, provider.issuer()));
    assert_refused(&mut victim, &answer, "a code of another browser");
    assert!(!user_names(&gateway).contains(&"kim".to_owned()), "no user is created");

    let request = begin(&mut kim, "/studio");
    let answer = open_callback(&mut kim, &request.answer_of(&provider, &claims_of("kim")));
    assert_signed_in(&mut kim, &answer, "/studio");
}

#[test]
fn a_changed_callback_is_refused_before_the_code_is_exchanged() {
    let (provider, gateway) = start();
    let issuer = provider.issuer().to_owned();
    let make = |request: &AuthorizationRequest, case: usize| -> String {
        let code = provider.issue_code(&request.fields, &claims_of("kim"));
        let state = request.field("state");
        let (code, other) = (code.as_str(), if state.starts_with('A') { 'B' } else { 'A' });
        let changed = format!("{other}{}", &state[1..]);
        match case {
            0 => callback_path(&[("code", code), ("state", &changed), ("iss", &issuer)]),
            1 => callback_path(&[("code", code), ("state", ""), ("iss", &issuer)]),
            2 => callback_path(&[("code", code), ("iss", &issuer)]),
            3 => callback_path(&[("state", state), ("iss", &issuer)]),
            4 => callback_path(&[("code", ""), ("state", state), ("iss", &issuer)]),
            5 => callback_path(&[("code", code), ("state", state), ("iss", "http://127.0.0.1:1")]),
            6 => callback_path(&[("code", code), ("state", state), ("iss", &format!("{issuer}/"))]),
            // The provider says that it always names itself.
            7 => callback_path(&[("code", code), ("state", state)]),
            _ => CALLBACK.to_owned(),
        }
    };
    for (case, address) in (0..9).zip(2..) {
        let mut visitor = Visitor::at_address(&gateway, address);
        let request = begin(&mut visitor, "/studio");
        let answer = open_callback(&mut visitor, &make(&request, case));
        assert_refused(&mut visitor, &answer, &format!("case {case}"));
    }
    assert_eq!(provider.count_requests("/token"), 0, "a code was sent to the token endpoint");
}

#[test]
fn a_callback_works_once() {
    let provider = RealProvider::start();
    let gateway = provider.gateway(CREATES_USERS);
    drop(sign_in_ada(&gateway));
    let mut kim = Visitor::new(&gateway);
    let request = begin(&mut kim, "/studio");
    let mut copy = kim.clone();
    let path = ProviderVisitor::new(&provider).choose(&request, "kim");
    let answer = open_callback(&mut kim, &path);
    assert_signed_in(&mut kim, &answer, "/studio");
    assert_eq!(provider.count_exchanges(), 1);
    assert!(cookies_of_request(&kim).len() < cookies_of_request(&copy).len(), "the cookie of the request is deleted");

    let answer = open_callback(&mut copy, &path);
    assert_refused(&mut copy, &answer, "a copy of the browser with its cookie");
    let mut again = Visitor::new(&gateway);
    again.cookies.extend(cookies_of_request(&kim));
    let answer = open_callback(&mut again, &path);
    assert_refused(&mut again, &answer, "the browser itself");
    assert_eq!(provider.count_exchanges(), 1);
}

#[test]
fn an_error_of_the_provider_is_shown_in_words_of_the_gateway() {
    let provider = RealProvider::start();
    let gateway = provider.gateway(CREATES_USERS);
    drop(sign_in_ada(&gateway));
    let mut kim = Visitor::new(&gateway);
    let request = begin(&mut kim, "/studio");
    let path = ProviderVisitor::new(&provider).cancel(&request);
    assert_eq!(callback_fields(&path).get("error").map(String::as_str), Some("access_denied"));
    let answer = open_callback(&mut kim, &path);
    assert_refused(&mut kim, &answer, "a person who cancels");

    let request = begin(&mut kim, "/studio");
    let (state, lie) = (request.field("state"), "<script>call 0800-canary</script>");
    let path = callback_path(&[
        ("error", "access_denied"),
        ("error_description", lie),
        ("error_uri", "https://evil.example/help"),
        ("state", state),
        ("iss", provider.issuer()),
    ]);
    let answer = open_callback(&mut kim, &path);
    assert_refused(&mut kim, &answer, "a description with markup");
    let html = answer.text();
    assert!(!html.contains("<script>call") && !html.contains("https://evil.example"), "{html}");

    // Anybody can send such a link.
    let mut victim = Visitor::new(&gateway);
    let path = callback_path(&[("error", lie), ("error_description", lie), ("iss", provider.issuer())]);
    let answer = open_callback(&mut victim, &path);
    assert_refused(&mut victim, &answer, "an error that nobody has asked for");
    assert!(!alert_on(&answer).contains("0800"), "{}", answer.text());
    assert_eq!(provider.count_exchanges(), 0);
}

/// An attacker who carries a callback of their own to the browser of a victim must not become connected to the victim.
#[test]
fn an_answer_to_a_sign_in_connects_nobody() {
    let (provider, gateway) = start();
    let mut ben = sign_in_member(&gateway);
    let mut attacker = Visitor::new(&gateway);
    let request = begin(&mut attacker, "/studio");
    let path = request.answer_of(&provider, &claims_of("attacker"));
    drop(open_callback(&mut ben, &path));
    assert!(!is_connected_later(&gateway), "without the cookie of the request");

    let request = begin(&mut attacker, "/studio");
    let path = request.answer_of(&provider, &claims_of("attacker"));
    ben.cookies.extend(cookies_of_request(&attacker));
    drop(open_callback(&mut ben, &path));
    assert!(!is_connected_later(&gateway), "with the cookie of the request");
}

/// True if Ben is connected; he signs in again to see it.
#[track_caller]
fn is_connected_later(gateway: &Gateway) -> bool {
    let mut ben = Visitor::new(gateway);
    assert_eq!(sign_in(&mut ben, BEN, BENS_PASSWORD).status, 303);
    is_connected(&mut ben)
}

#[test]
fn an_answer_to_a_connection_opens_no_session() {
    let (provider, gateway) = start();
    let mut ben = sign_in_member(&gateway);
    let request = begin_connection(&mut ben);
    let path = request.answer_of(&provider, &claims_of("kim"));
    let mut without_session = Visitor::new(&gateway);
    without_session.cookies.extend(cookies_of_request(&ben));
    let answer = open_callback(&mut without_session, &path);
    assert_refused(&mut without_session, &answer, "a browser whose session has ended");
    assert!(!user_names(&gateway).contains(&"kim".to_owned()), "no user is created");
    assert!(!is_connected(&mut ben));

    // Another user has signed in meanwhile, in the same browser.
    let request = begin_connection(&mut ben);
    let path = request.answer_of(&provider, &claims_of("kim"));
    let mut ada = Visitor::new(&gateway);
    assert_eq!(sign_in(&mut ada, ADA, ADAS_PASSWORD).status, 303);
    ada.cookies.extend(cookies_of_request(&ben));
    let answer = open_callback(&mut ada, &path);
    assert!((400..500).contains(&answer.status), "{} {}", answer.status, answer.text());
    assert!(!is_connected(&mut ada) && !is_connected(&mut ben));
}

/// Ben, invited by Ada and signed in.
#[track_caller]
fn sign_in_member(gateway: &Gateway) -> Visitor<'_> {
    let mut ada = Visitor::new(gateway);
    assert_eq!(sign_in(&mut ada, ADA, ADAS_PASSWORD).status, 303);
    sign_in_ben(&mut ada)
}

#[test]
fn no_sign_in_redirects_to_another_site() {
    let (provider, gateway) = start();
    let foreign = [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "\\\\evil.example/",
        "/\t/evil.example/",
        "javascript:alert(1)",
        "/keys\r\nset-cookie: planted=1",
        "evil.example",
        "/sign-in/../../evil.example",
    ];
    for (next, address) in foreign.into_iter().zip(2..) {
        let mut kim = Visitor::at_address(&gateway, address);
        let request = begin(&mut kim, next);
        assert!(request.url.starts_with(provider.issuer()), "{next}: {}", request.url);
        let answer = open_callback(&mut kim, &request.answer_of(&provider, &claims_of("kim")));
        assert_eq!(answer.status, 303, "{next}: {}", answer.text());
        let location = answer.header("location").unwrap_or_default();
        assert!(["/studio", "/keys"].contains(&location), "{next}: {location}");
        assert!(!kim.cookies.contains_key("planted"));
    }
    let mut kim = Visitor::new(&gateway);
    let request = begin(&mut kim, "/usage?key=key_1");
    let answer = open_callback(&mut kim, &request.answer_of(&provider, &claims_of("kim")));
    assert_signed_in(&mut kim, &answer, "/usage?key=key_1");
}

#[test]
fn a_callback_is_no_form_and_a_disconnection_no_link() {
    let (provider, gateway) = start();
    let mut ada = Visitor::new(&gateway);
    assert_eq!(sign_in(&mut ada, ADA, ADAS_PASSWORD).status, 303);
    let request = begin_connection(&mut ada);
    let answer = open_callback(&mut ada, &request.answer_of(&provider, &claims_of("kim")));
    assert_connected(&mut ada, &answer);
    for path in [DISCONNECT, CONNECT] {
        let answer = ada.get(path);
        assert!([404, 405].contains(&answer.status), "{path}: {}", answer.status);
    }
    let form = ada.form("/profile", DISCONNECT).without("csrf");
    assert_eq!(ada.post(DISCONNECT, &form.fields).status, 403);
    assert!(is_connected(&mut ada));
    let answer = ada.post(CALLBACK, &form.fields);
    assert!([403, 404, 405].contains(&answer.status), "{}", answer.status);
}
