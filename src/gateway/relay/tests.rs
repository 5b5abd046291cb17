//! Tests of the relay with scripted answers: the bytes that the caller gets, and the outcome.

mod frame_sizes;
mod later_contract;
mod other_content;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::fixtures::{PNG_HEAD, RelayOutcomes, broken_body, channel_body, pieces, timeouts};
use super::*;
use crate::gateway::upstream::{FailureCause, ReplyBody};
use crate::image::Format;

const ERROR: &str = r#"{"type":"error","message":"m"}"#;

fn requested_answer(count: usize) -> RequestedAnswer {
    RequestedAnswer { count, partials: 2, quality: Some("low".to_owned()), ..fixtures::requested_answer() }
}

async fn prove(body: ReplyBody, requested: RequestedAnswer) -> Result<ProvenAnswer, ProofError> {
    fixtures::prove(UpstreamRelay::for_images(body, requested, timeouts())).await
}

fn relay(proven: ProvenAnswer) -> (RelayBody, RelayOutcomes) {
    fixtures::relay(proven, || ERROR.to_owned())
}

/// Returns the answer, which must be the same for every size of the body's pieces, and its summary.
async fn relayed_json(body: &str, count: usize) -> (Value, AnswerSummary) {
    let mut result: Option<(Value, AnswerSummary)> = None;
    for cut in [1, 3, 50, 100_000] {
        let proven = prove(pieces(body, cut), requested_answer(count)).await.expect("an image");
        let (body, outcomes) = relay(proven);
        let bytes = body.collect().await.expect("a whole answer").to_bytes();
        let answer: Value = serde_json::from_slice(&bytes).expect("JSON");
        let (outcome, summary) = outcomes.lock().unwrap().pop().expect("an outcome");
        assert_eq!(outcome, RelayOutcome::Complete);
        assert!(result.as_ref().is_none_or(|(earlier, _)| *earlier == answer), "pieces of {cut} bytes");
        result = Some((answer, summary));
    }
    result.expect("several cuts")
}

#[tokio::test]
async fn missing_fields_are_added_and_the_image_is_untouched() {
    let (answer, summary) = relayed_json(
        &format!(
            r#"{{"created":17,"data":[{{"b64_json":"{PNG_HEAD}"}}],"usage":{{"input_tokens":1,"output_tokens":2}}}}"#
        ),
        1,
    )
    .await;
    assert_eq!(
        answer,
        json!({
            "data": [{"b64_json": PNG_HEAD, "revised_prompt": "a red square"}],
            "created": 17, "background": "opaque", "model": "gpt-image-2", "output_format": "png", "quality": "low", "size": "1024x1024",
            "usage": {"input_tokens": 1, "input_tokens_details": {"image_tokens": 0, "text_tokens": 1},
                      "output_tokens": 2, "output_tokens_details": {"image_tokens": 2, "text_tokens": 0}, "total_tokens": 3},
        })
    );
    let image = summary.delivered[0].properties.expect("known properties");
    assert_eq!((image.format, image.width, image.height), (Format::Png, 1024, 1024));
    assert_eq!(summary.usage.as_ref().map(|usage| usage.total), Some(3));
}

