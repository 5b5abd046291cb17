//! Images that take longer than a plain request may wait: the caller is told to come back, and the image is paid once.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};

use crate::clients::install::{node, python, script};
use crate::kit::{Account, Answer, Attempt, Call, FakeUpstream, Form, Gateway, eventually, request};

/// The count of earlier tries that the official clients send.
const RETRY: &str = "x-stainless-retry-count";

/// A gateway that lets a plain request wait for a second.
fn impatient(upstream: &FakeUpstream) -> Gateway {
    Gateway::with("answer_deadline = \"1s\"\n", &[Account::for_upstream("only", upstream)])
}

/// A generation that waits upstream until the test opens the gate.
fn gated(gateway: &Gateway) -> Call {
    gateway.call(json!({"prompt": "a cube [[gate=open]]"}))
}

#[track_caller]
fn is_in_progress(answer: &Answer) {
    let error = answer.error_object(409);
    assert_eq!((&error["code"], &error["type"]), (&json!("image_in_progress"), &json!("server_error")), "{error}");
    assert_eq!((answer.should_retry(), answer.header("retry-after")), (Some("true"), Some("1")));
}

/// The image of an answer that nobody paid for again.
#[track_caller]
fn is_the_image(answer: &Answer, upstream: &FakeUpstream) {
    let image: &Value = &answer.ok_json()["data"][0]["b64_json"];
    assert_eq!(image, &json!(upstream.ledger()[0].images[0]));
    assert_eq!(answer.header("x-imagate-replayed"), Some("true"));
    assert_eq!(upstream.attempts(), 1);
}

#[test]
fn who_asks_again_gets_the_image_that_was_begun() {
    type RetryMark = fn(Call, u32) -> Call;
    let marks: [(&str, RetryMark); 3] = [
        ("nothing", |call, _| call),
        ("a count of tries", |call, tries| call.header(RETRY, &tries.to_string())),
        ("a key", |call, _| call.header("idempotency-key", "one")),
    ];
    for (name, mark) in marks {
        let upstream = FakeUpstream::start();
        let gateway = impatient(&upstream);
        for tries in 0..3 {
            is_in_progress(&mark(gated(&gateway), tries).send(gateway.address()));
        }
        assert_eq!(upstream.attempts(), 1, "{name}");
        upstream.open_gate("open");
        is_the_image(&mark(gated(&gateway), 3).send(gateway.address()), &upstream);
        let records = gateway.final_records(1);
        assert_eq!((records.len(), &records[0]["state"]), (1, &json!("succeeded")), "{name}: {records:?}");
        if name == "nothing" {
            let another = gated(&gateway).send(gateway.address());
            assert_eq!((another.status, another.header("x-imagate-replayed")), (200, None), "another request");
            assert_eq!(upstream.attempts(), 2);
        }
    }
}

#[test]
fn an_edit_is_told_the_same() {
    let upstream = FakeUpstream::start();
    let gateway = impatient(&upstream);
    let edit = || {
        let form = Form::new().text("model", "gpt-image-2").text("prompt", "a hat [[gate=edit]]");
        let form = form.file("image", &crate::kit::image_specimen("png 96x64"));
        form.call().key(gateway.secret())
    };
    is_in_progress(&edit().send(gateway.address()));
    upstream.open_gate("edit");
    is_the_image(&edit().send(gateway.address()), &upstream);
}

#[test]
fn a_job_that_waits_for_a_place_goes_on_when_its_caller_was_told_to_come_back() {
    let upstream = FakeUpstream::start();
    let accounts = [Account::for_upstream("only", &upstream).with_slots(1)];
    let gateway = Gateway::with("answer_deadline = \"1s\"\n", &accounts);
    let first = gated(&gateway).dispatch(gateway.address()).expect("a connection");
    eventually("the place is taken", || (upstream.attempts() > 0).then_some(()));
    let second = || gateway.call(json!({"prompt": "another cube"}));
    is_in_progress(&second().send(gateway.address()));
    upstream.open_gate("open");
    let answer = second().send(gateway.address());
    answer.ok_json();
    assert_eq!(answer.header("x-imagate-replayed"), Some("true"));
    assert_eq!(upstream.attempts(), 2);
    drop(first);
}

