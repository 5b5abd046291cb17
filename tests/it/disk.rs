//! A disk that runs out: whoever fills it keeps nobody else from an image, and the last of it is for records.

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{
    Answer, Call, FakeUpstream, Form, Program, Server, SmallDisk, eventually, heavy_test_lock, request, stretched_png,
};

const MIB: usize = 1024 * 1024;
/// The size of every disk here, and the part of it that belongs to the database, in megabytes.
const DISK: usize = 64;
const FLOOR: usize = 8;
/// Three of these are more than the disk has, and each is smaller than what one image may be.
const UPLOAD: usize = 40 * MIB;

/// A gateway whose data lies on a small disk.
struct SmallDiskGateway {
    server: Server,
    upstream: FakeUpstream,
    disk: SmallDisk,
    home: TempDir,
}

// === impl SmallDiskGateway ===

impl SmallDiskGateway {
    /// Nothing where this machine does not let a test mount anything.
    fn new() -> Option<Self> {
        let home = TempDir::new().expect("a directory");
        let disk = SmallDisk::mount(&home.path().join("data"), DISK)?;
        let upstream = FakeUpstream::start();
        let file = format!(
            "listen = \"127.0.0.1:0\"\ndata_dir = \"data\"\n\n[uploads]\nmin_free_megabytes = {FLOOR}\n\n[[accounts]]\n\
             name = \"only\"\nkind = \"api_key\"\nbase_url = \"{}\"\napi_key = {{ env = \"IT_TOKEN\" }}\n",
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
    fn becomes(&self, status: u16, words: &str) {
        eventually(words, || (self.ready() == (status, words.to_owned())).then_some(()));
    }

    fn generate(&self, call: Call) -> Answer {
        call.json(&request(json!({"prompt": "a cube [[b64=2000000]]"}))).send(self.server.address())
    }

    fn records(&self) -> Vec<Value> {
        let done = program(&self.home).args(["usage", "--json"]).run();
        done.ok_stdout().lines().map(|line| serde_json::from_str(line).expect("a record per line")).collect()
    }

    /// Bytes that are left of the disk.
    fn free(&self) -> usize {
        let folder = self.home.path().join("data");
        let done = Command::new("df").args(["--output=avail", "-B1"]).arg(folder).output().expect("df runs");
        let text = String::from_utf8(done.stdout).expect("text");
        text.lines().last().and_then(|line| line.trim().parse().ok()).expect("a number")
    }
}

fn program(home: &TempDir) -> Program {
    Program::new(home.path()).env("IMAGATE_CONFIG", "imagate.toml").env("IT_TOKEN", "sk-upstream-only")
}

/// An edit that sends so many bytes of an image, and then no more; the connection stays.
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
    // A refused upload is closed in the middle.
    drop(stream.write_all(&text));
    stream
}

#[test]
fn a_key_that_fills_the_disk_with_unfinished_uploads_keeps_nobody_else_from_an_image() {
    let _turn = heavy_test_lock();
    let Some(gateway) = SmallDiskGateway::new() else { return };
    let (bob, eve) = (gateway.key("bob"), gateway.key("eve"));
    let edit = || {
        let form = Form::with_required_fields().big_file("image", stretched_png(64, 64, MIB));
        form.call().key(&bob).send(gateway.server.address())
    };
    edit().ok_json();
    gateway.becomes(200, "ready\n");

    let before = gateway.free();
    let first = unfinished(&gateway, &eve, UPLOAD);
    eventually("the first upload lies there", || (gateway.free() + UPLOAD <= before + MIB).then_some(()));
    let second = unfinished(&gateway, &eve, gateway.free() - FLOOR * MIB - MIB / 2);
    let third = unfinished(&gateway, &eve, UPLOAD);
    for number in 1..=3 {
        gateway.generate(Call::generation().key(&bob)).ok_json();
        let records = gateway.records();
        assert_eq!((records.len(), &records[number]["state"]), (number + 1, &json!("succeeded")), "{records:#?}");
    }
    edit().error_object(503);
    assert_eq!(gateway.ready(), (200, "ready\n".to_owned()), "a caller takes no gateway out of service");

    // Something else than a caller takes the part of the database.
    gateway.disk.fill_except(FLOOR as u64 / 4);
    gateway.becomes(503, "not ready: disk_space\n");
    gateway.disk.clear();
    drop((first, second, third));
    gateway.becomes(200, "ready\n");
    eventually("there is room for uploads again", || (edit().status == 200).then_some(()));
}

#[test]
fn kept_answers_leave_the_last_of_the_disk_to_uploads_and_records() {
    let _turn = heavy_test_lock();
    let Some(gateway) = SmallDiskGateway::new() else { return };
    let key = gateway.key("ada");
    let keyed = |number: usize| {
        let call = Call::generation().key(&key).header("idempotency-key", &format!("order-{number}"));
        gateway.generate(call)
    };
    let (count, least) = (DISK / 2, (2 * FLOOR - FLOOR / 2) * MIB);
    (0..count).for_each(|number| drop(keyed(number).ok_json()));
    assert!(gateway.free() > least, "{} bytes are left", gateway.free());
    gateway.becomes(200, "ready\n");
    keyed(count - 1).ok_json();
    assert_eq!(gateway.upstream.attempts(), count, "the newest is kept");
    keyed(0).error_object(502);

    // Others take what there was: of what is kept as much goes as is missing.
    gateway.disk.fill_except(FLOOR as u64 + 2);
    keyed(count).ok_json();
    assert!(gateway.free() > least, "{} bytes are left", gateway.free());
    keyed(count).ok_json();
    assert_eq!(gateway.upstream.attempts(), count + 1);
}

#[test]
fn an_answer_for_which_the_disk_has_no_room_is_given_and_not_kept() {
    let Some(gateway) = SmallDiskGateway::new() else { return };
    let key = gateway.key("ada");
    gateway.disk.fill_except(FLOOR as u64 + 2);
    let call = || gateway.generate(Call::generation().key(&key).header("idempotency-key", "order-1"));
    call().ok_json();
    eventually("the log says so", || {
        let log = gateway.server.stderr();
        (log.contains("an answer is not stored") && log.contains("the remaining disk space")).then_some(())
    });
    assert_eq!(call().error_object(502)["reason"], "outcome_unknown");
    assert_eq!(gateway.upstream.attempts(), 1, "it is not paid for again");
}
