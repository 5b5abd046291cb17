//! The provider in place of the password, where the gateway asks for a fresh proof of identity.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::super::identity_proof::{age_sessions, answer_question};
use super::super::second_factor::{codes_on, current_code, secret_on};
use super::super::users::{ADA, ADAS_PASSWORD, sign_in, sign_in_ada, token_in};
use super::super::visitor::Visitor;
use super::flow::{
    AuthorizationRequest, CONFIRM, assert_connected, assert_refused, begin, begin_connection, claims_of, connect_ada,
    gateway_for, gateway_with, open_callback, redirect_of, sign_in_with,
};
use super::real_provider::{ProviderVisitor, RealProvider};
use crate::kit::{Answer, FakeProvider, Gateway, OutputChannel};

const TOKENS: &str = "/profile/tokens";

/// Sends the form for an admin token with this name.
#[track_caller]
fn ask_for_token(visitor: &mut Visitor<'_>, name: &str) -> Answer {
    visitor.submit("/profile", TOKENS, &[("name", name)])
}

/// Watches for the token of a page, and returns true if there is one.
fn shows_token(gateway: &Gateway, answer: &Answer) -> bool {
    let Some(token) = token_in(&answer.text()) else { return false };
    gateway.watch_secret("an admin token", &token, &[OutputChannel::Key]);
    true
}

/// True if the answer is a question that the provider can answer.
fn leads_to_provider(answer: &Answer) -> bool {
    answer.status == 200 && answer.text().contains(&format!("href=\"{CONFIRM}\""))
}

/// Follows the link of the question.
#[track_caller]
fn begin_confirmation(visitor: &mut Visitor<'_>) -> AuthorizationRequest {
    let request = redirect_of(&visitor.get(CONFIRM));
    assert_eq!((request.field("max_age"), request.field("prompt")), ("0", "login"));
    request
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs()
}

/// Claims of the subject of a name, with the time at which the person has signed in at the provider.
fn claims_at(name: &str, auth_time: &Value) -> Value {
    let mut claims = claims_of(name);
    claims["auth_time"] = auth_time.clone();
    claims
}

#[test]
fn the_provider_answers_a_question_in_place_of_the_password() {
    let provider = RealProvider::start();
    let gateway = provider.gateway("");
    let mut ada = sign_in_ada(&gateway);
    age_sessions(&gateway);
    let question = ask_for_token(&mut ada, "deploy");
    assert!(!leads_to_provider(&question), "the user is not connected: {}", question.text());
    let mut ada = Visitor::new(&gateway);
    assert_eq!(sign_in(&mut ada, ADA, ADAS_PASSWORD).status, 303);
    let request = begin_connection(&mut ada);
    let mut person = ProviderVisitor::new(&provider);
    let path = person.choose(&request, "kim");
    let answer = open_callback(&mut ada, &path);
    assert_connected(&mut ada, &answer);

    age_sessions(&gateway);
    let question = ask_for_token(&mut ada, "deploy");
    assert!(leads_to_provider(&question), "{}", question.text());
    let early = answer_question(&mut ada, &question, TOKENS, "");
    assert!(!shows_token(&gateway, &early) && leads_to_provider(&early), "{}", early.text());

    let request = begin_confirmation(&mut ada);
    // The person has a session at the provider, which asks nevertheless.
    let path = person.choose_again(&request, "kim");
    let answer = open_callback(&mut ada, &path);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let made = answer_question(&mut ada, &early, TOKENS, "");
    assert!(shows_token(&gateway, &made), "{} {}", made.status, made.text());
    assert!(shows_token(&gateway, &ask_for_token(&mut ada, "second")), "the proof is still fresh");
}

#[test]
fn another_person_at_the_provider_confirms_nothing() {
    let provider = RealProvider::start();
    let gateway = provider.gateway("");
    let mut ada = sign_in_ada(&gateway);
    let request = begin_connection(&mut ada);
    let path = ProviderVisitor::new(&provider).choose(&request, "kim");
    let answer = open_callback(&mut ada, &path);
    assert_connected(&mut ada, &answer);
    age_sessions(&gateway);
    let question = ask_for_token(&mut ada, "deploy");
    let request = begin_confirmation(&mut ada);
    let path = ProviderVisitor::new(&provider).choose(&request, "noor");
    let answer = open_callback(&mut ada, &path);
    assert!((400..500).contains(&answer.status), "{} {}", answer.status, answer.text());
    let refused = answer_question(&mut ada, &question, TOKENS, "");
    assert!(!shows_token(&gateway, &refused) && leads_to_provider(&refused), "{}", refused.text());

    let request = begin_confirmation(&mut ada);
    let path = ProviderVisitor::new(&provider).cancel(&request);
    let answer = open_callback(&mut ada, &path);
    assert!((400..500).contains(&answer.status), "{} {}", answer.status, answer.text());
    let refused = answer_question(&mut ada, &refused, TOKENS, "");
    assert!(!shows_token(&gateway, &refused), "{}", refused.text());
}

