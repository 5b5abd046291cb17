//! A provider that breaks the rules of OpenID Connect, or is not there.

use super::super::users::{ADA, ADAS_PASSWORD, sign_in, sign_in_ada};
use super::super::visitor::Visitor;
use super::flow::{
    CREATES_USERS, LABEL, START, alert_on, assert_refused, assert_signed_in, begin, claims_of, gateway_for,
    has_session, open_callback, sign_in_with, start, user_names,
};
use crate::kit::{
    ALL_ANSWER_FLAWS, ALL_DISCOVERY_FLAWS, ALL_TOKEN_FLAWS, Answer, AnswerFlaw, FakeProvider, Gateway, eventually,
};

/// The answer says that the provider cannot be used, and leads nowhere.
#[track_caller]
fn assert_no_redirect(answer: &Answer, case: &str) {
    assert!((400..600).contains(&answer.status), "{case}: {} {}", answer.status, answer.text());
    assert!(answer.header("location").is_none(), "{case}");
    drop(alert_on(answer));
    assert!(answer.text().contains("name=\"password\""), "{case}: the form for the password: {}", answer.text());
}

/// Begins sign-ins until one leads to the provider, because the gateway may remember a failure for some time.
#[track_caller]
fn wait_until_usable(gateway: &Gateway) {
    eventually("the provider can be used", || {
        let answer = Visitor::new(gateway).get(START);
        (answer.status == 303).then_some(())
    });
}

#[test]
fn no_broken_token_opens_a_session() {
    let (provider, gateway) = start();
    let mut first = Visitor::at_address(&gateway, 2);
    let answer = sign_in_with(&mut first, &provider, &claims_of("kim"));
    assert_signed_in(&mut first, &answer, "/studio");
    let before = user_names(&gateway);
    for (flaw, address) in ALL_TOKEN_FLAWS.into_iter().zip(3..) {
        provider.set_token_flaw(Some(flaw));
        let mut visitor = Visitor::at_address(&gateway, address);
        let answer = sign_in_with(&mut visitor, &provider, &claims_of("kim"));
        assert_refused(&mut visitor, &answer, &format!("{flaw:?}"));
    }
    assert_eq!(user_names(&gateway), before);
    assert_eq!(provider.count_requests("/token"), ALL_TOKEN_FLAWS.len() + 1, "one exchange for each code");
    provider.set_token_flaw(None);
    let mut last = Visitor::at_address(&gateway, 100);
    let answer = sign_in_with(&mut last, &provider, &claims_of("kim"));
    assert_signed_in(&mut last, &answer, "/studio");
}

#[test]
fn no_broken_answer_of_the_token_endpoint_opens_a_session() {
    let (provider, gateway) = start();
    for (flaw, address) in ALL_ANSWER_FLAWS.into_iter().zip(3..) {
        provider.set_answer_flaw(Some(flaw));
        let mut visitor = Visitor::at_address(&gateway, address);
        let answer = sign_in_with(&mut visitor, &provider, &claims_of("kim"));
        assert_refused(&mut visitor, &answer, &format!("{flaw:?}"));
        assert!(!answer.text().contains("canary of the provider"), "{flaw:?}: {}", answer.text());
    }
    provider.set_answer_flaw(None);
    let mut last = Visitor::at_address(&gateway, 100);
    let answer = sign_in_with(&mut last, &provider, &claims_of("kim"));
    assert_signed_in(&mut last, &answer, "/studio");
}

#[test]
fn a_provider_that_hangs_holds_up_nobody_else() {
    let (provider, gateway) = start();
    provider.set_answer_flaw(Some(AnswerFlaw::Hang));
    let mut visitor = Visitor::at_address(&gateway, 2);
    let request = begin(&mut visitor, "/studio");
    let path = request.answer_of(&provider, &claims_of("kim"));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| open_callback(&mut visitor, &path).status);
        eventually("the exchange begins", || (provider.count_requests("/token") > 0).then_some(()));
        let mut ada = Visitor::new(&gateway);
        assert_eq!(sign_in(&mut ada, ADA, ADAS_PASSWORD).status, 303);
        provider.set_answer_flaw(None);
        assert!([303, 422].contains(&waiting.join().expect("a status")));
    });
}

#[test]
fn a_broken_description_is_not_used() {
    let (provider, gateway) = start();
    for (flaw, address) in ALL_DISCOVERY_FLAWS.into_iter().zip(3..) {
        provider.set_discovery_flaw(Some(flaw));
        let answer = Visitor::at_address(&gateway, address).get(START);
        assert_no_redirect(&answer, &format!("{flaw:?}"));
    }
    provider.set_discovery_flaw(None);
    wait_until_usable(&gateway);
    let mut kim = Visitor::at_address(&gateway, 100);
    let answer = sign_in_with(&mut kim, &provider, &claims_of("kim"));
    assert_signed_in(&mut kim, &answer, "/studio");
}

#[test]
fn without_the_provider_the_password_still_works() {
    let (provider, gateway) = start();
    provider.set_down(true);
    let mut ada = Visitor::new(&gateway);
    assert!(ada.get("/sign-in").text().contains(LABEL));
    assert_no_redirect(&ada.get(START), "the provider is down");
    assert_eq!(sign_in(&mut ada, ADA, ADAS_PASSWORD).status, 303);
    assert!(has_session(&mut ada));
    let page = ada.get("/profile");
    assert_eq!(page.status, 200, "the profile needs no provider: {}", page.text());

    provider.set_down(false);
    wait_until_usable(&gateway);
    let mut kim = Visitor::new(&gateway);
    let request = begin(&mut kim, "/studio");
    let path = request.answer_of(&provider, &claims_of("kim"));
    provider.set_down(true);
    let answer = open_callback(&mut kim, &path);
    assert_refused(&mut kim, &answer, "the provider is down at the callback");
    provider.set_down(false);
    let answer = sign_in_with(&mut kim, &provider, &claims_of("kim"));
    assert_signed_in(&mut kim, &answer, "/studio");
}

#[test]
fn a_gateway_starts_without_the_provider() {
    let provider = FakeProvider::start();
    let issuer = provider.issuer().to_owned();
    drop(provider);
    let gateway = gateway_for(&issuer, CREATES_USERS);
    let mut ada = sign_in_ada(&gateway);
    assert!(has_session(&mut ada));
    assert_no_redirect(&Visitor::new(&gateway).get(START), "nobody listens");
}