#[test]
fn who_could_not_be_given_the_image_later_waits_for_it() {
    let upstream = FakeUpstream::start();
    let top = "answer_deadline = \"1s\"\n[replay]\norphans = false\n";
    let gateway = Gateway::with(top, &[Account::for_upstream("only", &upstream)]);
    gateway.call(json!({"prompt": "a cube [[delay=2500]]"})).send(gateway.address()).ok_json();
    assert_eq!(upstream.attempts(), 1);
}

/// Runs a command against a gateway, and asserts that each of its requests was paid once.
#[track_caller]
fn costs(calls: usize, command: &mut Command, gateway: &Gateway, base_url: &str, upstream: &FakeUpstream) {
    command.env("BASE_URL", base_url).env("API_KEY", gateway.secret()).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().expect("the script starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    let users: Vec<String> = upstream.ledger().iter().map(Attempt::user).collect();
    let one_each: BTreeSet<&String> = users.iter().collect();
    assert_eq!((users.len(), one_each.len()), (calls, calls), "{printed}");
}

fn in_python(script_name: &str) -> Command {
    let mut command = Command::new(python("IMAGATE_PY_NEWEST", "openai-newest", "openai"));
    command.arg(script(script_name));
    command
}

fn in_node(script_name: &str) -> Command {
    let place = node("IMAGATE_NODE_OPENAI", "openai", &["openai"], &["kit.mjs", script_name]);
    let mut command = Command::new("node");
    command.arg(script_name).current_dir(place);
    command
}

/// A scaled clock: the answer deadline is a second, and the slowest image takes two and a half.
#[test]
fn official_clients_get_slow_images_with_their_default_settings() {
    for mut command in [in_python("slow_tour.py"), in_node("slow_tour.mjs")] {
        let upstream = FakeUpstream::start();
        let gateway = impatient(&upstream);
        command.env("DELAYS", "400 900 1500 2500");
        costs(8, &mut command, &gateway, &gateway.base_url(), &upstream);
    }
}

#[test]
#[ignore = "takes ten minutes: the real clock"]
fn official_clients_and_curl_get_images_of_up_to_590_seconds() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream).with_slots(64)]);
    let delays = [125_000, 280_000, 310_000, 590_000];
    std::thread::scope(|scope| {
        for mut command in [in_python("slow_tour.py"), in_node("slow_tour.mjs")] {
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
                let tries = (0..4).map(|_| by_curl(gateway, delay, stream)).find(|(status, _)| *status != 409);
                let (status, text) = tries.expect("an answer");
                assert_eq!(status, 200, "{delay} {stream}: {text:.300}");
                assert_eq!(text.contains("event: image_generation.completed"), stream, "{text:.300}");
                assert!(text.contains("b64_json"), "{text:.300}");
            });
        }
    });
    let users: BTreeSet<String> = upstream.ledger().iter().map(Attempt::user).collect();
    assert_eq!((upstream.attempts(), users.len()), (24, 24));
}

/// The status and the body of a request by curl.
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

/// haproxy in front that gives up after two seconds, before an upstream that takes five.
#[test]
#[ignore = "needs haproxy, and takes minutes"]
fn behind_a_proxy_that_gives_up_early_every_image_arrives_and_is_paid_once() {
    for mut command in [in_python("slow_tour.py"), in_node("slow_tour.mjs")] {
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
        costs(200, &mut command, &gateway, &format!("http://127.0.0.1:{port}/v1"), &upstream);
        proxy.kill().and_then(|()| proxy.wait()).expect("haproxy ends");
    }
}
