//! The question for the password before an action that outlasts the session, and the ends of single sessions.

use super::browser::{Browser, WITHOUT_SCRIPT};
use super::users::{ADA, ADAS_PASSWORD, BEN, invite, sign_in, sign_in_ada, sign_in_at, sign_in_ben, token_in};
use super::visitor::{Visitor, forms};
use crate::kit::{Answer, Gateway, OutputChannel};

const WRONG: &str = "this was never the password";
const PASSWORD_FIELD: &str = "confirm_password";

/// Makes every session of the gateway as old as one whose user signed in hours ago.
pub(super) fn age_sessions(gateway: &Gateway) {
    gateway.execute_sql("UPDATE sessions SET proved_at = '2026-01-01T00:00:00.000Z'");
}

/// True if the answer is the page that asks for the password.
pub(super) fn is_question(answer: &Answer) -> bool {
    forms(&answer.text()).iter().any(|form| form.fields.iter().any(|(name, _)| name == PASSWORD_FIELD))
}

/// Sends the form of the question with this password.
#[track_caller]
pub(super) fn answer_question(visitor: &mut Visitor<'_>, question: &Answer, action: &str, password: &str) -> Answer {
    let html = question.text();
    let form = forms(&html).into_iter().find(|form| form.action == action);
    let form = form.unwrap_or_else(|| panic!("no form {action}: {html}"));
    visitor.post(action, &form.with(&[(PASSWORD_FIELD, password)]).fields)
}

#[test]
fn a_token_and_a_new_admin_need_a_fresh_proof() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    drop(invite(&mut ada, BEN, "member"));
    age_sessions(&gateway);
    let question = ada.submit("/profile", "/profile/tokens", &[("name", "deploy&<b>")]);
    assert!(question.status == 200 && is_question(&question), "{}", question.text());
    assert!(token_in(&question.text()).is_none() && !ada.get("/profile").text().contains("deploy"));
    let refused = answer_question(&mut ada, &question, "/profile/tokens", WRONG);
    assert!(refused.status == 422 && is_question(&refused), "{}", refused.text());
    assert!(!refused.text().contains(WRONG), "a password is never shown");

    let made = answer_question(&mut ada, &refused, "/profile/tokens", ADAS_PASSWORD);
    let token = token_in(&made.text()).unwrap_or_else(|| panic!("no token: {} {}", made.status, made.text()));
    gateway.watch_secret("an admin token", &token, &[OutputChannel::Key]);
    assert!(ada.get("/profile").text().contains("deploy&#38;&#60;b&#62;"), "the name must be the one that was entered");
    let again = answer_question(&mut ada, &refused, "/profile/tokens", ADAS_PASSWORD);
    assert_eq!(again.status, 409, "the form is used once: {}", again.text());
    let second = ada.submit("/profile", "/profile/tokens", &[("name", "second")]);
    let token = token_in(&second.text()).expect("the proof is still fresh");
    gateway.watch_secret("an admin token", &token, &[OutputChannel::Key]);

    age_sessions(&gateway);
    let people = ada.get("/people").text();
    let path = people.split("href=\"").find(|link| link.contains(BEN) && link.starts_with("/people/")).expect("a link");
    let path = path.split('"').next().expect("a path").to_owned();
    let change = format!("{path}/change");
    let kept = ada.submit(&path, &change, &[("role", "member"), ("groups", "default")]);
    assert_eq!(kept.status, 303, "only an admin needs a proof: {}", kept.text());
    let question = ada.submit(&path, &change, &[("role", "admin"), ("groups", "default")]);
    assert!(is_question(&question), "{} {}", question.status, question.text());
    // A link with which somebody could sign in as the user.
    let link = ada.submit(&path, &format!("{path}/reset"), &[]);
    assert!(is_question(&link) && !link.text().contains("/invitation/"), "{} {}", link.status, link.text());
    let invitation = ada.submit("/people", "/people", &[("name", "eve@desk"), ("role", "admin")]);
    assert!(is_question(&invitation) && !ada.get("/people").text().contains("eve@desk"), "{}", invitation.text());
    assert_eq!(answer_question(&mut ada, &question, &change, ADAS_PASSWORD).status, 303);
    assert!(ada.get("/audit?action=session.confirm").text().matches("session.confirm").count() >= 2);
}

#[test]
fn wrong_proofs_are_limited_like_sign_ins() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    age_sessions(&gateway);
    let mut question = ada.submit("/profile", "/profile/tokens", &[("name", "deploy")]);
    for _ in 0..5 {
        question = answer_question(&mut ada, &question, "/profile/tokens", WRONG);
        assert_eq!(question.status, 422, "{}", question.text());
    }
    let refused = answer_question(&mut ada, &question, "/profile/tokens", ADAS_PASSWORD);
    assert!(refused.status == 429 && is_question(&refused), "the form is kept: {}", refused.text());
    assert!(refused.header("retry-after").is_some());
    assert_eq!(sign_in(&mut Visitor::new(&gateway), ADA, ADAS_PASSWORD).status, 429);
}

#[test]
fn the_question_works_in_a_browser_without_scripts() {
    let gateway = Gateway::simulated();
    drop(sign_in_ada(&gateway));
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITHOUT_SCRIPT);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    age_sessions(&gateway);
    tab.go("/profile");
    tab.fill("Name", "deploy");
    assert_eq!(tab.follow("button", "Create token").status, 200);
    tab.assert_text("Confirm that it is you");
    tab.fill("Current password", ADAS_PASSWORD);
    assert_eq!(tab.follow("button", "Confirm and continue").status, 200);
    let token = token_in(&tab.text()).expect("a token");
    gateway.watch_secret("an admin token", &token, &[OutputChannel::Key]);
}

#[test]
fn sessions_are_ended_one_by_one_or_all_others_at_once() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let mut others = [Visitor::new(&gateway), Visitor::new(&gateway)];
    for other in &mut others {
        assert_eq!(sign_in(other, ADA, ADAS_PASSWORD).status, 303);
    }
    let mut ben = sign_in_ben(&mut ada);
    let ends = |visitor: &mut Visitor<'_>| -> Vec<String> {
        let forms = forms(&visitor.get("/profile").text());
        let actions = forms.into_iter().map(|form| form.action);
        actions.filter(|action| action.starts_with("/profile/sessions/ses") && action.ends_with("/end")).collect()
    };
    let actions = ends(&mut ada);
    assert_eq!(actions.len(), 2, "{actions:?}");
    // The sessions are listed newest first.
    assert_eq!(ada.submit("/profile", &actions[0], &[]).status, 303);
    let is_signed_in = |visitor: &mut Visitor<'_>| visitor.get("/keys").status == 200;
    assert!(is_signed_in(&mut ada) && is_signed_in(&mut others[0]) && !is_signed_in(&mut others[1]));
    let form = ben.form("/profile", "/profile/tokens");
    let refused = ben.post(&actions[1], &form.fields);
    assert_eq!(refused.status, 404, "a session of another user: {}", refused.text());
    assert!(is_signed_in(&mut others[0]));
    assert_eq!(ada.submit("/profile", "/profile/sessions/end-others", &[]).status, 303);
    assert!(is_signed_in(&mut ada) && !is_signed_in(&mut others[0]) && is_signed_in(&mut ben));
    assert!(ends(&mut ada).is_empty());
}
