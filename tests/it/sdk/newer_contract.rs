//! Answers of an upstream with a newer contract than the API document, read by the SDK directly and by the gateway.
//! Each answer is paid for, so the SDK must decode it and keep the fields that it does not know.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use imagate::client::{Client, EditRequest, GenerateRequest, Images, ResponseRequest};
use serde_json::{Map, Value, json};

use super::run;
use crate::kit::{Account, Gateway, VerbatimUpstream, image_file};

/// The operation of an answer, and whether the answer is a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerKind {
    Plain,
    Stream,
    Edit,
    EditStream,
    /// The answer of an image endpoint, made by an account of the protocol `responses`.
    Translated,
    TranslatedStream,
    Response,
    ResponseStream,
}

/// The body of an upstream's answer, and the values that the caller must read from it.
struct UpstreamAnswer {
    content_type: &'static str,
    body: String,
    /// The answer of the image endpoints, or the complete response.
    expected: Value,
}

const ANSWER_KINDS: [AnswerKind; 8] = [
    AnswerKind::Plain,
    AnswerKind::Stream,
    AnswerKind::Edit,
    AnswerKind::EditStream,
    AnswerKind::Translated,
    AnswerKind::TranslatedStream,
    AnswerKind::Response,
    AnswerKind::ResponseStream,
];

const GIF: &[u8] =
    b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
const SVG: &[u8] = b"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"16\" height=\"16\"/>";

/// The name of the change that removes the model and the prompt, as in events that image APIs send.
const NO_MODEL_AND_PROMPT: &str = "neither a model nor a prompt";

/// Changes of the contract that are newer than the API document: each alone, and most of them together. `image` has the
/// changes of the image; the other members are changes of the answer. `null` removes a member.
fn changes() -> Vec<(&'static str, Value)> {
    let (gif, odd) = (STANDARD.encode(GIF), STANDARD.encode(&*image_file(1000, 1000, "png")));
    let tokens = json!({"input_tokens": 1, "input_tokens_details": {"image_tokens": 0, "text_tokens": 1, "frame_tokens": 2},
                        "output_tokens": 2, "output_tokens_details": {"image_tokens": 2, "text_tokens": 0, "svg_tokens": 3},
                        "total_tokens": 3, "reasoning_tokens": 4});
    let mut changes = vec![
        ("quality xhigh", json!({"quality": "xhigh"})),
        ("quality max", json!({"quality": "max"})),
        ("background transparent", json!({"background": "transparent"})),
        ("model 2.5", json!({"model": "gpt-image-2.5-sunburst"})),
        ("model 2.5, dated", json!({"model": "gpt-image-2.5-flare-2026-09-08"})),
        ("model 2.6", json!({"model": "gpt-image-2.6-flare"})),
        ("complexity", json!({"complexity": "high"})),
        ("frames", json!({"frame_count": 12, "frame_duration_ms": 40})),
        ("usage of svg", json!({"svg_usage": {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8}})),
        ("safety identifier", json!({"safety_identifier": "end-user-1"})),
        ("members of usage", json!({"usage": tokens})),
        (
            "members of the image",
            json!({"image": {"frame_index": 0, "markup": {"tool": "lasso", "points": [[1, 2.5]]}}}),
        ),
        ("members of members", json!({"svg": {"model": "gpt-5.6", "reasoning": {"effort": "xhigh"}}})),
        ("size of another grid", json!({"size": "1000x1000", "image": {"b64_json": odd}})),
        ("gif", json!({"output_format": "gif", "size": "1x1", "frame_count": 1, "image": {"b64_json": gif}})),
        ("svg", json!({"output_format": "svg", "svg_usage": {}, "image": {"b64_json": STANDARD.encode(SVG)}})),
        (NO_MODEL_AND_PROMPT, json!({"model": null, "image": {"revised_prompt": null}})),
    ];
    let mut all = Map::new();
    for (name, change) in &changes {
        if !["gif", "svg", "size of another grid", "quality max", NO_MODEL_AND_PROMPT].contains(name) {
            all.extend(change.as_object().expect("members").clone());
        }
    }
    changes.insert(0, ("all of them", all.into()));
    changes
}

