//! A full disk: a caller who fills it does not stop other callers, and a part of it is reserved for the database.

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{
    Account, Answer, Call, FakeUpstream, Form, Gateway, Program, Server, SmallDisk, eventually, request, stretched_png,
};
use crate::pages::users::sign_in_ada;
use crate::pages::visitor::{self, Visitor};

const MIB: usize = 1024 * 1024;
/// The size of the disk in megabytes.
const DISK: usize = 64;
/// The part of the disk that is reserved for the database, in megabytes.
const RESERVED: usize = 8;
/// The size of an upload in bytes. Two of them do not fit on the disk, and each is below the limit of an image.
const UPLOAD: usize = 40 * MIB;
/// The answer that the script of the playground asks for.
const EVENTS: &str = "text/event-stream";

/// A gateway whose data folder is on a small disk.
struct SmallDiskGateway {
    server: Server,
    upstream: FakeUpstream,
    disk: SmallDisk,
    home: TempDir,
}

// === impl SmallDiskGateway ===

impl SmallDiskGateway {
    /// Starts the gateway. `None` if the machine does not allow a test to mount a disk.
    fn new() -> Option<Self> {
        let home = TempDir::new().expect("a directory");
        let disk = SmallDisk::mount(&home.path().join("data"), DISK)?;
        let upstream = FakeUpstream::start();
        let file = format!(
            "listen = \"127.0.0.1:0\"\ndata_dir = \"data\"\n\n[[groups]]\nname = \"default\"\ndialects = [\"url\"]\n\n[uploads]\nmin_free_megabytes = {RESERVED}\n\n\
             [[accounts]]\nname = \"only\"\nkind = \"api_key\"\nbase_url = \"{}\"\n\
             api_key = {{ env = \"IT_TOKEN\" }}\n",
            upstream.base_url()
        );
        std::fs::write(home.path().join("imagate.toml"), file).expect("a configuration");
        let server = program(&home).args(["serve"]).serve();
        Some(Self { server, upstream, disk, home })
    }

    fn key(&self, name: &str) -> String {
        let words = ["key", "create", "--name", name, "--user", name, "--json"];
        program(&self.home).args(words).run().json()["secret"].as_str().expect("a secret").to_owned()
    }

    fn ready(&self) -> (u16, String) {
        let answer = Call::get("/readyz").send(self.server.address());
        (answer.status, answer.text())
    }

    #[track_caller]
    fn wait_until_ready_is(&self, status: u16, words: &str) {
        eventually(words, || (self.ready() == (status, words.to_owned())).then_some(()));
    }

    fn generate(&self, call: Call) -> Answer {
        call.json(&request(json!({"prompt": "a cube [[b64=2000000]]"}))).send(self.server.address())
    }

    fn records(&self) -> Vec<Value> {
        let output = program(&self.home).args(["usage", "--json"]).run();
        output.ok_stdout().lines().map(|line| serde_json::from_str(line).expect("a record per line")).collect()
    }

    /// The free bytes of the disk.
    fn free(&self) -> usize {
        let folder = self.home.path().join("data");
        let output = Command::new("df").args(["--output=avail", "-B1"]).arg(folder).output().expect("df runs");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().last().and_then(|line| line.trim().parse().ok()).expect("a number")
    }
}

fn program(home: &TempDir) -> Program {
    Program::new(home.path()).env("IMAGATE_CONFIG", "imagate.toml").env("IT_TOKEN", "sk-upstream-only")
}

/// Begins an edit: sends this many bytes of an image, and keeps the connection open.
fn unfinished(gateway: &SmallDiskGateway, key: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.server.address()).expect("a connection");
    let mut text = format!(
        "POST /v1/images/edits HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
         content-type: multipart/form-data; boundary=x\r\ncontent-length: {}\r\n\r\n\
         --x\r\ncontent-disposition: form-data; name=\"image\"; filename=\"a.png\"\r\n\
         content-type: image/png\r\n\r\n",
        2 * UPLOAD
    )
    .into_bytes();
    text.extend(std::iter::repeat_n(b' ', length));
    // The gateway may close the connection of a refused upload, so an error is ignored.
    drop(stream.write_all(&text));
    stream
}

