//! Estimates: what a request would cost at most, and which limit would refuse it. An estimate spends nothing.

use serde_json::{Value, json};

use super::{TOKEN, ask, draw, open, refused};
use crate::kit::{Account, Answer, Call, FakeUpstream, Gateway, Program, eventually, request};

const ESTIMATE: &str = "/v1/images/estimate";
/// The prices of a text model, in a settings file.
const TEXT_PRICE: &str = "[[prices]]\nmodel = \"gpt-5.5\"\nfrom = \"2026-01-01\"\ntext_input = 2\ncached_text_input = 0.5\ntext_output = 8\n";

fn estimate_with(gateway: &Gateway, secret: &str, fields: &Value) -> Answer {
    Call::post(ESTIMATE).json(&request(fields.clone())).key(secret).send(gateway.address())
}

fn estimate(gateway: &Gateway, fields: &Value) -> Answer {
    estimate_with(gateway, gateway.secret(), fields)
}

/// An error without the seconds until a limit is free and without the time, which differ between two requests.
fn without_times(error: &Value) -> Value {
    let mut error = error.clone();
    let fields = error.as_object_mut().expect("an object");
    fields.retain(|name, _| !["resets_at", "resets_in_seconds", "message"].contains(&name.as_str()));
    error
}

/// Asserts that each request costs at most its estimate, and returns the estimates.
#[track_caller]
fn assert_at_most(gateway: &Gateway, upstream: &FakeUpstream, requests: &[Value]) -> Vec<f64> {
    let mut estimates = Vec::new();
    for (number, fields) in (1..).zip(requests) {
        let before = upstream.attempt_count();
        let estimate = estimate(gateway, fields).ok_json();
        assert_eq!((upstream.attempt_count(), gateway.records().len()), (before, number - 1), "{fields}");
        assert_eq!((&estimate["cost_basis"], &estimate["refusal"]), (&json!("estimated"), &Value::Null), "{estimate}");
        assert_eq!(estimate.get("reason"), None, "{estimate}");
        let most = estimate["max_cost_usd"].as_f64().expect("an amount");
        draw(gateway, fields.clone());
        let records = gateway.final_records(number);
        let record = &records[number - 1];
        let cost = record["cost_usd"].as_f64().unwrap_or_else(|| panic!("{fields}: {record}"));
        assert!(cost <= most && cost > 0.0, "{fields}: {cost} of at most {most}");
        let versions = estimate["price_version"].as_str().expect("a version");
        for version in record["price_version"].as_str().into_iter().flat_map(|versions| versions.split(' ')) {
            assert!(versions.split(' ').any(|used| used == version), "{versions}: {record}");
        }
        estimates.push(most);
    }
    estimates
}

#[test]
fn a_request_costs_at_most_its_estimate() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "budget_usd = 1000");
    let small = |fields: Value| {
        let mut small = json!({"prompt": "a cube", "size": "1024x1024", "quality": "low"});
        small.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        small
    };
    let requests = [
        small(json!({})),
        small(json!({"n": 4})),
        small(json!({"prompt": "a cube [[tokens=196 usage=cached]]"})),
        small(json!({"prompt": "a cube [[usage=none]]"})),
        small(json!({"prompt": "a cube [[hang-up]]"})),
        json!({"prompt": "é".repeat(3000)}),
    ];
    let estimates = assert_at_most(&gateway, &upstream, &requests);
    // (6 + 16) x 5 + 196 x 30, and the same with four images: in millionths of a dollar
    assert_eq!(estimates[..2], [0.005_99, 0.023_63]);
    let whole = estimate(&gateway, &requests[1]).ok_json();
    let version = whole["price_version"].as_str().expect("a version").to_owned();
    assert!(version.starts_with("gpt-image-2@2026-04-21#"), "{version}");
    let expected = json!({"object": "image.cost_estimate", "model": "gpt-image-2", "images": 4, "size": "1024x1024",
        "quality": "low", "max_cost_usd": 0.023_63, "cost_basis": "estimated", "price_version": version, "refusal": null});
    assert_eq!(whole, expected);
    // A property that the request leaves open counts as the dearest.
    let open = estimate(&gateway, &json!({})).ok_json();
    assert_eq!((&open["size"], &open["quality"]), (&json!("auto"), &json!("auto")));
    assert!(open["max_cost_usd"].as_f64() > Some(0.2), "{open}");
}