/// An answer of the image endpoints with a change.
fn answer(change: &Value) -> Value {
    let file = image_file(1024, 1024, "png");
    let mut answer = json!({
        "created": 1_776_000_000, "model": "gpt-image-2", "background": "opaque", "quality": "high",
        "output_format": "png", "size": "1024x1024",
        "data": [{"b64_json": STANDARD.encode(&*file), "revised_prompt": "A fox."}],
        "usage": {"input_tokens": 1, "input_tokens_details": {"image_tokens": 0, "text_tokens": 1}, "output_tokens": 2,
                  "output_tokens_details": {"image_tokens": 2, "text_tokens": 0}, "total_tokens": 3},
    });
    for (name, value) in change.as_object().expect("members") {
        if name == "image" {
            change_members(&mut answer["data"][0], value);
        } else {
            change_members(&mut answer, &json!({name: value}));
        }
    }
    answer
}

fn change_members(target: &mut Value, change: &Value) {
    let target = target.as_object_mut().expect("members");
    target.extend(change.as_object().expect("members").clone());
    target.retain(|_, value| !value.is_null());
}

/// The answer as the event that completes a stream.
fn event(kind: &str, answer: &Value) -> Value {
    let mut event = answer.clone();
    let members = event.as_object_mut().expect("members");
    let created = members.remove("created").expect("a time");
    let data = members.remove("data").expect("images");
    members.extend(data[0].as_object().expect("an image").clone());
    members.insert("created_at".to_owned(), created);
    members.insert("type".to_owned(), kind.into());
    event
}

/// The answer as a response in which the image tool made the image.
fn response(answer: &Value) -> Value {
    let mut item = event("image_generation_call", answer);
    let members = item.as_object_mut().expect("members");
    let result = members.remove("b64_json").expect("an image");
    let usage = members.remove("usage").expect("tokens");
    members.remove("created_at");
    let tools = match members.remove("model") {
        Some(model) => json!([{"type": "image_generation", "model": model}]),
        None => json!([]),
    };
    members.extend([("id".to_owned(), "ig_1".into()), ("status".to_owned(), "completed".into())]);
    members.insert("result".to_owned(), result);
    json!({
        "id": "resp_1", "object": "response", "created_at": 1_776_000_000, "status": "completed", "error": null,
        "model": "gpt-5.6-sunburst", "output": [{"type": "markup_call", "id": "mk_1", "strokes": [1.5e2]}, item],
        "incomplete_details": null, "parallel_tool_calls": true, "tool_choice": "auto", "tools": tools,
        "usage": {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 2,
                  "output_tokens_details": {"reasoning_tokens": 0, "drawing_tokens": 1}, "total_tokens": 3},
        "tool_usage": {"image_gen": usage, "svg_gen": {"total_tokens": 7}}, "service_level": "flare",
    })
}

fn frames(events: &[Value]) -> String {
    let frame = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("a type"));
    events.iter().map(frame).collect()
}

/// The events of a response, with one event of an unknown type.
fn response_events(response: &Value) -> Vec<Value> {
    let mut started = response.clone();
    (started["status"], started["output"]) = ("in_progress".into(), json!([]));
    let mut events = vec![
        json!({"type": "response.created", "response": started}),
        json!({"type": "response.palette.chosen", "colors": ["#ff8800"]}),
    ];
    for (index, item) in response["output"].as_array().expect("items").iter().enumerate() {
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    events.push(json!({"type": "response.completed", "response": response}));
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = number.into();
    }
    events
}

/// The answer of the upstream with a change, as this kind of answer.
fn upstream_answer(kind: AnswerKind, change: &Value) -> UpstreamAnswer {
    const JSON: &str = "application/json";
    const EVENTS: &str = "text/event-stream";
    let answer = answer(change);
    let stream = |family: &str| {
        let unknown = json!({"type": format!("{family}.palette"), "colors": ["#ff8800"]});
        frames(&[unknown, event(&format!("{family}.completed"), &answer)])
    };
    let response = response(&answer);
    let (content_type, body) = match kind {
        AnswerKind::Plain | AnswerKind::Edit => (JSON, answer.to_string()),
        AnswerKind::Stream => (EVENTS, stream("image_generation")),
        AnswerKind::EditStream => (EVENTS, stream("image_edit")),
        AnswerKind::Response => (JSON, response.to_string()),
        AnswerKind::ResponseStream | AnswerKind::Translated | AnswerKind::TranslatedStream => {
            (EVENTS, frames(&response_events(&response)))
        }
    };
    let expected = match kind {
        AnswerKind::Response | AnswerKind::ResponseStream => response,
        AnswerKind::Stream | AnswerKind::EditStream | AnswerKind::Translated | AnswerKind::TranslatedStream => {
            with_flat_members(answer)
        }
        AnswerKind::Plain | AnswerKind::Edit => answer,
    };
    UpstreamAnswer { content_type, body, expected }
}

