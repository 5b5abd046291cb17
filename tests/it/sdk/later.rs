//! Answers of an upstream that speaks a newer contract than the document, read by the SDK directly and through the
//! gateway: each is paid for, so each is decoded, and whatever is new in it arrives as it was sent.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use imagate::client::{Client, EditRequest, GenerateRequest, Images, ResponseRequest};
use serde_json::{Map, Value, json};

use super::run;
use crate::kit::{Account, Gateway, Verbatim, picture};

/// The operation and transport that an answer comes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Whole,
    Stream,
    Edit,
    EditStream,
    /// Asked of the image endpoint, made by an upstream that speaks `/responses`.
    Drawn,
    Task,
    TaskStream,
}

/// The body of an upstream's answer, and the values that a caller is to read from it.
struct Said {
    content_type: &'static str,
    body: String,
    /// The answer of the image endpoints, or the whole response.
    expected: Value,
}

/// What the gateway does not pass on as it was said in answers of images; what it puts there instead is not looked at.
/// The list is to become empty, but for `model`, which is spelled as in the request.
const CHANGED_BY_GATEWAY: [&str; 9] = [
    "complexity",
    "frame_count",
    "frame_duration_ms",
    "model",
    "output_format",
    "quality",
    "safety_identifier",
    "svg",
    "svg_usage",
];

const WAYS: [Way; 7] = [Way::Whole, Way::Stream, Way::Edit, Way::EditStream, Way::Drawn, Way::Task, Way::TaskStream];

const GIF: &[u8] =
    b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
const SVG: &[u8] = b"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"16\" height=\"16\"/>";

/// The changes of the contract since the document was written, each by itself and all together. `image` is what changes
/// in the image, everything else in the answer.
fn changes() -> Vec<(&'static str, Value)> {
    let (gif, odd) = (STANDARD.encode(GIF), STANDARD.encode(&*picture(1000, 1000, "png")));
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
        ("gif", json!({"output_format": "gif", "frame_count": 1, "image": {"b64_json": gif}})),
        ("svg", json!({"output_format": "svg", "svg_usage": {}, "image": {"b64_json": STANDARD.encode(SVG)}})),
    ];
    let mut all = Map::new();
    for (name, change) in &changes {
        if !["gif", "svg", "size of another grid", "quality max"].contains(name) {
            all.extend(change.as_object().expect("members").clone());
        }
    }
    changes.insert(0, ("all of them", all.into()));
    changes
}

/// An answer of the image endpoints with a change.
fn answer(change: &Value) -> Value {
    let file = picture(1024, 1024, "png");
    let mut answer = json!({
        "created": 1_776_000_000, "model": "gpt-image-2", "background": "opaque", "quality": "high",
        "output_format": "png", "size": "1024x1024",
        "data": [{"b64_json": STANDARD.encode(&*file), "revised_prompt": "A fox."}],
        "usage": {"input_tokens": 1, "input_tokens_details": {"image_tokens": 0, "text_tokens": 1}, "output_tokens": 2,
                  "output_tokens_details": {"image_tokens": 2, "text_tokens": 0}, "total_tokens": 3},
    });
    for (name, value) in change.as_object().expect("members") {
        if name == "image" {
            let image = answer["data"][0].as_object_mut().expect("an image");
            image.extend(value.as_object().expect("members").clone());
        } else {
            answer[name] = value.clone();
        }
    }
    answer
}

/// The same as an event.
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

/// The same as a response in which the image tool was used.
fn response(answer: &Value) -> Value {
    let mut item = event("image_generation_call", answer);
    let members = item.as_object_mut().expect("members");
    let result = members.remove("b64_json").expect("an image");
    let usage = members.remove("usage").expect("tokens");
    members.remove("created_at");
    members.remove("model");
    members.extend([("id".to_owned(), "ig_1".into()), ("status".to_owned(), "completed".into())]);
    members.insert("result".to_owned(), result);
    json!({
        "id": "resp_1", "object": "response", "created_at": 1_776_000_000, "status": "completed", "error": null,
        "model": "gpt-5.6-sunburst", "output": [{"type": "markup_call", "id": "mk_1", "strokes": [1.5e2]}, item],
        "incomplete_details": null, "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
        "usage": {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 2,
                  "output_tokens_details": {"reasoning_tokens": 0, "drawing_tokens": 1}, "total_tokens": 3},
        "tool_usage": {"image_gen": usage, "svg_gen": {"total_tokens": 7}}, "service_level": "flare",
    })
}