#[tokio::test]
async fn surplus_and_empty_images_are_left_out() {
    let body = format!(
        r#"{{"data":[{{"b64_json":null}},{{"b64_json":"{PNG_HEAD}"}},{{"b64_json":""}},null,{{"b64_json":"{PNG_HEAD}"}},{{"b64_json":"{PNG_HEAD}"}}]}}"#
    );
    let (answer, summary) = relayed_json(&body, 2).await;
    assert_eq!(answer["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(summary.delivered.len(), 2);
    assert!(answer.get("usage").is_none(), "tokens are not made up");
}

#[tokio::test]
async fn an_answer_without_an_image_never_begins() {
    for body in [
        r#"{"data":[]}"#,
        r#"{"data":[{"b64_json":null}]}"#,
        r#"{"data":[{"b64_json":""}],"usage":{}}"#,
        r#"{"error":{"code":"x"}}"#,
    ] {
        assert!(matches!(prove(pieces(body, 7), requested_answer(1)).await, Err(ProofError::NoImage(_))), "{body}");
    }
    for body in ["<html></html>", r#"{"data":["#, "", r#"{"data":[]}x"#] {
        assert!(
            matches!(
                prove(pieces(body, 7), requested_answer(1)).await,
                Err(ProofError::Unusable(FailureCause::NoImage))
            ),
            "{body}"
        );
    }
    assert!(matches!(
        prove(broken_body(r#"{"created":1,"#, usize::MAX), requested_answer(1)).await,
        Err(ProofError::Unusable(FailureCause::Broken))
    ));
}

#[tokio::test]
async fn too_many_bytes_before_any_image_are_an_error() {
    let body = format!(r#"{{"x":"{}""#, "a".repeat(600 * 1024));
    assert!(matches!(
        prove(pieces(&body, 4096), requested_answer(1)).await,
        Err(ProofError::Unusable(FailureCause::NoImage))
    ));
}

#[tokio::test]
async fn a_begun_answer_that_breaks_off_breaks_off_for_the_caller() {
    for (body, is_cut) in [
        (broken_body(&format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}"#), usize::MAX), false),
        (pieces(&format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}"}}]"#), 9), true),
    ] {
        let proven = prove(body, requested_answer(1)).await.expect("an image");
        let (body, outcomes) = relay(proven);
        assert!(body.collect().await.is_err(), "a cut answer must not look whole");
        let outcomes: Vec<RelayOutcome> = outcomes.lock().unwrap().iter().map(|(outcome, _)| *outcome).collect();
        assert!(matches!(outcomes[..], [RelayOutcome::Broken(_)]), "cut {is_cut}: {outcomes:?}");
    }
}

#[tokio::test]
async fn the_record_is_closed_before_the_last_byte() {
    let answer = format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}"}}]}}"#);
    let proven = prove(pieces(&answer, 1000), requested_answer(1)).await.expect("an image");
    let (close_sender, closing) = tokio::sync::oneshot::channel::<()>();
    let mut body =
        RelayBody::new(proven, || ERROR.to_owned(), Box::new(move |_, _| Box::pin(async { drop(closing.await) })));
    let mut received = Vec::new();
    let waiting = tokio::time::timeout(Duration::from_millis(50), async {
        while let Some(frame) = body.frame().await {
            received.extend_from_slice(&frame.expect("a piece").into_data().expect("data"));
        }
    });
    assert!(waiting.await.is_err(), "the end must wait until the record is closed");
    assert!(!received.ends_with(b"}"), "no last byte before the record is closed");
    close_sender.send(()).expect("the body waits");
    let remaining = body.collect().await.expect("the remaining bytes").to_bytes();
    received.extend_from_slice(&remaining);
    assert!(serde_json::from_slice::<Value>(&received).is_ok());
}

#[tokio::test]
async fn the_tokens_are_known_even_if_the_caller_leaves() {
    let body = format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}"}}],"usage":{{"input_tokens":1,"output_tokens":2}}}}"#);
    let proven = prove(pieces(&body, 60), requested_answer(1)).await.expect("an image");
    let (mut body, outcomes) = relay(proven);
    body.frame().await.expect("a piece").expect("no error");
    drop(body);
    for _ in 0..1000 {
        if !outcomes.lock().unwrap().is_empty() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let outcomes = outcomes.lock().unwrap();
    assert_eq!(outcomes[0].0, RelayOutcome::CallerLeft);
    assert_eq!(outcomes[0].1.usage.as_ref().map(|usage| usage.total), Some(3));
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_falls_silent_times_out() {
    let (sender, body) = channel_body();
    sender.try_send(Bytes::from(format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}{PNG_HEAD}"#))).expect("open");
    let proven = prove(body, requested_answer(1)).await.expect("an image");
    let (body, _) = relay(proven);
    let start = Instant::now();
    assert!(body.collect().await.is_err());
    assert_eq!(start.elapsed().as_secs(), 60);
    drop(sender);
}

fn streaming(partials: u32) -> RequestedAnswer {
    RequestedAnswer { partials, stream: true, ..requested_answer(1) }
}

fn event(name: &str, members: &str) -> String {
    format!("event: {name}\ndata: {{\"type\":\"{name}\",\"b64_json\":\"{PNG_HEAD}\"{members}}}\n\n")
}

async fn relayed_events(body: ReplyBody, partials: u32) -> (String, RelayOutcome, AnswerSummary) {
    let proven = prove(body, streaming(partials)).await.expect("an image");
    let (body, outcomes) = relay(proven);
    let bytes = body.collect().await.expect("a stream never breaks").to_bytes();
    let (outcome, summary) = outcomes.lock().unwrap().pop().expect("an outcome");
    (String::from_utf8(bytes.to_vec()).expect("text"), outcome, summary)
}

/// Returns the name and the data of every event. Comments, such as heartbeats, are left out.
fn frames(stream: &str) -> Vec<(String, Value)> {
    let frames = stream.split_terminator("\n\n").filter(|frame| !frame.starts_with(':'));
    frames
        .map(|frame| {
            let (name, data) = frame.split_once('\n').expect("two lines");
            let data = data.strip_prefix("data: ").expect("data");
            (
                name.strip_prefix("event: ").expect("a name").to_owned(),
                serde_json::from_str(data).expect("one line of JSON"),
            )
        })
        .collect()
}

const USAGE: &str = r#","usage":{"input_tokens":1,"output_tokens":2}"#;

#[tokio::test]
async fn events_are_passed_on_with_every_member_added() {
    let upstream = event("image_generation.partial_image", r#","partial_image_index":7"#)
        + &event("image_generation.completed", USAGE);
    for cut in [1, 5, 70, 100_000] {
        let (stream, outcome, summary) = relayed_events(pieces(&upstream, cut), 2).await;
        assert_eq!(outcome, RelayOutcome::Complete);
        assert_eq!(summary.usage.as_ref().map(|usage| usage.total), Some(3));
        assert_eq!(summary.delivered.len(), 1);
        let frames = frames(&stream);
        let common = json!({"b64_json": PNG_HEAD, "created_at": 1_776_000_000, "size": "1024x1024", "quality": "low", "background": "opaque", "output_format": "png"});
        let mut partial = common.clone();
        partial["type"] = "image_generation.partial_image".into();
        partial["partial_image_index"] = 0.into();
        let mut completed = common;
        completed["type"] = "image_generation.completed".into();
        completed["usage"] = json!({"input_tokens": 1, "input_tokens_details": {"image_tokens": 0, "text_tokens": 1},
            "output_tokens": 2, "output_tokens_details": {"image_tokens": 2, "text_tokens": 0}, "total_tokens": 3});
        assert_eq!(
            frames,
            [
                ("image_generation.partial_image".to_owned(), partial),
                ("image_generation.completed".to_owned(), completed)
            ]
        );
    }
}

#[tokio::test]
async fn events_that_were_not_requested_are_not_passed_on() {
    let partial = event("image_generation.partial_image", "");
    let upstream = format!(
        ": hello\n\n{partial}{partial}{partial}data: {{\"type\":\"x.y\"}}\n\n{}{partial}{}data: [DONE]\n\n",
        event("image_generation.completed", USAGE),
        event("image_generation.completed", r#","usage":{"input_tokens":9,"output_tokens":9}"#)
    );
    let (stream, outcome, summary) = relayed_events(pieces(&upstream, 40), 2).await;
    let names: Vec<String> = frames(&stream).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        ["image_generation.partial_image", "image_generation.partial_image", "image_generation.completed"]
    );
    assert_eq!((outcome, summary.usage.as_ref().map(|usage| usage.total)), (RelayOutcome::Complete, Some(3)));
}

#[tokio::test]
async fn a_plain_answer_becomes_a_final_event_and_vice_versa() {
    let plain = format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}"}}]{USAGE}}}"#);
    let (stream, _, summary) = relayed_events(pieces(&plain, 30), 0).await;
    let frames = frames(&stream);
    assert_eq!(frames.len(), 1);
    assert_eq!(
        (frames[0].1["b64_json"].as_str(), frames[0].1["usage"]["total_tokens"].as_u64()),
        (Some(PNG_HEAD), Some(3))
    );
    assert_eq!(summary.usage.as_ref().map(|usage| usage.total), Some(3));

    let events = event("image_generation.partial_image", "") + &event("image_generation.completed", USAGE);
    let (answer, summary) = relayed_json(&events, 1).await;
    assert_eq!(answer["data"], json!([{"b64_json": PNG_HEAD, "revised_prompt": "a red square"}]));
    assert_eq!((answer["usage"]["total_tokens"].as_u64(), answer["created"].as_i64()), (Some(3), Some(1_776_000_000)));
    assert_eq!(summary.delivered.len(), 1);
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error_that_every_client_sees() {
    let partial = event("image_generation.partial_image", "");
    let cut = format!("{partial}event: image_generation.completed\ndata: {{\"b64_json\":\"{PNG_HEAD}");
    let failed = format!("{partial}event: error\ndata: {{\"type\":\"error\",\"error\":{{\"message\":\"m\"}}}}\n\n");
    // The image is complete, but the members after it are not.
    let [in_members, plain] = [format!("{cut}\",\"size\":"), format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}"}}],"cre"#)];
    let cuts = [&partial, &cut, &in_members, &plain].map(|text| [pieces(text, 50), broken_body(text, usize::MAX)]);
    // An image begins in the same piece in which the answer becomes malformed.
    let malformed = [partial.clone(), format!("{in_members}]")].map(|piece| Ok(Bytes::from(piece)));
    let others = [pieces(&failed, 50), ReplyBody::Scripted(malformed.into())];
    for upstream in cuts.into_iter().flatten().chain(others) {
        let (stream, outcome, _) = relayed_events(upstream, 2).await;
        assert!(matches!(outcome, RelayOutcome::Broken(_)), "{outcome:?}");
        assert!(stream.ends_with("event: error\ndata: {\"type\":\"error\",\"message\":\"m\"}\n\n"), "{stream}");
        for frame in stream.split_terminator("\n\n") {
            let data = frame.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
            serde_json::from_str::<Value>(data).expect("even a frame that was cut is JSON");
            let name = frame.lines().rfind(|line| line.starts_with("event: "));
            assert_ne!(name, Some("event: image_generation.completed"), "no final image may be seen: {frame}");
        }
    }
}

#[tokio::test]
async fn events_without_an_image_never_begin() {
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"code\":\"moderation_blocked\"}}\n\n";
    assert!(
        matches!(prove(pieces(error, 9), streaming(0)).await, Err(ProofError::NoImage(answer)) if answer.members.contains_key("error"))
    );
    let empty = "event: image_generation.completed\ndata: {\"b64_json\":null}\n\n";
    // The event states neither a failure nor a reason, so it may be about an image that was made.
    let result = prove(pieces(empty, 9), streaming(0)).await;
    assert!(matches!(result, Err(ProofError::NoImage(answer)) if answer.has_image_substitute));
    assert!(matches!(
        prove(broken_body(": hi\n\n", usize::MAX), streaming(0)).await,
        Err(ProofError::Unusable(FailureCause::Broken))
    ));
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "a test waits for it")]
async fn a_heartbeat_of_the_upstream_does_not_prove_an_image() {
    let (sender, body) = channel_body();
    sender.try_send(Bytes::from_static(b": upstream\n\n")).expect("open");
    let start = Instant::now();
    drop(tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(100)).await;
        sender.try_send(Bytes::from(event("image_generation.completed", ""))).expect("open");
    }));
    let proven = prove(body, streaming(0)).await.expect("an image");
    assert_eq!(start.elapsed().as_secs(), 100);
    let stream = relay(proven).0.collect().await.expect("a whole stream").to_bytes();
    assert!(stream.starts_with(b"event: image_generation.completed\n"));
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "a test waits for it")]
async fn an_upstream_that_only_sends_heartbeats_times_out() {
    let (sender, body) = channel_body();
    sender.try_send(Bytes::from(event("image_generation.partial_image", ""))).expect("open");
    let proven = prove(body, streaming(2)).await.expect("an image");
    let (body, outcomes) = relay(proven);
    let heartbeats = tokio::spawn(async move {
        while sender.send(Bytes::from_static(b": beat\n\n")).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let start = Instant::now();
    body.collect().await.expect("a stream never breaks");
    assert_eq!(start.elapsed().as_secs(), 150);
    assert_eq!(outcomes.lock().unwrap()[0].0, RelayOutcome::Broken(RelayError::Timeout));
    heartbeats.abort();
}

#[tokio::test]
async fn a_caller_of_events_who_leaves_cancels_the_upstream() {
    let (sender, body) = channel_body();
    sender.try_send(Bytes::from(event("image_generation.partial_image", ""))).expect("open");
    let proven = prove(body, streaming(2)).await.expect("an image");
    let (body, outcomes) = relay(proven);
    drop(body);
    assert_eq!(outcomes.lock().unwrap()[0].0, RelayOutcome::CallerLeft);
    assert!(sender.is_closed(), "the upstream's body was dropped");
}

/// Returns the members of a complete answer without an image, and true if a value in it may stand for an image.
async fn without_image(body: &str, stream: bool) -> (String, bool) {
    let requested = RequestedAnswer { stream, ..requested_answer(1) };
    match prove(pieces(body, 9), requested).await {
        Err(ProofError::NoImage(answer)) => (Value::from(answer.members).to_string(), answer.has_image_substitute),
        result => panic!("{body}: {result:?}"),
    }
}

#[tokio::test]
async fn the_reason_for_a_missing_image_is_kept() {
    let failed = r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"why"},"output":[]}}"#;
    let blank = r#"{"type":"image_generation.completed","b64_json":null,"text":"why"}"#;
    for body in [
        format!("event: response.failed\ndata: {failed}\n\n"),
        format!("data: {}\n\n", failed.replace("failed", "incomplete")),
        format!("event: image_generation.completed\ndata: {blank}\n\n"),
        "event: error\ndata: {\"type\":\"error\",\"code\":\"why\",\"message\":\"m\"}\n\n".to_owned(),
    ] {
        for stream in [true, false] {
            let (members, has_substitute) = without_image(&body, stream).await;
            assert!(members.contains("why") && !has_substitute, "{body} {stream}: {members}");
        }
    }
    let (members, has_substitute) = without_image(r#"{"created":1,"data":[{"text":"why"}]}"#, false).await;
    assert!(members.contains("why") && !has_substitute, "{members}");
    // A value that may stand for an image is reported.
    assert!(without_image(r#"{"data":[{"url":"https://images.example/1","text":"why"}]}"#, false).await.1);
    let made = failed.replace("[]", r#"[{"type":"image_generation_call"}]"#);
    assert!(without_image(&format!("data: {made}\n\n"), true).await.1);
    assert!(without_image(&format!("data: {}\n\n", blank.replace("text", "size")), true).await.1);
}

#[tokio::test]
async fn data_after_the_final_image_does_not_revoke_it() {
    let malformed = event("image_generation.completed", USAGE).replace("}\n\n", "}{\"b64_json\":\"AAAA\"}\n\n");
    let events = event("image_generation.partial_image", "") + &malformed;
    for cut in [1, 170, 100_000] {
        let (stream, outcome, summary) = relayed_events(pieces(&events, cut), 1).await;
        assert_eq!((outcome, summary.delivered.len()), (RelayOutcome::Complete, 1), "{cut}");
        assert!(matches!(&*frames(&stream), [(_, first), (_, last)] if first["b64_json"] == last["b64_json"]), "{cut}");
    }
}

#[tokio::test]
async fn an_empty_final_event_does_not_hide_a_later_image() {
    let blank = r#"{"type":"image_generation.completed","b64_json":""}"#;
    let with_image = format!(r#"{{"type":"image_generation.completed","b64_json":"{PNG_HEAD}"}}"#);
    let body = format!("data: {blank}\n\ndata: {with_image}\n\n");
    for stream in [true, false] {
        let proven =
            prove(pieces(&body, 9), RequestedAnswer { stream, ..requested_answer(1) }).await.expect("an image");
        let (body, outcomes) = relay(proven);
        assert!(String::from_utf8_lossy(&body.collect().await.expect("whole").to_bytes()).contains(PNG_HEAD));
        assert_eq!(outcomes.lock().unwrap().pop().expect("an outcome").0, RelayOutcome::Complete);
    }
}
