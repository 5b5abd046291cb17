//! The reason in the record of a failed or killed job, and the state of ejected accounts.

use serde_json::{Value, json};

use crate::kit::{Account, FakeUpstream, Gateway, RefusingPort, eventually, pause};

const FIRST_TOKEN: &str = "sk-upstream-first";

fn gateway_with_two_accounts(upstream: &FakeUpstream) -> Gateway {
    Gateway::with(
        "",
        &[Account::for_upstream("first", upstream), Account::for_upstream("second", upstream).with_free_tier()],
    )
}

#[test]
fn a_killed_job_names_the_account_that_was_asked_and_every_attempt() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token(FIRST_TOKEN, "status=429 retry-after=60");
    upstream.always_for_token("sk-upstream-second", "gate=never");
    let mut gateway = gateway_with_two_accounts(&upstream);
    std::thread::scope(|scope| {
        // The call gets no answer, because the process is killed first.
        let call = gateway.call(json!({}));
        let address = gateway.address();
        scope.spawn(move || drop(call.try_send(address)));
        upstream.wait_until("the second account is asked", |attempts| attempts.len() == 2);
        gateway.kill();
    });
    gateway.start();
    let records = gateway.final_records(1);
    let record = &records[0];
    assert_eq!((&record["state"], &record["account"]), (&json!("interrupted"), &json!("second")), "{record}");
    let attempts = record["attempts"].as_array().expect("attempts");
    let classes: Vec<_> = attempts.iter().map(|attempt| (&attempt["account"], &attempt["class"])).collect();
    assert_eq!(classes, [(&json!("first"), &json!("N")), (&json!("second"), &json!("X"))], "{record}");
    let id = attempts[0]["upstream_request_id"].as_str().unwrap_or_default();
    assert!(id.starts_with("req_upstream_"), "{record}");
    upstream.open_gate("never");
}

#[test]
fn a_killed_job_in_its_first_call_names_the_account_that_was_asked() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token(FIRST_TOKEN, "gate=never");
    let mut gateway = gateway_with_two_accounts(&upstream);
    std::thread::scope(|scope| {
        // The call gets no answer, because the process is killed first.
        let call = gateway.call(json!({}));
        let address = gateway.address();
        scope.spawn(move || drop(call.try_send(address)));
        upstream.wait_until("the first account is asked", |attempts| attempts.len() == 1);
        gateway.kill();
    });
    gateway.start();
    let record = gateway.final_records(1).remove(0);
    let attempt = json!({ "account": "first", "class": "X" });
    assert_eq!((&record["state"], &record["account"]), (&json!("interrupted"), &json!("first")), "{record}");
    assert_eq!(record["attempts"], json!([attempt]), "{record}");
    upstream.open_gate("never");
}

#[test]
fn an_attempt_has_the_request_id_of_the_upstream() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with_two_accounts(&upstream);
    gateway.generate(json!({})).ok_json();
    let attempt = gateway.final_records(1)[0]["attempts"][0].clone();
    assert!(attempt["upstream_request_id"].as_str().is_some_and(|id| id.starts_with("req_upstream_")), "{attempt}");
}

#[test]
fn a_failure_keeps_its_reason() {
    for (script, reason, detail) in [
        ("status=500", "upstream_failed", Some("provider-canary: internal trouble")),
        ("status=401", "credentials", Some("provider-canary: internal trouble")),
        ("status=400 body=organization", "credentials", Some("provider-canary: no such organization")),
        ("status=402", "quota", Some("provider-canary: internal trouble")),
        ("status=429", "throttled", Some("provider-canary: internal trouble")),
        ("status=429 body=usage-limit resets-in=60", "quota", Some("provider-canary: limit")),
        ("status=400 body=policy", "content_refused", None),
        ("status=400 body=parameter", "upstream_rejected", Some("Invalid value: 'low'.")),
        ("status=403 body=html", "upstream_rejected", None),
        ("status=404", "missing", Some("provider-canary: internal trouble")),
        ("status=504 body=html", "timeout", None),
        ("hang-up", "network", None),
    ] {
        let upstream = FakeUpstream::start();
        let gateway = Gateway::with_upstream(&upstream);
        assert!(gateway.scripted(script).status >= 400, "{script}");
        let record = &gateway.final_records(1)[0];
        assert_eq!((&record["error_reason"], &record["error_detail"]), (&json!(reason), &json!(detail)), "{script}");
    }
}

#[test]
fn a_filter_and_a_network_failure_have_their_own_reasons() {
    let upstream = FakeUpstream::start();
    let config = "[[groups]]\nname = \"default\"\n[groups.filter]\nwords = [\"zeppelin\"]\n";
    let gateway = Gateway::with(config, &[Account::for_upstream("only", &upstream)]);
    assert_eq!(gateway.generate(json!({"prompt": "a zeppelin"})).status, 502);
    let record = &gateway.final_records(1)[0];
    assert_eq!((&record["state"], &record["error_reason"]), (&json!("refused"), &json!("filter")), "{record}");
    assert_eq!((upstream.accepted(), &record["error_detail"]), (0, &Value::Null));

    let closed = RefusingPort::new();
    let gateway = Gateway::with("", &[Account::with_base_url("only", closed.base_url())]);
    assert_eq!(gateway.generate(json!({})).status, 502);
    assert_eq!(gateway.final_records(1)[0]["error_reason"], "network");
}

#[test]
fn an_ejected_account_shows_its_state_until_it_expires() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token(FIRST_TOKEN, "status=500");
    let mut gateway = gateway_with_two_accounts(&upstream);
    for _ in 0..3 {
        gateway.generate(json!({})).ok_json();
    }
    let account = eventually("the account is ejected", || {
        let account = gateway.account("first");
        (account["state"] == "failing").then_some(account)
    });
    assert_eq!(account["cooling_cause"], "3 consecutive calls have failed", "{account}");
    assert!(account["cooling_until"].is_string(), "{account}");
    assert!(gateway.run_command(&["account", "list"]).ok_stdout().contains("failing until"));
    assert_eq!(gateway.account("second")["state"], "enabled");
    // A killed process cannot clear the state that it stored, so the state must expire.
    gateway.kill();
    eventually("the stored state expires", || {
        pause(std::time::Duration::from_millis(200));
        (gateway.account("first")["state"] == "enabled").then_some(())
    });
    gateway.start();
}

#[test]
fn a_recovered_account_shows_that_it_is_enabled() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token(FIRST_TOKEN, "status=500");
    let gateway = gateway_with_two_accounts(&upstream);
    for _ in 0..3 {
        gateway.generate(json!({})).ok_json();
    }
    let state = || gateway.account("first")["state"].clone();
    eventually("the account is ejected", || (state() == "failing").then_some(()));
    upstream.always_for_token(FIRST_TOKEN, "");
    eventually("the account serves again", || {
        gateway.generate(json!({})).ok_json();
        pause(std::time::Duration::from_millis(200));
        (state() == "enabled").then_some(())
    });
}
