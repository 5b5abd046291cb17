//! Failures that end a request: refused content (class R), an exhausted usage window, and a parameter that the upstream
//! refuses. No answer may contain credentials, addresses or prompts.

use serde_json::{Value, json};

use crate::kit::{Account, FakeUpstream, Gateway};

fn gateway_with_three_accounts(upstream: &FakeUpstream) -> Gateway {
    let [first, second, third] = ["first", "second", "third"].map(|name| Account::for_upstream(name, upstream));
    Gateway::with("", &[first, second.with_free_tier(), third.with_free_tier()])
}

#[test]
fn refused_content_is_one_attempt_and_a_502_without_retry() {
    for script in [
        "status=400 body=policy",
        "status=400 body=policy-old",
        "status=403 body=policy",
        "status=400 body=policy framing=chunked",
    ] {
        let upstream = FakeUpstream::start();
        let gateway = gateway_with_three_accounts(&upstream);
        let answer = gateway.scripted(script);
        let error = answer.error_object(502);
        let expected = json!({"message": "Upstream request failed", "type": "upstream_error", "param": null, "code": "upstream_error", "reason": "content_refused"});
        assert_eq!(error, expected, "{script}");
        assert_eq!(answer.should_retry(), Some("false"), "{script}");
        assert_eq!(upstream.attempt_count(), 1, "{script}");
        let records = gateway.final_records(1);
        assert_eq!(records.len(), 1);
        assert_eq!(
            (&records[0]["state"], &records[0]["attempts"][0]["class"]),
            (&json!("refused"), &json!("R")),
            "{script}"
        );
        assert_eq!(records[0]["error_code"], "upstream_error", "{script}");
    }
}

#[test]
fn an_exhausted_account_leaves_the_request_to_another() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token("sk-upstream-first", "status=429 body=usage-limit resets-in=3600");
    let gateway = gateway_with_three_accounts(&upstream);
    gateway.generate(json!({})).ok_json();
    assert_eq!(gateway.final_records(1)[0]["state"], "succeeded");
}

#[test]
fn if_every_account_is_exhausted_the_body_has_the_earliest_reset() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token("sk-upstream-first", "status=429 body=usage-limit resets-in=7200");
    upstream.always_for_token("sk-upstream-second", "status=429 body=usage-limit resets-in=3600");
    upstream.always_for_token("sk-upstream-third", "status=429 body=usage-limit resets-in=354089");
    let gateway = gateway_with_three_accounts(&upstream);
    let answer = gateway.generate(json!({}));
    let error = answer.error_object(429);
    assert_eq!(
        (&error["type"], &error["code"], &error["param"]),
        (&json!("usage_limit_reached"), &json!("usage_limit_reached"), &Value::Null)
    );
    assert_eq!(error["message"], "The usage limit has been reached");
    let seconds = error["resets_in_seconds"].as_u64().expect("resets_in_seconds");
    assert!((3590..=3600).contains(&seconds), "{error}");
    assert!(error["resets_at"].is_u64(), "{error}");
    assert_eq!((answer.should_retry(), answer.header("retry-after")), (Some("false"), None));
    assert_eq!(upstream.attempt_count(), 3, "each account is asked once");
    let record = &gateway.final_records(1)[0];
    assert_eq!((&record["state"], &record["error_code"]), (&json!("failed"), &json!("usage_limit_reached")));
}

#[test]
fn strange_reset_times_neither_break_the_answer_nor_reach_the_header() {
    for resets in
        ["", "resets-in=5", "resets-in=0", "resets-in=1000000000000000000", "resets-at=1", "resets-at=4000000000"]
    {
        let upstream = FakeUpstream::start();
        let gateway = Gateway::with_upstream(&upstream);
        let answer = gateway.scripted(&format!("status=429 body=usage-limit {resets}"));
        let error = answer.error_object(429);
        assert_eq!(error["code"], "usage_limit_reached", "{resets}");
        let wait_seconds = answer.header("retry-after").map(|value| value.parse::<u64>().expect("whole seconds"));
        assert!(wait_seconds.is_none_or(|seconds| seconds <= 60), "{resets}: {wait_seconds:?}");
        assert_eq!(upstream.attempt_count(), 1, "{resets}");
    }
}

#[test]
fn an_error_with_a_stalled_body_is_classified_by_its_status() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token("sk-upstream-first", "status=429 retry-after=7 stall=body");
    let gateway = gateway_with_three_accounts(&upstream);
    gateway.generate(json!({})).ok_json();
    assert_eq!(upstream.attempt_count(), 2);
}

