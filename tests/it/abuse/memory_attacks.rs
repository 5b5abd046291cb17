//! Hostile callers that try to make the gateway allocate: trees, decoders, and connections without a sender.

use std::time::Duration;

use super::AbuseFixture;
use super::attacks::{Attack, BODY, HEAD, MANY_DESCRIPTORS, head, many};
use super::bodies::{compressed, expanding_body, large_window_body};
use super::hostile::HostileConnection;
use crate::kit::Call;

/// The calls that each client sends, one after the other.
const CALLS: usize = 12;
/// The values in the argument of a tool call: four megabytes.
const VALUES: usize = 2_000_000;
/// The time after which the last connection of a client that waits for answers must be gone.
const ANSWERED: Duration = Duration::from_secs(30);

pub(super) const MEMORY_ATTACKS: [Attack; 7] = [
    Attack { count: 6, deadline: ANSWERED, ..Attack::new("trees in tool calls", plain_trees) },
    Attack { count: 6, deadline: ANSWERED, ..Attack::new("compressed trees in tool calls", compressed_trees) },
    Attack { count: 140, deadline: BODY, ..Attack::new("bodies that expand, of three keys", expanding_bodies) },
    Attack {
        count: 300,
        deadline: BODY,
        descriptors: MANY_DESCRIPTORS,
        ..Attack::new("windows of 8 MiB, of three keys", large_windows)
    },
    Attack {
        count: 2_000,
        deadline: HEAD,
        descriptors: MANY_DESCRIPTORS,
        ..Attack::new("heads of 120 KB", long_heads)
    },
    Attack {
        count: 1_000,
        deadline: BODY,
        descriptors: MANY_DESCRIPTORS,
        ..Attack::new("unfinished sign-in forms", sign_in_forms)
    },
    Attack {
        count: 1_000,
        deadline: HEAD,
        descriptors: MANY_DESCRIPTORS,
        ..Attack::new("refused uploads", refused_uploads)
    },
];

/// The trees again, with fewer clients.
pub(super) const FEWER_CLIENTS: [(&str, usize); 3] =
    [("compressed trees, 1 client", 1), ("compressed trees, 2 clients", 2), ("compressed trees, 4 clients", 4)];

pub(super) fn compressed_trees(scene: &AbuseFixture, clients: usize) -> Vec<HostileConnection> {
    let body = compressed(&tool_call(), 17);
    send_calls(scene, clients, &call(scene).header("content-encoding", "zstd").bytes(body))
}

fn plain_trees(scene: &AbuseFixture, clients: usize) -> Vec<HostileConnection> {
    send_calls(scene, clients, &call(scene).bytes(tool_call()))
}

fn call(scene: &AbuseFixture) -> Call {
    let call = Call::post("/mcp").header("accept", "application/json, text/event-stream");
    call.header("content-type", "application/json").key(scene.hostile_key())
}

fn tool_call() -> Vec<u8> {
    let array = format!("[0{}]", ",0".repeat(VALUES - 1));
    let arguments = format!(r#"{{"name":"generate_image","arguments":{{"prompt":"x","size":{array}}}}}"#);
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{arguments}}}"#).into_bytes()
}

/// Sends the call from several clients at once, each again and again.
fn send_calls(scene: &AbuseFixture, clients: usize, call: &Call) -> Vec<HostileConnection> {
    std::thread::scope(|scope| {
        for _ in 0..clients {
            // The gateway may refuse this caller, but not others.
            scope.spawn(|| (0..CALLS).for_each(|_| drop(call.clone().try_send(scene.address()))));
        }
    });
    Vec::new()
}

fn expanding_bodies(scene: &AbuseFixture, count: usize) -> Vec<HostileConnection> {
    compressed_responses(scene, count, &expanding_body())
}

fn large_windows(scene: &AbuseFixture, count: usize) -> Vec<HostileConnection> {
    compressed_responses(scene, count, &large_window_body())
}

/// Opens connections with this body, of which the last bytes never come, for each key in turn.
fn compressed_responses(scene: &AbuseFixture, count: usize, body: &[u8]) -> Vec<HostileConnection> {
    let of_key = |number: usize| {
        let kind = "application/json\r\ncontent-encoding: zstd";
        let head = head(scene, scene.hostile_keys(number), "/v1/responses", kind, body.len() + 10);
        HostileConnection::connect(number, scene.address(), [head.as_slice(), body].concat(), 0)
    };
    (0..count).map(of_key).collect()
}

fn long_heads(scene: &AbuseFixture, count: usize) -> Vec<HostileConnection> {
    many(
        scene,
        count,
        format!("GET /v1/models HTTP/1.1\r\nhost: {}\r\nx-filler: ", scene.address()).as_bytes(),
        120_000,
    )
}

fn sign_in_forms(scene: &AbuseFixture, count: usize) -> Vec<HostileConnection> {
    let head = head(scene, "none", "/sign-in", "application/x-www-form-urlencoded", 65_536);
    many(scene, count, &[head.as_slice(), b"name="].concat(), 61_000)
}

fn refused_uploads(scene: &AbuseFixture, count: usize) -> Vec<HostileConnection> {
    many(scene, count, &head(scene, "none", "/v1/images/edits", "multipart/form-data; boundary=x", 70_000), 60_000)
}
