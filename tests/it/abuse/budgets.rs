//! The memory and the disk that one hostile user can hold: everything whose size a caller chooses is a share of the
//! budgets of its user, so a few bytes cannot take what belongs to all. These tests assert counts and memory, not times.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use super::bodies::{compressed, expanding_body, large_window_body};
use crate::kit::{
    Call, FakeUpstream, Form, Gateway, PEAK_BYTES, TEST_TIMEOUT, alpha_png, eventually, heavy_test_lock, request,
};

/// The growth of memory that any of these attacks may cause, in bytes.
const GROWTH_MAX: u64 = 32 << 20;
const ADMIN: &str = "the-admin-token-of-the-abuse-tests-0000";

fn start(top: &str) -> Gateway {
    let top = format!("{top}\nadmin_token = {{ env = \"IT_ADMIN\" }}\n");
    // The settings of a table come after those without one.
    let (tables, plain) = top.split_at(top.find("admin_token").unwrap_or_default());
    Gateway::with_secrets(&format!("{plain}{tables}"), &[], &[("IT_ADMIN", ADMIN)])
}

/// A JSON array with this many values.
fn many_values(count: usize) -> String {
    format!("[0{}]", ",0".repeat(count - 1))
}

/// The body of a call with this array as an argument.
fn tool_call(argument: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"generate_image","arguments":{{"prompt":"x","size":{argument}}}}}}}"#
    )
}

/// Calls that get a JSON body, each with the largest number of values that its size allows.
fn calls_with_trees(key: &str) -> Vec<(&'static str, Call, String)> {
    let small = many_values(500_000);
    let form = json!({"model": "gpt-image-2", "prompt": "x", "images": [{"image_url": "data:image/png;base64,AAAA"}]});
    let form = format!("{},\"size\":{}}}", form.to_string().trim_end_matches('}'), small);
    let generation = format!(r#"{{"model":"gpt-image-2","prompt":"x","size":{small}}}"#);
    let mcp = Call::post("/mcp").header("accept", "application/json, text/event-stream").key(key);
    vec![
        ("a tool call", mcp, tool_call(&many_values(2_000_000))),
        ("a generation", Call::generation().key(key), generation.clone()),
        ("an estimate", Call::post("/v1/images/estimate").key(key), generation),
        ("an edit", Call::edit().key(key), form),
        (
            "an admin operation",
            Call::post("/admin/v1/keys").key(ADMIN),
            format!(r#"{{"name":{}}}"#, many_values(30_000)),
        ),
        ("an array of objects", Call::post("/admin/v1/groups").key(ADMIN), format!("[{{}}{}]", ",{}".repeat(20_000))),
        ("many members", Call::generation().key(key), format!("{{\"a\":1{}}}", ",\"\":1".repeat(200_000))),
    ]
}

#[test]
fn a_body_of_too_many_values_is_refused_before_a_tree_is_made() {
    let _lock = heavy_test_lock();
    let mut gateway = start("");
    let idle = {
        gateway.server().reset_peak();
        gateway.server().peak_bytes()
    };
    for (name, call, body) in calls_with_trees(gateway.secret()) {
        let call = call.header("content-type", "application/json");
        let compressed = call.clone().header("content-encoding", "zstd").bytes(compressed(body.as_bytes(), 17));
        for (coding, call) in [("plain", call.bytes(body)), ("zstd", compressed)] {
            let answer = call.without_document_check().send(gateway.address());
            assert_eq!(answer.status, 413, "{name}, {coding}: {:.300}", answer.text());
            assert!(answer.text().contains("10000 JSON values"), "{name}, {coding}: {:.300}", answer.text());
        }
    }
    let grown = gateway.server().peak_bytes() - idle;
    println!("bodies of many values: {:.1} MB more", grown as f64 / 1e6);
    assert!(grown < GROWTH_MAX, "{grown} bytes");
}

#[test]
fn a_large_body_of_few_values_is_answered() {
    let gateway = start("");
    let call = Call::post("/mcp").header("accept", "application/json, text/event-stream").key(gateway.secret());
    let list =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {"x": "x".repeat(3 << 20)}}});
    let answer = call.json(&list).send(gateway.address()).ok_json();
    assert!(answer["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty()), "{answer}");
    // Every value of a generation has a type, so the prompt alone may be long.
    let answer = gateway.generate(json!({"prompt": "x".repeat(200_000)}));
    assert_eq!(answer.error_object(400)["param"], "prompt");
    let name = json!({"name": "x".repeat(60_000)});
    let answer = Call::post("/admin/v1/keys").key(ADMIN).json(&name).send(gateway.address());
    assert_eq!(answer.error_object(400)["param"], "name");
}

/// Sends heads with these bodies, whose last bytes are missing, and waits until each was read or refused.
fn hold_unfinished(address: SocketAddr, head: &[String], body: &[u8], count: usize) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for number in 0..count {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
        stream.write_all(head[number % head.len()].as_bytes()).expect("a head");
        // The gateway may have refused the request already.
        drop(stream.write_all(body));
        held.push(stream);
    }
    held
}

