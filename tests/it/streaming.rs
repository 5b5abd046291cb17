//! Streams of both operations: the caller gets the frames of the contract, each as soon as it arrives, whatever the
//! framing of the upstream is.
//!
//! `broken` tests failures, `leaving` tests callers who leave, and `load` tests delay and memory.

mod broken;
mod leaving;
mod load;

use std::sync::mpsc::{Sender, channel};

use serde_json::{Value, json};

use crate::kit::{Account, Call, Event, Events, FakeUpstream, Form, Gateway, TEST_TIMEOUT, alpha_png, env_setting};

/// The fields of each event of the contract, in addition to its type.
const FIELDS: [&str; 6] = ["b64_json", "created_at", "size", "quality", "background", "output_format"];

/// The two operations, which differ only in the names of their events.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Generate,
    Edit,
}

impl Operation {
    fn family(self) -> &'static str {
        match self {
            Self::Generate => "image_generation",
            Self::Edit => "image_edit",
        }
    }

    /// A streaming request with a script for the upstream.
    fn call(self, gateway: &Gateway, script: &str, partials: u64) -> Call {
        let prompt = format!("a cube [[{script}]]");
        match self {
            Self::Generate => {
                gateway.call(json!({"prompt": prompt, "stream": true, "partial_images": partials, "size": "1024x1024"}))
            }
            Self::Edit => {
                let form = Form::new().text("model", "gpt-image-2").text("prompt", &prompt).text("stream", "true");
                let form = form.text("partial_images", &partials.to_string()).text("size", "1024x1024");
                form.file("image[]", &alpha_png(64, 64)).call().key(gateway.secret())
            }
        }
    }

    fn events(self, gateway: &Gateway, script: &str, partials: u64) -> Vec<Event> {
        Events::from_reply(self.call(gateway, script, partials).open(gateway.address()).expect("an answer")).remaining()
    }
}

/// Asserts that an event has every field that the types of the SDKs require, with values that strict clients accept.
#[track_caller]
fn assert_complete(event: &Event) {
    let data = &event.data;
    for key in FIELDS {
        assert!(data.get(key).is_some_and(|value| !value.is_null()), "{key} is missing: {}", without_image(data));
    }
    assert!(data["b64_json"].as_str().is_some_and(|image| !image.is_empty()));
    assert!(
        data["created_at"].as_u64().is_some_and(|created| created > 1_700_000_000 && created <= u64::from(u32::MAX)),
        "{}",
        data["created_at"]
    );
    assert_eq!(data["background"], "opaque");
    assert!(["low", "medium", "high"].contains(&data["quality"].as_str().unwrap_or_default()), "{}", data["quality"]);
    assert!(data["size"].as_str().is_some_and(|size| size.contains('x')), "{}", data["size"]);
}

fn without_image(data: &Value) -> Value {
    let mut data = data.clone();
    data["b64_json"] = json!("…");
    data
}

/// The stream must be `partials` partial images and one final image, with the bytes that the upstream sent.
#[track_caller]
fn assert_complete_stream(operation: Operation, events: &[Event], images: &[String], partials: usize) {
    let family = operation.family();
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    let mut expected = vec![format!("{family}.partial_image"); partials];
    expected.push(format!("{family}.completed"));
    assert_eq!(names, expected);
    for (at, event) in events.iter().enumerate() {
        assert_complete(event);
        assert!(event.data["b64_json"].as_str() == Some(images[at].as_str()), "image {at} was changed");
        let index = (at < partials).then_some(at as u64);
        assert_eq!(event.data["partial_image_index"].as_u64(), index);
        assert_eq!(event.data.get("usage").is_some(), index.is_none(), "only the final event must have the usage");
    }
}

