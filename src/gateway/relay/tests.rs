//! Tests of the relay with scripted answers: the bytes that go out, and the outcome.

mod frame_sizes;
mod later_contract;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::gateway::upstream::{ReplyBody, ReplyError};
use crate::image::Format;

const ERROR: &str = r#"{"type":"error","message":"m"}"#;
const PNG_HEAD: &str = "iVBORw0KGgoAAAANSUhEUgAABAAAAAQACAIAAADwf7zU";
fn requested_answer(count: usize) -> RequestedAnswer {
    RequestedAnswer {
        model: "gpt-image-2".to_owned(),
        prompt: "a red square".to_owned(),
        count,
        partials: 2,
        event_prefix: "image_generation",
        stream: false,
        is_single_element: false,
        quality: Some("low".to_owned()),
        size: Some("1024x1024".to_owned()),
        output_format: "png",
        now: 1_776_000_000,
    }
}

fn pieces(body: &str, cut: usize) -> ReplyBody {
    ReplyBody::Scripted(body.as_bytes().chunks(cut).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect())
}

fn broken(body: &str) -> ReplyBody {
    ReplyBody::Scripted([Ok(Bytes::copy_from_slice(body.as_bytes())), Err(ReplyError)].into())
}

fn limits() -> AnswerTimeouts {
    let [idle, event_idle, most] = [60, 150, 360].map(Duration::from_secs);
    AnswerTimeouts { idle, event_idle, deadline: Instant::now() + most }
}

type RelayOutcomeLog = Arc<Mutex<Vec<(RelayOutcome, AnswerSummary)>>>;

fn relay(proven: ProvenAnswer) -> (RelayBody, RelayOutcomeLog) {
    let told = RelayOutcomeLog::default();
    let to = Arc::clone(&told);
    let body = RelayBody::new(
        proven,
        ERROR.to_owned(),
        Box::new(move |ending, summary| {
            to.lock().unwrap().push((ending, summary));
            Box::pin(std::future::ready(()))
        }),
    );
    (body, told)
}

async fn whole(body: &str, count: usize) -> (Value, AnswerSummary) {
    let mut seen: Option<(Value, AnswerSummary)> = None;
    for cut in [1, 3, 50, 100_000] {
        let proven = prove(pieces(body, cut), requested_answer(count), limits()).await.expect("an image");
        let (body, told) = relay(proven);
        let bytes = body.collect().await.expect("a whole answer").to_bytes();
        let answer: Value = serde_json::from_slice(&bytes).expect("JSON");
        let (ending, summary) = told.lock().unwrap().pop().expect("told");
        assert_eq!(ending, RelayOutcome::Complete);
        if let Some((first, _)) = &seen {
            assert_eq!(*first, answer, "cut into {cut}");
        }
        seen = Some((answer, summary));
    }
    seen.expect("several cuts")
}