/// Moves unknown members of the image to the answer: events and items of responses are flat, so the reader cannot know
/// to which of the two an unknown member belongs.
fn with_flat_members(mut answer: Value) -> Value {
    let image = answer["data"][0].as_object_mut().expect("an image");
    let names = image.keys().filter(|name| !["b64_json", "revised_prompt"].contains(&name.as_str()));
    let names: Vec<String> = names.cloned().collect();
    let unknown: Vec<_> = names.iter().filter_map(|name| image.remove_entry(name)).collect();
    answer.as_object_mut().expect("members").extend(unknown);
    answer
}

/// Sends a request; returns the answer that the SDK has read, serialized again, or the error.
fn request_answer(client: &Client, kind: AnswerKind, prompt: &str) -> Result<Value, String> {
    let request = GenerateRequest::new(prompt);
    let edit = EditRequest::new(prompt).image(image_file(1024, 1024, "png").to_vec());
    let task = ResponseRequest::new("gpt-5.5", prompt);
    let result = run(async {
        let images = match kind {
            AnswerKind::Plain | AnswerKind::Translated => client.images().generate(request).await?,
            AnswerKind::Edit => client.images().edit(edit).await?,
            AnswerKind::Stream | AnswerKind::TranslatedStream => {
                client.images().generate_stream(request).await?.collect_image().await?.answer().clone()
            }
            AnswerKind::EditStream => client.images().edit_stream(edit).await?.collect_image().await?.answer().clone(),
            AnswerKind::Response => {
                return Ok(serde_json::to_value(client.responses().create(task).await?).expect("JSON"));
            }
            AnswerKind::ResponseStream => {
                let response = client.responses().stream(task).await?.collect_response().await?;
                return Ok(serde_json::to_value(response).expect("JSON"));
            }
        };
        Ok::<_, imagate::client::Error>(write_and_serialize(&images).await)
    });
    result.map_err(|error| format!("{error:?}"))
}

/// Writes the image to a file, checks the file, and returns the answer, serialized.
async fn write_and_serialize(images: &Images) -> Value {
    let folder = tempfile::TempDir::new().expect("a directory");
    let path = images.first().write_to(folder.path().join("fox")).await.expect("a file");
    assert_eq!(std::fs::read(path).expect("the file"), images.first().bytes().expect("bytes"));
    as_answer(serde_json::to_value(images).expect("JSON"))
}

/// An event as the answer that the same request would have got without a stream; an answer unchanged.
fn as_answer(mut read: Value) -> Value {
    let members = read.as_object_mut().expect("members");
    if members.contains_key("data") {
        return read;
    }
    members.remove("type").expect("a type");
    let image: Map<String, Value> =
        ["b64_json", "revised_prompt"].iter().filter_map(|name| members.remove_entry(*name)).collect();
    let created = members.remove("created_at").expect("a time");
    members.insert("created".to_owned(), created);
    members.insert("data".to_owned(), json!([image]));
    read
}

/// The expected members that are missing or different. Additional members are ignored.
fn differences(expected: &Value, read: &Value) -> Vec<String> {
    let members = expected.as_object().expect("members").iter();
    let members = members.filter(|(name, value)| read.get(*name) != Some(*value));
    members
        .map(|(name, value)| {
            format!("{name}: {} instead of {}", without_image(read.get(name)), without_image(Some(value)))
        })
        .collect()
}

/// A value as text, with `…` instead of the image.
fn without_image(value: Option<&Value>) -> String {
    let mut value = value.cloned().unwrap_or_default();
    if let Some(image) = value.pointer_mut("/0/b64_json") {
        *image = "…".into();
    }
    value.to_string()
}

