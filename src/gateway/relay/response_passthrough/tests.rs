//! Tests of the passthrough with scripted responses: the bytes that the caller gets, and the outcome.

mod absent_padding;
mod item_status;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sha2::Digest as _;
use tokio::time::Instant;

use super::*;
use crate::gateway::relay::answer_relay::{AnswerSource as _, UpstreamRelay};
use crate::gateway::relay::fixtures::{self, PNG_HEAD, RelayOutcomes, broken_body, channel_body, pieces};
use crate::gateway::relay::{AnswerTimeouts, ProofError, ProvenAnswer, RelayBody, RelayOutcome};
use crate::gateway::store::BindingDigest;
use crate::gateway::upstream::{FailureCause, ReplyBody};

const ERROR: &str = r#"{"type":"error","code":"upstream_error","message":"m","error":{"message":"m"}}"#;

fn requested(stream: bool) -> RequestedResponse {
    RequestedResponse { model: "gpt-5.5".to_owned(), stream, now: 17 }
}

fn limits() -> AnswerTimeouts {
    AnswerTimeouts {
        idle: Duration::from_secs(60),
        event_idle: Duration::from_secs(600),
        deadline: Instant::now() + Duration::from_secs(3600),
    }
}

async fn prove(body: ReplyBody, stream: bool) -> Result<ProvenAnswer, ProofError> {
    fixtures::prove(UpstreamRelay::for_response(body, requested(stream), limits())).await
}

fn relay(proven: ProvenAnswer) -> (RelayBody, RelayOutcomes) {
    fixtures::relay(proven, || ERROR.to_owned())
}

async fn relay_to_end(body: ReplyBody, stream: bool) -> (Option<String>, RelayOutcome, AnswerSummary) {
    fixtures::read(prove(body, stream).await.expect("an answer"), || ERROR.to_owned()).await
}

async fn proof_error(body: ReplyBody, stream: bool) -> ProofError {
    prove(body, stream).await.expect_err("an unproven answer")
}

fn response(status: &str, members: &Value) -> Value {
    let mut response = json!({"id": "resp_1", "object": "response", "created_at": 5, "status": status, "output": []});
    response.as_object_mut().expect("an object").extend(members.as_object().cloned().expect("an object"));
    response
}

fn usage() -> Value {
    json!({"usage": {"input_tokens": 30, "input_tokens_details": {"cached_tokens": 9}, "output_tokens": 50, "total_tokens": 80},
           "tool_usage": {"image_gen": {"input_tokens": 17, "input_tokens_details": {"image_tokens": 5, "text_tokens": 12},
                                        "output_tokens": 196, "total_tokens": 213}}})
}

fn frame(kind: &str, mut event: Value) -> String {
    event["type"] = kind.into();
    format!("event: {kind}\ndata: {event}\n\n")
}

fn base64(length: usize) -> String {
    format!("{PNG_HEAD}{}", "A".repeat(length / 4 * 4))
}

/// Returns the events of a response with one image, whose base64 has this many characters after its header.
fn image_events(length: usize) -> [String; 7] {
    let call = |status: &str| json!({"id": "ig_1", "type": "image_generation_call", "status": status});
    let mut done = call("completed");
    done["result"] = base64(length).into();
    let mut last = usage();
    last["output"] = json!([done]);
    [
        frame("response.created", json!({"sequence_number": 0, "response": response("in_progress", &json!({}))})),
        frame("response.in_progress", json!({"sequence_number": 1, "response": response("in_progress", &json!({}))})),
        frame(
            "response.output_item.added",
            json!({"sequence_number": 2, "output_index": 0, "item": call("in_progress")}),
        ),
        frame(
            "response.image_generation_call.generating",
            json!({"sequence_number": 3, "output_index": 0, "item_id": "ig_1"}),
        ),
        ": a comment of the upstream\n\n".to_owned(),
        frame("response.output_item.done", json!({"sequence_number": 4, "output_index": 0, "item": done})),
        frame("response.completed", json!({"sequence_number": 5, "response": response("completed", &last)})),
    ]
}