#[tokio::test]
async fn missing_fields_are_added_and_the_image_is_untouched() {
    let (answer, summary) = whole(
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
    let facts = summary.delivered[0].properties.expect("a known head");
    assert_eq!((facts.format, facts.width, facts.height), (Format::Png, 1024, 1024));
    assert_eq!(summary.usage.map(|usage| usage.total), Some(3));
}

#[tokio::test]
async fn images_beyond_those_asked_for_and_empty_ones_are_left_out() {
    let body = format!(
        r#"{{"data":[{{"b64_json":null}},{{"b64_json":"{PNG_HEAD}"}},{{"b64_json":""}},null,{{"b64_json":"{PNG_HEAD}"}},{{"b64_json":"{PNG_HEAD}"}}]}}"#
    );
    let (answer, summary) = whole(&body, 2).await;
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
        assert!(
            matches!(prove(pieces(body, 7), requested_answer(1), limits()).await, Err(ProofError::NoImage(_))),
            "{body}"
        );
    }
    for body in ["<html></html>", r#"{"data":["#, "", r#"{"data":[]}x"#] {
        assert!(
            matches!(prove(pieces(body, 7), requested_answer(1), limits()).await, Err(ProofError::Malformed)),
            "{body}"
        );
    }
    assert!(matches!(prove(broken(r#"{"created":1,"#), requested_answer(1), limits()).await, Err(ProofError::Broken)));
}

#[tokio::test]
async fn too_much_before_any_image_is_given_up() {
    let body = format!(r#"{{"x":"{}""#, "a".repeat(600 * 1024));
    assert!(matches!(prove(pieces(&body, 4096), requested_answer(1), limits()).await, Err(ProofError::Malformed)));
}

#[tokio::test]
async fn an_answer_that_breaks_after_it_has_begun_breaks_the_callers_too() {
    for (body, is_cut) in [
        (broken(&format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}"#)), false),
        (pieces(&format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}"}}]"#), 9), true),
    ] {
        let proven = prove(body, requested_answer(1), limits()).await.expect("an image");
        let (body, told) = relay(proven);
        assert!(body.collect().await.is_err(), "a cut answer must not look whole");
        let endings: Vec<RelayOutcome> = told.lock().unwrap().iter().map(|(ending, _)| *ending).collect();
        assert!(matches!(endings[..], [RelayOutcome::Broken(_)]), "cut {is_cut}: {endings:?}");
    }
}

#[tokio::test]
async fn the_record_is_closed_before_the_last_byte() {
    let proven =
        prove(pieces(&format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}"}}]}}"#), 1000), requested_answer(1), limits())
            .await
            .expect("an image");
    let (closed, closing) = tokio::sync::oneshot::channel::<()>();
    let mut body =
        RelayBody::new(proven, ERROR.to_owned(), Box::new(move |_, _| Box::pin(async { drop(closing.await) })));
    let mut seen = Vec::new();
    let waiting = tokio::time::timeout(Duration::from_millis(50), async {
        while let Some(frame) = body.frame().await {
            seen.extend_from_slice(&frame.expect("a piece").into_data().expect("data"));
        }
    });
    assert!(waiting.await.is_err(), "the end must wait for the record");
    assert!(!seen.ends_with(b"}"), "no last byte before the record");
    closed.send(()).expect("the body waits");
    let rest = body.collect().await.expect("the rest").to_bytes();
    seen.extend_from_slice(&rest);
    assert!(serde_json::from_slice::<Value>(&seen).is_ok());
}

#[tokio::test]
async fn a_caller_who_leaves_is_told_apart_and_the_tokens_are_known() {
    let body = format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}"}}],"usage":{{"input_tokens":1,"output_tokens":2}}}}"#);
    let proven = prove(pieces(&body, 60), requested_answer(1), limits()).await.expect("an image");
    let (mut body, told) = relay(proven);
    body.frame().await.expect("a piece").expect("a good one");
    drop(body);
    for _ in 0..1000 {
        if !told.lock().unwrap().is_empty() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let told = told.lock().unwrap();
    assert_eq!(told[0].0, RelayOutcome::CallerLeft);
    assert_eq!(told[0].1.usage.map(|usage| usage.total), Some(3));
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_falls_silent_is_given_up_after_its_time() {
    let (writer, body) = silent();
    writer.try_send(Bytes::from(format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}{PNG_HEAD}"#))).expect("open");
    let proven = prove(body, requested_answer(1), limits()).await.expect("an image");
    let (body, _told) = relay(proven);
    let begun = Instant::now();
    assert!(body.collect().await.is_err());
    assert_eq!(begun.elapsed().as_secs(), 60);
    drop(writer);
}

fn silent() -> (tokio::sync::mpsc::Sender<Bytes>, ReplyBody) {
    let (writer, reader) = tokio::sync::mpsc::channel(4);
    (writer, ReplyBody::Channel(reader))
}

fn streaming(partials: u32) -> RequestedAnswer {
    RequestedAnswer { partials, stream: true, ..requested_answer(1) }
}

fn event(name: &str, rest: &str) -> String {
    format!("event: {name}\ndata: {{\"type\":\"{name}\",\"b64_json\":\"{PNG_HEAD}\"{rest}}}\n\n")
}

async fn streamed(body: ReplyBody, partials: u32) -> (String, RelayOutcome, AnswerSummary) {
    let proven = prove(body, streaming(partials), limits()).await.expect("an image");
    let (body, told) = relay(proven);
    let bytes = body.collect().await.expect("a stream never breaks").to_bytes();
    let (ending, summary) = told.lock().unwrap().pop().expect("told");
    (String::from_utf8(bytes.to_vec()).expect("text"), ending, summary)
}

/// Returns the name and the data of every frame.
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
async fn events_pass_with_every_field_filled_in() {
    let upstream = event("image_generation.partial_image", r#","partial_image_index":7"#)
        + &event("image_generation.completed", USAGE);
    for cut in [1, 5, 70, 100_000] {
        let (stream, ending, summary) = streamed(pieces(&upstream, cut), 2).await;
        assert_eq!(ending, RelayOutcome::Complete);
        assert_eq!(summary.usage.map(|usage| usage.total), Some(3));
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
async fn what_was_not_asked_for_is_not_passed_on() {
    let partial = event("image_generation.partial_image", "");
    let upstream = format!(
        ": hello\n\n{partial}{partial}{partial}data: {{\"type\":\"x.y\"}}\n\n{}{partial}{}data: [DONE]\n\n",
        event("image_generation.completed", USAGE),
        event("image_generation.completed", r#","usage":{"input_tokens":9,"output_tokens":9}"#)
    );
    let (stream, ending, summary) = streamed(pieces(&upstream, 40), 2).await;
    let names: Vec<String> = frames(&stream).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        ["image_generation.partial_image", "image_generation.partial_image", "image_generation.completed"]
    );
    assert_eq!((ending, summary.usage.map(|usage| usage.total)), (RelayOutcome::Complete, Some(3)));
}

#[tokio::test]
async fn a_plain_answer_becomes_the_final_event_and_the_other_way_round() {
    let plain = format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}"}}]{USAGE}}}"#);
    let (stream, _, summary) = streamed(pieces(&plain, 30), 0).await;
    let only = frames(&stream);
    assert_eq!(only.len(), 1);
    assert_eq!(
        (only[0].1["b64_json"].as_str(), only[0].1["usage"]["total_tokens"].as_u64()),
        (Some(PNG_HEAD), Some(3))
    );
    assert_eq!(summary.usage.map(|usage| usage.total), Some(3));

    let events = event("image_generation.partial_image", "") + &event("image_generation.completed", USAGE);
    let (answer, summary) = whole(&events, 1).await;
    assert_eq!(answer["data"], json!([{"b64_json": PNG_HEAD, "revised_prompt": "a red square"}]));
    assert_eq!((answer["usage"]["total_tokens"].as_u64(), answer["created"].as_i64()), (Some(3), Some(1_776_000_000)));
    assert_eq!(summary.delivered.len(), 1);
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error_that_every_client_sees() {
    let partial = event("image_generation.partial_image", "");
    let cut = format!("{partial}event: image_generation.completed\ndata: {{\"b64_json\":\"{PNG_HEAD}");
    let said = format!("{partial}event: error\ndata: {{\"type\":\"error\",\"error\":{{\"message\":\"m\"}}}}\n\n");
    // The image is complete, the part after it is not.
    let [part, plain] = [format!("{cut}\",\"size\":"), format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}"}}],"cre"#)];
    let cuts = [&partial, &cut, &part, &plain].map(|text| [pieces(text, 50), broken(text)]);
    for upstream in cuts.into_iter().flatten().chain([pieces(&said, 50)]) {
        let (stream, ending, _) = streamed(upstream, 2).await;
        assert!(matches!(ending, RelayOutcome::Broken(_)), "{ending:?}");
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
        matches!(prove(pieces(error, 9), streaming(0), limits()).await, Err(ProofError::NoImage(without)) if without.members.contains_key("error"))
    );
    let empty = "event: image_generation.completed\ndata: {\"b64_json\":null}\n\n";
    // The event states neither a failure nor a reason, so it may be about an image that was made.
    let blank = prove(pieces(empty, 9), streaming(0), limits()).await;
    assert!(matches!(blank, Err(ProofError::NoImage(without)) if without.has_image_substitute));
    assert!(matches!(prove(broken(": hi\n\n"), streaming(0), limits()).await, Err(ProofError::Broken)));
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "a test waits for it")]
async fn a_heartbeat_of_the_upstream_is_no_image_however_long_the_image_takes() {
    let (writer, body) = silent();
    writer.try_send(Bytes::from_static(b": upstream\n\n")).expect("open");
    let begun = Instant::now();
    drop(tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(100)).await;
        writer.try_send(Bytes::from(event("image_generation.completed", ""))).expect("open");
    }));
    let proven = prove(body, streaming(0), limits()).await.expect("an image");
    assert_eq!(begun.elapsed().as_secs(), 100);
    let rest = relay(proven).0.collect().await.expect("a whole stream").to_bytes();
    assert!(rest.starts_with(b"event: image_generation.completed\n"));
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "a test waits for it")]
async fn an_upstream_that_only_sends_heartbeats_is_given_up() {
    let (writer, body) = silent();
    writer.try_send(Bytes::from(event("image_generation.partial_image", ""))).expect("open");
    let proven = prove(body, streaming(2), limits()).await.expect("an image");
    let (body, told) = relay(proven);
    let beats = tokio::spawn(async move {
        while writer.send(Bytes::from_static(b": beat\n\n")).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let begun = Instant::now();
    body.collect().await.expect("a stream never breaks");
    assert_eq!(begun.elapsed().as_secs(), 150);
    assert_eq!(told.lock().unwrap()[0].0, RelayOutcome::Broken(RelayError::Timeout));
    beats.abort();
}

#[tokio::test]
async fn a_caller_of_events_who_leaves_cancels_the_upstream() {
    let (writer, body) = silent();
    writer.try_send(Bytes::from(event("image_generation.partial_image", ""))).expect("open");
    let proven = prove(body, streaming(2), limits()).await.expect("an image");
    let (body, told) = relay(proven);
    drop(body);
    assert_eq!(told.lock().unwrap()[0].0, RelayOutcome::CallerLeft);
    assert!(writer.is_closed(), "the upstream's body is gone");
}

/// Returns the message of a complete answer without an image, in the form by which it is classified.
async fn said(body: &str, stream: bool) -> (String, bool) {
    let asked = RequestedAnswer { stream, ..requested_answer(1) };
    match prove(pieces(body, 9), asked, limits()).await {
        Err(ProofError::NoImage(without)) => (Value::from(without.members).to_string(), without.has_image_substitute),
        other => panic!("{body}: {other:?}"),
    }
}

#[tokio::test]
async fn why_there_is_no_image_is_kept_whatever_it_came_in() {
    let failed = r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"why"},"output":[]}}"#;
    let blank = r#"{"type":"image_generation.completed","b64_json":null,"text":"why"}"#;
    for body in [
        format!("event: response.failed\ndata: {failed}\n\n"),
        format!("data: {}\n\n", failed.replace("failed", "incomplete")),
        format!("event: image_generation.completed\ndata: {blank}\n\n"),
        "event: error\ndata: {\"type\":\"error\",\"code\":\"why\",\"message\":\"m\"}\n\n".to_owned(),
    ] {
        for stream in [true, false] {
            let (members, something) = said(&body, stream).await;
            assert!(members.contains("why") && !something, "{body} {stream}: {members}");
        }
    }
    let (members, something) = said(r#"{"created":1,"data":[{"text":"why"}]}"#, false).await;
    assert!(members.contains("why") && !something, "{members}");
    // A value that may stand for an image is reported.
    assert!(said(r#"{"data":[{"url":"https://images.example/1","text":"why"}]}"#, false).await.1);
    let made = failed.replace("[]", r#"[{"type":"image_generation_call"}]"#);
    assert!(said(&format!("data: {made}\n\n"), true).await.1);
    assert!(said(&format!("data: {}\n\n", blank.replace("text", "size")), true).await.1);
}

#[tokio::test]
async fn what_comes_behind_the_final_image_takes_nothing_of_it_away() {
    let twice = event("image_generation.completed", USAGE).replace("}\n\n", "}{\"b64_json\":\"AAAA\"}\n\n");
    let both = event("image_generation.partial_image", "") + &twice;
    for cut in [1, 170, 100_000] {
        let (stream, ending, summary) = streamed(pieces(&both, cut), 1).await;
        assert_eq!((ending, summary.delivered.len()), (RelayOutcome::Complete, 1), "{cut}");
        assert!(matches!(&*frames(&stream), [(_, first), (_, last)] if first["b64_json"] == last["b64_json"]), "{cut}");
    }
}

#[tokio::test]
async fn a_blank_final_event_takes_no_image_away() {
    let blank = r#"{"type":"image_generation.completed","b64_json":""}"#;
    let good = format!(r#"{{"type":"image_generation.completed","b64_json":"{PNG_HEAD}"}}"#);
    let body = format!("data: {blank}\n\ndata: {good}\n\n");
    for stream in [true, false] {
        let proven = prove(pieces(&body, 9), RequestedAnswer { stream, ..requested_answer(1) }, limits())
            .await
            .expect("an image");
        let (body, told) = relay(proven);
        assert!(String::from_utf8_lossy(&body.collect().await.expect("whole").to_bytes()).contains(PNG_HEAD));
        assert_eq!(told.lock().unwrap().pop().expect("told").0, RelayOutcome::Complete);
    }
}