/// The value of a metric.
fn metric(gateway: &Gateway, name: &str) -> usize {
    let text = gateway.metrics_text();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in {text}"));
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// Waits until every one of these connections waits for more of its body or has an answer.
fn wait_until_read(gateway: &Gateway, held: &[TcpStream]) {
    eventually("every body is read or refused", || {
        let waiting = metric(gateway, "imagate_connections{state=\"reading_body\"}");
        let answered =
            held.iter().filter(|stream| stream.set_nonblocking(true).is_ok() && stream.peek(&mut [0]).is_ok());
        (waiting + answered.count() >= held.len()).then_some(())
    });
}

/// Closes the connections, and waits until the gateway has noticed it.
fn end(gateway: &Gateway, held: Vec<TcpStream>) {
    drop(held);
    let waiting = || metric(gateway, "imagate_connections{state=\"reading_body\"}");
    eventually("the bodies are gone", || (waiting() == 0).then_some(()));
}

/// The heads of a compressed response request of each key, whose body has this length and ten bytes more.
fn response_heads(address: SocketAddr, keys: &[String], length: usize) -> Vec<String> {
    let head = |key: &String| {
        format!(
            "POST /v1/responses HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-encoding: zstd\r\ncontent-length: {}\r\n\r\n",
            length + 10
        )
    };
    keys.iter().map(head).collect()
}

/// Three keys of one user.
fn keys_of_one_user(gateway: &Gateway) -> Vec<String> {
    let key = |name: &&str| {
        let made = gateway.run_command(&["key", "create", "--name", name, "--user", "eve", "--json"]).json();
        made["secret"].as_str().expect("a secret").to_owned()
    };
    ["one", "two", "three"].iter().map(key).collect()
}

fn assert_others_are_served(gateway: &Gateway) {
    let form = Form::with_required_fields().file("image", &alpha_png(64, 64));
    let answer = gateway.edit(form);
    assert_eq!(answer.status, 200, "an upload of another user: {:.300}", answer.text());
    assert_eq!(gateway.generate(json!({})).status, 200);
}

#[test]
fn compressed_bodies_of_one_user_share_what_they_expand_to() {
    let _lock = heavy_test_lock();
    let gateway = start("[uploads]\ndisk_megabytes = 256\ndisk_megabytes_per_key = 128\n");
    let keys = keys_of_one_user(&gateway);
    let body = expanding_body();
    assert!(body.len() < 600, "{} bytes", body.len());
    let held = hold_unfinished(gateway.address(), &response_heads(gateway.address(), &keys, body.len()), &body, 40);
    wait_until_read(&gateway, &held);
    assert_others_are_served(&gateway);
    let disk = metric(&gateway, "imagate_spool_bytes");
    assert!(disk <= (8 << 20) + 40 * (256 << 10), "{disk} bytes on disk");
    end(&gateway, held);
    // One body of a user that sends no other may expand as far.
    let whole = Call::post("/v1/responses").key(&keys[0]).header("content-type", "application/json");
    let answer = whole.header("content-encoding", "zstd").bytes(body).send(gateway.address());
    assert_eq!(answer.error_object(400)["reason"], "invalid_json", "it was read to its end");
}

#[test]
fn the_window_of_a_decoder_counts_for_its_user_before_it_is_fed() {
    let _lock = heavy_test_lock();
    let mut gateway = start("");
    let keys = keys_of_one_user(&gateway);
    let body = large_window_body();
    let held = hold_unfinished(gateway.address(), &response_heads(gateway.address(), &keys, body.len()), &body, 100);
    wait_until_read(&gateway, &held);
    assert_others_are_served(&gateway);
    let peak = gateway.server().peak_bytes();
    println!("windows of 8 MiB in 100 bodies: {:.1} MB", peak as f64 / 1e6);
    assert!(peak < PEAK_BYTES, "{peak} bytes");
    end(&gateway, held);
    // Each frame of a body counts, also if another one comes before it; and a small body may have no such window.
    for (path, status) in [("/v1/responses", 400), ("/mcp", 413), ("/admin/v1/keys", 413)] {
        let key = if path.starts_with("/admin") { ADMIN } else { keys[0].as_str() };
        let frames = [compressed(b" ", 17), large_window_body()].concat();
        let call = Call::post(path).key(key).header("content-type", "application/json");
        let answer = call.header("content-encoding", "zstd").bytes(frames).without_document_check();
        assert_eq!(answer.send(gateway.address()).status, status, "{path}");
    }
}

/// Opens this many connections, sends this text and this many more bytes on each as far as the gateway reads them, and
/// returns the answers of those that it closes or answers.
fn send_to_many(address: SocketAddr, text: &str, filler: usize, count: usize) -> Vec<TcpStream> {
    let filler = vec![b'x'; filler];
    let connect = |_| {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_nonblocking(true).expect("a mode");
        drop(stream.write_all(text.as_bytes()));
        drop(stream.write_all(&filler));
        stream
    };
    (0..count).map(connect).collect()
}

#[test]
fn the_head_of_a_request_has_a_limit() {
    let _lock = heavy_test_lock();
    let mut gateway = start("");
    gateway.restart_with_descriptors(4096);
    gateway.server().reset_peak();
    let idle = gateway.server().peak_bytes();
    let head = format!("GET /v1/models HTTP/1.1\r\nhost: {}\r\nx-filler: ", gateway.address());
    let heads = send_to_many(gateway.address(), &head, 120_000, 400);
    for mut stream in heads {
        stream.set_nonblocking(false).expect("a mode");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
        let mut answer = [0; 12];
        // The connection may be reset, because the gateway does not read the rest of the head.
        if stream.read_exact(&mut answer).is_ok() {
            assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 431");
        }
    }
    let grown = gateway.server().peak_bytes() - idle;
    println!("400 heads of 120 KB: {:.1} MB more", grown as f64 / 1e6);
    assert!(grown < GROWTH_MAX, "{grown} bytes");
    let path = format!("/v1/models?trace={}", "t".repeat(12_000));
    assert_eq!(Call::get(&path).key(gateway.secret()).send(gateway.address()).status, 200, "a long head is no attack");
}

#[test]
fn senders_that_are_not_known_share_a_budget_by_address() {
    let _lock = heavy_test_lock();
    let mut gateway = start("");
    gateway.restart_with_descriptors(4096);
    gateway.server().reset_peak();
    let idle = gateway.server().peak_bytes();
    let address = gateway.address();
    let form = format!(
        "POST /sign-in HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         content-length: 65536\r\n\r\nname="
    );
    let upload = format!(
        "POST /v1/images/edits HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer none\r\n\
         content-type: multipart/form-data; boundary=x\r\ncontent-length: 70000\r\n\r\n"
    );
    let head = format!("GET /v1/models HTTP/1.1\r\nhost: {address}\r\nx-filler: ");
    let held: Vec<TcpStream> = [(form, 61_000), (upload, 60_000), (head, 12_000)]
        .iter()
        .flat_map(|(text, filler)| send_to_many(address, text, *filler, 200))
        .collect();
    let body_bytes = || metric(&gateway, "imagate_body_bytes");
    let most = (0..50).map(|_| body_bytes()).max().unwrap_or_default();
    assert!(most <= 5 << 20, "{most} bytes from one address");
    assert_others_are_served(&gateway);
    drop(held);
    let grown = gateway.server().peak_bytes() - idle;
    println!("600 connections of nobody: {:.1} MB more", grown as f64 / 1e6);
    assert!(grown < GROWTH_MAX, "{grown} bytes");
}

/// One hostile user does all of it at once.
#[test]
fn a_user_with_every_attack_at_once_leaves_room_for_others() {
    let _lock = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with_upstream(&upstream);
    let keys = keys_of_one_user(&gateway);
    let address = gateway.address();
    let mut held = Vec::new();
    for body in [expanding_body(), large_window_body()] {
        held.extend(hold_unfinished(address, &response_heads(address, &keys, body.len()), &body, 30));
    }
    let tree = compressed(tool_call(&many_values(2_000_000)).as_bytes(), 17);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let call = |key: &String| {
            let call = Call::post("/mcp").header("accept", "application/json, text/event-stream").key(key);
            let call = call.header("content-type", "application/json").header("content-encoding", "zstd");
            call.bytes(tree.clone()).send(address).status
        };
        let calls: Vec<_> = keys.iter().cycle().take(6).map(|key| scope.spawn(move || call(key))).collect();
        calls.into_iter().map(|call| call.join().expect("an answer")).collect()
    });
    assert!(statuses.iter().all(|status| [413, 429].contains(status)), "{statuses:?}");
    wait_until_read(&gateway, &held);
    assert_others_are_served(&gateway);
    let answer = Call::generation().key(gateway.secret()).json(&request(json!({}))).send(address);
    assert_ne!(answer.json(), Value::Null);
    assert!(gateway.server().peak_bytes() < PEAK_BYTES, "{} bytes", gateway.server().peak_bytes());
}