#[test]
fn the_sdk_reads_and_keeps_unknown_fields() {
    let upstream = VerbatimUpstream::start();
    let client = Client::new(&upstream.base_url(), "sk-test").expect("a client");
    let (mut count, mut failures) = (0, Vec::new());
    for (name, change) in changes() {
        for kind in ANSWER_KINDS
            .into_iter()
            .filter(|kind| !matches!(kind, AnswerKind::Translated | AnswerKind::TranslatedStream))
        {
            let answer = upstream_answer(kind, &change);
            upstream.set_answer(answer.content_type, answer.body);
            match request_answer(&client, kind, name) {
                Ok(read) if read == answer.expected => {}
                Ok(read) => {
                    failures.push(format!("{name}, {kind:?}: {:?} {read}", differences(&answer.expected, &read)));
                }
                Err(error) => failures.push(format!("{name}, {kind:?}: {error}")),
            }
            count += 1;
        }
    }
    println!("the SDK reads {count} answers, {} of them with failures", failures.len());
    assert!(count >= 50 && failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(upstream.attempt_count(), count, "each answer must be requested once");
}

#[test]
fn unknown_fields_pass_the_gateway() {
    let (count, failures) = through_gateway(&changes(), |kind, prompt, expected, read| {
        let expected = filled_in(kind, prompt, expected.clone());
        (*read != expected).then(|| format!("{:?} {}", differences(&expected, read), without_image(Some(read))))
    });
    println!("{count} answers pass the gateway and the SDK, {} of them with failures", failures.len());
    assert!(count >= 50 && failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_gateway_removes_fields_that_identify_the_account() {
    let names = ["organization", "account_id", "user", "user_id", "email", "plan_type", "x-request-id", "api_key"];
    let identifying: Map<String, Value> = names.into_iter().map(|name| (name.to_owned(), "canary".into())).collect();
    let address = "https://upstream.example/canary.png?sig=1";
    let mut image = identifying.clone();
    image.insert("url".to_owned(), address.into());
    let mut change = identifying.clone();
    change.extend([
        ("complexity".to_owned(), "high".into()),
        ("image".to_owned(), image.into()),
        ("svg".to_owned(), json!({"at": [identifying, address]})),
    ]);
    let (count, leaks) = through_gateway(&[("an account", change.into())], |kind, _, _, read| {
        // A response passes unchanged, so it may contain the account's names.
        let is_passthrough = matches!(kind, AnswerKind::Response | AnswerKind::ResponseStream);
        let leaks_account = read.to_string().contains("canary") || read["complexity"] != "high";
        (leaks_account && !is_passthrough).then(|| without_image(Some(read)))
    });
    assert!(leaks.is_empty(), "{} of {count}:\n{}", leaks.len(), leaks.join("\n"));
}

/// Requests each change as each kind of answer from a gateway. Returns the number of answers and the faults that
/// `check` finds; `check` gets the kind, the prompt, the expected value and the value that was read.
fn through_gateway(
    changes: &[(&'static str, Value)],
    check: impl Fn(AnswerKind, &str, &Value, &Value) -> Option<String>,
) -> (usize, Vec<String>) {
    let upstream = VerbatimUpstream::start();
    let account = |name: &str| Account::with_base_url(name, upstream.base_url());
    let (mut count, mut faults) = (0, Vec::new());
    for kinds in [&ANSWER_KINDS[..4], &ANSWER_KINDS[4..]] {
        let accounts = if kinds[0] == AnswerKind::Translated {
            [account("talks").with_responses_protocol()]
        } else {
            [account("draws")]
        };
        let mut gateway = Gateway::with("", &accounts);
        for (kind, (name, change)) in changes.iter().flat_map(|change| kinds.iter().map(move |kind| (*kind, change))) {
            let answer = upstream_answer(kind, change);
            upstream.set_answer(answer.content_type, answer.body);
            let client = Client::new(&gateway.base_url(), gateway.secret()).expect("a client");
            let prompt = format!("{name} {kind:?}");
            let read = request_answer(&client, kind, &prompt);
            if read.is_err() {
                // The account may be ejected or in cooldown now.
                gateway = Gateway::with("", &accounts);
            }
            let fault = read.map_or_else(Some, |read| check(kind, &prompt, &answer.expected, &read));
            faults.extend(fault.map(|fault| format!("{prompt}: {fault}")));
            count += 1;
        }
    }
    assert_eq!(upstream.attempt_count(), count, "each answer must be requested upstream once");
    (count, faults)
}

/// The answer with the fields that the gateway adds: the requested model and prompt, if the upstream names none. The
/// gateway adds no fields to events, and passes responses unchanged.
fn filled_in(kind: AnswerKind, prompt: &str, mut answer: Value) -> Value {
    if matches!(kind, AnswerKind::Plain | AnswerKind::Edit | AnswerKind::Translated) {
        answer.as_object_mut().expect("members").entry("model").or_insert_with(|| "gpt-image-2".into());
        let image = answer["data"][0].as_object_mut().expect("an image");
        image.entry("revised_prompt").or_insert_with(|| prompt.into());
    }
    answer
}
