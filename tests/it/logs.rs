//! The log: a log or a standard output that nobody reads blocks nothing, and programs can parse the log.

use std::io::{BufRead, BufReader, PipeReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::kit::{Call, Program, ends_within, eventually, pause, signal};

/// The capacity of a pipe on Linux.
const PIPE_BYTES: usize = 65_536;

const CONFIG: &str =
    "listen = \"127.0.0.1:0\"\nmetrics_listen = \"127.0.0.1:0\"\ndata_dir = \"data\"\ndrain_timeout = \"2s\"\n";

fn program(home: &TempDir) -> Program {
    std::fs::write(home.path().join("imagate.toml"), CONFIG).expect("a configuration");
    Program::new(home.path()).env("IMAGATE_CONFIG", "imagate.toml").env("IMAGATE_LOG", "info")
}

fn key(home: &TempDir) -> String {
    let made = program(home).args(["key", "create", "--name", "it", "--json"]).run().json();
    made["secret"].as_str().expect("a secret").to_owned()
}

/// Reads until a line contains this text.
fn read_until(log: &mut BufReader<ChildStderr>, wanted: &str) -> String {
    let mut line = String::new();
    while !line.contains(wanted) {
        line.clear();
        assert!(log.read_line(&mut line).expect("a line") > 0, "the log ended without `{wanted}`");
    }
    line
}

/// The address in the line of the log that says where the metrics are served.
fn metrics_address(log: &mut BufReader<ChildStderr>) -> SocketAddr {
    let line = read_until(log, "metrics are served address=");
    line.split_once("address=").expect("an address").1.trim().parse().expect("an address")
}

/// Starts a gateway whose standard output is a full pipe; returns the reading end of the pipe, the log, the process and
/// the address of the metrics.
fn serve_with_full_output(home: &TempDir) -> (PipeReader, BufReader<ChildStderr>, Child, SocketAddr) {
    let (output, mut full) = std::io::pipe().expect("a pipe");
    full.write_all(&[b'-'; PIPE_BYTES]).expect("room");
    let mut child = program(home).args(["serve"]).spawn_printing_to(full);
    let mut log = BufReader::new(child.stderr.take().expect("a log"));
    let metrics = metrics_address(&mut log);
    assert_eq!(Call::get("/healthz").send(metrics).status, 200);
    (output, log, child, metrics)
}

/// How many lines of the log were dropped, as the metrics count them.
fn dropped(metrics: SocketAddr) -> u64 {
    let counts = Call::get("/metrics").send(metrics).text();
    let line = counts.lines().find_map(|line| line.strip_prefix("imagate_log_lines_dropped_total "));
    line.unwrap_or_else(|| panic!("no count of dropped lines in\n{counts}")).parse().expect("a number")
}

/// Sends requests, four at once; each must be answered.
fn ask(times: usize, address: SocketAddr, key: &str) {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..times / 4).for_each(|_| drop(Call::get("/v1/models").key(key).send(address).ok_json())));
        }
    });
}

#[test]
fn a_log_that_nobody_reads_delays_no_request() {
    let home = TempDir::new().expect("a directory");
    let key = key(&home);
    let (mut server, mut log) = program(&home).env("IMAGATE_LOG", "trace").args(["serve"]).serve_with_log();
    let metrics = metrics_address(&mut log);
    assert_eq!(dropped(metrics), 0);

    ask(10_000, server.address(), &key);
    let lost = dropped(metrics);
    assert!(lost > 0, "the queue of the log holds more than this test logs");
    let said = read_until(&mut log, "lines of the log were dropped");
    assert!(said.contains(" WARN "), "{said}");

    ask(1_000, server.address(), &key);
    server.terminate();
    let status = server.wait(Duration::from_secs(10));
    assert!(status.success(), "{status}");
}

#[test]
fn standard_output_that_nobody_reads_does_not_prevent_a_stop() {
    let home = TempDir::new().expect("a directory");
    let (_output, _log, mut child, _) = serve_with_full_output(&home);
    // The metrics are served before anything is printed: the signal must come while the text cannot be printed.
    pause(Duration::from_millis(500));
    signal(&child, "TERM");
    let ended = ends_within(&mut child, Duration::from_secs(10));
    drop(child.kill());
    drop(child.wait());
    assert!(ended, "it still runs");
}

#[test]
fn each_line_can_be_a_json_object_with_the_id_of_its_request() {
    let home = TempDir::new().expect("a directory");
    let key = key(&home);
    let server = program(&home).env("IMAGATE_LOG_FORMAT", "json").args(["serve"]).serve();
    let answer = Call::get("/v1/models").key(&key).send(server.address());
    answer.ok_json();
    let id = answer.header("x-request-id").expect("an id").to_owned();
    let answered = eventually("the request is logged", || {
        let log = server.stderr();
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line}")));
        lines.into_iter().find(|line| line["fields"]["message"] == "answered")
    });
    assert_eq!(answered["fields"]["request_id"], id, "{answered}");
    assert_eq!(
        (&answered["level"], &answered["target"]),
        (&"INFO".into(), &"imagate::gateway::front::response".into())
    );
    assert!(answered["timestamp"].is_string(), "{answered}");
}

#[test]
fn a_line_that_is_written_within_a_request_holds_the_id_of_the_request() {
    let home = TempDir::new().expect("a directory");
    let key = key(&home);
    let server =
        program(&home).env("IMAGATE_LOG", "imagate=debug").env("IMAGATE_LOG_FORMAT", "json").args(["serve"]).serve();
    let body = serde_json::json!({"model": "gpt-image-2", "prompt": "a cube"});
    let answer = Call::generation().key(&key).json(&body).send(server.address());
    answer.ok_json();
    let begun = eventually("the job is logged", || {
        let log = server.stderr();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| line["fields"]["message"] == "a job begins")
    });
    let id = answer.header("x-request-id").expect("an id");
    assert_eq!((&begun["span"]["name"], &begun["span"]["id"]), (&"request".into(), &id.into()), "{begun}");
}

#[test]
fn standard_output_that_is_closed_does_not_end_the_gateway() {
    let home = TempDir::new().expect("a directory");
    let (output, _log, mut child, metrics) = serve_with_full_output(&home);
    drop(output);
    let ended = ends_within(&mut child, Duration::from_secs(2));
    let answers = !ended && Call::get("/healthz").send(metrics).status == 200;
    signal(&child, "TERM");
    let stopped = ends_within(&mut child, Duration::from_secs(10));
    drop(child.kill());
    let status = child.wait().expect("a status");
    assert!(answers && stopped && status.success(), "it ended by itself: {ended}, {status}");
}
