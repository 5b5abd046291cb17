//! An upstream that gives the same answer, byte for byte, to every POST request, or one answer for each account.

use std::collections::HashMap;
use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::LoopbackPort;
use super::http::{find_header, read_headers, read_line};

/// The server. Dropping it closes the port.
pub(crate) struct VerbatimUpstream {
    port: LoopbackPort,
    shared: Arc<SharedState>,
}

/// The status, the headers and the body.
type VerbatimAnswer = (u16, String, String);

#[derive(Default)]
struct SharedState {
    answer: Mutex<VerbatimAnswer>,
    /// The answers to the accounts with these bearer tokens, and the number of their requests.
    by_token: Mutex<HashMap<String, (VerbatimAnswer, usize)>>,
    attempts: AtomicUsize,
}

// === impl VerbatimUpstream ===

impl VerbatimUpstream {
    pub(crate) fn start() -> Self {
        let shared = Arc::<SharedState>::default();
        let serving = Arc::clone(&shared);
        Self { port: LoopbackPort::serve(move |stream| serve(stream, &serving)), shared }
    }

    pub(crate) fn base_url(&self) -> String {
        self.port.base_url()
    }

    /// From now on this is the answer.
    pub(crate) fn set_answer(&self, content_type: &'static str, body: String) {
        self.set_response(200, &format!("content-type: {content_type}\r\n"), body);
    }

    /// From now on this is the answer, with these header lines.
    pub(crate) fn set_response(&self, status: u16, headers: &str, body: String) {
        *self.shared.answer.lock().unwrap_or_else(PoisonError::into_inner) = (status, headers.to_owned(), body);
    }

    /// From now on this is the answer to the account with this bearer token, with these header lines.
    pub(crate) fn set_for_token(&self, token: &str, status: u16, headers: &str, body: &str) {
        let answer = (status, headers.to_owned(), body.to_owned());
        let mut by_token = self.shared.by_token.lock().unwrap_or_else(PoisonError::into_inner);
        by_token.entry(token.to_owned()).or_default().0 = answer;
    }

    /// The number of POST requests of the account with this bearer token, which has an answer of its own.
    pub(crate) fn attempts_of(&self, token: &str) -> usize {
        self.shared.by_token.lock().unwrap_or_else(PoisonError::into_inner).get(token).map_or(0, |entry| entry.1)
    }

    /// The number of POST requests.
    pub(crate) fn attempt_count(&self) -> usize {
        self.shared.attempts.load(Ordering::SeqCst)
    }
}

/// Serves one request.
fn serve(stream: TcpStream, shared: &SharedState) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let line = read_line(&mut reader)?;
    let headers = read_headers(&mut reader)?;
    if find_header(&headers, "transfer-encoding").is_none() {
        let length = find_header(&headers, "content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
    } else {
        skip_chunks(&mut reader)?;
    }
    let (status, headers, body) = if line.starts_with("POST ") {
        shared.attempts.fetch_add(1, Ordering::SeqCst);
        let token = find_header(&headers, "authorization").unwrap_or_default().trim_start_matches("Bearer ").to_owned();
        let mut by_token = shared.by_token.lock().unwrap_or_else(PoisonError::into_inner);
        match by_token.get_mut(&token) {
            Some((answer, count)) => {
                *count += 1;
                answer.clone()
            }
            None => shared.answer.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    } else {
        (200, "content-type: application/json\r\n".to_owned(), r#"{"object": "list", "data": []}"#.to_owned())
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Answer\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n");
    reader.get_mut().write_all((head + &body).as_bytes())
}

fn skip_chunks(reader: &mut BufReader<TcpStream>) -> std::io::Result<()> {
    loop {
        let size = u64::from_str_radix(read_line(reader)?.trim(), 16).unwrap_or(0);
        std::io::copy(&mut reader.by_ref().take(size), &mut std::io::sink())?;
        read_line(reader)?;
        if size == 0 {
            return Ok(());
        }
    }
}
