//! Tests of answers of a service that is newer than this crate: nothing is lost, and unknown members are kept
//! unchanged.

use serde_json::{Value, json};

use super::{answer, client, run, serve};
use crate::client::{Error, ErrorKind, ImageEvent, Images, OpenWord};
use crate::testing::Answer;
use crate::wire::types::{OutputFormat, ResolvedQuality};

fn generate(body: &Value) -> Result<Images, Error> {
    run(client(&serve([answer(200, body)])).images().generate("a fox"))
}

/// Returns an answer with words and members that this version does not know.
fn newer_answer() -> Value {
    json!({
        "created": 1_776_000_000, "model": "gpt-image-2.6-sunburst", "background": "transparent", "quality": "xhigh",
        "output_format": "gif", "size": "1024x1024", "frame_count": 12, "svg_usage": {"output_tokens": 7},
        "safety_identifier": "end-user-1",
        "data": [{"b64_json": "aGVsbG8=", "frame_duration_ms": 40}],
        "usage": {"input_tokens": 1, "input_tokens_details": {"image_tokens": 0, "text_tokens": 1, "frame_tokens": 2},
                  "output_tokens": 2, "total_tokens": 3, "reasoning_tokens": 9},
    })
}

#[test]
fn unknown_words_and_members_are_read_and_kept_unchanged() {
    let images = generate(&newer_answer()).unwrap();
    let quality = images.quality().unwrap();
    assert_eq!((quality.known(), quality.to_string().as_str()), (None, "xhigh"));
    assert_eq!(images.output_format(), Some(&OpenWord::Other("gif".to_owned())));
    assert_eq!(images.json().member("svg_usage").unwrap().text(), r#"{"output_tokens":7}"#);
    assert_eq!(images.usage().unwrap().extra["reasoning_tokens"], 9);
    assert_eq!(serde_json::to_value(&images).unwrap(), newer_answer());
}

#[test]
fn a_known_word_can_be_compared() {
    let mut body = newer_answer();
    body["quality"] = "high".into();
    body["output_format"] = "webp".into();
    let images = generate(&body).unwrap();
    assert_eq!(images.quality().unwrap(), &ResolvedQuality::High);
    assert_eq!(images.output_format().and_then(OpenWord::known), Some(&OutputFormat::Webp));
}

#[test]
fn members_of_an_unexpected_type_are_kept_under_their_names() {
    let mut body = newer_answer();
    body["quality"] = json!({"level": 7});
    body["background"] = Value::Null;
    body["usage"] = json!([{"output_tokens": 2}]);
    body["data"][0]["revised_prompt"] = json!(["a", "fox"]);
    let images = generate(&body).unwrap();
    assert!(images.quality().is_none() && images.usage().is_none(), "{images:?}");
    assert_eq!(images.first().bytes().unwrap(), b"hello");
    assert_eq!(serde_json::to_value(&images).unwrap(), body);
}

#[test]
fn numbers_and_depths_that_cannot_be_read_lose_no_image() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for unreadable in ["1e999", &deep] {
        let body = format!(
            r#"{{"created":7,"weight":{unreadable},"data":[{{"b64_json":"aGVsbG8=","depth":{unreadable},"kept":1.5}}]}}"#
        );
        let server = serve([Answer::new(200, &body)]);
        let images = run(client(&server).images().generate("a fox")).unwrap();
        assert_eq!((images.first().bytes().unwrap().as_slice(), images.created()), (b"hello".as_slice(), Some(7)));
        assert_eq!(images.json().text(), body, "everything is kept as it was received");
    }
}

