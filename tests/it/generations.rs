//! `POST /v1/images/generations`: the tables of good and bad requests in `tests/cases/generations/`.
//!
//! Each row is laid over a legal minimum. A refused request must name its parameter and must not have opened an upstream
//! connection; an accepted one must reach the upstream with the values that the caller wrote.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::kit::{Answer, Call, FakeUpstream, Gateway, request};

/// One row of a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// Fields over the minimum.
    #[serde(default)]
    with: Map<String, Value>,
    /// Fields of the minimum that are left out.
    #[serde(default)]
    without: Vec<String>,
    /// The whole body as sent, in place of the fields.
    raw: Option<String>,
    /// As `raw`, for bytes that are no text.
    raw_bytes: Option<Vec<u8>>,
    /// A prompt of this many of this character.
    prompt: Option<(String, usize)>,
    /// The parameter that a refusal names.
    #[serde(default)]
    param: Option<String>,
}

const GOOD: &str = include_str!("../cases/generations/good.json");
const BAD: [&str; 4] = [
    include_str!("../cases/generations/bad-sizes.json"),
    include_str!("../cases/generations/bad-values.json"),
    include_str!("../cases/generations/bad-combinations.json"),
    include_str!("../cases/generations/bad-bodies.json"),
];

// === impl Case ===

impl Case {
    fn body(&self) -> Vec<u8> {
        if let Some(bytes) = &self.raw_bytes {
            return bytes.clone();
        }
        if let Some(raw) = &self.raw {
            return raw.clone().into_bytes();
        }
        let mut body = request(Value::Object(self.with.clone()));
        if let Some((character, count)) = &self.prompt {
            body["prompt"] = json!(character.repeat(*count));
        }
        for name in &self.without {
            body.as_object_mut().expect("an object").remove(name);
        }
        body.to_string().into_bytes()
    }

    fn send(&self, gateway: &Gateway) -> Answer {
        let call = Call::generation().key(gateway.secret()).header("content-type", "application/json");
        call.bytes(self.body()).send(gateway.address())
    }
}

fn table(text: &str) -> Vec<Case> {
    serde_json::from_str(text).expect("a table of cases")
}

/// What is wrong with the answer to a bad request, if anything.
fn fault(case: &Case, answer: &Answer) -> Option<String> {
    if answer.status != 400 {
        return Some(format!("status {}: {:.200}", answer.status, answer.text()));
    }
    let error = answer.error(400);
    let expected = json!({"type": "invalid_request_error", "code": "invalid_request_error", "param": case.param});
    let found = json!({"type": error["type"], "code": error["code"], "param": error["param"]});
    if found != expected {
        return Some(format!("expected {expected}, found {error}"));
    }
    (answer.should_retry() != Some("false")).then(|| format!("a repeat cannot mend it: {:?}", answer.headers))
}

#[test]
fn every_bad_request_names_its_parameter_and_costs_the_upstream_nothing() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::before(&upstream);
    let cases: Vec<Case> = BAD.into_iter().flat_map(table).collect();
    assert!(cases.len() >= 100, "{} cases", cases.len());
    let mut faults = Vec::new();
    for case in &cases {
        let answer = case.send(&gateway);
        faults.extend(fault(case, &answer).map(|fault| format!("{}: {fault}", case.name)));
    }
    assert!(faults.is_empty(), "{} of {} cases:\n{}", faults.len(), cases.len(), faults.join("\n"));
    assert_eq!(upstream.accepted(), 0, "a refused request opened an upstream connection");
    assert_eq!(gateway.records().len(), 0, "a refused request is no job");
}

#[test]
fn every_good_request_reaches_the_upstream_as_written() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::before(&upstream);
    let cases = table(GOOD);
    let mut faults = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let answer = case.send(&gateway);
        if answer.status != 200 || !answer.complete {
            faults.push(format!("{}: status {}: {:.200}", case.name, answer.status, answer.text()));
        }
        if upstream.attempts() != at + 1 - faults.len() {
            faults.push(format!("{}: not one attempt", case.name));
            break;
        }
        if answer.status == 200 {
            faults.extend(
                changed(case, &upstream.ledger().last().expect("an attempt").json())
                    .map(|fault| format!("{}: {fault}", case.name)),
            );
            faults.extend(resolved(&answer.json()).map(|fault| format!("{}: {fault}", case.name)));
        }
    }
    assert!(faults.is_empty(), "{} of {} cases:\n{}", faults.len(), cases.len(), faults.join("\n"));
    assert_eq!(gateway.settled(cases.len()).len(), cases.len());
}

/// A field that the caller wrote and the upstream did not get as written.
fn changed(case: &Case, sent: &Value) -> Option<String> {
    let written: Value = serde_json::from_slice(&case.body()).expect("a good body");
    let same = |a: &Value, b: &Value| a == b || (a.is_number() && a.as_f64() == b.as_f64());
    for field in
        ["model", "prompt", "n", "size", "quality", "output_format", "output_compression", "moderation", "user"]
    {
        let (wrote, got) = (&written[field], &sent[field]);
        // A default may be left out on the way, and an absent value may be filled in.
        let left_out = got.is_null() && !["model", "prompt"].contains(&field) && is_default(field, wrote);
        if !wrote.is_null() && !left_out && !same(wrote, got) {
            return Some(format!("{field}: wrote {wrote:.60}, the upstream got {got:.60}"));
        }
    }
    None
}

fn is_default(field: &str, value: &Value) -> bool {
    match field {
        "n" => value.as_f64() == Some(1.0),
        "output_compression" => value.as_f64() == Some(100.0),
        "output_format" => value == "png",
        _ => value == "auto",
    }
}

/// `auto` is for requests; an answer says what was made.
fn resolved(answer: &Value) -> Option<String> {
    let auto = ["size", "quality", "background", "output_format", "model"]
        .into_iter()
        .find(|field| answer[*field] == "auto" || !answer[*field].is_string());
    auto.map(|field| format!("the answer's {field} is {}", answer[field]))
}

#[test]
fn the_safety_identifier_stands_in_for_user() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::before(&upstream);
    gateway.generate(json!({"safety_identifier": "end-user-7"})).good();
    gateway.generate(json!({"safety_identifier": "hidden", "user": "end-user-8"})).good();
    let records = gateway.settled(2);
    assert_eq!((&records[0]["end_user"], &records[1]["end_user"]), (&json!("end-user-7"), &json!("end-user-8")));
}

#[test]
fn hostile_bodies_do_not_harm_the_gateway() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::before(&upstream);
    let post = |body: Vec<u8>| {
        Call::generation()
            .key(gateway.secret())
            .header("content-type", "application/json")
            .bytes(body)
            .send(gateway.address())
    };
    for body in [
        "[".repeat(500_000).into_bytes(),
        format!("{{\"prompt\":{}", "{\"a\":".repeat(100_000)).into_bytes(),
        format!("{{\"n\":{}}}", "9".repeat(500_000)).into_bytes(),
        vec![0; 10_000],
        vec![0xff; 10_000],
        (0..30_000).map(|at| format!("\"k{at}\":1,")).fold("{".to_owned(), |text, member| text + &member).into_bytes(),
    ] {
        post(body).error(400);
    }
    gateway.generate(json!({})).good();
    assert_eq!(upstream.attempts(), 1);
}
