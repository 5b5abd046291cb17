//! Streams that break: an ordinary error before the first event, the error frame of the contract after it, and never a
//! second call.

use serde_json::{Value, json};

use super::Operation;
use crate::kit::{Account, ERROR_FRAME, Events, FakeUpstream, Gateway, before_error_frame, env_setting};

/// A gateway with two accounts of one upstream; `first` is always asked first.
fn gateway_with_two_accounts(upstream: &FakeUpstream) -> Gateway {
    Gateway::with(
        "",
        &[Account::for_upstream("first", upstream), Account::for_upstream("second", upstream).with_free_tier()],
    )
}

#[test]
fn a_failure_before_the_first_event_is_an_ordinary_error_with_its_status() {
    for row in [
        ("status=400 body=parameter", 400, "invalid_request_error", "failed"),
        ("status=400 body=policy", 502, "upstream_error", "refused"),
        ("status=429 body=usage-limit resets-in=3600", 429, "usage_limit_reached", "failed"),
        ("status=500", 502, "upstream_error", "failed"),
        ("status=524 body=html", 502, "upstream_error", "interrupted"),
        ("body=html", 502, "upstream_error", "interrupted"),
        ("body=none type=text/event-stream", 502, "upstream_error", "interrupted"),
        ("hang-up", 502, "upstream_error", "interrupted"),
        ("events=eof", 502, "upstream_error", "interrupted"),
        ("events=cut", 502, "upstream_error", "interrupted"),
        ("events=k,k,eof", 502, "upstream_error", "interrupted"),
        ("events=x,done", 502, "upstream_error", "interrupted"),
        ("events=blank", 502, "upstream_error", "interrupted"),
        ("events=missing", 502, "upstream_error", "interrupted"),
        ("plain data=empty", 502, "upstream_error", "interrupted"),
        ("plain cut=20", 502, "upstream_error", "interrupted"),
    ] {
        assert_ordinary_error(row);
    }
}

#[test]
fn an_error_event_before_the_first_image_has_its_own_status() {
    for row in [
        ("events=e-policy", 502, "upstream_error", "refused"),
        ("events=e", 502, "upstream_error", "failed"),
        ("events=e-flat", 502, "upstream_error", "failed"),
        ("events=k,e", 502, "upstream_error", "failed"),
        ("events=e-limit", 429, "usage_limit_reached", "failed"),
        ("events=e-parameter", 400, "invalid_request_error", "failed"),
    ] {
        assert_ordinary_error(row);
    }
}

#[track_caller]
fn assert_ordinary_error((script, status, code, state): (&str, u16, &str, &str)) {
    println!("{script}");
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for operation in [Operation::Generate, Operation::Edit] {
        let answer = operation.call(&gateway, script, 1).send(gateway.address());
        let error = answer.error_object(status);
        assert_eq!(error["code"], code, "{script}");
        assert!(answer.should_retry().is_some(), "{script}: no `x-should-retry`");
        if state == "interrupted" || state == "refused" {
            assert_eq!(answer.should_retry(), Some("false"), "{script}");
        }
    }
    let records = gateway.final_records(2);
    assert_eq!(records.len(), 2, "{script}");
    // Only the first record is checked: if the account is in cooldown, the second request fails without an attempt.
    let found = (&records[0]["state"], &records[0]["error_code"]);
    assert_eq!(found, (&json!(state), &json!(code)), "{script}: {records:#?}");
}

#[test]
fn a_failure_after_the_first_event_is_the_error_frame_and_then_the_end() {
    for script in [
        "events=p,eof",
        "events=p,cut",
        "events=p,cut how=reset",
        "events=p,half,eof",
        "events=p,half,cut",
        "events=p,half,cut b64=2000000",
        "events=p,half,eof b64=2000000 framing=close",
        "events=p,e",
        "events=p,e-flat",
        "events=p,e-policy",
        "events=p,e-limit",
        "events=p,blank",
        "events=p,missing",
        "events=p,junk",
        "events=p,k,x,done",
        "events=p,p,eof",
    ] {
        let upstream = FakeUpstream::start();
        let gateway = gateway_with_two_accounts(&upstream);
        for (at, operation) in [Operation::Generate, Operation::Edit].into_iter().enumerate() {
            println!("{operation:?} {script}");
            assert_ends_in_error_frame(operation, &gateway, script);
            assert_eq!(upstream.attempt_count(), at + 1, "{script}: never a second attempt after the first event");
        }
        for record in gateway.final_records(2) {
            let mut states = vec!["interrupted", "failed"];
            // A stream that is refused after its start may be recorded as refused or as interrupted.
            states.extend(script.ends_with("policy").then_some("refused"));
            assert!(states.contains(&record["state"].as_str().unwrap_or_default()), "{script}: {record}");
            assert!(record["error_code"].is_string(), "{script}: {record}");
            assert_eq!(record["attempts"].as_array().map(Vec::len), Some(1), "{script}: {record}");
        }
    }
}