#[test]
fn an_answer_that_is_no_json_loses_no_image() {
    for weight in ["Infinity", "NaN", "nope"] {
        let body = format!(
            r#"{{"data":[{{"b64_json":"aGVsbG8="}},{{"b64_json":""}},{{"b64_json":"aGVs\/G8="}}],"weight":{weight}}}"#
        );
        let images = run(client(&serve([Answer::new(200, &body)])).images().generate("a fox")).unwrap();
        assert_eq!((images.len(), images.missing()), (2, 1));
        assert_eq!(images.first().bytes().unwrap(), b"hello");
        assert_eq!(images.iter().nth(1).unwrap().base64(), "aGVs/G8=");
        assert_eq!(images.json().read::<String>().unwrap(), body);
        let event = format!("event: image_generation.completed\ndata: {body}\n\n");
        assert!(matches!(events_of_stream(&event).as_slice(), [ImageEvent::Completed { .. }]));
    }
}

#[test]
fn an_unexpected_creation_time_loses_no_image() {
    for (created, expected) in [(json!(7.75), Some(7)), (Value::Null, None), (json!("today"), None)] {
        let mut body = newer_answer();
        body["created"] = created;
        assert_eq!(generate(&body).unwrap().created(), expected);
    }
}

#[test]
fn empty_entries_are_counted_as_missing_and_images_are_kept() {
    let mut body = newer_answer();
    body["data"] =
        json!([{"b64_json": ""}, {"b64_json": "aGVsbG8="}, {"b64_json": null}, {"url": "https://a.example/x"}]);
    let images = generate(&body).unwrap();
    assert_eq!((images.len(), images.missing(), images.iter().count()), (2, 2, 2));
    assert_eq!(images.first().bytes().unwrap(), b"hello");
    assert_eq!(images.iter().nth(1).unwrap().url(), Some("https://a.example/x"));
}

#[test]
fn an_event_has_the_same_metadata_as_an_answer() {
    let mut event = newer_answer();
    event["type"] = "image_generation.completed".into();
    let image = event["data"][0]["b64_json"].take();
    let members = event.as_object_mut().unwrap();
    members.remove("data");
    members.insert("b64_json".to_owned(), image);
    let created = members.remove("created").unwrap();
    members.insert("created_at".to_owned(), created);
    let events = events_of_one(&event);
    let [ImageEvent::Completed { image, .. }] = events.as_slice() else { panic!("{events:?}") };
    let (read, expected) = (image.answer(), generate(&newer_answer()).unwrap());
    let facts = |images: &Images| format!("{:?} {:?} {:?}", images.created(), images.model(), images.quality());
    let more = |images: &Images| format!("{:?} {:?} {:?}", images.size(), images.background(), images.usage());
    assert_eq!((facts(read), more(read)), (facts(&expected), more(&expected)));
    assert_eq!(serde_json::to_value(read).unwrap(), event);
}

#[test]
fn an_answer_that_is_not_understood_is_in_the_error() {
    for body in ["<html>a fox</html>", r#"{"pictures": ["aGVsbG8="]}"#] {
        let error = run(client(&serve([Answer::new(200, body)])).images().generate("a fox")).unwrap_err();
        assert_eq!((error.kind(), error.body()), (ErrorKind::Unintelligible, Some(body)), "{error:?}");
    }
}

#[test]
fn an_image_in_an_event_of_an_unknown_type_is_read() {
    let partial = json!({"type": "image_animation.partial_image", "b64_json": "aGVsbG8=", "partial_image_index": 4});
    let completed = json!({"type": "image_animation.completed", "b64_json": "aGVsbG8="});
    let stream = format!("data: {partial}\n\ndata: {completed}\n\n");
    let events = events_of_stream(&stream);
    let [ImageEvent::PartialImage { index: 4, .. }, ImageEvent::Completed { image, .. }] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(image.bytes().unwrap(), b"hello");
}

/// Returns the events that the client reads from a stream of this one event.
fn events_of_one(event: &Value) -> Vec<ImageEvent> {
    events_of_stream(&format!("data: {event}\n\n"))
}

fn events_of_stream(stream: &str) -> Vec<ImageEvent> {
    let server = serve([Answer::events(stream)]);
    run(async {
        let mut stream = client(&server).images().generate_stream("a fox").await.unwrap();
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            events.push(event.unwrap());
        }
        events
    })
}
