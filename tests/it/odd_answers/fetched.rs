//! Answers with the addresses of images, at accounts that let the gateway fetch them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::shapes::imageless;
use super::upstream::{OddUpstream, picture};
use super::{OddProtocol, delivered};
use crate::kit::{Account, Answer, Call, Gateway};

/// Answers whose images can be fetched. `ORIGIN` stands for the origin of the upstream.
const FETCHED: [&str; 5] = [
    r#"{"created":1,"data":[{"url":"ORIGIN/pictures/a.png"}],"usage":{"input_tokens":10,"output_tokens":100,"total_tokens":110}}"#,
    r#"{"data":["ORIGIN/pictures/a.png"]}"#,
    r#"{"images":[{"url":"ORIGIN/pictures/coded.png"}]}"#,
    r#"{"output":"ORIGIN/pictures/a.png"}"#,
    r#"{"choices":[{"message":{"content":"Here: ![a](ORIGIN/pictures/a.png)"}}]}"#,
];
/// Answers whose addresses lead to no image, or may not be read.
const UNREADABLE: [&str; 6] = [
    r#"{"data":[{"url":"ORIGIN/pictures/page.html"}]}"#,
    r#"{"data":[{"url":"ORIGIN/absent.png"}]}"#,
    r#"{"data":[{"url":"http://127.0.0.1:1/x.png"}]}"#,
    r#"{"data":[{"url":"https://169.254.169.254/latest/meta-data"}]}"#,
    r#"{"data":[{"url":"https://localhost/x.png"}]}"#,
    r#"{"data":[{"url":"http://files.example/x.png"}]}"#,
];

fn open(protocol: OddProtocol, bodies: &[&str]) -> (OddUpstream, Gateway) {
    let rows = bodies.iter().map(|body| imageless(protocol, body, "image_by_address")).collect();
    let upstream = OddUpstream::start(rows);
    let account = |name: &str| {
        let account = Account::with_base_url(name, upstream.base_url()).with_line("image_urls = \"fetch\"");
        if protocol == OddProtocol::Responses { account.with_responses_protocol() } else { account }
    };
    let gateway = Gateway::with("", &[account("first"), account("second")]);
    (upstream, gateway)
}

fn ask(gateway: &Gateway, row: usize, with: Value) -> Answer {
    let mut body = json!({"model": "gpt-image-2", "prompt": format!("row-{row}p-"), "size": "1024x1024"});
    body.as_object_mut().expect("an object").append(&mut with.as_object().expect("an object").clone());
    Call::generation().key(gateway.secret()).json(&body).send(gateway.address())
}

#[test]
fn images_are_fetched_from_the_addresses_of_an_answer() {
    for protocol in [OddProtocol::Images, OddProtocol::Responses] {
        let (upstream, gateway) = open(protocol, &FETCHED);
        for (row, body) in FETCHED.iter().enumerate() {
            for is_stream in [false, true] {
                let answer = ask(&gateway, row, json!({"stream": is_stream}));
                assert_eq!(answer.status, 200, "{protocol:?} {body}: {}", answer.text());
                assert_eq!(delivered(&answer), Some(picture()), "{protocol:?} {body}");
            }
            assert_eq!(upstream.calls_of(&format!("{row}p")), 2, "{body}");
        }
        let records = gateway.final_records(2 * FETCHED.len());
        assert!(records.iter().all(|record| record["state"] == "succeeded"), "{records:?}");
        if protocol == OddProtocol::Images {
            // The tokens are those of the answer that had the address.
            assert_eq!(records[0]["usage"]["output_tokens"], 100, "{}", records[0]);
        }
    }
}

#[test]
fn several_images_are_fetched_for_one_answer() {
    let body =
        r#"{"data":[{"url":"ORIGIN/pictures/a.png"},{"url":"ORIGIN/pictures/b.png"},{"url":"ORIGIN/pictures/c.png"}]}"#;
    let (upstream, gateway) = open(OddProtocol::Images, &[body]);
    let answer = ask(&gateway, 0, json!({"n": 2})).ok_json();
    let images: Vec<_> = answer["data"].as_array().expect("a list").iter().map(|image| &image["b64_json"]).collect();
    assert_eq!(images, [&json!(STANDARD.encode(picture())); 2]);
    assert_eq!(upstream.calls_of("0p"), 1);
}

#[test]
fn an_address_that_cannot_be_read_is_told_and_costs_no_second_call() {
    for protocol in [OddProtocol::Images, OddProtocol::Responses] {
        let (upstream, gateway) = open(protocol, &UNREADABLE);
        for (row, body) in UNREADABLE.iter().enumerate() {
            let error = ask(&gateway, row, json!({})).error_object(502);
            assert_eq!(error["reason"], "image_by_address", "{protocol:?} {body}");
            assert_eq!(upstream.calls_of(&format!("{row}p")), 1, "{body}");
        }
        assert_eq!(upstream.fetch_count(), 2, "only the addresses at the upstream's own origin are asked");
    }
}

#[test]
fn the_doctor_tells_of_addresses_and_tasks() {
    let bodies = [r#"{"data":[{"url":"ORIGIN/absent.png"}]}"#, r#"{"task_id":"t1","status":"queued"}"#];
    let (_upstream, gateway) = open(OddProtocol::Images, &bodies);
    (0..bodies.len()).for_each(|row| drop(ask(&gateway, row, json!({})).error_object(502)));
    gateway.final_records(bodies.len());
    let told = gateway.run_command(&["doctor", "--json"]).stdout.clone();
    for part in ["with the address of an image in place of the image", "with a task in place of an image"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}
