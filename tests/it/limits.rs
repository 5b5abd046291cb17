//! Limits of groups, users and keys: they hold for simultaneous requests and over restarts, a refusal names the limit and costs
//! nothing, and the answer states what is left.

pub(crate) mod budget_modes;
mod changed_limits;
mod estimates;
mod usage;
mod users;
mod work;

use std::thread;

use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, FakeUpstream, Gateway, eventually, request};

const TOKEN: &str = "admin-token-canary-0123456789abcdef";
const KEYS: &str = "/admin/v1/keys";

/// A gateway whose group `default` has these limits.
fn open(upstream: &FakeUpstream, limits: &str) -> Gateway {
    let top = format!(
        "admin_token = {{ env = \"IT_ADMIN\" }}\n[[models]]\nid = \"sketch-1\"\n[[groups]]\nname = \"default\"\n\
         [groups.limits]\n{limits}\n"
    );
    let account = Account::for_upstream("only", upstream).with_slots(100);
    Gateway::with_secrets(&top, &[account], &[("IT_ADMIN", TOKEN)])
}

#[track_caller]
fn ask(gateway: &Gateway, call: Call) -> Answer {
    call.key(TOKEN).send(gateway.address())
}

fn draw(gateway: &Gateway, with: Value) -> Answer {
    gateway.generate(with)
}

/// Sends a generation with this key.
fn draw_with(gateway: &Gateway, secret: &str) -> Answer {
    Call::generation().json(&request(json!({}))).key(secret).send(gateway.address())
}

/// Sends a request for a response with these fields.
fn respond(gateway: &Gateway, fields: &Value) -> Answer {
    let mut body = json!({"model": "gpt-5.5", "input": "a cube"});
    body.as_object_mut().expect("an object").extend(fields.as_object().expect("fields").clone());
    Call::post("/v1/responses").json(&body).key(gateway.secret()).send(gateway.address())
}

/// Asserts that a limit refused the request, and returns the error.
#[track_caller]
fn refused(answer: &Answer, code: &str, limit: &str, scope: &str) -> Value {
    let error = answer.error_object(429);
    assert_eq!((&error["code"], &error["limit"], &error["limit_scope"]), (&json!(code), &json!(limit), &json!(scope)));
    assert_eq!(answer.header("x-should-retry"), Some(if code == "insufficient_quota" { "false" } else { "true" }));
    error
}

#[test]
fn a_limit_by_the_minute_states_what_is_left_and_when_it_is_free_again() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "requests_per_minute = 3\nimages_per_minute = 5");
    let first = draw(&gateway, json!({"n": 2}));
    assert_eq!(first.status, 200);
    let headers = ["limit-requests", "remaining-requests", "limit-images", "remaining-images"];
    let stated = headers.map(|name| first.header(&format!("x-ratelimit-{name}")));
    assert_eq!(stated, [Some("3"), Some("2"), Some("5"), Some("3")]);
    assert_eq!(first.header("x-ratelimit-reset-images"), Some("60s"));
    let error = refused(&draw(&gateway, json!({"n": 4})), "rate_limit_exceeded", "images_per_minute", "group");
    assert_eq!(error["limit_value"], "5");
    let wait = error["resets_in_seconds"].as_u64().expect("seconds");
    assert!((1..=60).contains(&wait) && error["resets_at"].is_i64(), "{error}");
    assert_eq!(draw(&gateway, json!({"n": 6})).error_object(400)["param"], "n");
    assert_eq!([draw(&gateway, json!({})).status, draw(&gateway, json!({})).status], [200, 200]);
    let last = draw(&gateway, json!({}));
    refused(&last, "rate_limit_exceeded", "requests_per_minute", "group");
    assert!(last.header("retry-after").is_some());
    assert_eq!(upstream.attempt_count(), 3, "a refused request costs nothing");
    assert_eq!(gateway.final_records(3).len(), 3);
}