#[test]
fn an_old_sign_in_at_the_provider_confirms_nothing() {
    let provider = FakeProvider::start();
    let gateway = gateway_for(provider.issuer(), "");
    let mut ada = connect_ada(&gateway, &provider);
    age_sessions(&gateway);
    let mut question = ask_for_token(&mut ada, "deploy");
    let now = unix_seconds();
    for auth_time in [Value::Null, json!(now - 3600), json!("now"), json!(-1)] {
        let request = begin_confirmation(&mut ada);
        let answer = open_callback(&mut ada, &request.answer_of(&provider, &claims_at("kim", &auth_time)));
        assert!((400..500).contains(&answer.status), "{auth_time}: {} {}", answer.status, answer.text());
        question = answer_question(&mut ada, &question, TOKENS, "");
        assert!(!shows_token(&gateway, &question) && leads_to_provider(&question), "{auth_time}: {}", question.text());
    }
    let request = begin_confirmation(&mut ada);
    let path = request.answer_of(&provider, &claims_at("kim", &json!(unix_seconds())));
    assert_eq!(open_callback(&mut ada, &path).status, 200);
    let made = answer_question(&mut ada, &question, TOKENS, "");
    assert!(shows_token(&gateway, &made), "{} {}", made.status, made.text());
}

/// The answers of the provider to the three kinds of requests are not interchangeable.
#[test]
fn only_the_answer_to_a_confirmation_confirms() {
    let provider = FakeProvider::start();
    let gateway = gateway_for(provider.issuer(), "");
    let mut ada = connect_ada(&gateway, &provider);
    age_sessions(&gateway);
    let question = ask_for_token(&mut ada, "deploy");

    // A confirmation opens no session.
    let request = begin_confirmation(&mut ada);
    let mut thief = Visitor::new(&gateway);
    let of_confirmation = ada.cookies.iter().filter(|(name, _)| !name.contains("imagate_session"));
    thief.cookies.extend(of_confirmation.map(|(name, value)| (name.clone(), value.clone())));
    let path = request.answer_of(&provider, &claims_at("kim", &json!(unix_seconds())));
    let answer = open_callback(&mut thief, &path);
    assert_refused(&mut thief, &answer, "a confirmation in a browser without a session");

    // A plain sign-in, in a browser that has no session yet; its cookies are then those of the user.
    let mut other = Visitor::new(&gateway);
    let request = begin(&mut other, "/studio");
    let session = ada.cookies.clone();
    ada.cookies.extend(other.cookies);
    drop(ada.get(&request.answer_of(&provider, &claims_at("kim", &json!(unix_seconds())))));
    ada.cookies = session;
    let refused = answer_question(&mut ada, &question, TOKENS, "");
    assert!(!shows_token(&gateway, &refused), "{}", refused.text());
}

#[test]
fn a_confirmation_needs_a_connected_user() {
    let provider = FakeProvider::start();
    let gateway = gateway_for(provider.issuer(), "");
    for mut visitor in [sign_in_ada(&gateway), Visitor::new(&gateway)] {
        let answer = visitor.get(CONFIRM);
        let location = answer.header("location").unwrap_or_default();
        assert!(!location.starts_with(provider.issuer()), "{location}");
    }
}

/// The set-up of a required second factor needs a fresh proof, which a user without a password has only at the provider.
#[test]
fn a_user_without_a_password_sets_up_a_required_second_factor() {
    const PAGE: &str = "/profile/second-factor";
    let provider = FakeProvider::start();
    let gateway = gateway_with("require_second_factor = \"everyone\"", provider.issuer(), "create_users = true");
    gateway.watch_provider(&provider);
    drop(sign_in_ada(&gateway));
    let mut kim = Visitor::new(&gateway);
    assert_eq!(sign_in_with(&mut kim, &provider, &claims_of("kim")).status, 303);
    assert_eq!(kim.get("/keys").header("location"), Some(PAGE));
    let page = kim.get(PAGE);
    let code = current_code(&secret_on(&page));
    let form = super::super::visitor::forms(&page.text()).into_iter().find(|form| form.action == PAGE).expect("a form");
    let question = kim.post(PAGE, &form.with(&[("code", &code)]).fields);
    assert!(leads_to_provider(&question), "a sign-in without a question is no proof: {}", question.text());
    let request = begin_confirmation(&mut kim);
    let answer = open_callback(&mut kim, &request.answer_of(&provider, &claims_at("kim", &json!(unix_seconds()))));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let made = answer_question(&mut kim, &question, PAGE, "");
    assert_eq!(codes_on(&made).len(), 10);
    assert_eq!(kim.get("/keys").status, 200);
}