#[test]
fn a_parameter_that_the_upstream_refuses_is_a_400_with_its_name() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with_three_accounts(&upstream);
    let answer = gateway.scripted("status=400 body=parameter");
    let error = answer.error_object(400);
    assert_eq!(
        (&error["type"], &error["code"], &error["param"]),
        (&json!("invalid_request_error"), &json!("invalid_request_error"), &json!("quality"))
    );
    assert!(error["message"].as_str().is_some_and(|message| message.contains("Invalid value")), "{error}");
    assert_eq!(answer.should_retry(), Some("false"));
    assert_eq!(upstream.attempt_count(), 1);
    assert_eq!(gateway.final_records(1)[0]["state"], "failed");
}

#[test]
fn a_request_that_the_upstream_rejects_is_sent_once() {
    for status in [400, 413, 415, 422] {
        let upstream = FakeUpstream::start();
        let gateway = gateway_with_three_accounts(&upstream);
        let answer = gateway.scripted(&format!("status={status} body=request"));
        let error = answer.error_object(400);
        assert_eq!(error["message"], "The image is too complex.", "{status}");
        assert_eq!((&error["param"], &error["reason"]), (&Value::Null, &json!("upstream_rejected")), "{status}");
        assert_eq!(answer.should_retry(), Some("false"), "{status}");
        assert_eq!(upstream.attempt_count(), 1, "{status}");
        assert_eq!(gateway.final_records(1)[0]["attempts"][0]["class"], "R", "{status}");
    }
}

#[test]
fn accounts_without_quota_or_credentials_give_their_reason() {
    for (script, reason) in [("status=429 body=unpaid", "quota"), ("status=401", "credentials")] {
        let upstream = FakeUpstream::start();
        let gateway = gateway_with_three_accounts(&upstream);
        let answer = gateway.scripted(script);
        assert_eq!(answer.error_object(502)["reason"], reason, "{script}");
        assert_eq!(answer.should_retry(), Some("false"), "{script}");
        assert_eq!(upstream.attempt_count(), 3, "{script}");
        assert_eq!(gateway.final_records(1)[0]["error_reason"], reason, "{script}");
    }
}

#[test]
fn with_one_throttled_account_the_error_is_a_rate_limit() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token("sk-upstream-first", "status=429 body=usage-limit resets-in=3600");
    let gateway = Gateway::with(
        "",
        &[Account::for_upstream("first", &upstream), Account::for_upstream("second", &upstream).with_free_tier()],
    );
    gateway.generate(json!({})).ok_json();
    upstream.always_for_token("sk-upstream-second", "status=429 retry-after=7");
    for request in 0..3 {
        let answer = gateway.generate(json!({}));
        let error = answer.error_object(429);
        assert_eq!(error["code"], "rate_limit_exceeded", "{request}: {error}");
        let seconds: u64 = answer.header("retry-after").expect("retry-after").parse().expect("seconds");
        assert!((1..=7).contains(&seconds), "{request}: {seconds}");
        assert_eq!(answer.should_retry(), Some("true"), "{request}");
    }
}

#[test]
fn no_credential_or_prompt_reaches_answers_logs_or_files() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let prompt = "prompt-canary";
    let mut answers = String::new();
    for script in [
        "",
        "status=500",
        "status=401",
        "status=400 body=policy",
        "status=524 body=html",
        "body=html",
        "cut=50%",
        "status=429 body=usage-limit",
    ] {
        let answer = gateway.generate(json!({"prompt": format!("{prompt} [[{script}]]"), "user": "end-user"}));
        answers.push_str(&format!("{:?}", answer.headers));
        if answer.status != 200 {
            answers.push_str(&answer.text());
        }
    }
    let port = upstream.address().port().to_string();
    for canary in ["provider-canary", "sk-upstream-only", &format!(":{port}"), gateway.secret(), prompt] {
        assert!(!answers.contains(canary), "{canary} reached the caller: {answers}");
    }
    let records = format!("{:?}", gateway.final_records(8));
    let log = gateway.output();
    for canary in ["sk-upstream-only", gateway.secret(), prompt] {
        assert!(!log.contains(canary), "{canary} was logged: {log}");
        assert!(!records.contains(canary), "{canary} was recorded: {records}");
    }
    for file in ["data/imagate.db", "data/imagate.db-wal", "data/imagate.sqlite", "data/imagate.sqlite-wal"] {
        let bytes = std::fs::read(gateway.home().join(file)).unwrap_or_default();
        for canary in ["sk-upstream-only", gateway.secret(), prompt] {
            assert!(!bytes.windows(canary.len()).any(|window| window == canary.as_bytes()), "{canary} is in {file}");
        }
    }
}
