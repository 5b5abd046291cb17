//! The connection of a user to an identity at the provider: on the profile, by an admin, and by a command.

use serde_json::json;

use super::super::forgery::audit_row_count;
use super::super::identity_proof::{age_sessions, answer_question, is_question};
use super::super::second_factor::set_up;
use super::super::users::{ADA, ADAS_PASSWORD, BEN, BENS_PASSWORD, sign_in, sign_in_ada, sign_in_ben, token_in};
use super::super::visitor::Visitor;
use super::flow::{
    CONNECT, DISCONNECT, assert_connected, assert_refused, assert_signed_in, begin, begin_connection, has_session,
    is_connected, open_callback, person_page, sign_in_as, user,
};
use super::real_provider::{ProviderVisitor, RealProvider};
use crate::kit::{Call, OutputChannel};

#[test]
fn a_user_connects_an_identity_and_signs_in_in_both_ways() {
    let provider = RealProvider::start();
    let gateway = provider.gateway("");
    let mut ada = sign_in_ada(&gateway);
    assert!(!is_connected(&mut ada));
    let rows_before = audit_row_count(&mut ada);
    let request = begin_connection(&mut ada);
    let path = ProviderVisitor::new(&provider).choose(&request, "kim");
    let answer = open_callback(&mut ada, &path);
    assert_connected(&mut ada, &answer);
    assert!(ada.get("/profile").text().contains("kim"), "the name at the provider");
    assert!(audit_row_count(&mut ada) > rows_before);

    let mut elsewhere = Visitor::new(&gateway);
    let answer = sign_in_as(&mut elsewhere, &mut ProviderVisitor::new(&provider), "kim");
    assert_signed_in(&mut elsewhere, &answer, "/studio");
    assert!(elsewhere.get("/profile").text().contains(ADA), "the user keeps the name");
    let mut third = Visitor::new(&gateway);
    let answer = sign_in(&mut third, ADA, ADAS_PASSWORD);
    assert_signed_in(&mut third, &answer, "/studio");

    let mut ben = sign_in_ben(&mut ada);
    let request = begin_connection(&mut ben);
    let path = ProviderVisitor::new(&provider).choose(&request, "kim");
    let answer = open_callback(&mut ben, &path);
    assert!((400..500).contains(&answer.status), "the identity is taken: {} {}", answer.status, answer.text());
    assert!(!is_connected(&mut ben) && is_connected(&mut ada));

    assert_eq!(ada.submit("/profile", DISCONNECT, &[]).status, 303);
    assert!(!is_connected(&mut ada));
    let mut later = Visitor::new(&gateway);
    let answer = sign_in_as(&mut later, &mut ProviderVisitor::new(&provider), "kim");
    assert_refused(&mut later, &answer, "after the end of the connection");
    assert_eq!(sign_in(&mut later, ADA, ADAS_PASSWORD).status, 303);
}

#[test]
fn a_connection_needs_a_fresh_proof_of_identity() {
    let provider = RealProvider::start();
    let gateway = provider.gateway("");
    let mut ada = sign_in_ada(&gateway);
    age_sessions(&gateway);
    let question = ada.submit("/profile", CONNECT, &[]);
    assert!(question.status == 200 && is_question(&question), "{}", question.text());
    assert!(!question.text().contains("code_challenge"), "{}", question.text());
    let answer = answer_question(&mut ada, &question, CONNECT, ADAS_PASSWORD);
    assert!(answer.status == 200 && answer.text().contains("code_challenge"), "{}", answer.text());
}

#[test]
fn a_user_without_a_password_cannot_disconnect() {
    let provider = RealProvider::start();
    let gateway = provider.gateway("create_users = true");
    drop(sign_in_ada(&gateway));
    let mut kim = Visitor::new(&gateway);
    let answer = sign_in_as(&mut kim, &mut ProviderVisitor::new(&provider), "kim");
    assert_signed_in(&mut kim, &answer, "/studio");
    // The page need not offer it.
    let form = kim.form("/profile", "/sign-out");
    let refused = kim.post(DISCONNECT, &form.fields);
    assert_eq!(refused.status, 409, "{}", refused.text());
    let answer = sign_in_as(&mut Visitor::new(&gateway), &mut ProviderVisitor::new(&provider), "kim");
    assert_eq!(answer.status, 303, "{}", answer.text());
}

