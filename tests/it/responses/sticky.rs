//! A conversation stays with its account, for there its beginning is cached; but never where the account cannot serve.

use std::collections::HashMap;

use serde_json::json;

use super::{call, task};
use crate::kit::{Account, FakeUpstream, Gateway, eventually};

const NAMES: [&str; 3] = ["one", "two", "three"];

fn pool(upstream: &FakeUpstream) -> Gateway {
    Gateway::with("", &NAMES.map(|name| Account::for_upstream(name, upstream).with_responses_protocol()))
}

/// The token of the account that answered.
#[track_caller]
fn answers(gateway: &Gateway, upstream: &FakeUpstream, header: &str, session: &str) -> String {
    let answer = call(gateway).header(header, session).json(&task(&json!({}))).send(gateway.address());
    assert_eq!(answer.status, 200, "{}", answer.text());
    upstream.ledger().pop().expect("an attempt").token
}

#[test]
fn a_conversation_stays_with_one_account_and_many_of_them_with_all() {
    let upstream = FakeUpstream::start();
    let mut gateway = pool(&upstream);
    let sessions: Vec<String> = (0..24).map(|number| format!("0199a213-{number:04}")).collect();
    let homes: HashMap<&String, String> =
        sessions.iter().map(|session| (session, answers(&gateway, &upstream, "session-id", session))).collect();
    for name in NAMES {
        assert!(homes.values().any(|token| token.ends_with(name)), "no conversation is with {name}: {homes:?}");
    }
    for (session, home) in &homes {
        assert_eq!(answers(&gateway, &upstream, "session_id", session), *home, "{session}, as older agents spell it");
    }
    for (session, home) in homes.iter().take(3) {
        let explained = gateway.run_command(&["account", "explain", "--session", session, "--json"]).json();
        let name = explained[0]["account"].as_str().expect("a name");
        assert_eq!((format!("sk-upstream-{name}"), &explained[0]["chosen"]), (home.clone(), &json!(true)), "{session}");
    }
    // Nobody remembers it: it is found again.
    gateway.kill();
    gateway.start();
    for (session, home) in &homes {
        assert_eq!(answers(&gateway, &upstream, "session-id", session), *home, "{session}, after a restart");
    }
}

#[test]
fn a_conversation_leaves_an_account_that_rests_and_comes_back_to_it() {
    let upstream = FakeUpstream::start();
    let gateway = pool(&upstream);
    let ask = || answers(&gateway, &upstream, "session-id", "0199a213");
    let home = ask();
    upstream.in_turn(&home, &["status=429 body=usage-limit resets-in=2", ""]);
    let away = ask();
    assert_ne!(away, home, "the account has said that it has nothing left");
    assert_eq!(ask(), away, "it rests, and its conversations stay together meanwhile");
    eventually("the conversation is back", || (ask() == home).then_some(()));
}

#[test]
fn what_the_operator_prefers_goes_before_what_a_conversation_prefers() {
    let upstream = FakeUpstream::start();
    let account = |name| Account::for_upstream(name, &upstream).with_responses_protocol();
    let accounts = [
        account("low"),
        account("high").with_line("priority = 5"),
        account("free").with_free_tier().with_line("priority = 9"),
    ];
    let gateway = Gateway::with("", &accounts);
    for number in 0..12 {
        assert_eq!(answers(&gateway, &upstream, "session-id", &number.to_string()), "sk-upstream-high");
    }
}

#[test]
fn a_conversation_does_not_wait_for_its_account_while_another_is_free() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with(
        "",
        &NAMES.map(|name| Account::for_upstream(name, &upstream).with_responses_protocol().with_slots(1)),
    );
    let home = answers(&gateway, &upstream, "session-id", "0199a213");
    upstream.in_turn(&home, &["gate=go"]);
    let waiting = call(&gateway).header("session-id", "0199a213").json(&task(&json!({})));
    let waiting = waiting.dispatch(gateway.address()).expect("sent");
    upstream.wait_until("the account is taken", |ledger| ledger.len() == 2);
    assert_ne!(answers(&gateway, &upstream, "session-id", "0199a213"), home);
    upstream.open_gate("go");
    drop(waiting);
}
