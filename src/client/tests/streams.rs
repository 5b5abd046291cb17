//! Tests of image streams from a scripted server.

use std::time::Duration;

use serde_json::{Value, json};

use super::{KEY, answer, client, failure, image, line, run, serve};
use crate::client::{Error, GenerateRequest, ImageEvent, ImageStream, PartialImages};
use crate::testing::{Answer, StubServer};

/// Returns the text of one event of a stream, as the service writes it.
fn frame(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

fn event(kind: &str, extra: &Value) -> String {
    let mut data = json!({
        "type": kind, "b64_json": "aGVsbG8=", "created_at": 7, "size": "1024x1024", "quality": "low",
        "background": "opaque", "output_format": "png",
    });
    data.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    frame(&data)
}

fn partial(index: u32) -> String {
    event("image_generation.partial_image", &json!({ "partial_image_index": index }))
}

fn completed() -> String {
    let usage = json!({"input_tokens": 1, "input_tokens_details": {"image_tokens": 0, "text_tokens": 1},
                       "output_tokens": 2, "total_tokens": 3});
    event("image_generation.completed", &json!({ "usage": usage }))
}

async fn begin(server: &StubServer) -> Result<ImageStream, Error> {
    client(server).images().generate_stream("a fox").await
}

/// Returns a description of each event of the stream, and of its error.
fn describe_items(play: Answer) -> Vec<String> {
    let server = serve([play]);
    run(async {
        let mut stream = begin(&server).await.unwrap();
        let mut items = Vec::new();
        while let Some(event) = stream.next().await {
            items.push(match event {
                Ok(ImageEvent::PartialImage { index, .. }) => format!("partial {index}"),
                Ok(ImageEvent::Completed { usage, .. }) => format!("completed {}", usage.is_some()),
                Ok(ImageEvent::Other { kind, json }) => format!("{kind} {}", json.text()),
                Err(error) => format!("error: {error}"),
            });
        }
        assert!(stream.next().await.is_none(), "nothing follows the end of the stream");
        items
    })
}

#[track_caller]
fn check(stream: &str, expected: &[&str]) {
    assert_eq!(describe_items(Answer::events(stream)), expected, "{stream}");
}

const UNFINISHED: &str = "error: the stream ended without its image, which may still have been made (status 200)";

#[test]
fn intermediate_images_come_before_the_final_image() {
    check(&[partial(0), partial(1), completed()].concat(), &["partial 0", "partial 1", "completed true"]);
    let server = serve([Answer::events(completed()).header("x-request-id", "r-1")]);
    let image = run(async { begin(&server).await.unwrap().collect_image().await.unwrap() });
    assert_eq!(image.bytes().unwrap(), b"hello");
    let answer = image.answer();
    assert_eq!((answer.request_id(), answer.created()), (Some("r-1"), Some(7)));
    assert_eq!(answer.size(), Some("1024x1024"));
    assert_eq!(answer.usage().unwrap().total_tokens, 3);
}

#[test]
fn the_request_asks_for_events() {
    let server = serve([Answer::events(completed())]);
    let request = GenerateRequest::new("a fox").partial_images(PartialImages::MAX);
    run(async { client(&server).images().generate_stream(request).await.unwrap().collect_image().await.unwrap() });
    let request = server.requests().remove(0);
    assert_eq!(line(&request), "POST /v1/images/generations");
    assert_eq!((&request.json()["stream"], &request.json()["partial_images"]), (&json!(true), &json!(3)));
    assert!(request.header("accept").unwrap().starts_with("text/event-stream"));
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
    assert_eq!(request.header("api-version"), None);
}

#[test]
fn heartbeats_are_skipped_and_unknown_events_are_returned() {
    let unknown = frame(&json!({"type": "image_generation.mood", "mood": "good"}));
    let stream =
        [": keep-alive\n\n", &unknown, ": keep-alive\n\n", &partial(0), &completed(), "data: [DONE]\n\n"].concat();
    let mood = r#"image_generation.mood {"mood":"good","type":"image_generation.mood"}"#;
    check(&stream, &[mood, "partial 0", "completed true"]);
}

#[test]
fn the_event_type_may_be_in_the_frame_or_in_the_data() {
    let data = completed().lines().nth(1).unwrap().to_owned();
    check(&format!("{data}\n\n"), &["completed true"]);
    check("event: image_edit.completed\ndata: {\"b64_json\":\"aGVsbG8=\"}\n\n", &["completed false"]);
}

#[test]
fn unknown_metadata_does_not_invalidate_an_image() {
    let unknown = json!({"quality": "ultra", "usage": {"total_tokens": "many"}, "created_at": null, "background": {}});
    check(&event("image_generation.completed", &unknown), &["completed false"]);
}

#[test]
fn an_event_that_is_not_json_does_not_end_the_stream() {
    check(
        &["data: ping\n\n", "event: note\ndata: {cut\n\n", &completed()].concat(),
        &[r#" "ping""#, r#"note "{cut""#, "completed true"],
    );
    // The final image is one, so its stream cannot go on as if nothing was lost.
    let broken = describe_items(Answer::events("event: image_generation.completed\ndata: {cut\n\n"));
    assert_eq!(broken, ["error: this version does not understand an event of the stream (status 200)"]);
}

#[test]
fn numbers_and_depths_that_cannot_be_read_do_not_invalidate_an_image() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for unreadable in ["1e999", &deep] {
        let data = format!(r#"{{"b64_json":"aGVsbG8=","weight":{unreadable}}}"#);
        check(&format!("event: image_generation.completed\ndata: {data}\n\n"), &["completed false"]);
    }
}

#[test]
fn an_unreadable_intermediate_image_is_skipped() {
    let unreadable = event("image_generation.partial_image", &json!({"b64_json": null}));
    check(&[unreadable, completed()].concat(), &["completed true"]);
}

#[test]
fn an_error_of_every_shape_ends_the_stream() {
    let expected = "error: No. (status 200, code upstream_error, reason network, parameter prompt)";
    let detail = json!({"message": "No.", "code": "upstream_error", "param": "prompt", "reason": "network"});
    let mut flat = detail.clone();
    flat["type"] = "error".into();
    let both = json!({"type": "error", "code": "x", "message": "x", "param": null, "error": detail});
    for frame in [
        format!("event: error\ndata: {both}\n\n"),
        format!("event: error\ndata: {flat}\n\n"),
        format!("data: {flat}\n\n"),
        format!("event: error\ndata: {detail}\n\n"),
        format!("data: {}\n\n", json!({ "error": detail })),
    ] {
        check(&[partial(0), frame, completed()].concat(), &["partial 0", expected]);
    }
    check("event: error\ndata: {\"message\": \"No.\", \"later\": 1e999}\n\n", &["error: No. (status 200)"]);
    check("event: error\ndata: oops\n\n", &["error: the request failed (status 200)"]);
    check("data: {\"error\":\"oops\"}\n\n", &["error: oops (status 200)"]);
}

#[test]
fn a_stream_error_has_the_same_properties_as_other_errors() {
    let error = |code: &str, extra: &Value| {
        let mut frame = failure(code, extra);
        frame["type"] = "error".into();
        let server = serve([Answer::events(format!("data: {frame}\n\n")).header("x-request-id", "r-2")]);
        run(async { begin(&server).await.unwrap().collect_image().await.unwrap_err() })
    };
    let limited = error("usage_limit_reached", &json!({"resets_in_seconds": 60}));
    assert!(limited.is_usage_limit() && limited.resets_in() == Some(Duration::from_mins(1)), "{limited:?}");
    assert_eq!(limited.request_id(), Some("r-2"));
    assert!(error("rate_limit_exceeded", &json!({})).is_rate_limited());
    let refused = error("upstream_error", &json!({"reason": "content_refused"}));
    assert!(refused.is_refused() && !refused.is_retryable(), "{refused:?}");
    let redacted = error("x", &json!({"message": format!("bad {KEY}")}));
    assert_eq!(redacted.message(), "bad [redacted]");
}

#[test]
fn a_stream_without_its_image_is_an_error() {
    check("", &[UNFINISHED]);
    check(": keep-alive\n\n", &[UNFINISHED]);
    check(&partial(0), &["partial 0", UNFINISHED]);
    check("event: image_generation.completed\ndata: {\"b64_json\":\"aGV", &[UNFINISHED]);
    let items = describe_items(Answer::events([partial(0), completed()].concat()).break_off(40));
    assert!(items[0] == "partial 0" && items[1].contains("the connection broke"), "{items:?}");
}

#[test]
fn a_final_image_without_the_last_empty_line_is_read() {
    check(completed().trim_end(), &["completed true"]);
}

#[test]
fn a_final_event_without_an_image_is_an_error() {
    for extra in [json!({"b64_json": ""}), json!({"b64_json": null}), json!({"b64_json": 1})] {
        let items = describe_items(Answer::events(event("image_generation.completed", &extra)));
        assert!(items.len() == 1 && items[0].starts_with("error: "), "{items:?}");
    }
    check("data: <html>\n\n", &[r#" "<html>""#, UNFINISHED]);
}

#[test]
fn an_event_that_is_too_large_is_an_error() {
    let endless = format!("data: {}\n\n", "x".repeat(65 << 20));
    let items = describe_items(Answer::events(&endless));
    assert!(items.len() == 1 && items[0].contains("too large"), "{}", items.len());
}

#[test]
fn a_plain_json_answer_is_a_stream_of_one_event() {
    let play = || answer(200, &image()).header("content-type", "application/json");
    assert_eq!(describe_items(play()), ["completed false"]);
    let items = describe_items(play().break_off(5));
    assert!(items.len() == 1 && items[0].contains("the connection broke"), "{items:?}");
}

#[test]
fn events_are_returned_before_a_pause_and_the_pause_has_a_limit() {
    let server = serve([Answer::events([partial(0), completed()].concat()).stall(5)]);
    let request = GenerateRequest::new("a fox").timeout(Duration::from_millis(500));
    run(async {
        let mut stream = client(&server).images().generate_stream(request).await.unwrap();
        assert!(matches!(stream.next().await, Some(Ok(ImageEvent::PartialImage { index: 0, .. }))));
        let error = stream.next().await.unwrap().unwrap_err();
        assert!(error.is_timeout() && !error.is_retryable() && error.message().contains("no more data"), "{error:?}");
        assert!(stream.next().await.is_none());
    });
}

#[test]
fn a_stream_that_does_not_begin_times_out_without_a_retry() {
    let server = serve([Answer::images(1).stall_unanswered(), Answer::events(completed())]);
    let request = GenerateRequest::new("a fox").timeout(Duration::from_millis(50));
    let error = run(client(&server).images().generate_stream(request)).unwrap_err();
    assert!(error.is_timeout() && error.message().contains("no answer"), "{error:?}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn the_stream_ends_after_the_image_even_if_the_service_does_not() {
    let play = Answer::events([&*completed(), ": and more\n\n"].concat()).stall(5);
    assert_eq!(describe_items(play), ["completed true"]);
}

#[test]
fn an_error_before_the_stream_is_returned_by_the_call() {
    let body = failure("invalid_request_error", &json!({"param": "size"}));
    let server = serve([answer(400, &body).header("x-request-id", "r-3")]);
    let error = run(begin(&server)).unwrap_err();
    assert_eq!((error.status(), error.param(), error.request_id()), (Some(400), Some("size"), Some("r-3")));
    let server = serve([Answer::new(500, "<html>oops</html>")]);
    let expected = "the request failed: <html>oops</html> (status 500)";
    assert_eq!(run(begin(&server)).unwrap_err().to_string(), expected);
}

#[test]
fn a_request_is_retried_before_the_stream_and_never_after() {
    let busy = || answer(503, &failure("service_unavailable", &json!({}))).header("x-should-retry", "true");
    let server = serve([busy(), Answer::events(completed())]);
    run(async { begin(&server).await.unwrap().collect_image().await.unwrap() });
    assert_eq!(server.requests()[1].header("x-stainless-retry-count"), Some("1"));
    for play in
        [Answer::images(1).close_unanswered(), Answer::events(partial(0)), Answer::events(completed()).break_off(5)]
    {
        let server = serve([play, Answer::events(completed())]);
        let result = run(async { begin(&server).await?.collect_image().await });
        let error = result.err().map(|error| (error.is_retryable(), server.requests().len()));
        assert!(matches!(error, None | Some((false, 1))), "{error:?}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn an_image_stream_implements_the_stream_trait() {
    fn assert_stream(_: impl futures_core::Stream<Item = Result<ImageEvent, Error>> + Send + Unpin) {}
    let server = serve([Answer::events(completed())]);
    assert_stream(run(begin(&server)).unwrap());
}