#[tokio::test]
async fn a_plain_response_is_passed_on_byte_for_byte() {
    let image = json!({"type": "image_generation_call", "id": "ig_1", "result": base64(400_000)});
    let mut members = usage();
    members["output"] = json!([image]);
    let spaced = format!(" \n{}\r\n ", serde_json::to_string_pretty(&response("completed", &members)).expect("JSON"));
    let text =
        response("completed", &json!({"output": [{"type": "message"}], "x": [1.50, {"y": "\u{1F980}"}]})).to_string();
    for body in [spaced.as_str(), text.as_str(), "{}"] {
        for cut in [1, 7, 4096, 16_383, 16_384, 16_385, 1 << 20] {
            let (found, outcome, _) = relay_to_end(pieces(body, cut), false).await;
            assert_eq!((found.as_deref(), outcome), (Some(body), RelayOutcome::Complete), "cut into {cut}");
        }
    }
    let (_, _, summary) = relay_to_end(pieces(&spaced, 4096), false).await;
    let image = summary.delivered[0].properties.expect("known properties");
    assert_eq!((image.width, image.height, summary.delivered.len()), (1024, 1024, 1));
}

#[tokio::test]
async fn tokens_of_text_and_images_are_separate() {
    let (_, _, summary) = relay_to_end(pieces(&response("completed", &usage()).to_string(), 50), false).await;
    let usage = summary.usage.clone().expect("tokens");
    let (image, host) = (usage.image.expect("tokens of the image"), usage.host.expect("tokens of the text"));
    assert_eq!((image.input, image.input_text, image.input_image, image.output), (17, 12, 5, 196));
    assert_eq!((host.input, host.output, host.total, usage.total), (30, 50, 80, 293));
}

#[tokio::test]
async fn the_models_and_the_quality_of_each_image_are_known() {
    let image = |quality: Value| json!({"type": "image_generation_call", "id": "ig_1", "result": base64(400), "quality": quality});
    let (output, tools) = (
        json!([image("low".into()), {"type": "message", "quality": "none"}, image("auto".into())]),
        json!([{"type": "function", "model": "no"}, {"model": "drawer", "type": "image_generation"}, {"type": "mcp", "model": "no"}]),
    );
    let full_response = response("completed", &json!({"output": output, "tools": tools, "model": "gpt-5.5-x"}));
    let done = |index: usize| frame("response.output_item.done", json!({"output_index": index, "item": output[index]}));
    let events =
        [done(0), done(1), done(2), frame("response.completed", json!({ "response": full_response }))].concat();
    for (body, stream) in [(full_response.to_string(), false), (events, true)] {
        let (_, _, summary) = relay_to_end(pieces(&body, 50), stream).await;
        let qualities: Vec<_> = summary.delivered.iter().map(|image| image.quality.as_deref()).collect();
        assert_eq!(qualities, [Some("low"), None], "{stream}");
        let models = (summary.image_model.as_deref(), summary.host_model.as_deref());
        assert_eq!(models, (Some("drawer"), Some("gpt-5.5-x")), "{stream}");
    }
}

#[tokio::test]
async fn events_are_passed_on_byte_for_byte_and_images_counted_once() {
    for length in [400, 400_000] {
        let body = image_events(length).concat();
        for cut in [1, 7, 4096, 16_383, 16_384, 16_385, 1 << 20] {
            let (found, outcome, summary) = relay_to_end(pieces(&body, cut), true).await;
            assert!(
                found.as_deref() == Some(body.as_str()) && outcome == RelayOutcome::Complete,
                "{length} cut into {cut}"
            );
            assert_eq!(summary.delivered.len(), 1, "{length} cut into {cut}");
            assert_eq!(summary.usage.as_ref().map(|usage| usage.total), Some(293), "{length} cut into {cut}");
        }
    }
}

#[tokio::test]
async fn events_with_other_line_ends_are_passed_on_unchanged() {
    let body = image_events(400).concat().replace('\n', "\r\n").replace("event: ", "id: 7\r\nevent:");
    let (found, outcome, _) = relay_to_end(pieces(&body, 5), true).await;
    let found = found.expect("a whole answer");
    // The last line feed may be missing, because the event ends at the carriage return before it.
    assert!(body.strip_prefix(&found).is_some_and(|missing| missing.is_empty() || missing == "\n"), "{found:?}");
    assert_eq!(outcome, RelayOutcome::Complete);
}

/// Returns the text before the last two events, which must be `error` and `response.failed`, and the data of both.
#[track_caller]
fn split_failure(text: &str) -> (String, Value, Value) {
    let frames: Vec<&str> = text.split_terminator("\n\n").collect();
    let [before @ .., error, failed] = frames.as_slice() else { panic!("fewer than two events: {text:.300}") };
    let data = |frame: &str, name: &str| -> Value {
        let data = frame.strip_prefix(&format!("event: {name}\ndata: ")).expect(name);
        serde_json::from_str(data).expect("JSON")
    };
    (before.iter().map(|frame| format!("{frame}\n\n")).collect(), data(error, "error"), data(failed, "response.failed"))
}