#[test]
fn the_estimate_contains_the_text_model_of_an_account_and_smaller_images() {
    let upstream = FakeUpstream::start();
    let top = format!("admin_token = {{ env = \"IT_ADMIN\" }}\n{TEXT_PRICE}");
    let account = Account::for_upstream("only", &upstream).with_responses_protocol();
    let gateway = Gateway::with_secrets(&top, &[account], &[("IT_ADMIN", TOKEN)]);
    let small = json!({"prompt": "a cube", "size": "1024x1024", "quality": "low"});
    let mut three = small.clone();
    three["n"] = json!(3);
    let estimates = assert_at_most(&gateway, &upstream, &[small, three]);
    // 22 x 5 + 196 x 30, and for the text model (6 + 8192) x (2 + 8); each image has its own call
    assert_eq!(estimates, [0.087_97, 0.263_91]);
    let large = json!({"prompt": "a cube", "size": "3840x2160", "quality": "high"});
    let call = |fallback: &str| {
        let call = Call::post(ESTIMATE).json(&request(large.clone())).header("x-imagate-fallback", fallback);
        call.key(gateway.secret()).send(gateway.address())
    };
    let most = |fallback: &str| call(fallback).ok_json()["max_cost_usd"].as_f64().expect("an amount");
    assert!(most("never") < most("always") && most("never").total_cmp(&most("unpaid")).is_eq());
    assert_eq!(call("sometimes").error_object(400)["param"], "x-imagate-fallback");
}

#[test]
fn an_estimate_reserves_nothing_and_counts_in_no_limit() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "requests_per_minute = 1\nimages_per_day = 1\nconcurrent_jobs = 1\nbudget_usd = 1");
    for _ in 0..20 {
        assert_eq!(estimate(&gateway, &json!({})).ok_json()["refusal"], Value::Null);
    }
    let answer = draw(&gateway, json!({}));
    assert_eq!((answer.status, answer.header("x-ratelimit-remaining-requests")), (200, Some("0")));
    assert_eq!((upstream.attempt_count(), gateway.final_records(1).len()), (1, 1));
    let usage = ask(&gateway, Call::get("/admin/v1/usage")).ok_json();
    assert_eq!((&usage["totals"]["requests"], &usage["totals"]["refused"]), (&json!(1), &json!(0)), "{usage}");
}

#[test]
fn the_refusal_of_an_estimate_is_the_error_of_the_request() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "images_per_day = 2");
    assert_eq!(draw(&gateway, json!({})).status, 200);
    assert_eq!(estimate(&gateway, &json!({})).ok_json()["refusal"], Value::Null);
    let refusal = estimate(&gateway, &json!({"n": 2})).ok_json()["refusal"].clone();
    let error = refused(&draw(&gateway, json!({"n": 2})), "insufficient_quota", "images_per_day", "group");
    assert_eq!(without_times(&refusal), without_times(&error));
    assert!(refusal["resets_at"].is_i64() && refusal["resets_in_seconds"].is_u64(), "{refusal}");
    // No wait would help: the request is wrong.
    let [estimated, real] = [estimate(&gateway, &json!({"n": 3})), draw(&gateway, json!({"n": 3}))];
    assert_eq!(estimated.error_object(400), real.error_object(400));
}

#[test]
fn a_wrong_request_gets_the_same_error_as_the_real_one() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "models = [\"gpt-image-2\"]\nmax_quality = \"medium\"");
    let medium = |name: &str, value: Value| {
        let mut fields = json!({"quality": "medium", "size": "1024x1024"});
        fields[name] = value;
        fields
    };
    for fields in [
        medium("size", json!("1025x1024")),
        medium("size", json!("9x9")),
        medium("size", json!(1024)),
        medium("quality", json!("high")),
        medium("quality", json!("best")),
        medium("model", json!("sketch-1")),
        medium("model", json!("gpt-5.5")),
        medium("n", json!(0)),
        medium("prompt", json!("")),
        medium("colour", json!("red")),
        medium("partial_images", json!(2)),
    ] {
        let [estimated, real] = [estimate(&gateway, &fields), draw(&gateway, fields.clone())];
        assert_eq!(estimated.error_object(400), real.error_object(400), "{fields}");
    }
    let post = |call: Call| call.key(gateway.secret()).send(gateway.address());
    assert_eq!(post(Call::post(ESTIMATE).bytes("no JSON").header("content-type", "application/json")).status, 400);
    let edit = Call::post(ESTIMATE).header("content-type", "multipart/form-data; boundary=x").bytes("--x--\r\n");
    assert_eq!(post(edit).error_object(415)["code"], "unsupported_media_type");
    assert_eq!((upstream.attempt_count(), gateway.records().len()), (0, 0));
}

#[test]
fn a_key_without_rights_gets_no_estimate() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "images_per_day = 100");
    let made = gateway.make_key("other");
    let (id, secret) = (made["id"].as_str().expect("an id"), made["secret"].as_str().expect("a secret"));
    assert_eq!(estimate_with(&gateway, secret, &json!({})).status, 200);
    gateway.run_command(&["key", "disable", id]).ok_stdout();
    eventually("the key is disabled", || (estimate_with(&gateway, secret, &json!({})).status == 401).then_some(()));
    for secret in [secret, "sk-img-nonsense", TOKEN] {
        assert_eq!(estimate_with(&gateway, secret, &json!({})).error_object(401)["code"], "INVALID_API_KEY");
    }
    let anonymous = Call::post(ESTIMATE).json(&request(json!({}))).send(gateway.address());
    assert_eq!(anonymous.error_object(401)["code"], "INVALID_API_KEY");
}

