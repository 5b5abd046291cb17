//! `POST /v1/images/generations`, apart from the rules for its fields: `matrix` checks those.

use serde_json::json;

use crate::kit::{Call, FakeUpstream, Gateway};

#[test]
fn the_safety_identifier_wins_over_user() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    gateway.generate(json!({"safety_identifier": "end-user-7"})).ok_json();
    gateway.generate(json!({"safety_identifier": "end-user-8", "user": "hidden"})).ok_json();
    let records = gateway.final_records(2);
    assert_eq!((&records[0]["end_user"], &records[1]["end_user"]), (&json!("end-user-7"), &json!("end-user-8")));
}

#[test]
fn hostile_bodies_do_not_harm_the_gateway() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let post = |body: Vec<u8>| {
        Call::generation()
            .key(gateway.secret())
            .header("content-type", "application/json")
            .bytes(body)
            .send(gateway.address())
    };
    let members = (0..30_000).map(|at| format!("\"k{at}\":1,"));
    for (body, status) in [
        ("[".repeat(500_000).into_bytes(), 400),
        (format!("{{\"prompt\":{}", "{\"a\":".repeat(100_000)).into_bytes(), 400),
        (format!("{{\"n\":{}}}", "9".repeat(500_000)).into_bytes(), 400),
        (vec![0; 10_000], 400),
        (vec![0xff; 10_000], 400),
        (members.fold("{".to_owned(), |text, member| text + &member).into_bytes(), 413),
    ] {
        post(body).error_object(status);
    }
    gateway.generate(json!({})).ok_json();
    assert_eq!(upstream.attempt_count(), 1);
}
