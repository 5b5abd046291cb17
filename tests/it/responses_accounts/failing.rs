//! Failures of accounts with the protocol `responses`: by the money rules nothing is paid for twice, and the error that
//! the caller gets is accurate.

use serde_json::{Value, json};

use crate::kit::{Account, Answer, FakeUpstream, Form, Gateway, alpha_png};

/// A gateway with two accounts: `first` is always asked first, and `second` never fails.
fn gateway_with_two_accounts(upstream: &FakeUpstream) -> Gateway {
    let account = |name| Account::for_upstream(name, upstream).with_responses_protocol();
    let config = "[deadlines]\nimage = \"2s\"\n";
    Gateway::with(config, &[account("first"), account("second").with_free_tier()])
}

/// Sends a streamed generation, or an edit that is not streamed.
fn send_request(gateway: &Gateway, stream: bool, user: &str) -> Answer {
    if stream {
        let fields = json!({"user": user, "stream": true, "partial_images": 1});
        return gateway.generate(fields);
    }
    let form = Form::with_required_fields().text("user", user).file("image", &alpha_png(64, 64));
    gateway.edit(form)
}

/// Failures of this protocol: the script of the first account, the number of calls, the status and the reason of the
/// answer, and the state of the record.
const CASES: [(&str, usize, u16, &str, &str); 25] = [
    ("status=401", 2, 200, "", "succeeded"),
    ("status=402", 2, 200, "", "succeeded"),
    ("status=429 retry-after=1", 2, 200, "", "succeeded"),
    ("status=429 body=usage-limit resets-in=9", 2, 200, "", "succeeded"),
    ("status=500", 2, 200, "", "succeeded"),
    ("tale=created,e", 2, 200, "", "succeeded"),
    ("tale=created,failed", 2, 200, "", "succeeded"),
    ("tale=created,e-usage-limit resets-in=9", 2, 200, "", "succeeded"),
    ("status=400 body=policy", 1, 502, "content_refused", "refused"),
    ("tale=created,added,e-policy", 1, 502, "content_refused", "refused"),
    ("tale=created,failed-policy", 1, 502, "content_refused", "refused"),
    ("tale=created,added,item-refused,c", 1, 502, "content_refused", "refused"),
    ("tale=created,filtered", 1, 502, "content_refused", "refused"),
    ("tale=created,progress,text,c", 1, 502, "no_image_data", "interrupted"),
    ("plain data=words", 1, 502, "no_image_data", "interrupted"),
    ("tale=created,added,item-failed,c", 1, 502, "no_image_data", "interrupted"),
    ("tale=created,added,item-failed,text,c", 1, 502, "no_image_data", "interrupted"),
    ("tale=created,added,item-blank,c", 1, 502, "no_image_data", "interrupted"),
    ("tale=created,added,item-link,c", 1, 502, "no_image_data", "interrupted"),
    ("tale=created,eof", 1, 502, "no_image_data", "interrupted"),
    ("tale=created,cut", 1, 502, "network", "interrupted"),
    ("tale=created,stall", 1, 502, "timeout", "interrupted"),
    ("status=524 body=html", 1, 502, "timeout", "interrupted"),
    ("body=html", 1, 502, "no_image_data", "interrupted"),
    ("hang-up", 1, 502, "network", "interrupted"),
];

#[test]
fn every_failure_before_an_image_has_its_class() {
    let upstream = FakeUpstream::start();
    for (script, calls, status, reason, state) in CASES {
        for stream in [false, true] {
            let gateway = gateway_with_two_accounts(&upstream);
            let before = upstream.attempt_count();
            upstream.always_for_token("sk-upstream-first", script);
            let answer = send_request(&gateway, stream, "u");
            let context = format!("{script}, streamed: {stream}: {} {:.300}", answer.status, answer.text());
            assert_eq!(answer.status, status, "{context}");
            assert_eq!(upstream.attempt_count() - before, calls, "{context}");
            if status != 200 {
                let error = answer.error_object(status);
                assert_eq!((&error["reason"], answer.should_retry()), (&json!(reason), Some("false")), "{context}");
            }
            assert!(!answer.text().contains("canary"), "{context}");
            let record = gateway.final_records(1).pop().expect("a record");
            assert_eq!(record["state"], state, "{context}: {record}");
        }
    }
}

#[test]
fn an_error_has_the_parameter_name_that_the_caller_sent() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with_two_accounts(&upstream);
    let answer = gateway.scripted("status=400 body=parameter");
    let error = answer.error_object(400);
    assert_eq!((&error["param"], &error["message"]), (&json!("quality"), &json!("Invalid value: 'low'.")));
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn tokens_without_an_image_are_recorded() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with_two_accounts(&upstream);
    gateway.scripted("tale=created,text,c").error_object(502);
    let record = gateway.final_records(1).pop().expect("a record");
    let text = upstream.received_attempts()[0].usage.clone().expect("tokens");
    let total = text["total_tokens"].as_u64().expect("a count");
    assert!(record["usage"]["total_tokens"].as_u64().is_some_and(|counted| counted >= total), "{record}");
}

#[test]
fn only_a_break_before_the_end_of_the_image_breaks_the_answer() {
    let upstream = FakeUpstream::start();
    for (script, complete) in [
        ("tale=created,half,cut b64=800000", false),
        ("tale=created,half,eof b64=800000", false),
        ("tale=created,item,cut", true),
        ("tale=created,item,eof", true),
        ("tale=created,item,e", true),
        ("tale=created,item,failed-policy", true),
        ("tale=created,item,stall", true),
    ] {
        let gateway = gateway_with_two_accounts(&upstream);
        let before = upstream.attempt_count();
        let answer = gateway.scripted(script);
        assert_eq!((answer.status, answer.complete), (200, complete), "{script}");
        if complete {
            let attempt = upstream.received_attempts().pop().expect("an attempt");
            let json = answer.json();
            assert_eq!(json["data"][0]["b64_json"], attempt.images[0].as_str(), "{script}");
            assert_eq!(json["usage"], Value::Null, "the usage is unknown, so the answer must not have it: {script}");
        }
        assert_eq!(upstream.attempt_count() - before, 1, "{script}");
        let state = if complete { "succeeded" } else { "interrupted" };
        assert_eq!(gateway.final_records(1)[0]["state"], state, "{script}");
    }
}

#[test]
fn a_stream_that_fails_after_a_partial_image_ends_in_an_error_event() {
    let upstream = FakeUpstream::start();
    for script in
        ["tale=p,eof", "tale=p,cut", "tale=p,e", "tale=p,failed-policy", "tale=p,text,c", "tale=p,half,cut b64=800000"]
    {
        let gateway = gateway_with_two_accounts(&upstream);
        let before = upstream.attempt_count();
        let answer =
            gateway.generate(json!({"prompt": format!("a cube [[{script}]]"), "stream": true, "partial_images": 1}));
        let text = answer.text();
        assert!(answer.complete && text.contains("event: image_generation.partial_image\n"), "{script}: {text:.300}");
        let last = text.trim_end().rsplit("\n\n").next().unwrap_or_default();
        assert!(last.starts_with("event: error\ndata: {") && last.contains("upstream_error"), "{script}: {last}");
        assert!(!text.contains("canary"), "{script}");
        assert_eq!(upstream.attempt_count() - before, 1, "{script}");
        assert_eq!(gateway.final_records(1)[0]["state"], "interrupted", "{script}");
    }
}
