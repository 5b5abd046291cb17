//! Tests of calls of the Responses API, plain and as streams, against a scripted server.

use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

use super::*;
use crate::client::tests::{answer, client, line, run, serve};
use crate::client::{ErrorKind, Json};
use crate::testing::{Answer, ReceivedRequest};

/// A response with members that this version of the client does not know, and with unusual spellings of numbers, texts
/// and white space.
const RESPONSE: &str = r#"{ "zebra": [1.0, 1e2, -0], "id": "resp_1", "object": "response", "status": "completed",
 "model": "gpt-5.5", "output": [
  {"type":"reasoning","id":"rs_1","summary":[],"budget":12345678901234567890.50},
  {"result":"aGVsbG8=","type":"image_generation_call","id":"ig_1","status":"completed","revised_prompt":"a \u0066ox","mood":1.50},
  {"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"Here "},{"type":"sticker","at":0.10},{"type":"output_text","text":"it is."}]}],
 "usage": {"input_tokens":1,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":3},
 "tool_usage": {"image_gen":{"input_tokens":5,"input_tokens_details":{"image_tokens":0,"text_tokens":5},"output_tokens":6,"total_tokens":11}},
 "a": null }"#;

fn image_item() -> Json {
    Json::parse(RESPONSE).unwrap().member("output").unwrap().elements().swap_remove(1)
}

fn fox_request() -> ResponseRequest {
    ResponseRequest::new("gpt-5.5", "a fox").tool(ImageTool::new())
}

fn create(play: Answer) -> Result<Response, Error> {
    run(client(&serve([play])).responses().create(fox_request()))
}

/// Returns the body as it was sent.
fn body_text(request: &ReceivedRequest) -> &str {
    std::str::from_utf8(request.body()).unwrap()
}

fn frame(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())
}

/// Returns the events of a stream, and the error with which it ended.
fn collect_events(play: Answer) -> (Vec<ResponseEvent>, Option<Error>) {
    let server = serve([play]);
    run(async {
        let mut stream = client(&server).responses().stream(fox_request()).await.unwrap();
        let (mut events, mut error) = (Vec::new(), None);
        while let Some(event) = stream.next().await {
            assert!(error.is_none(), "nothing follows an error");
            match event {
                Ok(event) => events.push(event),
                Err(failure) => error = Some(failure),
            }
        }
        (events, error)
    })
}

fn kinds(events: &[ResponseEvent]) -> Vec<&str> {
    events.iter().map(ResponseEvent::kind).collect()
}

#[test]
fn known_members_are_read_and_the_response_is_kept_unchanged() {
    let play = Answer::new(200, RESPONSE).header("x-request-id", "r-1").header("x-imagate-simulated", "true");
    let response = create(play).unwrap();
    assert_eq!((response.id(), response.model(), response.status()), ("resp_1", "gpt-5.5", Some("completed")));
    assert_eq!((response.request_id(), response.is_simulated()), (Some("r-1"), true));
    assert_eq!(response.text(), "Here it is.");
    assert_eq!(response.usage().map(|usage| usage.total_tokens), Some(3));
    assert_eq!(response.image_usage().map(|usage| usage.total_tokens), Some(11));
    let [OutputItem::Other(other), OutputItem::Image(call), OutputItem::Message(message)] = response.output() else {
        panic!("{response:?}")
    };
    assert_eq!(other.member("budget").unwrap().text(), "12345678901234567890.50");
    assert_eq!((call.id(), call.revised_prompt().as_deref()), (Some("ig_1"), Some("a fox")));
    assert_eq!(call.image().unwrap().bytes().unwrap(), b"hello");
    assert_eq!(message.text(), "Here it is.");
    assert_eq!(serde_json::to_string(&response).unwrap(), RESPONSE, "unchanged");
}

#[test]
fn output_items_are_sent_unchanged_in_the_next_request() {
    let server = serve([Answer::new(200, RESPONSE), Answer::new(200, RESPONSE)]);
    let client = client(&server);
    run(async {
        let first = client.responses().create(fox_request()).await.unwrap();
        let mut items: Vec<ResponseItem> = first.output().iter().map(Into::into).collect();
        items.push(ResponseItem::user("at night"));
        client.responses().create(ResponseRequest::new("gpt-5.5", items)).await.unwrap();
    });
    let requests = server.requests();
    assert_eq!(line(&requests[1]), "POST /v1/responses");
    for item in Json::parse(RESPONSE).unwrap().member("output").unwrap().elements() {
        assert!(body_text(&requests[1]).contains(item.text()), "{}", body_text(&requests[1]));
    }
}

#[test]
fn a_request_keeps_the_order_and_spelling_of_its_members() {
    let tool = ImageTool::new()
        .size(crate::size!("1536x1024"))
        .quality(crate::wire::types::Quality::Low)
        .format(crate::client::Output::JPEG)
        .partial_images(crate::client::PartialImages::new(2).unwrap())
        .model("sketch-1")
        .set("mood", Json::parse("1.50").unwrap());
    let request = ResponseRequest::new("gpt-5.5", "a fox")
        .set("zebra", Json::parse("[1.0, 1e2]").unwrap())
        .tool(tool)
        .tool(json!({"type": "web_search"}))
        .instructions("In \"water\" colours.")
        .user("u-1")
        .draw();
    let expected = concat!(
        r#"{"model":"gpt-5.5","input":"a fox","zebra":[1.0, 1e2],"#,
        r#""tools":[{"type":"image_generation","size":"1536x1024","quality":"low","output_format":"jpeg","#,
        r#""output_compression":100,"partial_images":2,"model":"sketch-1","mood":1.50},{"type":"web_search"}],"#,
        r#""instructions":"In \"water\" colours.","user":"u-1","tool_choice":{"type":"image_generation"}}"#,
    );
    let server = serve([Answer::new(200, RESPONSE)]);
    run(client(&server).responses().create(&request)).unwrap();
    let request_sent = server.requests().remove(0);
    assert_eq!(body_text(&request_sent), expected);
    assert_eq!(request_sent.header("content-type"), Some("application/json"));
    assert_eq!(serde_json::to_string(&request).unwrap(), expected);
    let parsed: ResponseRequest = serde_json::from_str(expected).unwrap();
    assert_eq!(parsed.into_body(true).text(), format!("{},\"stream\":true}}", expected.strip_suffix('}').unwrap()));
    assert!(serde_json::from_str::<ResponseRequest>("[]").is_err());
}

#[test]
fn an_image_with_escaped_slashes_is_written_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut png = crate::client::tests::test_images::png(16, 32, true);
    png.extend([0xff; 6]);
    let base64 = base64::engine::general_purpose::STANDARD.encode(&png);
    assert!(base64.contains('/'));
    let call = json!({"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": base64});
    for text in [call.to_string(), call.to_string().replace('/', "\\/")] {
        let OutputItem::Image(call) = OutputItem::new(Json::parse(text).unwrap()) else { panic!("an image call") };
        let image = call.image().unwrap();
        assert_eq!((image.format(), image.dimensions()), (Some(crate::image::Format::Png), Some((16, 32))));
        let path = run(image.write_to(folder.path().join("fox"))).unwrap();
        assert_eq!(
            (path.extension().unwrap().to_str(), std::fs::read(path.clone()).unwrap()),
            (Some("png"), png.clone())
        );
    }
}