#[tokio::test]
async fn a_break_ends_the_stream_with_two_failure_events() {
    let events = image_events(400);
    let text = events.concat();
    let before_work = events[..3].concat();
    // The answer breaks off at every byte after the first event that shows work.
    for end in before_work.len()..text.len() - 1 {
        for body in [broken_body(&text[..end], 64), pieces(&text[..end], 64)] {
            let (found, outcome, _) = relay_to_end(body, true).await;
            let (before, error, failed) = split_failure(found.as_deref().expect("a clean end"));
            assert!(matches!(outcome, RelayOutcome::Broken(_)) && text.starts_with(&before), "at {end}: {before}");
            assert_eq!(error["error"]["message"], "m");
            assert!(error["sequence_number"].as_u64() >= Some(3));
            assert_eq!(failed["sequence_number"].as_u64(), error["sequence_number"].as_u64().map(|number| number + 1));
            assert_eq!(failed["response"]["error"], json!({"code": "server_error", "message": "m"}));
            assert_eq!(
                (&failed["response"]["id"], &failed["response"]["status"]),
                (&json!("resp_1"), &json!("failed"))
            );
        }
    }
}

#[tokio::test]
async fn a_break_within_a_large_event_makes_it_an_error() {
    let events = image_events(400_000);
    for index in [5, 6] {
        let body = format!("{}{}", events[..index].concat(), &events[index][..200_000]);
        let (text, outcome, _) = relay_to_end(broken_body(&body, 4096), true).await;
        let (before, _, _) = split_failure(text.as_deref().expect("a clean end"));
        assert!(matches!(outcome, RelayOutcome::Broken(_)));
        let last = before.trim_end().rsplit("\n\n").next().expect("an event");
        let lines: Vec<&str> = last.lines().collect();
        assert_eq!(lines[2], "event: error");
        let event: Value = serde_json::from_str(lines[1].strip_prefix("data: ").expect("data")).expect("JSON");
        assert_eq!((&event["type"], &event["error"]["message"]), (&json!("error"), &json!("m")));
    }
}

#[tokio::test]
async fn a_stated_failure_becomes_failure_events_of_the_gateway() {
    let preface = image_events(400)[..3].concat();
    let account = json!({"code": "insufficient_quota", "message": "org-canary has no money"});
    for (event, code) in [
        (frame("error", json!({"sequence_number": 3, "code": "server_error", "message": "canary"})), "server_error"),
        (frame("error", json!({"sequence_number": 3, "error": account})), "server_error"),
        (frame("response.failed", json!({"response": response("failed", &json!({"error": account}))})), "server_error"),
        (
            frame(
                "response.failed",
                json!({"response": {"error": {"code": "context_length_exceeded", "message": "canary"}}}),
            ),
            "context_length_exceeded",
        ),
        (
            frame("response.failed", json!({"response": {"error": {"code": "image_content_policy_violation"}}})),
            "invalid_prompt",
        ),
        // An agent would send the same picture again.
        (frame("response.failed", json!({"response": {"error": {"code": "image_too_small"}}})), "invalid_prompt"),
        (
            frame("response.failed", json!({"response": {"error": account, "x": "canary".repeat(20_000)}})),
            "server_error",
        ),
    ] {
        let (text, outcome, _) = relay_to_end(pieces(&format!("{preface}{event}"), 300), true).await;
        let text = text.expect("a clean end");
        let (before, _, failed) = split_failure(&text);
        assert_eq!((before, outcome), (preface.clone(), RelayOutcome::Broken(RelayError::UpstreamFailed)));
        assert_eq!(failed["response"]["error"]["code"], code, "{event:.200}");
        assert!(!text.contains("canary"), "{text}");
    }
}

