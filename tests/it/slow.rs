//! Images that take longer than a plain request may wait: the caller gets a 409, sends the request again, and the image
//! is paid for once.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};

use crate::clients::install::{node, python, script};
use crate::kit::{Account, Answer, Attempt, Call, FakeUpstream, Form, Gateway, eventually, request};

/// The header in which the official clients send the number of their retries.
const RETRY_COUNT_HEADER: &str = "x-stainless-retry-count";

/// A gateway with an answer deadline of one second.
fn gateway_with_short_deadline(upstream: &FakeUpstream) -> Gateway {
    Gateway::with("answer_deadline = \"1s\"\n", &[Account::for_upstream("only", upstream)])
}

/// A generation that waits upstream until the test opens the gate `open`.
fn gated(gateway: &Gateway) -> Call {
    gateway.call(json!({"prompt": "a cube [[gate=open]]"}))
}

#[track_caller]
fn assert_in_progress(answer: &Answer) {
    let error = answer.error_object(409);
    assert_eq!((&error["code"], &error["type"]), (&json!("image_in_progress"), &json!("server_error")), "{error}");
    assert_eq!((answer.should_retry(), answer.header("retry-after")), (Some("true"), Some("1")));
}

/// Asserts that an answer replays the image of the only upstream call.
#[track_caller]
fn assert_replays_the_image(answer: &Answer, upstream: &FakeUpstream) {
    let image: &Value = &answer.ok_json()["data"][0]["b64_json"];
    assert_eq!(image, &json!(upstream.received_attempts()[0].images[0]));
    assert_eq!(answer.header("x-imagate-replayed"), Some("true"));
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn a_retry_after_in_progress_gets_the_first_image() {
    type RetryMark = fn(Call, u32) -> Call;
    let retry_marks: [(&str, RetryMark); 3] = [
        ("nothing", |call, _| call),
        ("a retry count", |call, retries| call.header(RETRY_COUNT_HEADER, &retries.to_string())),
        ("a key", |call, _| call.header("idempotency-key", "one")),
    ];
    for (name, mark) in retry_marks {
        let upstream = FakeUpstream::start();
        let gateway = gateway_with_short_deadline(&upstream);
        for retries in 0..3 {
            assert_in_progress(&mark(gated(&gateway), retries).send(gateway.address()));
        }
        assert_eq!(upstream.attempt_count(), 1, "{name}");
        upstream.open_gate("open");
        assert_replays_the_image(&mark(gated(&gateway), 3).send(gateway.address()), &upstream);
        let records = gateway.final_records(1);
        assert_eq!((records.len(), &records[0]["state"]), (1, &json!("succeeded")), "{name}: {records:?}");
        if name == "nothing" {
            let new_answer = gated(&gateway).send(gateway.address());
            assert_eq!(
                (new_answer.status, new_answer.header("x-imagate-replayed")),
                (200, None),
                "without a retry mark, the same request again is a new job"
            );
            assert_eq!(upstream.attempt_count(), 2);
        }
    }
}

#[test]
fn an_edit_is_also_answered_with_in_progress() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with_short_deadline(&upstream);
    let edit = || {
        let form = Form::new().text("model", "gpt-image-2").text("prompt", "a hat [[gate=edit]]");
        let form = form.file("image", &crate::kit::image_specimen("png 96x64"));
        form.call().key(gateway.secret())
    };
    assert_in_progress(&edit().send(gateway.address()));
    upstream.open_gate("edit");
    assert_replays_the_image(&edit().send(gateway.address()), &upstream);
}

#[test]
fn a_job_that_waits_for_a_slot_goes_on_after_in_progress() {
    let upstream = FakeUpstream::start();
    let accounts = [Account::for_upstream("only", &upstream).with_slots(1)];
    let gateway = Gateway::with("answer_deadline = \"1s\"\n", &accounts);
    let first = gated(&gateway).dispatch(gateway.address()).expect("a connection");
    eventually("the slot is taken", || (upstream.attempt_count() > 0).then_some(()));
    let second = || gateway.call(json!({"prompt": "another cube"}));
    assert_in_progress(&second().send(gateway.address()));
    upstream.open_gate("open");
    let answer = second().send(gateway.address());
    answer.ok_json();
    assert_eq!(answer.header("x-imagate-replayed"), Some("true"));
    assert_eq!(upstream.attempt_count(), 2);
    drop(first);
}

#[test]
fn a_request_waits_as_long_as_it_states_up_to_the_image_deadline() {
    let upstream = FakeUpstream::start();
    let config = "answer_deadline = \"1s\"\n[deadlines]\nimage = \"20s\"\n";
    let gateway = Gateway::with(config, &[Account::for_upstream("only", &upstream)]);
    for (prefer, applied) in [("respond-async, wait=15", "wait=15"), ("wait=700", "wait=20")] {
        for keyed in [false, true] {
            let call = gateway.call(json!({"prompt": "a cube [[delay=2500]]", "user": format!("{applied} {keyed}")}));
            let call = if keyed { call.header("idempotency-key", applied) } else { call };
            let answer = call.header("prefer", prefer).send(gateway.address());
            answer.ok_json();
            assert_eq!(answer.header("preference-applied"), Some(applied), "{keyed}");
        }
    }
    assert_eq!(upstream.attempt_count(), 4, "each image was answered without a second request");
    let shorter = Gateway::with("", &[Account::for_upstream("only", &upstream)]);
    assert_in_progress(&gated(&shorter).header("prefer", "wait=1").send(shorter.address()));
    assert_in_progress(&gated(&gateway).header("prefer", "wait=soon").send(gateway.address()));
    upstream.open_gate("open");
}

