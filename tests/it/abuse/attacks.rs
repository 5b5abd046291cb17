//! The kinds of hostile callers.

use std::time::Duration;

use super::AbuseFixture;
use super::hostile::HostileConnection;
use crate::kit::{Call, alpha_png};

/// One kind of hostile caller.
#[derive(Clone, Copy)]
pub(super) struct Attack {
    pub(super) name: &'static str,
    /// The number of connections, or of requests if no connection stays.
    pub(super) count: usize,
    /// The time after which the last connection must be gone.
    pub(super) deadline: Duration,
    pub(super) begin: fn(&AbuseFixture, usize) -> Vec<HostileConnection>,
}

pub(super) const UNREAD_LOG: &str = "an unread log";

/// The gateway waits 10 s for the head of a request. It gives up a body after 30 s, and its connection soon after.
const HEAD: Duration = Duration::from_secs(20);
const BODY: Duration = Duration::from_secs(75);

pub(super) const ALL: [Attack; 6] = [
    Attack { name: "silent sockets", count: 600, deadline: HEAD, begin: silent },
    Attack { name: "half prefaces of HTTP/2", count: 600, deadline: HEAD, begin: half_prefaces },
    Attack { name: "streams of HTTP/2 without a window", count: 200, deadline: HEAD, begin: streams_without_window },
    Attack { name: "unfinished JSON bodies of one key", count: 600, deadline: BODY, begin: unfinished_bodies },
    Attack { name: "uploads that never end", count: 16, deadline: BODY, begin: endless_uploads },
    Attack { name: UNREAD_LOG, count: 3_000, deadline: HEAD, begin: send_logged_requests },
];

/// Streams on each connection.
const STREAMS: usize = 25;

/// A body that the gateway may hold in memory, and a file that it must write to disk.
const JSON_BYTES: usize = 1 << 20;
const FILE_BYTES: usize = 40 << 20;

/// Opens this many connections, each of which sends `text` and then this many filler bytes.
fn many(scene: &AbuseFixture, count: usize, text: &[u8], filler: usize) -> Vec<HostileConnection> {
    (0..count).map(|number| HostileConnection::connect(number, scene.address(), text.to_vec(), filler)).collect()
}

fn silent(scene: &AbuseFixture, count: usize) -> Vec<HostileConnection> {
    many(scene, count, b"", 0)
}

fn half_prefaces(scene: &AbuseFixture, count: usize) -> Vec<HostileConnection> {
    many(scene, count, b"PRI * HTTP/2.0\r\n\r\n", 0)
}

fn unfinished_bodies(scene: &AbuseFixture, count: usize) -> Vec<HostileConnection> {
    let head = head(scene, "/v1/images/generations", "application/json", JSON_BYTES);
    many(scene, count, &[head.as_slice(), b"{\"model\":"].concat(), JSON_BYTES - 64)
}

fn endless_uploads(scene: &AbuseFixture, count: usize) -> Vec<HostileConnection> {
    let mut text = head(scene, "/v1/images/edits", "multipart/form-data; boundary=x", 20 * FILE_BYTES);
    for (name, value) in [("model", "gpt-image-2"), ("prompt", "a red cube")] {
        text.extend(format!("--x\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").bytes());
    }
    let part =
        "--x\r\ncontent-disposition: form-data; name=\"image\"; filename=\"a.png\"\r\ncontent-type: image/png\r\n\r\n";
    text.extend(part.bytes());
    text.extend(alpha_png(64, 64).iter());
    many(scene, count, &text, FILE_BYTES)
}

fn head(scene: &AbuseFixture, path: &str, kind: &str, length: usize) -> Vec<u8> {
    let (address, eve) = (scene.address(), scene.hostile_key());
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {eve}\r\ncontent-type: {kind}\r\n\
         content-length: {length}\r\n\r\n"
    )
    .into_bytes()
}

/// Sends requests that are answered, so that there is much to log. Their connections do not stay.
fn send_logged_requests(scene: &AbuseFixture, count: usize) -> Vec<HostileConnection> {
    for _ in 0..count {
        // The gateway may refuse this caller, but not others.
        drop(Call::get("/v1/models").key(scene.hostile_key()).try_send(scene.address()));
    }
    Vec::new()
}

fn streams_without_window(scene: &AbuseFixture, count: usize) -> Vec<HostileConnection> {
    let mut text = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // SETTINGS_INITIAL_WINDOW_SIZE = 0.
    text.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
    let body = br#"{"model":"gpt-image-2","prompt":"a red cube"}"#;
    for number in 0..STREAMS {
        let stream = u32::try_from(2 * number + 1).unwrap_or(1);
        text.extend(frame(1, 4, stream, &fields(scene)));
        text.extend(frame(0, 1, stream, body));
    }
    many(scene, count.div_ceil(STREAMS), &text, 0)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes the header fields as literals without indexing.
fn fields(scene: &AbuseFixture) -> Vec<u8> {
    let (authority, authorization) = (scene.address().to_string(), format!("Bearer {}", scene.hostile_key()));
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/v1/images/generations"),
        (":authority", authority.as_str()),
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
    ];
    let mut text = Vec::new();
    for (name, value) in fields {
        text.push(0);
        for word in [name, value] {
            // A length below 127 takes one byte.
            text.push(u8::try_from(word.len().min(126)).unwrap_or(0));
            text.extend(word.bytes());
        }
    }
    text
}
