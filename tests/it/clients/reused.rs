//! Clients that reuse their connection: ten edits of various sizes over one connection, with one attempt each.

use std::process::Command;

use imagate::client::{Client, EditRequest, Error, Input};

use super::install::{node, reuse_python, script};
use super::pictures;
use crate::kit::{FakeUpstream, Gateway, image_specimen};

/// Sizes of images in bytes, unsorted.
const SIZES: [usize; 10] =
    [4_000_000, 100_000, 12_000_000, 300_000, 1_048_576, 8_000_000, 150_000, 2_000_000, 6_000_000, 100_001];

/// Runs a script against a gateway of its own, and asserts that each of these users has caused ten calls.
#[track_caller]
fn check_ten_calls_each(command: &mut Command, users: &[&str]) {
    let (upstream, pictures) = (FakeUpstream::digesting(), pictures());
    let gateway = Gateway::with_upstream(&upstream);
    command.env("BASE_URL", gateway.base_url()).env("API_KEY", gateway.secret()).env("PICTURES", pictures.path());
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().expect("the script starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    let attempts = upstream.received_attempts();
    for user in users {
        assert_eq!(attempts.iter().filter(|attempt| attempt.user() == *user).count(), 10, "{user}\n{printed}");
    }
    assert_eq!(attempts.len(), 10 * users.len(), "{printed}");
}

#[test]
fn ten_edits_over_one_connection_of_python_make_ten_images() {
    let interpreter = reuse_python();
    let users = ["requests", "http.client", "httpx", "openai", "socket", "chunks", "curl"];
    check_ten_calls_each(Command::new(interpreter).arg(script("reuse_tour.py")), &users);
}

#[test]
fn ten_edits_over_one_connection_of_node_make_ten_images() {
    let folder = node("IMAGATE_NODE_OPENAI", "openai", &["openai"], &["kit.mjs", "reuse_tour.mjs"]);
    let users = ["fetch-form", "fetch-bytes", "openai-node"];
    check_ten_calls_each(Command::new("node").arg("reuse_tour.mjs").current_dir(folder), &users);
}

#[test]
fn ten_edits_over_one_client_of_rust_make_ten_images() {
    let upstream = FakeUpstream::digesting();
    let gateway = Gateway::with_upstream(&upstream);
    let client = Client::new(&gateway.base_url(), gateway.secret()).expect("a client");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let edits = async {
        for size in SIZES {
            let mut image = image_specimen("png 96x64").to_vec();
            image.resize(size, 7);
            let request = EditRequest::new("a hat").image(Input::from_bytes(image));
            assert_eq!(client.images().edit(request).await?.len(), 1, "{size}");
        }
        Ok::<(), Error>(())
    };
    runtime.block_on(edits).expect("ten images");
    assert_eq!(upstream.attempt_count(), 10);
}