#[test]
fn an_answer_that_is_not_a_response_is_an_error() {
    for body in ["[]", "hi", "{}", "null", "{\"id\": 1", "{\"data\": []}"] {
        let error = create(Answer::new(200, body)).unwrap_err();
        assert!(error.status() == Some(200) && !error.is_retryable(), "{body}: {error:?}");
    }
    let failed = json!({"id": "resp_1", "status": "failed", "output": [], "error": {"code": "invalid_prompt", "message": "No."}});
    let error = create(answer(200, &failed)).unwrap_err();
    assert_eq!((error.code(), error.message()), (Some("invalid_prompt"), "No."));
}

#[test]
fn an_answer_that_is_not_understood_is_kept() {
    for body in [RESPONSE.replace("1e2", "Infinity"), RESPONSE.replace("output", "outputs"), "<html>".to_owned()] {
        let plain = || Answer::new(200, &body).header("content-type", "application/json");
        let (_, stream_error) = collect_events(plain());
        for error in [create(plain()).unwrap_err(), stream_error.unwrap()] {
            assert_eq!((error.kind(), error.body()), (ErrorKind::Unintelligible, Some(&*body)), "{error:?}");
        }
    }
    let error = create(answer(200, &json!({"error": {"message": "No.", "code": "model_busy"}}))).unwrap_err();
    assert_eq!((error.kind(), error.code(), error.message()), (ErrorKind::Answer, Some("model_busy"), "No."));
}