fn frames(events: &[Value]) -> String {
    let frame = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("a type"));
    events.iter().map(frame).collect()
}

/// The events of a response, with one of a type that nobody knows.
fn task_events(response: &Value) -> Vec<Value> {
    let mut begun = response.clone();
    (begun["status"], begun["output"]) = ("in_progress".into(), json!([]));
    let mut events = vec![
        json!({"type": "response.created", "response": begun}),
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

fn said(way: Way, change: &Value) -> Said {
    const JSON: &str = "application/json";
    const EVENTS: &str = "text/event-stream";
    let answer = answer(change);
    let stream = |family: &str| {
        let unknown = json!({"type": format!("{family}.palette"), "colors": ["#ff8800"]});
        frames(&[unknown, event(&format!("{family}.completed"), &answer)])
    };
    let response = response(&answer);
    let (content_type, body) = match way {
        Way::Whole | Way::Edit => (JSON, answer.to_string()),
        Way::Stream => (EVENTS, stream("image_generation")),
        Way::EditStream => (EVENTS, stream("image_edit")),
        Way::Task => (JSON, response.to_string()),
        Way::TaskStream | Way::Drawn => (EVENTS, frames(&task_events(&response))),
    };
    let expected = match way {
        Way::Task | Way::TaskStream => response,
        Way::Stream | Way::EditStream => of_event(answer),
        Way::Whole | Way::Edit | Way::Drawn => answer,
    };
    Said { content_type, body, expected }
}

/// An event is flat: a member that nobody knows may belong to the image or to the answer.
fn of_event(mut answer: Value) -> Value {
    let image = answer["data"][0].as_object_mut().expect("an image");
    let names = image.keys().filter(|name| !["b64_json", "revised_prompt"].contains(&name.as_str()));
    let names: Vec<String> = names.cloned().collect();
    let unknown: Vec<_> = names.iter().filter_map(|name| image.remove_entry(name)).collect();
    answer.as_object_mut().expect("members").extend(unknown);
    answer
}

/// Asks, and gives what was read as it would be written again, or why nothing was.
fn read(client: &Client, way: Way, prompt: &str) -> Result<Value, String> {
    let request = GenerateRequest::new(prompt);
    let edit = EditRequest::new(prompt).image(picture(1024, 1024, "png").to_vec());
    let task = ResponseRequest::new("gpt-5.5", prompt);
    let answered = run(async {
        let images = match way {
            Way::Whole | Way::Drawn => client.images().generate(request).await?,
            Way::Edit => client.images().edit(edit).await?,
            Way::Stream => client.images().generate_stream(request).await?.collect_image().await?.answer().clone(),
            Way::EditStream => client.images().edit_stream(edit).await?.collect_image().await?.answer().clone(),
            Way::Task => return Ok(serde_json::to_value(client.responses().create(task).await?).expect("JSON")),
            Way::TaskStream => {
                let response = client.responses().stream(task).await?.collect_response().await?;
                return Ok(serde_json::to_value(response).expect("JSON"));
            }
        };
        Ok::<_, imagate::client::Error>(kept(&images).await)
    });
    answered.map_err(|error| format!("{error:?}"))
}

/// The answer, after its image was written to a file.
async fn kept(images: &Images) -> Value {
    let folder = tempfile::TempDir::new().expect("a directory");
    let path = images.first().write_to(folder.path().join("fox")).await.expect("a file");
    assert_eq!(std::fs::read(path).expect("the file"), images.first().bytes().expect("bytes"));
    serde_json::to_value(images.response()).expect("JSON")
}

/// The members of the answer that are not as they were said. What is beside them may have been added.
fn differences(expected: &Value, read: &Value) -> Vec<String> {
    let members = expected.as_object().expect("members").iter();
    let members = members.filter(|(name, value)| read.get(*name) != Some(*value));
    members
        .map(|(name, value)| format!("{name}: {} instead of {}", short(read.get(name)), short(Some(value))))
        .collect()
}

/// Without the bulk of an image.
fn short(value: Option<&Value>) -> String {
    let mut value = value.cloned().unwrap_or_default();
    if let Some(image) = value.pointer_mut("/0/b64_json") {
        *image = "…".into();
    }
    value.to_string()
}

#[test]
fn everything_new_that_an_upstream_says_is_read_and_kept() {
    let upstream = Verbatim::start();
    let client = Client::new(&upstream.base_url(), "sk-test").expect("a client");
    let (mut rows, mut lost) = (0, Vec::new());
    for (name, change) in changes() {
        for way in WAYS.into_iter().filter(|way| *way != Way::Drawn) {
            let said = said(way, &change);
            upstream.say(said.content_type, said.body);
            match read(&client, way, name) {
                Ok(read) if read == said.expected => {}
                Ok(read) => lost.push(format!("{name}, {way:?}: {:?} {read}", differences(&said.expected, &read))),
                Err(error) => lost.push(format!("{name}, {way:?}: {error}")),
            }
            rows += 1;
        }
    }
    assert!(rows >= 50 && lost.is_empty(), "{} of {rows}:\n{}", lost.len(), lost.join("\n"));
    assert_eq!(upstream.attempts(), rows, "each is asked for once");
}

#[test]
fn everything_new_that_an_upstream_says_passes_the_gateway() {
    let upstream = Verbatim::start();
    let account = |name: &str| Account::with_base_url(name, upstream.base_url());
    let (mut rows, mut lost) = (0, Vec::new());
    for ways in [&WAYS[..4], &WAYS[4..]] {
        let accounts = if ways[0] == Way::Drawn { [account("talks").speaking_responses()] } else { [account("draws")] };
        let mut gateway = Gateway::with("", &accounts);
        let all = changes().into_iter().flat_map(|change| ways.iter().map(move |way| (*way, change.clone())));
        for (way, (name, change)) in all {
            let said = said(way, &change);
            upstream.say(said.content_type, said.body);
            let client = Client::new(&gateway.base_url(), gateway.secret()).expect("a client");
            rows += 1;
            let read = read(&client, way, &format!("{name} {way:?}"));
            if read.is_err() {
                // The account may be out of use now.
                gateway = Gateway::with("", &accounts);
            }
            let found = read.map_or_else(|error| vec![error], |read| harms(way, &said.expected, &read));
            lost.extend(found.iter().map(|found| format!("{name}, {way:?}: {found}")));
        }
    }
    assert!(rows >= 50 && lost.is_empty(), "{} in {rows}:\n{}", lost.len(), lost.join("\n"));
    assert_eq!(upstream.attempts(), rows, "each is paid for once");
}

/// What the gateway has done to an answer beyond what is known of it. A response passes to the letter.
fn harms(way: Way, expected: &Value, read: &Value) -> Vec<String> {
    if matches!(way, Way::Task | Way::TaskStream) {
        return differences(expected, read);
    }
    let mut expected = expected.clone();
    let members = expected.as_object_mut().expect("members");
    members.retain(|name, _| {
        !CHANGED_BY_GATEWAY.contains(&name.as_str()) && !["frame_index", "markup"].contains(&name.as_str())
    });
    // Members that nobody knows are left out here too; what is left is as it was said.
    keep(members.get_mut("usage").expect("tokens"), &read["usage"]);
    keep(&mut members["data"][0], &read["data"][0]);
    differences(&expected, read)
}

/// Keeps the members that were read, and all that must have been.
fn keep(said: &mut Value, read: &Value) {
    const REQUIRED: [&str; 4] = ["b64_json", "input_tokens", "output_tokens", "total_tokens"];
    let Some(said) = said.as_object_mut() else { return };
    said.retain(|name, value| {
        keep(value, &read[name]);
        REQUIRED.contains(&name.as_str()) || read.get(name).is_some()
    });
}