#[test]
fn without_replay_of_orphans_a_request_waits_for_its_image() {
    let upstream = FakeUpstream::start();
    let config = "answer_deadline = \"1s\"\n[replay]\norphans = false\n";
    let gateway = Gateway::with(config, &[Account::for_upstream("only", &upstream)]);
    gateway.call(json!({"prompt": "a cube [[delay=2500]]"})).send(gateway.address()).ok_json();
    assert_eq!(upstream.attempt_count(), 1);
}

/// Runs a client script against a gateway, and asserts that each of its `calls` requests was sent upstream once.
#[track_caller]
fn assert_each_paid_once(
    calls: usize,
    command: &mut Command,
    gateway: &Gateway,
    base_url: &str,
    upstream: &FakeUpstream,
) {
    command.env("BASE_URL", base_url).env("API_KEY", gateway.secret()).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().expect("the script starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    let users: Vec<String> = upstream.received_attempts().iter().map(Attempt::user).collect();
    let distinct_users: BTreeSet<&String> = users.iter().collect();
    assert_eq!((users.len(), distinct_users.len()), (calls, calls), "{printed}");
}

fn python_script(script_name: &str) -> Command {
    let mut command = Command::new(python("IMAGATE_PY_NEWEST", "openai-newest", "openai"));
    command.arg(script(script_name));
    command
}

fn node_script(script_name: &str) -> Command {
    let folder = node("IMAGATE_NODE_OPENAI", "openai", &["openai"], &["kit.mjs", script_name]);
    let mut command = Command::new("node");
    command.arg(script_name).current_dir(folder);
    command
}

/// The times are scaled down: the answer deadline is one second, and the slowest image takes 2.5 seconds.
#[test]
fn official_clients_get_slow_images_with_their_default_settings() {
    for mut command in [python_script("slow_tour.py"), node_script("slow_tour.mjs")] {
        let upstream = FakeUpstream::start();
        let gateway = gateway_with_short_deadline(&upstream);
        command.env("DELAYS", "400 900 1500 2500");
        assert_each_paid_once(8, &mut command, &gateway, &gateway.base_url(), &upstream);
    }
}

#[test]
#[ignore = "takes ten minutes, because the times are not scaled down"]
fn official_clients_and_curl_get_images_of_up_to_590_seconds() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream).with_slots(64)]);
    let delays = [125_000, 280_000, 310_000, 590_000];
    std::thread::scope(|scope| {
        for mut command in [python_script("slow_tour.py"), node_script("slow_tour.mjs")] {
            command.env("DELAYS", delays.map(|delay: u32| delay.to_string()).join(" "));
            command.env("BASE_URL", gateway.base_url()).env("API_KEY", gateway.secret());
            scope.spawn(move || {
                let output = command.output().expect("the script starts");
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            });
        }
        for (delay, stream) in delays.into_iter().flat_map(|delay| [(delay, false), (delay, true)]) {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut responses = (0..4).map(|_| by_curl(gateway, delay, stream));
                let (status, text) = responses.find(|(status, _)| *status != 409).expect("an answer");
                assert_eq!(status, 200, "{delay} {stream}: {text:.300}");
                assert_eq!(text.contains("event: image_generation.completed"), stream, "{text:.300}");
                assert!(text.contains("b64_json"), "{text:.300}");
            });
        }
    });
    let users: BTreeSet<String> = upstream.received_attempts().iter().map(Attempt::user).collect();
    assert_eq!((upstream.attempt_count(), users.len()), (24, 24));
}

/// Sends a request with curl; returns the status and the body.
fn by_curl(gateway: &Gateway, delay: u32, stream: bool) -> (u16, String) {
    let user = format!("curl-{stream}-{delay}");
    let body = request(json!({"prompt": format!("a cube [[delay={delay}]]"), "stream": stream, "user": user}));
    let output = Command::new("curl")
        .args(["-sS", "-w", "\n%{http_code}", "-H", "content-type: application/json", "-d", &body.to_string()])
        .args(["-H", &format!("authorization: Bearer {}", gateway.secret())])
        .arg(format!("{}/images/generations", gateway.base_url()))
        .output()
        .expect("curl");
    let text = String::from_utf8_lossy(&output.stdout);
    let (body, status) = text.rsplit_once('\n').expect("a status");
    (status.parse().expect("a status"), body.to_owned())
}

/// The haproxy in front of the gateway has timeouts of two seconds; the upstream takes five.
#[test]
#[ignore = "needs haproxy, and takes minutes"]
fn behind_a_proxy_with_short_timeouts_each_image_is_paid_once() {
    for mut command in [python_script("slow_tour.py"), node_script("slow_tour.mjs")] {
        let upstream = FakeUpstream::start();
        let account = Account::for_upstream("only", &upstream).with_slots(64);
        let gateway = Gateway::with("answer_deadline = \"1800ms\"\n", &[account]);
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let config = gateway.home().join("haproxy.cfg");
        let text = format!(
            "defaults\n  mode http\n  timeout connect 2s\n  timeout client 2s\n  timeout server 2s\n\
             listen front\n  bind 127.0.0.1:{port}\n  server imagate {}\n",
            gateway.address()
        );
        std::fs::write(&config, text).expect("a configuration");
        let mut proxy = Command::new("haproxy").arg("-f").arg(&config).spawn().expect("haproxy");
        command.env("DELAYS", "5000").env("REPEAT", "200").env("PARALLEL", "40").env("PLAIN_ONLY", "1");
        assert_each_paid_once(200, &mut command, &gateway, &format!("http://127.0.0.1:{port}/v1"), &upstream);
        proxy.kill().and_then(|()| proxy.wait()).expect("haproxy ends");
    }
}