#[test]
fn a_stream_has_only_the_frames_of_the_contract() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for operation in [Operation::Generate, Operation::Edit] {
        for partials in 0..4 {
            let mut reply = operation.call(&gateway, "", partials).open(gateway.address()).expect("an answer");
            reply.headers.retain(|(name, _)| name != "connection");
            let events = Events::from_reply(reply).remaining();
            let attempt = upstream.received_attempts().pop().expect("an attempt");
            let count = usize::try_from(partials).expect("a count");
            assert_complete_stream(operation, &events, &attempt.images, count);
            assert_eq!(Some(&events[count].data["usage"]), attempt.usage.as_ref());
            assert_eq!(attempt.fields()["stream"], true, "the upstream request must ask for a stream");
            assert_eq!(attempt.fields()["partial_images"].as_u64().unwrap_or(0), partials);
        }
    }
    let records = gateway.final_records(8);
    for (record, attempt) in records.iter().zip(upstream.received_attempts()) {
        assert_eq!((&record["state"], &record["stream"]), (&json!("succeeded"), &json!(true)), "{record}");
        assert_eq!(Some(&record["usage"]), attempt.usage.as_ref(), "{record}");
        assert_eq!(
            record["delivered"],
            json!([{"size": "1024x1024", "output_format": "png", "quality": "low"}]),
            "{record}"
        );
        let operation = if attempt.path.ends_with("edits") { "edit_image" } else { "create_image" };
        assert_eq!(record["operation"], operation);
    }
}

#[test]
fn each_partial_image_of_the_simulator_adds_output_tokens() {
    let gateway = Gateway::simulated();
    let output_tokens = |partials: u64| {
        let events = Operation::Generate.call(&gateway, "", partials).open(gateway.address()).expect("an answer");
        let last = Events::from_reply(events).remaining().pop().expect("an event");
        last.data["usage"]["output_tokens"].as_u64().expect("a count")
    };
    let counts = [0, 1, 3].map(output_tokens);
    assert_eq!(counts, [counts[0], counts[0] + 100, counts[0] + 300]);
}

#[test]
fn each_image_event_is_passed_on_before_the_next_one() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for (at, operation) in [Operation::Generate, Operation::Edit].into_iter().enumerate() {
        let script = format!("events=p,@{at}-a,p,@{at}-b,p,@{at}-c,c,@{at}-d");
        let call = operation.call(&gateway, &script, 3);
        let mut events = Events::from_reply(call.open(gateway.address()).expect("an answer"));
        for gate in ["a", "b", "c", "d"] {
            let event = events.next().expect("an event").expect("not the end");
            assert_complete(&event);
            upstream.open_gate(&format!("{at}-{gate}"));
        }
        assert_eq!(events.next().expect("the end"), None);
    }
}

#[test]
fn every_framing_of_the_upstream_gives_the_same_events() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for script in [
        "lines=crlf",
        "lines=cr",
        "frames=no-event",
        "frames=no-space",
        "frames=bom",
        "frames=data-first",
        "frames=extra",
        "frames=no-event,no-space,bom,extra lines=crlf",
        "events=k,p,k,k,p,c,k",
        "events=p,p,c,done",
        "events=x,p,x,p,x,c,x",
        "shape=pretty",
        "shape=pretty lines=crlf",
        "shape=usage-first",
        "shape=nested",
        "shape=usage-first framing=close",
        "framing=close frames=no-end",
        "frames=no-end",
        "reads=1",
        "reads=7 lines=crlf",
        "reads=1460 shape=nested",
        "revised=escapes reads=1",
        "events=p,p,c,p,c",
    ] {
        let events = Operation::Generate.events(&gateway, script, 2);
        let attempt = upstream.received_attempts().pop().expect("an attempt");
        println!("{script}");
        assert_complete_stream(Operation::Generate, &events, &attempt.images, 2);
        assert_eq!(Some(&events[2].data["usage"]), attempt.usage.as_ref(), "{script}");
        if script.contains("revised") {
            let revised = events[2].data["revised_prompt"].as_str();
            assert!(revised.is_none_or(|text| text.contains("é 漢 🦀 }]{[")), "{script}: {revised:?}");
        }
    }
    assert!(gateway.final_records(23).iter().all(|record| record["state"] == "succeeded"));
}

