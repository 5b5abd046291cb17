//! Requests that are refused before their body is read: every client sees the refusal, whatever the size of the body.

use std::path::Path;
use std::process::Command;

use imagate::client::{Client, EditRequest, ErrorKind, Input};
use serde_json::{Value, json};

use super::install::{node, reuse_python, script};
use super::pictures;
use crate::kit::{Call, Gateway, image_specimen, request};

/// The sizes of the bodies in bytes.
const SIZES: [usize; 5] = [12, 50_000, 300_000, 3_000_000, 20_000_000];
/// The refusals of each case in the ordinary run, half of them over a connection of their own; `EARLY_ANSWERS_COUNT`
/// sets another number.
const COUNT: usize = 4;
const PYTHON_CLIENTS: [&str; 5] = ["urllib", "requests", "httpx", "aiohttp", "openai-python"];
const NODE_CLIENTS: [&str; 3] = ["node-fetch", "node-http", "openai-node"];

/// A gateway, and a key whose work is used up, so that its requests are refused unread.
struct RefusingGateways {
    gateway: Gateway,
    limited: String,
}

impl RefusingGateways {
    fn start() -> Self {
        let gateway = Gateway::simulated().with_quiet_log();
        gateway.run_command(&["user", "invite", "limited", "--limit", "work_per_minute=1"]).ok_stdout();
        let words = ["key", "create", "--name", "limited", "--user", "limited", "--json"];
        let limited = gateway.run_command(&words).json()["secret"].as_str().expect("a secret").to_owned();
        // The work of reading this request is that of hours.
        let long = request(json!({"prompt": "x".repeat(400_000)}));
        Call::generation().json(&long).key(&limited).send(gateway.address());
        Self { gateway, limited }
    }

    /// The cases that a client can state freely.
    fn cases(&self) -> Value {
        let (good, limited, base) = (self.gateway.secret(), self.limited.as_str(), self.gateway.base_url());
        let case = |status: u16, path: &str, key: &str, kind: &str, media: &str, sizes: &[usize]| json!({"status": status, "url": format!("{base}{path}"), "key": key, "kind": kind, "type": media, "sizes": sizes});
        let both = |status: u16, path: &str, key: &str| {
            ["form", "json"].map(|kind| case(status, path, key, kind, "application/json", &SIZES))
        };
        let mut cases = Vec::new();
        cases.extend(both(401, "/images/edits", "sk-wrong"));
        cases.extend(both(404, "/images/variations", good));
        cases.extend(both(405, "/models", good));
        // A body without files is too large from 1 MiB on.
        cases.push(case(413, "/images/generations", good, "json", "application/json", &SIZES[3..]));
        cases.push(case(415, "/images/generations", good, "form", "", &SIZES));
        cases.push(case(415, "/images/generations", good, "json", "text/plain", &SIZES));
        cases.extend(both(429, "/images/edits", limited));
        cases.into()
    }
}

fn count() -> usize {
    let given = crate::kit::env_setting("EARLY_ANSWERS_COUNT");
    given.map_or(COUNT, |count| count.to_str().and_then(|count| count.parse().ok()).expect("a number"))
}

/// Prints a line for each case, and fails if an answer was not seen.
#[track_caller]
fn check(lines: &[Value]) {
    let mut lost = 0;
    for line in lines {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let (client, kind) = (text("client"), text("kind"));
        let (status, size, seen, count) = (&line["status"], &line["size"], &line["seen"], &line["count"]);
        println!("{client:>14} {kind:>5} {status} {size:>9} B: {seen} of {count} {}", line["others"]);
        // After a minute, the key may send a request again, which is refused for its body.
        let admitted = ["400", "413"].iter().filter_map(|other| line["others"][other].as_u64()).sum::<u64>();
        let admitted = if *status == 429 { admitted } else { 0 };
        lost += usize::from(seen.as_u64().map(|seen| seen + admitted) != count.as_u64());
    }
    assert!(!lines.is_empty() && lost == 0, "answers were lost in {lost} of {} cases", lines.len());
}