/// Asserts that a stream has at most its partial images, perhaps the start of an incomplete image, and the error frame.
#[track_caller]
fn assert_ends_in_error_frame(operation: Operation, gateway: &Gateway, script: &str) {
    let answer = operation.call(gateway, script, 2).send(gateway.address());
    assert_eq!(answer.status, 200, "{:.300}", answer.text());
    assert!(answer.complete, "{script}: the body must be complete");
    let text = answer.text();
    assert!(!text.contains("provider-canary"), "{script}: the answer has the upstream's error text");
    let frames = before_error_frame(&text);
    let completed = format!("event: {}.completed\n", operation.family());
    for frame in frames.split_inclusive("\n\n") {
        let data = frame.split_once("\ndata: ").map(|(_, data)| data.trim_end()).unwrap_or_default();
        let is_json = serde_json::from_str::<Value>(data).is_ok();
        assert!(
            !(frame.starts_with(&completed) && is_json),
            "{script}: a final image that the upstream did not send: {frame:.200}"
        );
    }
    assert!(frames.contains(".partial_image\n"), "{script}");
}

#[test]
fn the_error_frame_equals_that_of_the_contract() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for operation in [Operation::Generate, Operation::Edit] {
        let text = operation.call(&gateway, "events=p,cut", 1).send(gateway.address()).text();
        let frame = text.rfind("event: error").map(|at| &text[at..]);
        assert_eq!(frame, Some(ERROR_FRAME));
    }
}

#[test]
fn a_broken_huge_image_does_not_look_complete() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for script in
        ["events=half,cut b64=8000000", "events=half,eof b64=8000000", "events=half,cut b64=8000000 how=reset"]
    {
        let answer = Operation::Generate.call(&gateway, script, 0).send(gateway.address());
        println!("{script}: {} {}", answer.status, answer.body.len());
        if answer.status == 200 {
            let text = answer.text();
            // The SDKs raise no error if a stream only stops, so the error frame must be there.
            before_error_frame(&text);
            assert!(answer.complete, "{script}: the body must be complete");
        } else {
            answer.error_object(502);
        }
    }
    assert!(gateway.final_records(3).iter().all(|record| record["state"] == "interrupted"));
}

#[test]
fn broken_streams_free_the_slots_of_their_account() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for _ in 0..70 {
        // More requests than the account has slots.
        drop(Operation::Generate.call(&gateway, "events=p,cut", 1).send(gateway.address()));
    }
    let events =
        Events::from_reply(Operation::Generate.call(&gateway, "", 1).open(gateway.address()).expect("an answer"));
    assert_eq!(events.remaining().len(), 2);
}

#[test]
fn upstream_heartbeats_do_not_extend_the_deadline() {
    for script in ["events=stall", "events=murmur"] {
        let upstream = FakeUpstream::start();
        let deadlines = "[deadlines]\nconnect = \"1s\"\nimage = \"1500ms\"\n";
        let gateway = Gateway::with(deadlines, &[Account::for_upstream("only", &upstream)]);
        let answer = Operation::Generate.call(&gateway, script, 1).send(gateway.address());
        let error = answer.error_object(502);
        assert_eq!((&error["reason"], answer.should_retry()), (&json!("timeout"), Some("false")), "{script}");
        upstream.wait_until("the gateway has closed its upstream connection", |attempts| {
            attempts.iter().all(|attempt| attempt.peer_left)
        });
        assert_eq!(
            (upstream.attempt_count(), &gateway.final_records(1)[0]["state"]),
            (1, &json!("interrupted")),
            "{script}"
        );
    }
}

#[test]
fn a_stream_that_stalls_after_an_event_ends_with_the_error_frame() {
    // The test takes longer than the interval of the heartbeats, which has no setting.
    if env_setting("IMAGATE_TEST_FAST").is_some() {
        return;
    }
    let upstream = FakeUpstream::start();
    let accounts =
        [Account::for_upstream("first", &upstream), Account::for_upstream("second", &upstream).with_free_tier()];
    let gateway = Gateway::with("[deadlines]\nimage = \"20s\"\n", &accounts);
    std::thread::scope(|scope| {
        for script in ["events=p,stall", "events=p,murmur"] {
            let (call, address) = (Operation::Generate.call(&gateway, script, 1), gateway.address());
            scope.spawn(move || {
                let answer = call.send(address);
                assert!(answer.complete, "{script}: the body must be complete");
                let text = answer.text();
                let frames = before_error_frame(&text);
                assert_eq!(frames.matches("event: ").count(), 1, "{script}");
                assert!(frames.contains(": keep-alive\n\n"), "{script}: the caller got no heartbeat");
            });
        }
    });
    let records = gateway.final_records(2);
    assert!(records.iter().all(|record| record["state"] == "interrupted"), "{records:#?}");
    assert_eq!(upstream.attempt_count(), 2, "never a second attempt after the first event");
}
