//! A conversation stays with one account, because the upstream caches its start there, unless the account cannot serve.

use std::collections::HashMap;

use serde_json::json;

use super::{call, response_body};
use crate::kit::{Account, FakeUpstream, Gateway, eventually};

const NAMES: [&str; 3] = ["one", "two", "three"];

fn gateway_with_three_accounts(upstream: &FakeUpstream) -> Gateway {
    Gateway::with("", &NAMES.map(|name| Account::for_upstream(name, upstream).with_responses_protocol()))
}

/// Sends a request of a conversation, and returns the token of the account that answers.
#[track_caller]
fn token_for(gateway: &Gateway, upstream: &FakeUpstream, header: &str, session: &str) -> String {
    let answer = call(gateway).header(header, session).json(&response_body(&json!({}))).send(gateway.address());
    assert_eq!(answer.status, 200, "{}", answer.text());
    upstream.received_attempts().pop().expect("an attempt").token
}

#[test]
fn conversations_stay_with_one_account_and_use_all_accounts() {
    let upstream = FakeUpstream::start();
    let mut gateway = gateway_with_three_accounts(&upstream);
    let sessions: Vec<String> = (0..24).map(|number| format!("0199a213-{number:04}")).collect();
    let accounts: HashMap<&String, String> =
        sessions.iter().map(|session| (session, token_for(&gateway, &upstream, "session-id", session))).collect();
    for name in NAMES {
        assert!(accounts.values().any(|token| token.ends_with(name)), "no conversation uses {name}: {accounts:?}");
    }
    for (session, account) in &accounts {
        assert_eq!(
            token_for(&gateway, &upstream, "session_id", session),
            *account,
            "{session}, as older agents spell it"
        );
    }
    for (session, account) in accounts.iter().take(3) {
        let explained = gateway.run_command(&["account", "explain", "--session", session, "--json"]).json();
        let name = explained[0]["name"].as_str().expect("a name");
        assert_eq!(
            (format!("sk-upstream-{name}"), &explained[0]["chosen"]),
            (account.clone(), &json!(true)),
            "{session}"
        );
    }
    // The account that served a conversation is stored.
    gateway.kill();
    gateway.start();
    for (session, account) in &accounts {
        assert_eq!(token_for(&gateway, &upstream, "session-id", session), *account, "{session}, after a restart");
    }
}

#[test]
fn a_conversation_leaves_an_account_in_cooldown_and_stays_with_the_next() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with_three_accounts(&upstream);
    let ask = || token_for(&gateway, &upstream, "session-id", "0199a213");
    let account = ask();
    upstream.script_sequence(&account, &["status=429 body=usage-limit resets-in=2", ""]);
    let other_account = ask();
    assert_ne!(other_account, account, "the account is exhausted");
    assert_eq!(ask(), other_account, "during the cooldown the conversation must stay with one other account");
    let others = || token_for(&gateway, &upstream, "session-id", &format!("0199a213-{}", upstream.attempt_count()));
    eventually("the account serves again", || (others() == account).then_some(()));
    assert_eq!(ask(), other_account, "the other account has cached the conversation");
}

#[test]
fn priority_and_tier_decide_where_a_conversation_begins() {
    let upstream = FakeUpstream::start();
    let account = |name| Account::for_upstream(name, &upstream).with_responses_protocol();
    let accounts = [
        account("low"),
        account("high").with_line("priority = 5"),
        account("free").with_free_tier().with_line("priority = 9"),
    ];
    let gateway = Gateway::with("", &accounts);
    for number in 0..12 {
        assert_eq!(token_for(&gateway, &upstream, "session-id", &number.to_string()), "sk-upstream-high");
    }
}

#[test]
fn a_conversation_waits_only_briefly_for_its_account_while_another_is_free() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with(
        "",
        &NAMES.map(|name| Account::for_upstream(name, &upstream).with_responses_protocol().with_slots(1)),
    );
    let account = token_for(&gateway, &upstream, "session-id", "0199a213");
    upstream.script_sequence(&account, &["gate=go"]);
    let first_call = call(&gateway).header("session-id", "0199a213").json(&response_body(&json!({})));
    let first_call = first_call.dispatch(gateway.address()).expect("sent");
    upstream.wait_until("the account is taken", |attempts| attempts.len() == 2);
    assert_ne!(token_for(&gateway, &upstream, "session-id", "0199a213"), account);
    upstream.open_gate("go");
    drop(first_call);
}