fn check_scripted(clients: &[&str], command: impl Fn() -> Command) {
    let refusals = RefusingGateways::start();
    let mut lines = Vec::new();
    for client in clients {
        let mut command = command();
        command.env("CLIENT", client).env("COUNT", count().to_string()).env("CASES", refusals.cases().to_string());
        let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().expect("the script starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{client}: {stderr}");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        lines.extend(printed.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")));
    }
    check(&lines);
}

#[test]
fn the_clients_of_python_see_each_early_answer() {
    let interpreter = reuse_python();
    check_scripted(&PYTHON_CLIENTS, || {
        let mut command = Command::new(&interpreter);
        command.arg(script("early_answers.py"));
        command
    });
}

#[test]
fn the_clients_of_node_see_each_early_answer() {
    let folder = node("IMAGATE_NODE_OPENAI", "openai", &["openai"], &["early_answers.mjs"]);
    check_scripted(&NODE_CLIENTS, || {
        let mut command = Command::new("node");
        command.arg("early_answers.mjs").current_dir(&folder);
        command
    });
}

/// An image file of about this size, of which the gateway reads nothing.
fn image_of(size: usize) -> Vec<u8> {
    let mut image = image_specimen("png 96x64").to_vec();
    image.resize(size.max(image.len()), 7);
    image
}

/// The line about the refusals of one case, each of which was seen or not.
fn line(client: &str, status: u16, size: usize, results: Vec<Result<(), String>>) -> Value {
    let count = results.len();
    let others: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    json!({"client": client, "kind": "form", "status": status, "size": size, "seen": count - others.len(),
        "count": count, "others": others})
}

/// Sends an edit that is refused with this status.
async fn refused_edit(client: &Client, size: usize, status: u16) -> Result<(), String> {
    let edit = EditRequest::new("a hat").image(Input::from_bytes(image_of(size)));
    let error = client.images().edit(edit).await.expect_err("a refusal");
    let is_seen = error.kind() == ErrorKind::Answer && error.status() == Some(status);
    if is_seen { Ok(()) } else { Err(error.to_string()) }
}

#[test]
fn the_sdk_sees_each_early_answer() {
    let refusals = RefusingGateways::start();
    let base = refusals.gateway.base_url();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = |base: &str, key: &str| Client::builder().base_url(base).api_key(key).max_retries(0).build();
    let mut lines = Vec::new();
    for (status, base, key) in [
        (401, base.clone(), "sk-wrong"),
        (404, format!("{base}/nowhere"), refusals.gateway.secret()),
        (429, base.clone(), &refusals.limited),
    ] {
        let shared = client(&base, key).expect("a client");
        for size in SIZES {
            let results: Vec<_> = (0..count())
                .map(|repetition| {
                    let fresh = (repetition % 2 == 0).then(|| client(&base, key).expect("a client"));
                    runtime.block_on(refused_edit(fresh.as_ref().unwrap_or(&shared), size, status))
                })
                .collect();
            lines.push(line("sdk", status, size, results));
        }
    }
    check(&lines);
}

/// Runs `imagate edit` or `imagate generate` once; the result is true if it reports the refusal.
fn is_reported(
    refusals: &RefusingGateways,
    words: &[&str],
    base: &str,
    key: &str,
    refusal: &str,
) -> Result<(), String> {
    let program = refusals.gateway.program().env("IMAGATE_BASE_URL", base).env("IMAGATE_API_KEY", key);
    let done = program.args(words).run();
    let is_seen = done.code != Some(0) && done.stderr.contains(refusal);
    if is_seen { Ok(()) } else { Err(format!("{:?}: {}", done.code, done.stderr)) }
}

#[test]
fn the_command_line_reports_each_early_answer() {
    let (refusals, folder) = (RefusingGateways::start(), pictures());
    let base = refusals.gateway.base_url();
    let path = |size: usize| folder.path().join(format!("{size}.png"));
    SIZES.iter().for_each(|size| std::fs::write(path(*size), image_of(*size)).expect("a picture"));
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let mut lines = Vec::new();
    for (status, refusal, base, key) in [
        (401, "Invalid API key", base.clone(), "sk-img-wrong"),
        (404, "Invalid URL", format!("{base}/nowhere"), refusals.gateway.secret()),
    ] {
        for size in SIZES {
            let picture = text(&path(size));
            let words = ["edit", "a hat", "-i", &picture];
            let results = (0..count()).map(|_| is_reported(&refusals, &words, &base, key, refusal)).collect();
            lines.push(line("imagate edit", status, size, results));
        }
    }
    check(&lines);
}