#[test]
fn unfinished_uploads_of_one_key_do_not_block_other_keys() {
    let Some(gateway) = SmallDiskGateway::new() else { return };
    let (bob, eve) = (gateway.key("bob"), gateway.key("eve"));
    let edit = || {
        let form = Form::with_required_fields().big_file("image", stretched_png(64, 64, MIB));
        form.call().key(&bob).send(gateway.server.address())
    };
    edit().ok_json();
    gateway.wait_until_ready_is(200, "ready\n");

    let before = gateway.free();
    let first = unfinished(&gateway, &eve, UPLOAD);
    eventually("the first upload is on the disk", || (gateway.free() + UPLOAD <= before + MIB).then_some(()));
    let second = unfinished(&gateway, &eve, gateway.free() - RESERVED * MIB - MIB / 2);
    let third = unfinished(&gateway, &eve, UPLOAD);
    for number in 1..=3 {
        gateway.generate(Call::generation().key(&bob)).ok_json();
        let records = gateway.records();
        assert_eq!((records.len(), &records[number]["state"]), (number + 1, &json!("succeeded")), "{records:#?}");
    }
    edit().error_object(503);
    assert_eq!(gateway.ready(), (200, "ready\n".to_owned()), "a caller must not make the gateway unready");

    // Another process uses the space that is reserved for the database.
    gateway.disk.fill_except(RESERVED as u64 / 4);
    gateway.wait_until_ready_is(503, "not ready: disk_space\n");
    gateway.disk.clear();
    drop((first, second, third));
    gateway.wait_until_ready_is(200, "ready\n");
    eventually("uploads are possible again", || (edit().status == 200).then_some(()));
}

#[test]
fn stored_answers_leave_space_for_uploads_and_records() {
    let Some(gateway) = SmallDiskGateway::new() else { return };
    let key = gateway.key("ada");
    let keyed = |number: usize| {
        let call = Call::generation().key(&key).header("idempotency-key", &format!("order-{number}"));
        gateway.generate(call)
    };
    let (count, min_free) = (DISK / 2, (2 * RESERVED - RESERVED / 2) * MIB);
    (0..count).for_each(|number| drop(keyed(number).ok_json()));
    assert!(gateway.free() > min_free, "{} bytes are left", gateway.free());
    gateway.wait_until_ready_is(200, "ready\n");
    keyed(count - 1).ok_json();
    assert_eq!(gateway.upstream.attempt_count(), count, "the newest answer is stored");
    keyed(0).error_object(502);

    // If another process uses the free space, the gateway deletes as many stored answers as necessary.
    gateway.disk.fill_except(RESERVED as u64 + 2);
    keyed(count).ok_json();
    assert!(gateway.free() > min_free, "{} bytes are left", gateway.free());
    keyed(count).ok_json();
    assert_eq!(gateway.upstream.attempt_count(), count + 1);
}

#[test]
fn an_answer_that_does_not_fit_on_disk_is_sent_and_kept_in_memory() {
    let Some(gateway) = SmallDiskGateway::new() else { return };
    let key = gateway.key("ada");
    gateway.disk.fill_except(RESERVED as u64 + 2);
    let call = || gateway.generate(Call::generation().key(&key).header("idempotency-key", "order-1"));
    call().ok_json();
    eventually("the log reports that the answer is not stored", || {
        let log = gateway.server.stderr();
        (log.contains("an answer is not stored") && log.contains("the remaining disk space")).then_some(())
    });
    call().ok_json();
    assert_eq!(gateway.upstream.attempt_count(), 1, "the retry must not be paid for again");
}

#[test]
fn images_that_cannot_be_stored_are_in_the_answer_instead_of_links() {
    let Some(gateway) = SmallDiskGateway::new() else { return };
    let key = gateway.key("ada");
    gateway.disk.fill_except(RESERVED as u64 + 2);
    let generate = |idempotency_key: Option<&str>| {
        let call = Call::generation().key(&key).json(&request(json!({
            "prompt": "a cube [[b64=9000000]]", "response_format": "url"
        })));
        let call = match idempotency_key {
            Some(word) => call.header("idempotency-key", word),
            None => call,
        };
        call.without_document_check().send(gateway.server.address())
    };
    for answer in [generate(None), generate(Some("order-1"))] {
        let image = answer.ok_json()["data"][0].clone();
        assert!(image.get("url").is_none() && answer.complete, "{:?}", answer.header("content-length"));
        assert!(image["b64_json"].as_str().is_some_and(|text| text.len() > 8_000_000), "the image is in the answer");
    }
    assert_eq!(gateway.upstream.attempt_count(), 2);
    let records = gateway.records();
    assert!(records.iter().all(|record| record["state"] == "succeeded"), "{records:#?}");
}

