//! Tasks against a server that follows a script.

use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

use super::*;
use crate::client::Json;
use crate::client::tests::server::{Play, Request, Server, answer};
use crate::client::tests::{client, run};

/// A response of a service that knows more than this version and uses a spelling of its own.
const WHOLE: &str = r#"{ "zebra": [1.0, 1e2, -0], "id": "resp_1", "object": "response", "status": "completed",
 "model": "gpt-5.5", "output": [
  {"type":"reasoning","id":"rs_1","summary":[],"budget":12345678901234567890.50},
  {"result":"aGVsbG8=","type":"image_generation_call","id":"ig_1","status":"completed","revised_prompt":"a \u0066ox","mood":1.50},
  {"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"Here "},{"type":"sticker","at":0.10},{"type":"output_text","text":"it is."}]}],
 "usage": {"input_tokens":1,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":3},
 "tool_usage": {"image_gen":{"input_tokens":5,"input_tokens_details":{"image_tokens":0,"text_tokens":5},"output_tokens":6,"total_tokens":11}},
 "a": null }"#;

fn drawn() -> Json {
    Json::parse(WHOLE).unwrap().member("output").unwrap().elements().swap_remove(1)
}

fn fox() -> ResponseRequest {
    ResponseRequest::new("gpt-5.5", "a fox").tool(ImageTool::new())
}

fn create(play: Play) -> Result<Response, Error> {
    run(client(&Server::play([play])).responses().create(fox()))
}

/// Returns the body that was sent, exactly.
fn sent(request: &Request) -> &str {
    std::str::from_utf8(&request.raw).unwrap()
}

fn frame(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())
}

/// Returns the events of a stream, and the error with which it ended.
fn told(play: Play) -> (Vec<ResponseEvent>, Option<Error>) {
    run(async {
        let mut stream = client(&Server::play([play])).responses().stream(fox()).await.unwrap();
        let (mut events, mut end) = (Vec::new(), None);
        while let Some(event) = stream.next().await {
            assert!(end.is_none(), "nothing comes after an error");
            match event {
                Ok(event) => events.push(event),
                Err(error) => end = Some(error),
            }
        }
        (events, end)
    })
}

fn kinds(events: &[ResponseEvent]) -> Vec<&str> {
    events.iter().map(ResponseEvent::kind).collect()
}

#[test]
fn a_response_is_read_as_far_as_it_is_known_and_kept_as_it_came() {
    let play = Play::page(200, WHOLE).header("x-request-id", "r-1").header("x-imagate-simulated", "true");
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
    assert_eq!(serde_json::to_string(&response).unwrap(), WHOLE, "to the letter");
}

#[test]
fn what_the_model_did_goes_into_the_next_request_to_the_letter() {
    let server = Server::play([Play::page(200, WHOLE), Play::page(200, WHOLE)]);
    let client = client(&server);
    run(async {
        let first = client.responses().create(fox()).await.unwrap();
        let mut items: Vec<ResponseItem> = first.output().iter().map(Into::into).collect();
        items.push(ResponseItem::user("at night"));
        client.responses().create(ResponseRequest::new("gpt-5.5", items)).await.unwrap();
    });
    let requests = server.requests();
    assert_eq!(requests[1].line, "POST /v1/responses HTTP/1.1");
    for item in Json::parse(WHOLE).unwrap().member("output").unwrap().elements() {
        assert!(sent(&requests[1]).contains(item.text()), "{}", sent(&requests[1]));
    }
}

#[test]
fn a_request_is_sent_in_the_order_and_spelling_in_which_it_was_written() {
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
    let server = Server::play([Play::page(200, WHOLE)]);
    run(client(&server).responses().create(&request)).unwrap();
    let request_sent = server.requests().remove(0);
    assert_eq!(sent(&request_sent), expected);
    assert_eq!(request_sent.header("content-type"), Some("application/json"));
    assert_eq!(serde_json::to_string(&request).unwrap(), expected);
    let again: ResponseRequest = serde_json::from_str(expected).unwrap();
    assert_eq!(again.body(true), format!("{},\"stream\":true}}", expected.strip_suffix('}').unwrap()));
    assert!(serde_json::from_str::<ResponseRequest>("[]").is_err());
}

#[test]
fn an_image_is_decoded_straight_to_a_file_also_where_its_slashes_are_escaped() {
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
fn an_answer_that_is_none_is_an_error() {
    for body in ["[]", "hi", "{}", "null", "{\"id\": 1", "{\"data\": []}"] {
        let error = create(Play::page(200, body)).unwrap_err();
        assert!(error.status() == Some(200) && !error.is_retryable(), "{body}: {error:?}");
    }
    let failed = json!({"id": "resp_1", "status": "failed", "output": [], "error": {"code": "invalid_prompt", "message": "No."}});
    let error = create(answer(200, &failed)).unwrap_err();
    assert_eq!((error.code(), error.message()), (Some("invalid_prompt"), "No."));
}

#[test]
fn a_task_is_sent_again_only_where_the_service_asks_for_it() {
    let busy = || {
        answer(
            503,
            &json!({"error": {"message": "Busy.", "type": "server_error", "param": null, "code": "service_unavailable"}}),
        )
    };
    let server = Server::play([busy().header("x-should-retry", "true"), Play::page(200, WHOLE)]);
    assert!(run(client(&server).responses().create(fox())).is_ok());
    assert_eq!(server.requests()[1].header("x-stainless-retry-count"), Some("1"));
    for play in [busy(), Play::page(502, "<html>"), Play::Hangup, Play::page(200, WHOLE).truncated()] {
        let server = Server::play([play, Play::page(200, WHOLE)]);
        let error = run(client(&server).responses().create(fox())).unwrap_err();
        assert!(!error.is_retryable(), "{error:?}");
        assert_eq!(server.requests().len(), 1);
    }
    let request = fox().timeout(Duration::from_millis(50));
    let server = Server::play([Play::Silence]);
    assert!(run(client(&server).responses().create(request)).unwrap_err().is_timeout());
}

#[test]
fn each_event_is_typed_and_kept_as_it_came() {
    let begun = json!({"id": "resp_1", "status": "in_progress", "output": []});
    let call = |kind: &str| json!({"type": format!("response.image_generation_call.{kind}"), "output_index": 1, "item_id": "ig_1"});
    let mut partial = call("partial_image");
    (partial["partial_image_index"], partial["partial_image_b64"]) = (json!(2), json!("aGVsbG8="));
    let whole: Value = serde_json::from_str(WHOLE).unwrap();
    let frames = [
        frame(&json!({"type": "response.created", "response": begun})),
        frame(&json!({"type": "response.in_progress", "response": begun})),
        frame(
            &json!({"type": "response.output_item.added", "output_index": 1, "item": {"id": "ig_1", "type": "image_generation_call", "status": "in_progress"}}),
        ),
        ": heartbeat\n\n".to_owned(),
        frame(&call("generating")),
        frame(&partial),
        format!(
            "event: response.output_item.done\ndata: {{\"type\":\"response.output_item.done\",\"output_index\":1,\"item\":{},\"x\":1.0}}\n\n",
            drawn().text()
        ),
        frame(&json!({"type": "response.output_text.delta", "delta": "Here "})),
        frame(&json!({"type": "response.output_text.done", "text": "Here it is."})),
        frame(&json!({"type": "response.sung", "notes": ["c"]})),
        frame(&json!({"type": "keepalive", "sequence_number": 9})),
        frame(&json!({"type": "response.completed", "response": whole})),
        "data: [DONE]\n\n".to_owned(),
    ];
    let (events, end) = told(Play::events(&frames.concat()));
    assert!(end.is_none(), "{end:?}");
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
    assert_eq!((item.json(), delta.as_str(), text.as_str()), (&drawn(), "Here ", "Here it is."));
    assert_eq!(events[8].json().text(), r#"{"notes":["c"],"type":"response.sung"}"#);
    assert!(events[5].json().text().ends_with(r#""mood":1.50},"x":1.0}"#), "{:?}", events[5]);
    assert_eq!((last.text().as_str(), last.images().count()), ("Here it is.", 1));
}

#[test]
fn a_failure_is_the_failed_response_and_then_one_error() {
    let error = json!({"type": "error", "sequence_number": 5, "code": "upstream_error", "message": "It failed.", "param": null,
        "error": {"message": "It failed.", "type": "upstream_error", "param": null, "code": "upstream_error", "reason": "upstream_failed"}});
    let failed = json!({"type": "response.failed", "response": {"id": "resp_1", "status": "failed", "output": [],
        "error": {"code": "server_error", "message": "Something else."}}});
    let delta = frame(&json!({"type": "response.output_text.delta", "delta": "He"}));

    let (events, end) = told(Play::events(&[delta.clone(), frame(&error), frame(&failed)].concat()));
    assert_eq!(kinds(&events), ["response.output_text.delta", "response.failed"]);
    let end = end.unwrap();
    assert_eq!(
        (end.code(), end.reason(), end.message()),
        (Some("upstream_error"), Some("upstream_failed"), "It failed.")
    );
    assert_eq!(end.status(), Some(200));

    let (events, end) = told(Play::events(&[delta.clone(), frame(&error)].concat()));
    assert_eq!((kinds(&events).len(), end.unwrap().code()), (1, Some("upstream_error")));

    let (events, end) = told(Play::events(&[delta, frame(&failed)].concat()));
    let end = end.unwrap();
    assert_eq!((kinds(&events).len(), end.code(), end.message()), (2, Some("server_error"), "Something else."));

    let (_, end) = told(Play::events("event: error\ndata: it broke\n\n"));
    assert!(!end.unwrap().is_retryable());
}

#[test]
fn a_failure_does_not_wait_for_an_end_that_never_comes() {
    let error = frame(&json!({"type": "error", "code": "upstream_error", "message": "It failed."}));
    let server = Server::play([Play::events(&(error + "xxxxx")).then_silent()]);
    let end = run(async {
        let stream = client(&server).responses().stream(fox()).await.unwrap();
        // Far below the limit of the request, and far above the limit for the end of an answer.
        tokio::time::timeout(Duration::from_secs(60), stream.collect_response()).await
    });
    assert_eq!(end.expect("an end").unwrap_err().code(), Some("upstream_error"));
}

#[test]
fn a_stream_that_just_stops_is_an_error() {
    let begun = frame(&json!({"type": "response.created", "response": {"id": "resp_1", "output": []}}));
    let done = frame(&json!({"type": "response.completed", "response": {"id": "resp_1", "output": []}}));
    for stream in [String::new(), begun.clone(), begun.clone() + &done[..40], begun.clone() + "data: {\n\n"] {
        let (_, end) = told(Play::events(&stream));
        assert!(end.is_some_and(|error| !error.is_retryable()), "{stream}");
    }
    let (events, end) = told(Play::events(&(begun.clone() + done.trim_end())));
    assert!(end.is_none() && events.len() == 2, "only the last empty line is missing");
    let cut =
        json!({"type": "response.incomplete", "response": {"id": "resp_1", "status": "incomplete", "output": []}});
    let response = run(async {
        let server = Server::play([Play::events(&(begun + &frame(&cut)))]);
        client(&server).responses().stream(fox()).await.unwrap().collect_response().await
    });
    assert_eq!(response.unwrap().status(), Some("incomplete"));
}

#[test]
fn a_service_that_cannot_stream_is_understood_all_the_same() {
    let (events, end) = told(Play::page(200, WHOLE).header("content-type", "application/json"));
    let [ResponseStep::Completed { response }] = [events[0].step()] else { panic!("{events:?}") };
    assert_eq!((response.json().text(), end.is_none()), (WHOLE, true));
    let (events, end) = told(Play::page(200, "{}").header("content-type", "application/json"));
    assert!(events.is_empty() && end.is_some());
}

#[test]
fn nothing_of_megabytes_is_shown_to_people() {
    let body = WHOLE.replace("aGVsbG8=", &"A".repeat(1 << 20));
    let shown = format!("{:?}", create(Play::page(200, &body)).unwrap());
    assert!(shown.len() < 4096, "{} bytes", shown.len());
}

#[test]
fn a_call_can_move_to_another_thread() {
    fn moves<T: Send>(_: T) {}
    let client = Client::new("https://host", "sk-img-test").unwrap();
    moves(client.responses().create(fox()));
    moves(client.responses().stream(fox()));
}