#[test]
fn surplus_partial_images_are_not_delivered() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for asked in 0..3 {
        let events = Operation::Generate.events(&gateway, "partials=5", asked);
        let count = usize::try_from(asked).expect("a count");
        let attempt = upstream.received_attempts().pop().expect("an attempt");
        // The gateway may leave out any surplus partial image; the final image is the last that the upstream sent.
        let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names.len(), count + 1, "{names:?}");
        assert_eq!(events[count].data["b64_json"].as_str(), attempt.images.last().map(String::as_str));
    }
    // Fewer partial images are no fault. Their indices start at 0, whatever indices the upstream sends.
    let events = Operation::Generate.events(&gateway, "events=p7,c", 3);
    assert_complete_stream(
        Operation::Generate,
        &events,
        &upstream.received_attempts().pop().expect("an attempt").images,
        1,
    );
    assert_complete_stream(
        Operation::Edit,
        &Operation::Edit.events(&gateway, "events=c", 3),
        &upstream.received_attempts()[4].images,
        0,
    );
}

#[test]
fn fields_that_the_upstream_leaves_out_are_filled_in() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for script in [
        "omit=created_at",
        "omit=size",
        "omit=quality",
        "omit=background",
        "omit=output_format",
        "omit=partial_image_index",
        "omit=created_at,size,quality,background,output_format,partial_image_index",
        "omit=created_at,size,quality,background,output_format shape=usage-first",
        "auto=size,quality,background",
        "auto=size,quality,background shape=usage-first reads=1",
    ] {
        let fields = json!({"prompt": format!("a cube [[{script}]]"), "partial_images": 1, "size": "1536x1024",
                          "quality": "high", "output_format": "webp"});
        let events = gateway.stream(fields).remaining();
        println!("{script}");
        assert_complete_stream(
            Operation::Generate,
            &events,
            &upstream.received_attempts().pop().expect("an attempt").images,
            1,
        );
        for event in &events {
            let data = &event.data;
            let found = (&data["size"], &data["quality"], &data["output_format"]);
            assert_eq!(found, (&json!("1536x1024"), &json!("high"), &json!("webp")), "{script}");
        }
    }
}

/// The official types require a quality in events, and accept `auto`.
#[test]
fn an_unknown_quality_is_auto_in_events() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for script in ["omit=quality", "auto=quality", "omit=quality plain"] {
        let events = gateway.stream(json!({"prompt": format!("a cube [[{script}]]"), "partial_images": 1})).remaining();
        assert!(!events.is_empty() && events.iter().all(|event| event.data["quality"] == "auto"), "{script}");
        let record = gateway.final_records(upstream.attempt_count()).pop().expect("a record");
        assert_eq!(
            (&record["state"], &record["delivered"][0]["quality"]),
            (&json!("succeeded"), &json!(null)),
            "{record}"
        );
    }
}

#[test]
fn the_type_may_be_only_in_the_event_line_or_only_in_the_data() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for script in ["omit=type", "omit=type lines=crlf", "frames=no-event", "frames=no-event shape=usage-first"] {
        println!("{script}");
        let events = Operation::Generate.events(&gateway, script, 1);
        assert_complete_stream(
            Operation::Generate,
            &events,
            &upstream.received_attempts().pop().expect("an attempt").images,
            1,
        );
    }
}

