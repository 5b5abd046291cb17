//! A failure, and an estimate, state the changes of their request too.

use serde_json::{Value, json};

use super::{HEADER, REFUSAL};
use crate::edits::data_url;
use crate::kit::{Account, Answer, Call, FakeUpstream, Form, Gateway, alpha_png};

const DECLARED: &str = "[[groups]]\nname = \"default\"\ndialects = [\"sizes\", \"legacy-fields\", \"url\"]\n";
const CHANGES: Option<&str> = Some("size 512x512->1024x1024, quality hd->high");

fn gateway_with(top: &str, upstream: &FakeUpstream) -> Gateway {
    Gateway::with(top, &[Account::for_upstream("only", upstream)])
}

/// The same picture by a generation, by an edit in JSON and by a form.
fn calls(fields: &Value) -> [Call; 3] {
    let image = alpha_png(64, 64);
    let mut body = json!({"model": "gpt-image-2", "prompt": "a red cube"});
    let fields = fields.as_object().expect("fields");
    fields.iter().for_each(|(name, value)| body[name] = value.clone());
    let mut edit = body.clone();
    edit["images"] = json!([{"image_url": data_url(&image)}]);
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let form =
        body.as_object().expect("fields").iter().fold(Form::new(), |form, (name, value)| form.text(name, &text(value)));
    let calls = [Call::generation().json(&body), Call::edit().json(&edit), form.file("image", &image).call()];
    calls.map(Call::without_document_check)
}

#[test]
fn a_failure_states_the_changes_of_its_request() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with(DECLARED, &upstream);
    let adapted = json!({"size": "512x512", "quality": "hd"});
    let mut count = 0;
    for (fields, expected) in [(&adapted, CHANGES), (&json!({"size": "1024x1024"}), None)] {
        for stream in [false, true] {
            let mut fields = fields.clone();
            fields["stream"] = stream.into();
            for call in calls(&fields) {
                upstream.script_next(REFUSAL);
                let answer = call.key(gateway.secret()).send(gateway.address());
                assert_eq!((answer.status, answer.header(HEADER)), (502, expected), "{fields}: {}", answer.text());
                count += 1;
                let record = gateway.final_records(count).pop().expect("a record");
                assert_eq!((&record["state"], record["adapted"].as_str()), (&json!("refused"), expected), "{record}");
            }
        }
    }
    let [create, ..] = calls(&adapted);
    upstream.script_next("status=500 body=error");
    let answer = create.key(gateway.secret()).send(gateway.address());
    assert_eq!((answer.status, answer.header(HEADER)), (502, CHANGES), "{}", answer.text());
    let record = gateway.final_records(count + 1).pop().expect("a record");
    assert_eq!((&record["state"], record["adapted"].as_str()), (&json!("failed"), CHANGES), "{record}");
}

#[test]
fn a_refusal_states_the_changes_that_were_made_before_it() {
    let upstream = FakeUpstream::start();
    let limited = format!("{DECLARED}[groups.limits]\nmax_size = \"1024x1024\"\n");
    let gateway = gateway_with(&limited, &upstream);
    let send = |call: Call| call.key(gateway.secret()).send(gateway.address());
    // A rule, a limit on each request, and the dialect `url` itself, which has no streams.
    for (fields, param, expected) in [
        (json!({"size": "512x512", "quality": "hd", "n": 11}), "n", CHANGES),
        (json!({"size": "1920x1080", "quality": "hd"}), "size", Some("size 1920x1080->1920x1088, quality hd->high")),
        (json!({"response_format": "url", "stream": true}), "stream", Some("response_format url")),
        (json!({"n": 11}), "n", None),
    ] {
        for call in calls(&fields) {
            let answer = send(call);
            let refused = answer.error_object(400);
            assert_eq!((refused["param"].as_str(), answer.header(HEADER)), (Some(param), expected), "{fields}");
        }
    }
    // An idempotency key of another request.
    let keyed = |fields: Value| {
        let [create, ..] = calls(&fields);
        send(create.header("idempotency-key", "k-1"))
    };
    assert_eq!(keyed(json!({"size": "512x512", "quality": "hd"})).header(HEADER), CHANGES);
    let conflict = keyed(json!({"size": "512x512"}));
    assert_eq!(conflict.error_object(400)["reason"], "idempotency_key_reused");
    assert_eq!(conflict.header(HEADER), Some("size 512x512->1024x1024"));
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn an_estimate_is_that_of_the_adapted_request_and_states_the_changes() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with(DECLARED, &upstream);
    let estimate = |fields: Value| -> Answer {
        let mut body = json!({"model": "gpt-image-2", "prompt": "a red cube"});
        let fields = fields.as_object().expect("fields");
        fields.iter().for_each(|(name, value)| body[name] = value.clone());
        let call = Call::post("/v1/images/estimate").without_document_check().json(&body);
        call.key(gateway.secret()).send(gateway.address())
    };
    let (adapted, plain) = (
        estimate(json!({"size": "512x512", "quality": "hd"})),
        estimate(json!({"size": "1024x1024", "quality": "high"})),
    );
    assert_eq!((adapted.header(HEADER), plain.header(HEADER)), (CHANGES, None));
    assert_eq!(adapted.ok_json(), plain.ok_json());
    assert_eq!(adapted.ok_json()["quality"], "high");
    let refused = estimate(json!({"size": "512x512", "quality": "hd", "n": 11}));
    assert_eq!((&refused.error_object(400)["param"], refused.header(HEADER)), (&json!("n"), CHANGES));
    let refused = estimate(json!({"response_format": "url", "stream": true}));
    let expected = (json!("stream"), Some("response_format url"));
    assert_eq!((refused.error_object(400)["param"].clone(), refused.header(HEADER)), expected);
    assert_eq!((upstream.attempt_count(), gateway.records().len()), (0, 0));
}