/// The space for the answers is held from before their images are made.
#[test]
fn images_whose_links_have_space_keep_their_links_if_the_disk_fills_meanwhile() {
    let Some(gateway) = SmallDiskGateway::new() else { return };
    let (key, count) = (gateway.key("ada"), 6);
    let generate = |number: usize| {
        let prompt = format!("cube {number} [[b64=9000000 gate=all]]");
        let body = request(json!({"prompt": prompt, "size": "1024x1024", "response_format": "url"}));
        let call = Call::generation().key(&key).json(&body).without_document_check();
        let call = if number.is_multiple_of(2) { call.header("idempotency-key", &prompt) } else { call };
        call.send(gateway.server.address()).ok_json()["data"][0].clone()
    };
    let images: Vec<Value> = thread::scope(|scope| {
        let generate = &generate;
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || generate(number))).collect();
        gateway.upstream.wait_until("all calls are paid for", |attempts| attempts.len() == count);
        gateway.disk.fill_except(RESERVED as u64 + 24);
        gateway.upstream.open_gate("all");
        threads.into_iter().map(|thread| thread.join().expect("an image")).collect()
    });
    images.iter().for_each(|image| check_link(&gateway, &image["url"]));
}

#[test]
fn a_tool_call_whose_image_cannot_be_stored_costs_nothing() {
    let Some(gateway) = SmallDiskGateway::new() else { return };
    let key = gateway.key("ada");
    let call = |prompt: &str| {
        let arguments = json!({"name": "generate_image", "arguments": {"prompt": prompt}});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": arguments});
        let call = Call::post("/mcp").header("accept", "application/json, text/event-stream").json(&message).key(&key);
        call.send(gateway.server.address()).ok_json()["result"].clone()
    };
    assert_eq!(call("a cube")["isError"], false);
    gateway.disk.fill_except(RESERVED as u64 + 2);
    let refused = call("a ball");
    assert_eq!(
        (&refused["isError"], &refused["structuredContent"]["code"]),
        (&json!(true), &json!("service_unavailable"))
    );
    assert_eq!(call("a cube")["isError"], false, "the earlier image is still there");
    assert_eq!(gateway.upstream.attempt_count(), 1);
}

/// Calls the tool `generate_image`, and returns its result.
fn call_tool(gateway: &SmallDiskGateway, key: &str, arguments: &Value) -> Value {
    let arguments = json!({"name": "generate_image", "arguments": arguments});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": arguments});
    let call = Call::post("/mcp").header("accept", "application/json, text/event-stream").json(&message).key(key);
    call.send(gateway.server.address()).ok_json()["result"].clone()
}

/// Checks that a result has an image, and that its link leads to a file.
fn check_delivered(gateway: &SmallDiskGateway, result: &Value) {
    assert_eq!(result["isError"], false, "{result:.500}");
    check_link(gateway, &result["structuredContent"]["images"][0]["url"]);
}

/// Checks that a link leads to a file.
fn check_link(gateway: &SmallDiskGateway, url: &Value) {
    let url = url.as_str().expect("a link");
    let path = url.split_once("/v1/").map(|(_, path)| format!("/v1/{path}")).expect("a path");
    let file = Call::get(&path).without_document_check().send(gateway.server.address());
    assert!(file.status == 200 && file.complete && !file.body.is_empty(), "{}", file.status);
}

/// The space for the answer is held until it is there, so calls beyond it cost nothing.
#[test]
fn tool_calls_at_once_are_paid_for_only_as_far_as_their_images_have_space() {
    let Some(gateway) = SmallDiskGateway::new() else { return };
    let (key, count) = (gateway.key("ada"), 8);
    let call = |number: usize| {
        // Each of these images may take seventeen megabytes, and the disk has room for two of them.
        let prompt = format!("cube {number} [[gate=all]]");
        call_tool(&gateway, &key, &json!({"prompt": prompt, "size": "2048x2048"}))
    };
    let (sender, results) = mpsc::channel();
    let mut delivered = 0;
    thread::scope(|scope| {
        for number in 0..count {
            let (sender, call) = (sender.clone(), &call);
            scope.spawn(move || sender.send((number, call(number))).expect("the test waits"));
        }
        let refused: Vec<(usize, Value)> = (0..count - 2).map(|_| results.recv().expect("a result")).collect();
        for (_, result) in &refused {
            let text = result["content"][0]["text"].as_str().expect("a text");
            assert_eq!(result["structuredContent"]["code"], "service_unavailable", "{result}");
            assert!(text.contains("Nothing was spent") && text.contains("Repeat the call later"), "{text}");
            assert!(!text.contains("variation"), "{text}");
        }
        gateway.upstream.wait_until("two calls are paid for", |attempts| attempts.len() == 2);
        gateway.upstream.open_gate("all");
        for (_, result) in (0..2).map(|_| results.recv().expect("a result")) {
            check_delivered(&gateway, &result);
            delivered += 1;
        }
        // The space is free again.
        check_delivered(&gateway, &call(refused[0].0));
    });
    assert_eq!((delivered, gateway.upstream.attempt_count()), (2, 3));
}

