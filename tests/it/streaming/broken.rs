//! Streams that break: an ordinary status before the first event, the error frame of the contract after it, and never a
//! second answer.

use serde_json::{Value, json};

use super::Operation;
use crate::kit::{Account, ERROR_FRAME, Events, FakeUpstream, Gateway, before_error_frame, env_setting};

/// Two accounts at one upstream; `first` is always chosen first.
fn two(upstream: &FakeUpstream) -> Gateway {
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
        is_ordinary(row);
    }
}

#[test]
fn an_error_event_before_the_first_image_is_judged_by_what_it_says() {
    for row in [
        ("events=e-policy", 502, "upstream_error", "refused"),
        ("events=e", 502, "upstream_error", "failed"),
        ("events=e-flat", 502, "upstream_error", "failed"),
        ("events=k,e", 502, "upstream_error", "failed"),
        ("events=e-limit", 429, "usage_limit_reached", "failed"),
        ("events=e-parameter", 400, "invalid_request_error", "failed"),
    ] {
        is_ordinary(row);
    }
}

#[track_caller]
fn is_ordinary((script, status, code, state): (&str, u16, &str, &str)) {
    println!("{script}");
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for operation in [Operation::Generate, Operation::Edit] {
        let answer = operation.call(&gateway, script, 1).send(gateway.address());
        let error = answer.error_object(status);
        assert_eq!(error["code"], code, "{script}");
        assert!(answer.should_retry().is_some(), "{script}: no advice");
        if state == "interrupted" || state == "refused" {
            assert_eq!(answer.should_retry(), Some("false"), "{script}");
        }
    }
    let records = gateway.final_records(2);
    assert_eq!(records.len(), 2, "{script}");
    // An account that cools down leaves the second request without an attempt, and that is a failure as well.
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
        let gateway = two(&upstream);
        for (at, operation) in [Operation::Generate, Operation::Edit].into_iter().enumerate() {
            println!("{operation:?} {script}");
            is_broken_once(operation, &gateway, script);
            assert_eq!(upstream.attempts(), at + 1, "{script}: never a second attempt after the first event");
        }
        for record in gateway.final_records(2) {
            let mut states = vec!["interrupted", "failed"];
            // What was refused in the middle was begun, and both are true of it.
            states.extend(script.ends_with("policy").then_some("refused"));
            assert!(states.contains(&record["state"].as_str().unwrap_or_default()), "{script}: {record}");
            assert!(record["error_code"].is_string(), "{script}: {record}");
            assert_eq!(record["attempts"].as_array().map(Vec::len), Some(1), "{script}: {record}");
        }
    }
}

/// At most the partial images, then perhaps the beginning of an image that never became whole, then the error frame.
#[track_caller]
fn is_broken_once(operation: Operation, gateway: &Gateway, script: &str) {
    let answer = operation.call(gateway, script, 2).send(gateway.address());
    assert_eq!(answer.status, 200, "{:.300}", answer.text());
    assert!(answer.complete, "{script}: the body has an end");
    let text = answer.text();
    assert!(!text.contains("upstream-canary"), "{script}: the upstream's own words came out");
    let rest = before_error_frame(&text);
    let completed = format!("event: {}.completed\n", operation.family());
    for frame in rest.split_inclusive("\n\n") {
        let data = frame.split_once("\ndata: ").map(|(_, data)| data.trim_end()).unwrap_or_default();
        let whole = serde_json::from_str::<Value>(data).is_ok();
        assert!(!(frame.starts_with(&completed) && whole), "{script}: a final image that never was: {frame:.200}");
    }
    assert!(rest.contains(".partial_image\n"), "{script}");
}

#[test]
fn the_error_frame_is_that_of_the_contract_to_the_byte() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for operation in [Operation::Generate, Operation::Edit] {
        let text = operation.call(&gateway, "events=p,cut", 1).send(gateway.address()).text();
        let frame = text.rfind("event: error").map(|at| &text[at..]);
        assert_eq!(frame, Some(ERROR_FRAME));
    }
}

#[test]
fn a_huge_image_that_breaks_in_the_middle_cannot_be_taken_for_a_whole_one() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for script in
        ["events=half,cut b64=8000000", "events=half,eof b64=8000000", "events=half,cut b64=8000000 how=reset"]
    {
        let answer = Operation::Generate.call(&gateway, script, 0).send(gateway.address());
        println!("{script}: {} {}", answer.status, answer.body.len());
        if answer.status == 200 {
            let text = answer.text();
            // The SDKs raise nothing when a stream just stops.
            before_error_frame(&text);
            assert!(answer.complete, "{script}: the body has an end");
        } else {
            answer.error_object(502);
        }
    }
    assert!(gateway.final_records(3).iter().all(|record| record["state"] == "interrupted"));
}

#[test]
fn a_broken_upstream_does_not_leave_the_account_busy() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for _ in 0..70 {
        // More often than the account has places.
        drop(Operation::Generate.call(&gateway, "events=p,cut", 1).send(gateway.address()));
    }
    let events =
        Events::from_reply(Operation::Generate.call(&gateway, "", 1).open(gateway.address()).expect("an answer"));
    assert_eq!(events.rest().len(), 2);
}

#[test]
fn heartbeats_of_the_upstream_do_not_keep_a_dead_job_alive() {
    for script in ["events=stall", "events=murmur"] {
        let upstream = FakeUpstream::start();
        let deadlines = "[deadlines]\nconnect = \"1s\"\nimage = \"1500ms\"\n";
        let gateway = Gateway::with(deadlines, &[Account::for_upstream("only", &upstream)]);
        let answer = Operation::Generate.call(&gateway, script, 1).send(gateway.address());
        let error = answer.error_object(502);
        assert_eq!((&error["reason"], answer.should_retry()), (&json!("timeout"), Some("false")), "{script}");
        upstream.wait_until("the gateway has let go", |ledger| ledger.iter().all(|attempt| attempt.peer_left));
        assert_eq!(
            (upstream.attempts(), &gateway.final_records(1)[0]["state"]),
            (1, &json!("interrupted")),
            "{script}"
        );
    }
}

#[test]
fn a_stream_that_stalls_after_an_event_ends_with_the_error_frame() {
    // Longer than the interval of the heartbeats, which nothing shortens.
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
                assert!(answer.complete, "{script}: the body has an end");
                let text = answer.text();
                let rest = before_error_frame(&text);
                assert_eq!(rest.matches("event: ").count(), 1, "{script}");
                assert!(
                    rest.contains(": keep-alive\n\n"),
                    "{script}: the caller is kept waiting without a sign of life"
                );
            });
        }
    });
    let records = gateway.final_records(2);
    assert!(records.iter().all(|record| record["state"] == "interrupted"), "{records:#?}");
    assert_eq!(upstream.attempts(), 2, "never a second attempt after the first event");
}
