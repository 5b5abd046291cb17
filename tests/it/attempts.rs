//! Further attempts after a failure of class N, F or X (the money rules), with one account and several.
//!
//! The tests read the ledger of the fake upstream: at most one completed attempt for each request (ONE), and exactly
//! one record that agrees with the ledger (USE). Module `refusals` tests class R and the usage limit, `relay` class O.

use serde_json::{Value, json};

use crate::kit::{Account, Answer, FakeUpstream, Gateway, RefusingPort};

/// Two accounts at one upstream; `first` is always chosen first.
fn two_accounts(upstream: &FakeUpstream) -> Gateway {
    Gateway::with(
        "",
        &[Account::for_upstream("first", upstream), Account::for_upstream("second", upstream).with_free_tier()],
    )
}

/// Three accounts at one upstream; `first` is always chosen first.
fn three_accounts(upstream: &FakeUpstream) -> Gateway {
    Gateway::with(
        "",
        &[
            Account::for_upstream("first", upstream),
            Account::for_upstream("second", upstream).with_free_tier(),
            Account::for_upstream("third", upstream).with_free_tier(),
        ],
    )
}

/// The tokens of the ledger, in the order of the attempts.
fn tokens_of(upstream: &FakeUpstream) -> Vec<String> {
    upstream.received_attempts().into_iter().map(|attempt| attempt.token).collect()
}

/// The only record, whose attempts must have these accounts and classes.
#[track_caller]
fn check_record(gateway: &Gateway, expected: &[(&str, Option<&str>)]) -> Value {
    let records = gateway.final_records(1);
    let [record] = records.as_slice() else { panic!("not exactly one record: {records:#?}") };
    let attempts = record["attempts"].as_array().expect("attempts");
    let actual: Vec<_> = attempts
        .iter()
        .map(|attempt| (attempt["account"].as_str().unwrap_or("?"), attempt["class"].as_str()))
        .collect();
    assert_eq!(actual, expected, "{record}");
    record.clone()
}

#[track_caller]
fn check_upstream_error(answer: &Answer, reasons: &[&str]) {
    let error = answer.error_object(502);
    let expected =
        (&json!("Upstream request failed"), &json!("upstream_error"), &json!("upstream_error"), &Value::Null);
    assert_eq!((&error["message"], &error["type"], &error["code"], &error["param"]), expected);
    assert!(reasons.contains(&error["reason"].as_str().unwrap_or_default()), "{error}");
    assert_eq!(answer.header("retry-after"), None);
}

#[test]
fn a_refused_connection_goes_to_another_account() {
    let (upstream, closed) = (FakeUpstream::start(), RefusingPort::new());
    let second = Account::for_upstream("second", &upstream).with_free_tier();
    let gateway = Gateway::with("", &[Account::with_base_url("first", closed.base_url()), second]);
    gateway.generate(json!({})).ok_json();
    assert_eq!(tokens_of(&upstream), ["sk-upstream-second"]);
    let record = check_record(&gateway, &[("first", Some("N")), ("second", None)]);
    assert_eq!((&record["state"], &record["account"]), (&json!("succeeded"), &json!("second")));
    assert_eq!(record["usage"], upstream.received_attempts()[0].usage.clone().expect("usage"));
}