#[test]
fn without_a_price_the_estimate_is_null_with_a_reason() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "images_per_day = 100");
    let unknown = estimate(&gateway, &json!({"model": "sketch-1"})).ok_json();
    for (name, value) in [
        ("max_cost_usd", Value::Null),
        ("cost_basis", json!("unknown")),
        ("reason", json!("no_price")),
        ("unpriced_model", json!("sketch-1")),
        ("price_version", Value::Null),
        ("refusal", Value::Null),
    ] {
        assert_eq!(unknown[name], value, "{name}: {unknown}");
    }
    gateway.run_command(&["price", "set", "sketch-1", "--from", "2026-01-01", "--text-input", "1"]).ok_stdout();
    let reason = || estimate(&gateway, &json!({"model": "sketch-1"})).ok_json()["reason"].clone();
    eventually("the price is in force", || (reason() == "incomplete_price").then_some(()));
}

#[test]
fn with_a_budget_and_without_a_price_the_estimate_says_that_the_request_is_refused() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "budget_usd = 100");
    let unknown = estimate(&gateway, &json!({"model": "sketch-1"})).ok_json();
    let real = draw(&gateway, json!({"model": "sketch-1"})).error_object(503);
    assert_eq!((&unknown["max_cost_usd"], &unknown["refusal"]), (&Value::Null, &real));
    assert_eq!(real["code"], "price_unknown");
}

#[test]
fn a_budget_needs_the_price_of_the_text_model_that_makes_the_images() {
    let upstream = FakeUpstream::start();
    let groups = "[[groups]]\nname = \"default\"\n[groups.limits]\nbudget_usd = 1\n";
    let gateway = |prices: &str| {
        let account = Account::for_upstream("only", &upstream).with_responses_protocol();
        Gateway::with(&format!("{prices}{groups}"), &[account])
    };
    let without_price = gateway("");
    let error = draw(&without_price, json!({})).error_object(503);
    assert_eq!(error["code"], "price_unknown");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("gpt-5.5")), "{error}");
    assert_eq!(estimate(&without_price, &json!({})).ok_json()["unpriced_model"], "gpt-5.5");
    assert_eq!(upstream.attempt_count(), 0);
    assert_eq!(draw(&gateway(TEXT_PRICE), json!({})).status, 200);
}

#[test]
fn the_command_prints_the_estimate_and_makes_no_image() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "images_per_day = 1\nmax_size = \"1024x1024\"");
    let (base_url, key) = (gateway.base_url(), gateway.secret());
    let run = |words: &[&str]| {
        let common = ["generate", "a cube", "--estimate", "--base-url", &base_url, "--api-key", key];
        Program::new(gateway.home()).args([&common[..], words].concat()).run()
    };
    let small = ["--size", "1024x1024", "--quality", "low"];
    let printed = run(&small);
    assert_eq!(printed.ok_stdout(), "0.00599\n");
    assert!(printed.stderr.contains("1 image"), "{}", printed.stderr);
    assert_eq!(run(&[&small[..], &["--json"]].concat()).json()["max_cost_usd"], 0.005_99);
    let unknown = run(&[&small[..], &["--model", "sketch-1"]].concat());
    assert_eq!(unknown.ok_stdout(), "unknown\n");
    assert!(unknown.stderr.contains("sketch-1"), "{}", unknown.stderr);
    let with_partials = run(&[&small[..], &["--stream", "--partials", "2"]].concat());
    assert_eq!(with_partials.ok_stdout(), "0.01199\n");
    assert!(run(&["--size", "2048x2048"]).code != Some(0));
    // The file extension stands for the format, as if the image were made.
    assert_eq!(run(&[&small[..], &["--compression", "50", "-o", "fox.jpg"]].concat()).ok_stdout(), "0.00599\n");
    let events = run(&[&small[..], &["--progress", "jsonl"]].concat());
    let note: Value = serde_json::from_str(events.stderr.trim()).expect("one event");
    assert_eq!((events.ok_stdout(), &note["event"]), ("0.00599\n", &json!("note")));
    assert_eq!((upstream.attempt_count(), gateway.records().len()), (0, 0));
    assert_eq!(draw(&gateway, json!({"size": "1024x1024"})).status, 200);
    let refused = run(&small);
    assert!(refused.stderr.contains("images_per_day"), "{}", refused.stderr);
}