#[tokio::test]
async fn a_failure_before_the_proof_is_no_answer() {
    let preface = image_events(400)[..2].concat();
    let failed =
        frame("response.failed", json!({"response": response("failed", &json!({"error": {"code": "server_error"}}))}));
    for (body, stream) in [
        (format!("{preface}{failed}"), true),
        (frame("error", json!({"error": {"code": "server_error"}})), true),
        (json!({"error": {"code": "server_error"}}).to_string(), true),
        (response("failed", &json!({"error": {"code": "server_error"}})).to_string(), false),
        (json!({"error": {"code": "server_error"}}).to_string(), false),
    ] {
        match proof_error(pieces(&body, 50), stream).await {
            ProofError::NoImage(answer) => assert_eq!(answer.members["error"]["code"], "server_error", "{body}"),
            error @ ProofError::Unusable(_) => panic!("{body}: {error:?}"),
        }
    }
    for (body, stream) in [
        (preface.as_str(), true),
        ("", true),
        ("", false),
        ("<html>", true),
        ("<html>", false),
        ("{}", true),
        ("data: x\n\n", false),
        (r#"{"id":"#, false),
        ("{} x", false),
        ("data: {\n\n", true),
    ] {
        assert!(
            matches!(proof_error(pieces(body, 3), stream).await, ProofError::Unusable(FailureCause::NoImage)),
            "{body}"
        );
    }
    assert!(matches!(proof_error(broken_body(&preface, 9), true).await, ProofError::Unusable(FailureCause::Broken)));
    assert!(matches!(proof_error(broken_body("{", 9), false).await, ProofError::Unusable(FailureCause::Broken)));
}

/// Agents send long instructions and many tools, which the upstream repeats in its first events.
#[tokio::test]
async fn a_failure_after_large_events_that_repeat_the_request_is_no_answer() {
    let repeated = response("in_progress", &json!({"instructions": "x".repeat(100_000)}));
    let data = json!({ "response": repeated });
    let type_first = format!("data: {{\"type\":\"response.created\",{}\n\n", &data.to_string()[1..]);
    let failed =
        frame("response.failed", json!({"response": response("failed", &json!({"error": {"code": "server_error"}}))}));
    for preface in [type_first, frame("response.created", data.clone())] {
        for cut in [50, 70_000, 1 << 20] {
            match proof_error(pieces(&format!("{preface}{failed}"), cut), true).await {
                ProofError::NoImage(answer) => assert_eq!(answer.members["error"]["code"], "server_error", "{cut}"),
                error @ ProofError::Unusable(_) => panic!("{cut}: {error:?}"),
            }
        }
    }
    // More than may be held is passed on.
    let created = frame("response.created", data);
    let (text, _, _) = relay_to_end(pieces(&format!("{created}{created}{created}{failed}"), 4096), true).await;
    assert!(text.expect("a clean end").starts_with(&format!("{created}{created}{created}")));
}

#[tokio::test]
async fn a_too_long_conversation_is_reported_with_the_agents_own_code() {
    let preface = image_events(400)[..2].concat();
    let error = json!({"code": "context_length_exceeded", "message": "canary"});
    let failed = frame("response.failed", json!({"response": response("failed", &json!({ "error": error }))}));
    let failed = failed.replace("resp_1", "resp_\u{2028}1");
    for cut in [7, 4096] {
        let (text, outcome, _) = relay_to_end(pieces(&format!("{preface}{failed}"), cut), true).await;
        let text = text.expect("a clean end");
        let (before, _, failed) = split_failure(&text);
        assert_eq!((before.as_str(), outcome), (preface.as_str(), RelayOutcome::Broken(RelayError::UpstreamFailed)));
        assert_eq!(failed["response"]["error"]["code"], "context_length_exceeded");
        assert_eq!(failed["response"]["id"], "resp_\u{2028}1");
        assert!(!text[before.len()..].contains('\u{2028}'), "an unescaped line end of Unicode: {text}");
    }
}

#[tokio::test]
async fn a_begun_plain_response_that_breaks_off_breaks_off_for_the_caller() {
    let image = json!({"type": "image_generation_call", "result": base64(400_000)});
    let body = response("completed", &json!({ "output": [image] })).to_string();
    for body in [broken_body(&body[..300_000], 4096), pieces(&body[..300_000], 4096)] {
        let (text, outcome, _) = relay_to_end(body, false).await;
        assert!(text.is_none() && matches!(outcome, RelayOutcome::Broken(_)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_image_call_gets_progress_events() {
    let events = image_events(400).map(|text| text.replace("ig_1", "ig_\u{2028}1"));
    let (sender, pieces) = channel_body();
    for text in &events[..4] {
        sender.send(Bytes::from(text.clone())).await.expect("a reader");
    }
    let proven = prove(pieces, true).await.expect("work");
    let (mut body, _) = relay(proven);
    let mut received = String::new();
    while !received.contains("\"sequence_number\":5") {
        let frame = body.frame().await.expect("more").expect("no error");
        received.push_str(std::str::from_utf8(frame.data_ref().expect("data")).expect("text"));
    }
    let silence = received.strip_prefix(&events[..4].concat()).expect("the upstream's events first");
    let (comment, progress) = (": keep-alive\n\n", "event: response.image_generation_call.generating\ndata: ");
    assert_eq!(silence.matches(comment).count(), 6, "{silence}");
    assert!(silence.starts_with(&format!("{comment}{comment}{comment}{progress}")), "{silence}");
    assert!(!silence.contains('\u{2028}'), "an unescaped line end of Unicode: {silence}");
    let data = silence.split(progress).nth(1).and_then(|after| after.lines().next()).expect("data");
    let event: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(
        (&event["item_id"], &event["output_index"], &event["sequence_number"]),
        (&json!("ig_\u{2028}1"), &json!(0), &json!(4))
    );
}

#[tokio::test]
async fn every_id_and_encrypted_content_of_an_answer_is_observed() {
    // Larger than any member that is held, and with characters that some encoders escape.
    let ciphertext = format!("gAAA/{}+/", "AbC/".repeat(40_000));
    let hash = URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(&ciphertext));
    let items = [
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": ciphertext}),
        json!({"type": "code_interpreter_call", "id": "ci_1", "container_id": "cntr_1"}),
    ];
    let whole = response("completed", &json!({"output": items, "conversation": {"id": "conv_1"}}));
    let done = items.iter().map(|item| frame("response.output_item.done", json!({"output_index": 0, "item": item})));
    let stream: String = done.chain([frame("response.completed", json!({ "response": whole }))]).collect();
    let mut expected: Vec<_> =
        ["resp_1", "conv_1", "rs_1", "ci_1", "cntr_1"].into_iter().map(BindingDigest::of_id).collect();
    expected.push(BindingDigest::of_ciphertext(&hash));
    expected.sort_unstable();
    for (text, is_stream) in [(whole.to_string(), false), (stream, true)] {
        for text in [text.clone(), text.replace('/', "\\/")] {
            let (passed, _, summary) = relay_to_end(pieces(&text, 1_000), is_stream).await;
            assert_eq!(passed.as_deref(), Some(text.as_str()), "byte for byte");
            let mut bindings = summary.bindings;
            bindings.sort_unstable();
            assert_eq!(bindings, expected, "stream: {is_stream}");
        }
    }
}

#[tokio::test]
async fn a_plain_response_is_never_written_into_a_begun_stream() {
    let call = json!({"type": "image_generation_call", "result": base64(2_000_000)});
    let mut members = usage();
    members["output"] = json!([call]);
    // `poll_step` is called without a proof, as after the first heartbeat of an early stream.
    let mut passthrough = UpstreamRelay::for_response(
        pieces(&response("completed", &members).to_string(), 10_000),
        requested(true),
        limits(),
    );
    let step = std::future::poll_fn(|cx| passthrough.poll_step(cx)).await;
    assert!(matches!(step, Err(RelayError::Malformed(_))), "nothing is passed on: {step:?}");
    assert!(passthrough.summary().usage.is_some(), "the tokens were charged");
    let end = passthrough.finish_with_error(ERROR).expect("an end");
    split_failure(std::str::from_utf8(&end).expect("text"));
}

/// Upstreams and their proxies send comments to keep a connection open. An agent that waits for events with a timeout
/// ignores such comments, so the gateway still has to send progress events.
#[tokio::test(start_paused = true)]
async fn comments_of_the_upstream_do_not_replace_progress_events() {
    let events = image_events(400);
    let (sender, pieces) = channel_body();
    for text in &events[..4] {
        sender.send(Bytes::from(text.clone())).await.expect("a reader");
    }
    let (mut body, _) = relay(prove(pieces, true).await.expect("work"));
    let send_comments = async move {
        while sender.send(Bytes::from_static(b": busy\n\n")).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    };
    let read = async move {
        let mut received = String::new();
        while !received.contains("\"sequence_number\":5") {
            let frame = body.frame().await.expect("more").expect("no error");
            received.push_str(std::str::from_utf8(frame.data_ref().expect("data")).expect("text"));
        }
        received
    };
    let ((), received) = tokio::join!(send_comments, read);
    let silence = received.strip_prefix(&events[..4].concat()).expect("the upstream's events first");
    let progress = "event: response.image_generation_call.generating\ndata: ";
    let comments: Vec<usize> = silence.split(progress).map(|part| part.matches(": busy\n\n").count()).collect();
    assert_eq!(comments, [7, 6, 0], "{silence}");
}