#[test]
fn a_byte_that_is_not_utf_8_loses_no_image() {
    let damage = |text: &str, before: &str| {
        let at = text.find(before).unwrap();
        [&text.as_bytes()[..at], b"\xff", &text.as_bytes()[at..]].concat()
    };
    let response = create(Answer::new(200, damage(RESPONSE, "Here "))).unwrap();
    assert_eq!(
        (response.images().next().unwrap().bytes().unwrap(), &*response.text()),
        (b"hello".to_vec(), "\u{fffd}Here it is.")
    );

    let completed: Value = serde_json::from_str(RESPONSE).unwrap();
    let delta = frame(&json!({"type": "response.output_text.delta", "delta": "Here "}));
    let completed = frame(&json!({"type": "response.completed", "response": completed}));
    let stream = [damage(&delta, "Here "), completed.as_bytes().to_vec()].concat();
    let (events, stream_error) = collect_events(Answer::events(stream));
    let [ResponseStep::TextDelta { delta }, ResponseStep::Completed { response }] =
        [events[0].step(), events[1].step()]
    else {
        panic!("{events:?}")
    };
    assert_eq!((delta.as_str(), response.images().count(), stream_error.is_none()), ("\u{fffd}Here ", 1, true));
}

#[test]
fn an_event_that_is_not_json_ends_the_stream_only_if_it_is_the_last_one() {
    let completed = frame(&json!({"type": "response.completed", "response": {"id": "resp_1", "output": []}}));
    for name in ["response.output_text.delta", "response.image_generation_call.generating"] {
        let (events, stream_error) =
            collect_events(Answer::events(format!("event: {name}\ndata: {{cut\n\n{completed}")));
        assert!(matches!(events[0].step(), ResponseStep::Other) && stream_error.is_none(), "{events:?}");
        assert_eq!((kinds(&events), events[0].json().text()), (vec![name, "response.completed"], "\"{cut\""));
    }
    let last = "{\"response\": {\"weight\": Infinity}}";
    let (events, stream_error) = collect_events(Answer::events(format!("event: response.completed\ndata: {last}\n\n")));
    let stream_error = stream_error.unwrap();
    assert_eq!((events.len(), stream_error.kind(), stream_error.body()), (0, ErrorKind::Unintelligible, Some(last)));
}

#[test]
fn a_request_is_sent_again_only_if_the_service_allows_it() {
    let busy = || {
        answer(
            503,
            &json!({"error": {"message": "Busy.", "type": "server_error", "param": null, "code": "service_unavailable"}}),
        )
    };
    let server = serve([busy().header("x-should-retry", "true"), Answer::new(200, RESPONSE)]);
    assert!(run(client(&server).responses().create(fox_request())).is_ok());
    assert_eq!(server.requests()[1].header("x-stainless-retry-count"), Some("1"));
    for play in [
        busy(),
        Answer::new(502, "<html>"),
        Answer::images(1).close_unanswered(),
        Answer::new(200, RESPONSE).break_off(5),
    ] {
        let server = serve([play, Answer::new(200, RESPONSE)]);
        let error = run(client(&server).responses().create(fox_request())).unwrap_err();
        assert!(!error.is_retryable(), "{error:?}");
        assert_eq!(server.requests().len(), 1);
    }
    let request = fox_request().timeout(Duration::from_millis(50));
    let server = serve([Answer::images(1).stall_unanswered()]);
    assert!(run(client(&server).responses().create(request)).unwrap_err().is_timeout());
}