/// The images are larger than the reservations, so most of them do not fit on the disk.
#[test]
fn tool_calls_that_were_paid_for_deliver_their_images_from_memory_if_the_disk_is_full() {
    let Some(gateway) = SmallDiskGateway::new() else { return };
    let (key, count) = (gateway.key("ada"), 8);
    let call = |number: usize| {
        let prompt = format!("cube {number} [[b64=9000000 gate=all]]");
        call_tool(&gateway, &key, &json!({"prompt": prompt, "size": "1024x1024"}))
    };
    let results: Vec<Value> = thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || call(number))).collect();
        gateway.upstream.wait_until("all calls are paid for", |attempts| attempts.len() == count);
        gateway.disk.fill_except(RESERVED as u64 + 32);
        gateway.upstream.open_gate("all");
        threads.into_iter().map(|thread| thread.join().expect("a result")).collect()
    });
    results.iter().for_each(|result| check_delivered(&gateway, result));
    // The same calls again get the same images.
    (0..count).for_each(|number| check_delivered(&gateway, &call(number)));
    assert_eq!(gateway.upstream.attempt_count(), count);
}

#[test]
fn forms_are_paid_for_only_if_their_pictures_can_be_shown() {
    let upstream = FakeUpstream::start();
    let settings = format!("\n[uploads]\nmin_free_megabytes = {RESERVED}\n");
    let mut gateway = Gateway::with(&settings, &[Account::for_upstream("only", &upstream)]);
    gateway.kill();
    let Some(disk) = gateway.move_data_to_disk(DISK) else { return };
    gateway.start();
    let mut ada = sign_in_ada(&gateway);
    let send = |visitor: &mut Visitor<'_>, prompt: &str, size: &str| {
        let form = visitor.form("/studio", "/studio").with(&[("prompt", prompt), ("size", size)]);
        visitor.post("/studio", &form.fields)
    };
    let send_by_script = |visitor: &mut Visitor<'_>, prompt: &str| {
        let form = visitor.form("/studio", "/studio").with(&[("prompt", prompt), ("size", "1024x1024")]);
        let origin = visitor.origin();
        visitor.send(visitor::post("/studio", &form.fields).header("origin", &origin).header("accept", EVENTS))
    };
    let picture = |ada: &mut Visitor<'_>, answer: &Answer| {
        let path = answer.header("location").or(answer.header("content-location"));
        ada.get(&format!("{}/0", path.unwrap_or_else(|| panic!("no path: {:.500}", answer.text())))).status
    };
    let first = send(&mut ada, "a cube", "1024x1024");
    assert_eq!(picture(&mut ada, &first), 200);

    // Forms at once, whose pictures are larger than their reservations. A script asks for three images, with the
    // intermediate ones.
    let answers: Vec<Answer> = thread::scope(|scope| {
        let forms = (0..4).map(|number| {
            let (mut visitor, prompt) = (ada.clone(), format!("cube {number} [[b64=9000000 gate=all]]"));
            scope.spawn(move || match number {
                0 => send_by_script(&mut visitor, &prompt),
                _ => send(&mut visitor, &prompt, "1024x1024"),
            })
        });
        let threads: Vec<_> = forms.collect();
        upstream.wait_until("all forms are paid for", |attempts| attempts.len() == 5);
        disk.fill_except(RESERVED as u64 + 24);
        upstream.open_gate("all");
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    for answer in &answers {
        assert_eq!(picture(&mut ada, answer), 200);
        // A page with a script has the picture in its answer, too.
        assert!(answer.status == 303 || (answer.complete && answer.body.len() > 8_000_000), "{}", answer.status);
    }

    // Without space, nothing is paid, and the form says so.
    let refused = send(&mut ada, "a ball", "1024x1024");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("Nothing was spent"), "{}", refused.text());
    // A page with a script can be loaded again, so it is no exception.
    let refused = send_by_script(&mut ada, "a ball");
    assert_eq!(refused.error_object(503)["code"], "service_unavailable");
    assert_eq!(upstream.attempt_count(), 5);
    disk.clear();
    let again = send(&mut ada, "a ball", "1024x1024");
    assert_eq!(picture(&mut ada, &again), 200);
}