#[test]
fn a_budget_holds_for_simultaneous_requests_and_over_a_restart() {
    let upstream = FakeUpstream::start();
    // 6 text bytes with 16 more tokens and 196 image tokens: at most 0.00599 dollars for each request.
    let mut gateway = open(&upstream, "budget_usd = 0.03\nbudget_period = \"day\"");
    let small = || json!({"prompt": "a cube", "quality": "low", "size": "1024x1024"});
    let answers: Vec<Answer> = thread::scope(|scope| {
        let threads: Vec<_> = (0..40).map(|_| scope.spawn(|| draw(&gateway, small()))).collect();
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    let (served, others): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!(served.len(), 5, "five times 0.00599 fit into 0.03");
    others.iter().for_each(|answer| drop(refused(answer, "insufficient_quota", "budget_usd", "group")));
    assert_eq!(upstream.attempt_count(), 5);
    let records = gateway.final_records(5);
    let spent: f64 = records.iter().map(|record| record["cost_usd"].as_f64().expect("a cost")).sum();
    assert!(spent <= 0.03, "{spent}");
    gateway.kill();
    gateway.start();
    refused(&draw(&gateway, small()), "insufficient_quota", "budget_usd", "group");
    assert_eq!(upstream.attempt_count(), 5);
}

#[test]
fn an_unknown_cost_counts_as_the_most_over_a_restart() {
    let upstream = FakeUpstream::start();
    let mut gateway = open(&upstream, "budget_usd = 0.008\nbudget_period = \"day\"");
    // At most 0.00607 dollars; the model that the upstream names has no price.
    let small = || json!({"prompt": "a cube [[model=sketch-9]]", "quality": "low", "size": "1024x1024"});
    assert_eq!(draw(&gateway, small()).status, 200);
    assert_eq!(gateway.final_records(1)[0]["cost_basis"], "unknown");
    refused(&draw(&gateway, small()), "insufficient_quota", "budget_usd", "group");
    gateway.kill();
    gateway.start();
    refused(&draw(&gateway, small()), "insufficient_quota", "budget_usd", "group");
    let usage = ask(&gateway, Call::get("/admin/v1/usage")).ok_json();
    assert_eq!((&usage["totals"]["cost_usd"], &usage["totals"]["cost_unknown"]), (&json!(0.0), &json!(1)), "{usage}");
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn a_response_reserves_the_price_of_its_dearest_image_tool() {
    let upstream = FakeUpstream::start();
    let price =
        |model: &str, figures: &str| format!("[[prices]]\nmodel = \"{model}\"\nfrom = \"2026-01-01\"\n{figures}\n");
    let settings = format!(
        "{}{}[[models]]\nid = \"sketch-1\"\n[[models]]\nid = \"sketch-2\"\n[[groups]]\nname = \"default\"\nbudget_mode = \"strict\"\n[groups.limits]\n\
         budget_usd = 0.3",
        price("gpt-5.5", "text_input = 2\ntext_output = 8"),
        price("sketch-1", "per_image = 0.5"),
    );
    let account = Account::for_upstream("only", &upstream).with_responses_protocol();
    let gateway = Gateway::with(&settings, &[account]);
    let small = json!({"type": "image_generation", "size": "1024x1024", "quality": "low"});
    let large = json!({"type": "image_generation", "size": "3840x2160", "quality": "high"});
    let named =
        |model: &str| json!({"type": "image_generation", "model": model, "size": "1024x1024", "quality": "low"});
    let ask =
        |tools: &[&Value]| respond(&gateway, &json!({"tools": tools, "max_output_tokens": 100, "max_tool_calls": 1}));
    for other in [&large, &named("sketch-1")] {
        refused(&ask(&[&small, other]), "insufficient_quota", "budget_usd", "group");
    }
    assert_eq!(ask(&[&small, &named("sketch-2")]).error_object(503)["code"], "price_unknown");
    assert_eq!(upstream.attempt_count(), 0);
    let answer = ask(&[&small]);
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn a_failed_request_gives_its_share_back() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "budget_usd = 0.0062\nimages_per_day = 1");
    let small = |prompt: &str| draw(&gateway, json!({"prompt": prompt, "quality": "low", "size": "1024x1024"}));
    for _ in 0..3 {
        assert_eq!(small("[[status=400 body=parameter]]").status, 400);
    }
    let answer = small("a");
    assert_eq!((answer.status, answer.header("x-imagate-budget-remaining-usd")), (200, Some("0.000235")));
    refused(&small("a"), "insufficient_quota", "images_per_day", "group");
}

#[test]
fn a_budget_without_a_price_refuses_before_anything_is_sent() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "budget_usd = 100");
    let answer = draw(&gateway, json!({"model": "sketch-1"}));
    assert_eq!(answer.error_object(503)["code"], "price_unknown");
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    assert_eq!(upstream.attempt_count(), 0);
    gateway.run_command(&["price", "set", "sketch-1", "--from", "2026-01-01", "--per-image", "0.04"]).ok_stdout();
    eventually("the price is in force", || (draw(&gateway, json!({"model": "sketch-1"})).status == 200).then_some(()));
}

