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
    /// The number of file descriptors that the gateway may have.
    pub(super) descriptors: usize,
}

// === impl Attack ===

impl Attack {
    pub(super) const fn new(name: &'static str, begin: fn(&AbuseFixture, usize) -> Vec<HostileConnection>) -> Self {
        Self { name, count: 1, deadline: HEAD, begin, descriptors: FEW_DESCRIPTORS }
    }
}

/// The file descriptors of a small machine, and those that many connections need.
pub(super) const FEW_DESCRIPTORS: usize = 256;
pub(super) const MANY_DESCRIPTORS: usize = 8192;

pub(super) const UNREAD_LOG: &str = "an unread log";
/// They fill the disk of the small machine, whose part of one user is larger than the disk.
pub(super) const ENDLESS_UPLOADS: &str = "uploads that never end";

/// The gateway waits 10 s for the head of a request. It gives up a body after 30 s, and its connection soon after.
pub(super) const HEAD: Duration = Duration::from_secs(20);
pub(super) const BODY: Duration = Duration::from_secs(75);

pub(super) const ALL: [Attack; 6] = [
    Attack { count: 600, ..Attack::new("silent sockets", silent) },
    Attack { count: 600, ..Attack::new("half prefaces of HTTP/2", half_prefaces) },
    Attack { count: 200, ..Attack::new("streams of HTTP/2 without a window", streams_without_window) },
    Attack { count: 600, deadline: BODY, ..Attack::new("unfinished JSON bodies of one key", unfinished_bodies) },
    Attack { count: 16, deadline: BODY, ..Attack::new(ENDLESS_UPLOADS, endless_uploads) },
    Attack { count: 3_000, ..Attack::new(UNREAD_LOG, send_logged_requests) },
];

/// Streams on each connection.
const STREAMS: usize = 25;

/// A body that the gateway may hold in memory, and a file that it must write to disk.
const JSON_BYTES: usize = 1 << 20;
const FILE_BYTES: usize = 40 << 20;

/// Opens this many connections, each of which sends `text` and then this many filler bytes.
pub(super) fn many(scene: &AbuseFixture, count: usize, text: &[u8], filler: usize) -> Vec<HostileConnection> {
    (0..count).map(|number| HostileConnection::connect(number, scene.address(), text.to_vec(), filler)).collect()
}

fn silent(scene: &AbuseFixture, count: usize) -> Vec<HostileConnection> {
    many(scene, count, b"", 0)
}

fn half_prefaces(scene: &AbuseFixture, count: usize) -> Vec<HostileConnection> {
    many(scene, count, b"PRI * HTTP/2.0\r\n\r\n", 0)
}

fn unfinished_bodies(scene: &AbuseFixture, count: usize) -> Vec<HostileConnection> {
    let head = head(scene, scene.hostile_key(), "/v1/images/generations", "application/json", JSON_BYTES);
    many(scene, count, &[head.as_slice(), b"{\"model\":"].concat(), JSON_BYTES - 64)
}

fn endless_uploads(scene: &AbuseFixture, count: usize) -> Vec<HostileConnection> {
    let mut text =
        head(scene, scene.hostile_key(), "/v1/images/edits", "multipart/form-data; boundary=x", 20 * FILE_BYTES);
    for (name, value) in [("model", "gpt-image-2"), ("prompt", "a red cube")] {
        text.extend(format!("--x\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").bytes());
    }
    let part =
        "--x\r\ncontent-disposition: form-data; name=\"image\"; filename=\"a.png\"\r\ncontent-type: image/png\r\n\r\n";
    text.extend(part.bytes());
    text.extend(alpha_png(64, 64).iter());
    many(scene, count, &text, FILE_BYTES)
}

pub(super) fn head(scene: &AbuseFixture, key: &str, path: &str, kind: &str, length: usize) -> Vec<u8> {
    let address = scene.address();
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\ncontent-type: {kind}\r\n\
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