#[test]
fn each_event_is_typed_and_kept_unchanged() {
    let in_progress = json!({"id": "resp_1", "status": "in_progress", "output": []});
    let call = |kind: &str| json!({"type": format!("response.image_generation_call.{kind}"), "output_index": 1, "item_id": "ig_1"});
    let mut partial = call("partial_image");
    (partial["partial_image_index"], partial["partial_image_b64"]) = (json!(2), json!("aGVsbG8="));
    let completed: Value = serde_json::from_str(RESPONSE).unwrap();
    let frames = [
        frame(&json!({"type": "response.created", "response": in_progress})),
        frame(&json!({"type": "response.in_progress", "response": in_progress})),
        frame(
            &json!({"type": "response.output_item.added", "output_index": 1, "item": {"id": "ig_1", "type": "image_generation_call", "status": "in_progress"}}),
        ),
        ": heartbeat\n\n".to_owned(),
        frame(&call("generating")),
        frame(&partial),
        format!(
            "event: response.output_item.done\ndata: {{\"type\":\"response.output_item.done\",\"output_index\":1,\"item\":{},\"x\":1.0}}\n\n",
            image_item().text()
        ),
        frame(&json!({"type": "response.output_text.delta", "delta": "Here "})),
        frame(&json!({"type": "response.output_text.done", "text": "Here it is."})),
        frame(&json!({"type": "response.sung", "notes": ["c"]})),
        frame(&json!({"type": "keepalive", "sequence_number": 9})),
        frame(&json!({"type": "response.completed", "response": completed})),
        "data: [DONE]\n\n".to_owned(),
    ];
    let (events, stream_error) = collect_events(Answer::events(frames.concat()));
    assert!(stream_error.is_none(), "{stream_error:?}");
    let steps: Vec<&ResponseStep> = events.iter().map(ResponseEvent::step).collect();
    let [
        ResponseStep::Created { response },
        ResponseStep::InProgress { .. },
        ResponseStep::ItemAdded { index: 1, item: OutputItem::Image(added) },
        ResponseStep::ImageCall { index: 1, item_id, status },
        ResponseStep::PartialImage { index: 2, image, .. },
        ResponseStep::ItemDone { index: 1, item },
        ResponseStep::TextDelta { delta },
        ResponseStep::TextDone { text },
        ResponseStep::Other,
        ResponseStep::Other,
        ResponseStep::Completed { response: last },
    ] = steps[..]
    else {
        panic!("{steps:#?}")
    };
    assert_eq!((response.status(), added.image().is_none()), (Some("in_progress"), true));
    assert_eq!((item_id.as_str(), status.as_str(), image.bytes().unwrap()), ("ig_1", "generating", b"hello".to_vec()));
    assert_eq!((item.json(), delta.as_str(), text.as_str()), (&image_item(), "Here ", "Here it is."));
    assert_eq!(events[8].json().text(), r#"{"notes":["c"],"type":"response.sung"}"#);
    assert!(events[5].json().text().ends_with(r#""mood":1.50},"x":1.0}"#), "{:?}", events[5]);
    assert_eq!((last.text().as_str(), last.images().count()), ("Here it is.", 1));
}

#[test]
fn a_failure_returns_the_failed_response_and_then_one_error() {
    let error = json!({"type": "error", "sequence_number": 5, "code": "upstream_error", "message": "It failed.", "param": null,
        "error": {"message": "It failed.", "type": "upstream_error", "param": null, "code": "upstream_error", "reason": "upstream_failed"}});
    let failed = json!({"type": "response.failed", "response": {"id": "resp_1", "status": "failed", "output": [],
        "error": {"code": "server_error", "message": "Something else."}}});
    let delta = frame(&json!({"type": "response.output_text.delta", "delta": "He"}));

    let (events, stream_error) =
        collect_events(Answer::events([delta.clone(), frame(&error), frame(&failed)].concat()));
    assert_eq!(kinds(&events), ["response.output_text.delta", "response.failed"]);
    let stream_error = stream_error.unwrap();
    assert_eq!(
        (stream_error.code(), stream_error.reason(), stream_error.message()),
        (Some("upstream_error"), Some("upstream_failed"), "It failed.")
    );
    assert_eq!(stream_error.status(), Some(200));

    let (events, stream_error) = collect_events(Answer::events([delta.clone(), frame(&error)].concat()));
    assert_eq!((kinds(&events).len(), stream_error.unwrap().code()), (1, Some("upstream_error")));

    let (events, stream_error) = collect_events(Answer::events([delta, frame(&failed)].concat()));
    let stream_error = stream_error.unwrap();
    assert_eq!(
        (kinds(&events).len(), stream_error.code(), stream_error.message()),
        (2, Some("server_error"), "Something else.")
    );

    let (_, stream_error) = collect_events(Answer::events("event: error\ndata: it broke\n\n"));
    assert!(!stream_error.unwrap().is_retryable());
}

#[test]
fn an_event_named_error_is_a_failure_whatever_the_type_of_its_data() {
    for data in [
        r#"{"type":"server_error","code":"upstream_error","message":"It failed."}"#,
        r#"{"type":"server_error","error":{"code":"upstream_error","message":"It failed."}}"#,
    ] {
        let (events, stream_error) = collect_events(Answer::events(format!("event: error\ndata: {data}\n\n")));
        let stream_error = stream_error.unwrap();
        assert!(events.is_empty(), "{events:?}");
        assert_eq!((stream_error.code(), stream_error.message()), (Some("upstream_error"), "It failed."), "{data}");
    }
}

#[test]
fn a_failure_does_not_wait_for_the_end_of_the_answer() {
    let error = frame(&json!({"type": "error", "code": "upstream_error", "message": "It failed."}));
    let server = serve([Answer::events(&(error + "xxxxx")).stall(5)]);
    let result = run(async {
        let stream = client(&server).responses().stream(fox_request()).await.unwrap();
        // The minute is far below the time limit of the request, and far above `END_LIMIT`, the time that the client
        // waits for the end of the answer after its last event.
        tokio::time::timeout(Duration::from_secs(60), stream.collect_response()).await
    });
    assert_eq!(result.expect("the stream should end").unwrap_err().code(), Some("upstream_error"));
}

#[test]
fn a_truncated_stream_is_an_error() {
    let created = frame(&json!({"type": "response.created", "response": {"id": "resp_1", "output": []}}));
    let completed = frame(&json!({"type": "response.completed", "response": {"id": "resp_1", "output": []}}));
    for stream in [String::new(), created.clone(), created.clone() + &completed[..40], created.clone() + "data: {\n\n"]
    {
        let (_, stream_error) = collect_events(Answer::events(&stream));
        assert!(stream_error.is_some_and(|error| !error.is_retryable()), "{stream}");
    }
    let (events, stream_error) = collect_events(Answer::events(&(created.clone() + completed.trim_end())));
    assert!(stream_error.is_none() && events.len() == 2, "only the last empty line is missing");
    let incomplete =
        json!({"type": "response.incomplete", "response": {"id": "resp_1", "status": "incomplete", "output": []}});
    let response = run(async {
        let server = serve([Answer::events(&(created + &frame(&incomplete)))]);
        client(&server).responses().stream(fox_request()).await.unwrap().collect_response().await
    });
    assert_eq!(response.unwrap().status(), Some("incomplete"));
}

#[test]
fn a_plain_json_answer_to_a_stream_request_is_read() {
    let (events, stream_error) = collect_events(Answer::new(200, RESPONSE).header("content-type", "application/json"));
    let [ResponseStep::Completed { response }] = [events[0].step()] else { panic!("{events:?}") };
    assert_eq!((response.json().text(), stream_error.is_none()), (RESPONSE, true));
    let (events, stream_error) = collect_events(Answer::new(200, "{}").header("content-type", "application/json"));
    assert!(events.is_empty() && stream_error.is_some());
    let incomplete = RESPONSE.replacen("completed", "incomplete", 1);
    let (events, stream_error) =
        collect_events(Answer::new(200, &incomplete).header("content-type", "application/json"));
    let [ResponseStep::Incomplete { response }] = [events[0].step()] else { panic!("{events:?}") };
    assert_eq!((kinds(&events), stream_error.is_none()), (vec!["response.incomplete"], true));
    assert_eq!(response.json().text(), incomplete);
}

#[test]
fn debug_output_of_a_large_image_is_short() {
    let body = RESPONSE.replace("aGVsbG8=", &"A".repeat(1 << 20));
    let debug_text = format!("{:?}", create(Answer::new(200, &body)).unwrap());
    assert!(debug_text.len() < 4096, "{} bytes", debug_text.len());
}

#[test]
fn a_call_can_move_to_another_thread() {
    fn assert_send<T: Send>(_: T) {}
    let client = Client::new("https://host", "sk-img-test").unwrap();
    assert_send(client.responses().create(fox_request()));
    assert_send(client.responses().stream(fox_request()));
}