#[test]
fn size_quality_and_model_are_limited_by_name() {
    let upstream = FakeUpstream::start();
    let limits = "max_size = \"1536x1024\"\nmax_quality = \"medium\"\nmodels = [\"gpt-image-2\"]";
    let gateway = open(&upstream, limits);
    let allowed = json!({"size": "1024x1536", "quality": "medium"});
    let with = |name: &str, value: &str| {
        let mut fields = allowed.clone();
        fields[name] = value.into();
        fields
    };
    for (name, value) in
        [("size", "2048x2048"), ("size", "auto"), ("quality", "high"), ("quality", "auto"), ("model", "sketch-1")]
    {
        let error = draw(&gateway, with(name, value)).error_object(400);
        assert_eq!(error["param"], name, "{value}: {error}");
    }
    // Every image tool of a response keeps the same limits.
    let tool = |fields: Value| {
        let mut tool = json!({"type": "image_generation", "size": "1024x1024", "quality": "low"});
        tool.as_object_mut().expect("an object").extend(fields.as_object().expect("fields").clone());
        tool
    };
    for (tools, param) in [
        (vec![tool(json!({"size": "2048x2048"}))], "tools[0].size"),
        (vec![json!({"type": "image_generation"})], "tools[0].size"),
        (vec![json!({"type": "function", "name": "f"}), tool(json!({"model": "sketch-1"}))], "tools[1].model"),
        (vec![tool(json!({})), tool(json!({"size": "3840x2160"}))], "tools[1].size"),
        (vec![tool(json!({})), tool(json!({"quality": "high"}))], "tools[1].quality"),
        (vec![tool(json!({"model": "gpt-image-2"})), tool(json!({"model": "sketch-1"}))], "tools[1].model"),
    ] {
        let error = respond(&gateway, &json!({ "tools": tools })).error_object(400);
        let message = error["message"].as_str().expect("a message");
        assert!(error["param"] == param && message.starts_with(&format!("Invalid '{param}': the limit")), "{error}");
    }
    assert_eq!(upstream.attempt_count(), 0);
    assert_eq!(draw(&gateway, allowed).status, 200);
}

#[test]
fn only_so_many_jobs_run_at_the_same_time() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "concurrent_jobs = 2");
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..2).map(|_| scope.spawn(|| gateway.scripted("gate=go"))).collect();
        upstream.wait_until("two jobs run", |attempts| attempts.len() == 2);
        let third = draw(&gateway, json!({}));
        refused(&third, "rate_limit_exceeded", "concurrent_jobs", "group");
        assert_eq!(third.header("retry-after"), Some("2"));
        upstream.open_gate("go");
        waiting.into_iter().for_each(|thread| assert_eq!(thread.join().expect("an answer").status, 200));
    });
    assert_eq!(draw(&gateway, json!({})).status, 200);
}

#[test]
fn a_key_is_limited_by_command_and_by_the_admin_api() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "images_per_day = 100");
    let limits = ["--limit", "images_per_day=1", "--limit", "max_size=2048x2048", "--limit", "models=gpt-image-2"];
    let words = [&["key", "create", "--name", "limited", "--json"][..], &limits].concat();
    let made = gateway.run_command(&words).json();
    let (id, secret) = (made["id"].as_str().expect("an id"), made["secret"].as_str().expect("a secret"));
    let stated = json!({"images_per_day": 1, "max_size": "2048x2048", "models": ["gpt-image-2"]});
    assert_eq!(ask(&gateway, Call::get(&format!("{KEYS}/{id}"))).ok_json()["limits"], stated);
    let sized = |size: &str| {
        let fields = request(json!({"size": size}));
        Call::generation().json(&fields).key(secret).send(gateway.address())
    };
    assert_eq!(sized("3840x2160").error_object(400)["param"], "size");
    assert_eq!(sized("1024x1024").status, 200);
    refused(&sized("1024x1024"), "insufficient_quota", "images_per_day", "key");
    assert_eq!(draw(&gateway, json!({})).status, 200, "the limit of another key");

    // A change applies within a second, and replaces all limits.
    gateway.run_command(&["key", "limit", id, "--limit", "images_per_day=2"]).ok_stdout();
    eventually("the new limit is in force", || (draw_with(&gateway, secret).status == 200).then_some(()));
    refused(&draw_with(&gateway, secret), "insufficient_quota", "images_per_day", "key");
    let key = format!("{KEYS}/{id}");
    let change = |limits: Value| ask(&gateway, Call::patch(&key).json(&json!({ "limits": limits })));
    let error = change(json!({"images_per_day": 0})).error_object(400);
    assert_eq!(error["param"], "limits.images_per_day", "{error}");
    assert_eq!(change(json!({"image_per_day": 1})).error_object(400)["param"], "limits.image_per_day");
    assert_eq!(change(json!({})).ok_json().get("limits"), None);
    assert_eq!(draw_with(&gateway, secret).status, 200, "without limits");
    let failed = gateway.run_command(&["key", "limit", id, "--limit", "budget_usd=-1"]);
    assert!(failed.stderr.contains("budget_usd"), "{}", failed.stderr);
}

#[test]
fn a_replayed_answer_counts_once() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "images_per_day = 1\nrequests_per_minute = 10");
    let ask = || gateway.call(json!({})).header("idempotency-key", "once").send(gateway.address());
    let first = ask();
    assert_eq!((first.status, first.header("x-ratelimit-remaining-requests")), (200, Some("9")));
    let second = ask();
    assert_eq!((second.status, second.header("x-imagate-replayed")), (200, Some("true")));
    assert_eq!(second.header("x-ratelimit-remaining-requests"), None);
    refused(&draw(&gateway, json!({})), "insufficient_quota", "images_per_day", "group");
    // A stream is refused before it begins.
    refused(&draw(&gateway, json!({"stream": true})), "insufficient_quota", "images_per_day", "group");
}
