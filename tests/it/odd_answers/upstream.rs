//! An upstream whose answer to each request is that of the row that its prompt names.

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::codings::gzip;
use super::{OddAnswer, shapes};
use crate::kit::{LoopbackPort, image_file};

/// The server. Dropping it closes the port.
pub(super) struct OddUpstream {
    port: LoopbackPort,
    shared: Arc<SharedState>,
}

struct SharedState {
    rows: Vec<OddAnswer>,
    /// The row of each call.
    calls: Mutex<Vec<String>>,
    /// The number of requests for images.
    fetched: AtomicUsize,
}

// === impl OddUpstream ===

impl OddUpstream {
    pub(super) fn start(rows: Vec<OddAnswer>) -> Self {
        let shared = Arc::new(SharedState { rows, calls: Mutex::default(), fetched: AtomicUsize::new(0) });
        let serving = Arc::clone(&shared);
        Self { port: LoopbackPort::serve(move |stream| serve(stream, &serving)), shared }
    }

    pub(super) fn base_url(&self) -> String {
        self.port.base_url()
    }

    /// The number of requests for images.
    pub(super) fn fetch_count(&self) -> usize {
        self.shared.fetched.load(Ordering::SeqCst)
    }

    /// The number of calls for this row.
    pub(super) fn calls_of(&self, row: &str) -> usize {
        let calls = self.shared.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().filter(|call| *call == row).count()
    }
}

/// The image that the addresses of answers lead to.
pub(super) fn picture() -> Vec<u8> {
    image_file(1024, 1024, "webp").to_vec()
}

/// The answer to a request for an image.
fn picture_answer(head: &str) -> Vec<u8> {
    assert!(!head.contains("authorization") && !head.contains("sk-upstream"), "no credentials are sent: {head}");
    let (status, coding, body) = match head.split(' ').nth(1).unwrap_or_default() {
        "/pictures/page.html" => (200, "", b"<!doctype html><html><body>Sign in</body></html>".to_vec()),
        "/pictures/coded.png" => (200, "content-encoding: gzip\r\n", gzip(&picture())),
        path if path.starts_with("/pictures/") => (200, "", picture()),
        _ => (404, "", Vec::new()),
    };
    let head = format!("HTTP/1.1 {status} Odd\r\n{coding}connection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), &body].concat()
}

/// Serves one request.
fn serve(stream: TcpStream, shared: &SharedState) -> std::io::Result<()> {
    let origin = format!("http://{}", stream.local_addr()?);
    let mut reader = BufReader::new(stream);
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        reader.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    if head.starts_with("get ") {
        shared.fetched.fetch_add(1, Ordering::SeqCst);
        return reader.get_mut().write_all(&picture_answer(&head));
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8_lossy(&body);
    let named = body.split_once("row-").and_then(|(_, rest)| rest.split_once('-')).map(|(row, _)| row.to_owned());
    let answer = match &named {
        Some(row) => {
            let at: usize = row.trim_end_matches(['p', 's']).parse().expect("a row");
            shared.rows[at].clone()
        }
        None => shapes::good(if head.contains("/responses") {
            super::OddProtocol::Responses
        } else {
            super::OddProtocol::Images
        }),
    };
    shared.calls.lock().unwrap_or_else(PoisonError::into_inner).extend(named);
    let mut body = answer.body;
    if let Some(text) = str::from_utf8(&body).ok().filter(|text| text.contains("ORIGIN")) {
        body = text.replace("ORIGIN", &origin).into_bytes();
    }
    let coding = answer.coding.map_or_else(String::new, |coding| format!("content-encoding: {coding}\r\n"));
    let head = format!(
        "HTTP/1.1 {} Odd\r\ncontent-type: {}\r\n{coding}connection: close\r\ncontent-length: {}\r\n\r\n",
        answer.status,
        answer.content_type,
        body.len()
    );
    reader.get_mut().write_all(&[head.as_bytes(), &body].concat())
}