#[test]
fn a_refused_connection_without_another_account_is_an_anonymous_502() {
    let closed = RefusingPort::new();
    let base_url = closed.base_url();
    let gateway = Gateway::with("", &[Account::with_base_url("lonely", base_url.clone())]);
    let answer = gateway.generate(json!({}));
    check_upstream_error(&answer, &["network"]);
    let text = format!("{:?}{}", answer.headers, answer.text());
    let port = base_url.trim_end_matches("/v1").rsplit(':').next().expect("a port");
    for secret in ["lonely", port, "refused", "sk-upstream"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let record = check_record(&gateway, &[("lonely", Some("N"))]);
    assert_eq!((&record["state"], &record["usage"]), (&json!("failed"), &Value::Null));
}

#[test]
fn a_rejected_account_is_followed_by_another_account() {
    for script in [
        "status=401",
        "status=402",
        "status=403",
        "status=429",
        "status=429 retry-after=7",
        "status=401 body=html",
        "status=403 body=none",
    ] {
        let upstream = FakeUpstream::start();
        upstream.always_for_token("sk-upstream-first", script);
        let gateway = two_accounts(&upstream);
        gateway.generate(json!({})).ok_json();
        assert_eq!(tokens_of(&upstream), ["sk-upstream-first", "sk-upstream-second"], "{script}");
        let record = check_record(&gateway, &[("first", Some("N")), ("second", None)]);
        assert_eq!(record["state"], "succeeded", "{script}");
    }
}

#[test]
fn no_caller_sees_the_status_of_a_rejected_account() {
    for (script, statuses) in [
        ("status=401", &[502, 503][..]),
        ("status=402", &[502, 503]),
        ("status=403", &[502, 503]),
        ("status=404", &[502, 503]),
        ("status=429", &[429]),
        ("status=429 retry-after=4000", &[429]),
    ] {
        let upstream = FakeUpstream::start();
        let gateway = two_accounts(&upstream);
        let answer = gateway.scripted(script);
        let error = answer.error_object(answer.status);
        assert!(statuses.contains(&answer.status), "{script}: {} {error}", answer.status);
        let wait = answer.header("retry-after").map(|value| value.parse::<u64>().expect("whole seconds"));
        assert!(wait.is_none_or(|wait| wait <= 60), "{script}: retry-after {wait:?}");
        if answer.status == 429 {
            assert_eq!((&error["type"], &error["code"]), (&json!("rate_limit_error"), &json!("rate_limit_exceeded")));
            assert!(wait.is_some(), "a 429 has a retry-after");
        }
        assert!(!answer.text().contains("provider-canary"), "{script}: {}", answer.text());
        assert!(upstream.attempt_count() <= 2, "{script}");
        assert_eq!(gateway.final_records(1).len(), 1, "{script}");
    }
}

#[test]
fn a_stated_server_error_is_tried_once_on_another_account() {
    for status in [500, 503] {
        let upstream = FakeUpstream::start();
        upstream.always_for_token("sk-upstream-first", &format!("status={status}"));
        let gateway = two_accounts(&upstream);
        gateway.generate(json!({})).ok_json();
        assert_eq!(tokens_of(&upstream), ["sk-upstream-first", "sk-upstream-second"], "{status}");
        check_record(&gateway, &[("first", Some("F")), ("second", None)]);
    }
}

#[test]
fn a_stated_server_error_is_tried_once_and_no_more() {
    let upstream = FakeUpstream::start();
    let gateway = three_accounts(&upstream);
    let answer = gateway.scripted("status=500");
    check_upstream_error(&answer, &["upstream_failed"]);
    assert_eq!(upstream.attempt_count(), 2, "{:?}", tokens_of(&upstream));
    assert!(!answer.text().contains("provider-canary"));
    assert_eq!(gateway.final_records(1)[0]["state"], "failed");
}

#[test]
fn a_single_account_is_not_tried_twice() {
    for script in ["status=500", "status=503", "status=401"] {
        let upstream = FakeUpstream::start();
        upstream.script_next(script);
        let gateway = Gateway::with_upstream(&upstream);
        // A second attempt would succeed, but only another account may be tried, and there is none.
        let answer = gateway.generate(json!({}));
        assert!([502, 503].contains(&answer.status), "{script}: {}", answer.status);
        assert_eq!(upstream.attempt_count(), 1, "{script}");
    }
}

#[test]
fn an_ambiguous_failure_is_never_tried_again() {
    for (script, reasons) in [
        ("status=502 body=text", &["network", "no_image_data"][..]),
        ("status=502", &["network", "no_image_data"]),
        ("status=504 body=html", &["network", "no_image_data", "timeout"]),
        ("status=524 body=html", &["network", "no_image_data", "timeout"]),
        ("status=520 body=none", &["network", "no_image_data"]),
        ("status=500 body=html", &["network", "no_image_data"]),
        ("status=503 body=text", &["network", "no_image_data"]),
        ("hang-up", &["network"]),
        ("hang-up how=reset", &["network"]),
        ("cut=30", &["network", "no_image_data"]),
        ("cut=30 framing=chunked how=reset", &["network", "no_image_data"]),
        ("clip=30", &["network", "no_image_data"]),
        ("body=html", &["no_image_data", "network"]),
        ("body=html type=application/json", &["no_image_data", "network"]),
        ("body=none", &["no_image_data", "network"]),
        ("data=empty", &["no_image_data"]),
        ("data=null", &["no_image_data"]),
        ("status=204 body=none", &["no_image_data", "network"]),
    ] {
        let upstream = FakeUpstream::start();
        let gateway = three_accounts(&upstream);
        let answer = gateway.scripted(script);
        check_upstream_error(&answer, reasons);
        assert_eq!(answer.should_retry(), Some("false"), "{script}");
        assert_eq!(upstream.attempt_count(), 1, "{script}: {:?}", tokens_of(&upstream));
        assert!(!answer.text().contains("<html") && !answer.text().contains("provider-canary"), "{script}");
        let record = check_record(&gateway, &[("first", Some("X"))]);
        assert_eq!(record["state"], "interrupted", "{script}: {record}");
    }
}

#[test]
fn tokens_of_an_answer_without_an_image_are_recorded() {
    for data in ["empty", "null", "blank", "missing", "none"] {
        let upstream = FakeUpstream::start();
        let gateway = two_accounts(&upstream);
        let answer = gateway.scripted(&format!("data={data} tokens=1700"));
        check_upstream_error(&answer, &["no_image_data"]);
        assert_eq!(answer.should_retry(), Some("false"), "{data}");
        assert_eq!(upstream.attempt_count(), 1, "{data}");
        let record = &gateway.final_records(1)[0];
        assert_eq!(record["usage"]["output_tokens"], 1700, "{data}: {record}");
        assert_eq!(record["delivered"], json!([]), "{data}");
    }
}

#[test]
fn a_silent_upstream_ends_at_the_deadline_without_another_attempt() {
    for script in ["stall=head", "stall=body", "stall=middle", "status=500 stall=body"] {
        let upstream = FakeUpstream::start();
        let deadlines = "[deadlines]\nconnect = \"1s\"\nimage = \"1500ms\"\n";
        let accounts =
            [Account::for_upstream("first", &upstream), Account::for_upstream("second", &upstream).with_free_tier()];
        let gateway = Gateway::with(deadlines, &accounts);
        let answer = gateway.scripted(script);
        if script == "stall=middle" {
            assert!(answer.status == 502 || !answer.complete, "{script}: {}", answer.status);
        } else if script.starts_with("stall") {
            check_upstream_error(&answer, &["timeout"]);
            assert_eq!(answer.should_retry(), Some("false"), "{script}");
        } else {
            answer.error_object(502);
        }
        let max_attempts = if script.starts_with("stall") { 1 } else { 2 };
        assert!(upstream.attempt_count() <= max_attempts, "{script}: {:?}", tokens_of(&upstream));
        upstream.wait_until("the gateway has closed the connections", |attempts| {
            attempts.iter().all(|attempt| attempt.peer_left)
        });
        let state = gateway.final_records(1)[0]["state"].clone();
        assert!(state == "interrupted" || (max_attempts == 2 && state == "failed"), "{script}: {state}");
        gateway.generate(json!({})).ok_json();
    }
}

#[test]
fn a_redirect_is_never_followed() {
    let (upstream, target) = (FakeUpstream::start(), FakeUpstream::start());
    let gateway = Gateway::with_upstream(&upstream);
    for status in [301, 302, 303, 307, 308] {
        let script = format!("status={status} body=none location=http://{}/v1/images/generations", target.address());
        let answer = gateway.scripted(&script);
        assert_eq!(answer.status, 502, "{status}: {:.200}", answer.text());
        assert_eq!(answer.header("location"), None);
    }
    assert_eq!(target.accepted(), 0, "the redirect must not take the bearer token to another host");
    assert_eq!(upstream.attempt_count(), 5);
}

#[test]
fn a_connection_with_surplus_bytes_is_not_reused() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    upstream.script_next("surplus=foreign-marker");
    let poisoned = gateway.generate(json!({}));
    assert!(!poisoned.text().contains("foreign-marker"));
    for _ in 0..20 {
        let answer = gateway.generate(json!({})).ok_json();
        assert!(answer.get("surplus").is_none(), "{answer:.200}");
    }
}