#[test]
fn the_second_factor_is_asked_for_after_the_provider() {
    let provider = RealProvider::start();
    let gateway = provider.gateway("");
    let mut ada = sign_in_ada(&gateway);
    let (_, _, codes) = set_up(&mut ada);
    let request = begin_connection(&mut ada);
    let path = ProviderVisitor::new(&provider).choose(&request, "kim");
    let answer = open_callback(&mut ada, &path);
    assert_connected(&mut ada, &answer);

    let mut elsewhere = Visitor::new(&gateway);
    let request = begin(&mut elsewhere, "/usage");
    let path = ProviderVisitor::new(&provider).choose(&request, "kim");
    let answer = open_callback(&mut elsewhere, &path);
    let question = "/sign-in/code?next=%2Fusage";
    // A browser that another site has led here omits cookies after a redirect, so a page leads on.
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.text().contains(&format!("href=\"{question}\"")), "{}", answer.text());
    assert!(!has_session(&mut elsewhere), "the provider alone opens nothing");
    let form = elsewhere.form(question, "/sign-in/code").with(&[("code", "000000")]);
    assert_eq!(elsewhere.post("/sign-in/code", &form.fields).status, 422);
    let form = elsewhere.form(question, "/sign-in/code").with(&[("code", &codes[0])]);
    let answer = elsewhere.post("/sign-in/code", &form.fields);
    assert_signed_in(&mut elsewhere, &answer, "/usage");
}

#[test]
fn an_admin_disconnects_a_user_whose_sessions_then_end() {
    let provider = RealProvider::start();
    let gateway = provider.gateway("create_users = true");
    let mut ada = sign_in_ada(&gateway);
    let mut kim = Visitor::new(&gateway);
    let answer = sign_in_as(&mut kim, &mut ProviderVisitor::new(&provider), "kim");
    assert_signed_in(&mut kim, &answer, "/studio");
    let page = person_page(&mut ada, "kim");
    let action = format!("{page}/disconnect");
    let form = kim.form("/profile", "/sign-out");
    assert_eq!(kim.post(&action, &form.fields).status, 403, "a member disconnects nobody");
    assert!(has_session(&mut kim));
    let answer = ada.submit(&page, &action, &[]);
    assert_eq!(answer.status, 303, "{}", answer.text());
    assert!(!has_session(&mut kim) && has_session(&mut ada));
    assert!(!ada.get(&page).text().contains(&action), "the user is not connected");
    let mut kim = Visitor::new(&gateway);
    let answer = sign_in_as(&mut kim, &mut ProviderVisitor::new(&provider), "kim");
    assert_refused(&mut kim, &answer, "the name belongs to the user who was disconnected");
    assert!(ada.get("/audit").text().contains("disconnect"));
}

#[test]
fn a_command_and_the_admin_api_disconnect_a_user() {
    let provider = RealProvider::start();
    let gateway = provider.gateway("");
    let mut ada = sign_in_ada(&gateway);
    let mut ben = sign_in_ben(&mut ada);
    let made = ada.submit("/profile", "/profile/tokens", &[("name", "deploy")]);
    let token = token_in(&made.text()).unwrap_or_else(|| panic!("no token: {}", made.text()));
    gateway.watch_secret("an admin token", &token, &[OutputChannel::Key]);
    let id = user(&gateway, BEN)["id"].as_str().expect("an id").to_owned();
    for way in ["command", "api"] {
        if !has_session(&mut ben) {
            assert_eq!(sign_in(&mut ben, BEN, BENS_PASSWORD).status, 303);
        }
        let request = begin_connection(&mut ben);
        let path = ProviderVisitor::new(&provider).choose(&request, "noor");
        let answer = open_callback(&mut ben, &path);
        assert_connected(&mut ben, &answer);
        if way == "command" {
            gateway.run_command(&["user", "disconnect", BEN]).ok_stdout();
        } else {
            let path = format!("/admin/v1/users/{id}/disconnect");
            let answer = Call::post(&path).key(&token).json(&json!({})).send(gateway.address());
            assert!((200..300).contains(&answer.status), "{} {}", answer.status, answer.text());
        }
        assert!(!has_session(&mut ben), "{way}");
        let mut elsewhere = Visitor::new(&gateway);
        let answer = sign_in_as(&mut elsewhere, &mut ProviderVisitor::new(&provider), "noor");
        assert_refused(&mut elsewhere, &answer, way);
    }
    assert_eq!(sign_in(&mut ben, BEN, BENS_PASSWORD).status, 303, "the password still works");
}