#[test]
fn a_plain_answer_to_a_stream_and_a_stream_to_a_plain_request_are_both_served() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for script in ["plain", "plain shape=usage-first", "plain omit=size,created", "plain framing=chunked drip"] {
        for operation in [Operation::Generate, Operation::Edit] {
            let events = operation.events(&gateway, script, 2);
            let attempt = upstream.received_attempts().pop().expect("an attempt");
            assert_complete_stream(operation, &events, &attempt.images, 0);
            assert_eq!(Some(&events[0].data["usage"]), attempt.usage.as_ref(), "{script}");
        }
    }
    for script in ["sse", "sse partials=2", "sse events=k,p,x,c,done", "sse lines=crlf reads=7", "sse shape=pretty"] {
        let answer = gateway.scripted(script);
        assert_eq!(answer.header("content-type"), Some("application/json"), "{script}");
        let answer = answer.ok_json();
        let attempt = upstream.received_attempts().pop().expect("an attempt");
        assert_eq!(answer["data"].as_array().map(Vec::len), Some(1), "{script}");
        assert_eq!(answer["data"][0]["b64_json"].as_str(), attempt.images.last().map(String::as_str), "{script}");
        assert_eq!(Some(&answer["usage"]), attempt.usage.as_ref(), "{script}");
        assert_eq!((&answer["background"], &answer["output_format"]), (&json!("opaque"), &json!("png")), "{script}");
    }
    assert!(gateway.final_records(13).iter().all(|record| record["state"] == "succeeded"));
}

#[test]
fn another_account_serves_a_stream_that_the_first_account_refuses() {
    for script in [
        "status=401",
        "status=429",
        "status=429 body=usage-limit resets-in=60",
        "status=403 body=html",
        "status=503",
        "events=e",
        "events=e-limit",
        "events=k,k,e",
    ] {
        let upstream = FakeUpstream::start();
        upstream.always_for_token("sk-upstream-first", script);
        let accounts =
            [Account::for_upstream("first", &upstream), Account::for_upstream("second", &upstream).with_free_tier()];
        let gateway = Gateway::with("", &accounts);
        let events = Operation::Generate.events(&gateway, "", 1);
        println!("{script}");
        let attempts = upstream.received_attempts();
        assert_eq!(attempts.len(), 2, "{script}");
        assert_complete_stream(Operation::Generate, &events, &attempts[1].images, 1);
        let records = gateway.final_records(1);
        assert_eq!((records.len(), &records[0]["state"]), (1, &json!("succeeded")), "{script}");
    }
}

#[test]
fn a_stream_without_events_has_heartbeats() {
    // The interval of the contract is 15 seconds, and nothing shortens it.
    if env_setting("IMAGATE_TEST_FAST").is_some() {
        return;
    }
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    // There are heartbeats also while the upstream has not yet accepted the request (`gate`).
    let scripts = ["gate=late", "events=@late,p,c", "events=p,@late,c", "events=@late,cut", "events=@late,e-policy"];
    let (sender, heartbeats) = channel();
    let counts: Vec<(usize, Vec<String>)> = std::thread::scope(|scope| {
        let listeners = scripts.map(|script| {
            let call = Operation::Generate.call(&gateway, script, 1);
            let address = gateway.address();
            let sender = sender.clone();
            scope.spawn(move || listen(call, address, sender))
        });
        // A timeout here shows as a missing heartbeat in the counts.
        let _ = scripts.iter().try_for_each(|_| heartbeats.recv_timeout(TEST_TIMEOUT).map(drop));
        upstream.open_gate("late");
        listeners.map(|listener| listener.join().expect("a listener")).into()
    });
    let (partial, completed) = ("image_generation.partial_image", "image_generation.completed");
    let expected: [&[&str]; 5] =
        [&[partial, completed], &[partial, completed], &[partial, completed], &["error"], &["error"]];
    let expected = expected.map(|names| (1, names.iter().map(ToString::to_string).collect::<Vec<_>>()));
    assert_eq!(counts, expected, "heartbeats and events of {scripts:?}");
}

/// Reads a stream to its end; returns the number of heartbeats and the names of the events.
fn listen(call: Call, address: std::net::SocketAddr, sender: Sender<()>) -> (usize, Vec<String>) {
    let mut events = Events::from_reply(call.open(address).expect("an answer"));
    events.listener = Some(sender);
    let mut names = Vec::new();
    while let Some(event) = events.next().expect("a stream that does not break off") {
        names.push(event.name);
    }
    (events.heartbeats, names)
}