#[test]
fn no_request_completes_twice_and_each_has_one_record() {
    let upstream = FakeUpstream::start();
    let gateway = three_accounts(&upstream);
    let scripts = [
        "",
        "status=401",
        "status=500",
        "data=empty",
        "cut=60%",
        "lack=40%",
        "status=524 body=html",
        "status=400 body=policy",
        "drip",
        "hang-up",
    ];
    let send_all = |caller: usize| {
        for (index, script) in scripts.iter().enumerate() {
            let fields = json!({"prompt": format!("a cube [[{script}]]"), "user": format!("u-{caller}-{index}")});
            gateway.generate(fields);
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|number| drop(scope.spawn(move || send_all(number)))));
    let records = gateway.final_records(40);
    assert_eq!(records.len(), 40);
    let all_attempts = upstream.received_attempts();
    for record in &records {
        let user = record["end_user"].as_str().expect("a user");
        let attempts: Vec<_> = all_attempts.iter().filter(|attempt| attempt.user() == user).collect();
        let completed = attempts.iter().filter(|attempt| attempt.completed && !attempt.images.is_empty()).count();
        assert!(completed <= 1, "{user}: {completed} completed attempts");
        assert_eq!(records.iter().filter(|other| other["end_user"] == user).count(), 1, "{user}");
        assert_eq!(record["attempts"].as_array().map(Vec::len), Some(attempts.len()), "{record}");
    }
}
