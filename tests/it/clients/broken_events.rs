//! Streams that break within an image, as several readers of events see them: none takes the beginning for an image, and
//! each is told of the failure.

use std::process::Command;

use imagate::client::{Client, Error, ErrorKind, GenerateRequest, ImageEvent, PartialImages};
use serde_json::{Value, json};

use super::install::{node, reuse_python, script};
use crate::kit::{Account, FakeUpstream, Gateway};

/// A whole intermediate image, and then a final one that breaks off, where the length of the part is any rest of four.
fn prompts() -> Vec<String> {
    let broken =
        ["p,half,cut b64=400000", "p,half,eof b64=400002", "p,half,cut b64=400004 how=reset", "p,half,eof b64=400006"];
    broken.map(|script| format!("a cube [[events={script}]]")).into()
}

/// The same for responses. The item is large, so its beginning is passed on before its end has come.
fn inputs() -> Vec<String> {
    let broken = ["half,cut b64=400000", "half,eof b64=400002", "half,cut b64=400004 how=reset", "half,eof b64=400006"];
    broken.map(|script| format!("a red cube [[events=created,added,{script}]]")).into()
}

/// Gateways with accounts of both protocols.
struct BrokenEventServers {
    upstream: FakeUpstream,
    images: Gateway,
    responses: Gateway,
}

impl BrokenEventServers {
    fn start() -> Self {
        let upstream = FakeUpstream::start();
        let account = Account::for_upstream("only", &upstream).with_responses_protocol();
        let (images, responses) = (Gateway::with_upstream(&upstream), Gateway::with("", &[account]));
        Self { upstream, images, responses }
    }

    /// Runs a script, and returns its lines.
    fn run(&self, command: &mut Command) -> Vec<Value> {
        for (name, gateway) in [("IMAGES", &self.images), ("RESPONSES", &self.responses)] {
            command.env(format!("{name}_BASE_URL"), gateway.base_url());
            command.env(format!("{name}_API_KEY"), gateway.secret());
        }
        command.env("PROMPTS", json!(prompts()).to_string()).env("INPUTS", json!(inputs()).to_string());
        let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().expect("the script starts");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        println!("{printed}");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        printed.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }
}

/// Only the whole images of a stream are taken, and its failure is seen.
#[track_caller]
fn check(lines: &[Value], readers: usize) {
    assert_eq!(lines.len(), readers * (prompts().len() + inputs().len()));
    for line in lines {
        let is_image_stream = line["script"].as_str().is_some_and(|script| script.contains("events=p,"));
        assert_eq!(line["images"], i32::from(is_image_stream), "{line}");
        let code = if is_image_stream { "upstream_error" } else { "server_error" };
        let failure = line["failure"].as_str().unwrap_or_default();
        assert!([code, "upstream_error"].contains(&failure), "{line}");
    }
}

#[test]
fn the_readers_of_python_take_no_broken_image() {
    let places = BrokenEventServers::start();
    check(&places.run(Command::new(reuse_python()).arg(script("broken_events.py"))), 6);
    assert_eq!(places.upstream.attempt_count(), 6 * 8, "no call is repeated");
}

#[test]
fn the_readers_of_node_take_no_broken_image() {
    let folder = node("IMAGATE_NODE_SSE", "sse", &["openai", "eventsource-parser"], &["broken_events.mjs"]);
    check(&BrokenEventServers::start().run(Command::new("node").arg("broken_events.mjs").current_dir(folder)), 2);
}

/// The number of images of a stream, and its failure.
async fn read_to_failure(client: &Client, prompt: &str) -> (u32, Error) {
    let request = GenerateRequest::new(prompt).partial_images(PartialImages::MAX);
    let mut stream = client.images().generate_stream(request).await.expect("a stream");
    let mut images = 0;
    loop {
        match stream.next().await.expect("a failure at the end") {
            Ok(event) => {
                images += u32::from(matches!(event, ImageEvent::PartialImage { .. } | ImageEvent::Completed { .. }));
            }
            Err(error) => return (images, error),
        }
    }
}

#[test]
fn the_sdk_takes_no_broken_image() {
    let places = BrokenEventServers::start();
    let client = Client::new(&places.images.base_url(), places.images.secret()).expect("a client");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for prompt in prompts() {
        let (images, failure) = runtime.block_on(read_to_failure(&client, &prompt));
        assert_eq!(
            (images, failure.kind(), failure.code()),
            (1, ErrorKind::Answer, Some("upstream_error")),
            "{prompt}"
        );
    }
}
