//! One connection that is kept open as long as possible, and the answers on it.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::make::Request;

/// The time within which a request must be answered or its connection closed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(45);

/// The outcome of a request that caused no fault.
pub(super) enum Outcome {
    /// The connection was closed without an answer.
    Closed,
    /// The HTTP library could not parse the request, and answered with an empty error.
    Unparsed,
    /// An error of the documented shape, for the request with this id.
    Refused { id: Option<String> },
    /// An answer below 400.
    Accepted {
        /// True for an answer of an image operation.
        image: bool,
    },
}

pub(super) struct PersistentConnection {
    address: SocketAddr,
    reader: Option<BufReader<TcpStream>>,
}

/// An answer, unparsed.
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// The connection ended before the last chunk.
    truncated: bool,
}

// === impl PersistentConnection ===

impl PersistentConnection {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, reader: None }
    }

    /// Sends a request and reads its answer; an error describes a fault.
    pub(super) fn send(&mut self, request: &Request) -> Result<Outcome, String> {
        let mut reader = match self.reader.take() {
            Some(open) => open,
            None => self.connect().map_err(|error| format!("no connection: {error}"))?,
        };
        let answer = exchange(&mut reader, request).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("no answer within {ANSWER_TIMEOUT:?}"),
            _ => format!("the answer cannot be read: {error}"),
        })?;
        let Some(answer) = answer else {
            return if request.both_lengths {
                Err("Content-Length and Transfer-Encoding: no answer".to_owned())
            } else {
                Ok(Outcome::Closed)
            };
        };
        let outcome = answer.classify(request)?;
        let closes = answer.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if !request.ends_connection && !closes && !matches!(outcome, Outcome::Unparsed) {
            self.reader = Some(reader);
        }
        Ok(outcome)
    }

    fn connect(&self) -> std::io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(BufReader::new(stream))
    }
}

/// Sends a request and reads its final answer. `None` if the connection ends without an answer.
fn exchange(reader: &mut BufReader<TcpStream>, request: &Request) -> std::io::Result<Option<Answer>> {
    // The gateway may refuse a request before it has read all of it. The write then fails, although there is an answer.
    let written = reader.get_mut().write_all(&request.bytes);
    // The gateway waits for the rest of an incomplete request, so the client closes its side of the connection. After a
    // complete request the client keeps its side open: to close it means that the caller has left.
    if request.ends_connection && !request.both_lengths && written.is_ok() {
        drop(reader.get_mut().shutdown(Shutdown::Write));
    }
    loop {
        let answer = match read_answer(reader, request.is_head) {
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                return Ok(None);
            }
            answer => answer?,
        };
        match answer {
            Some(answer) if answer.status == 100 => {}
            answer => return Ok(answer),
        }
    }
}

fn read_answer(reader: &mut BufReader<TcpStream>, is_head: bool) -> std::io::Result<Option<Answer>> {
    let Some(status_line) = read_line(reader)? else { return Ok(None) };
    let status = status_line.split(' ').nth(1).and_then(|text| text.parse().ok());
    let Some(status) = status else {
        return Err(std::io::Error::other(format!("invalid status line {status_line:?}")));
    };
    let mut answer = Answer { status, headers: Vec::new(), body: Vec::new(), truncated: false };
    while let Some(text) = read_line(reader)?.filter(|text| !text.is_empty()) {
        let (name, value) = text.split_once(':').ok_or_else(|| std::io::Error::other("a header without a colon"))?;
        answer.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    if is_head || status == 100 || status == 204 || status == 304 {
        return Ok(Some(answer));
    }
    let length = answer.header("content-length").and_then(|text| text.parse().ok());
    if let Some(length) = length {
        answer.body.resize(length, 0);
        reader.read_exact(&mut answer.body)?;
    } else if answer.header("transfer-encoding").is_some() {
        (answer.body, answer.truncated) = read_chunks(reader)?;
    } else {
        reader.read_to_end(&mut answer.body)?;
    }
    Ok(Some(answer))
}

/// The body of a chunked answer, and whether its last chunk is missing.
fn read_chunks(reader: &mut BufReader<TcpStream>) -> std::io::Result<(Vec<u8>, bool)> {
    let mut body = Vec::new();
    loop {
        let Some(text) = read_line(reader)? else { return Ok((body, true)) };
        let length = usize::from_str_radix(&text, 16).map_err(std::io::Error::other)?;
        let start = body.len();
        body.resize(start + length, 0);
        reader.read_exact(&mut body[start..])?;
        read_line(reader)?;
        if length == 0 {
            return Ok((body, false));
        }
    }
}

fn read_line(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<String>> {
    let mut text = String::new();
    Ok((reader.read_line(&mut text)? > 0).then(|| text.trim_end_matches(['\r', '\n']).to_owned()))
}

// === impl Answer ===

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn classify(&self, request: &Request) -> Result<Outcome, String> {
        if request.both_lengths && self.status < 400 && self.header("connection") != Some("close") {
            return Err(format!(
                "Content-Length and Transfer-Encoding: {} on a connection that stays open",
                self.status
            ));
        }
        if self.truncated {
            return Err(format!("{}: the answer is truncated", self.status));
        }
        match self.status {
            ..=399 => Ok(Outcome::Accepted { image: self.status == 200 && request.is_image }),
            400 | 414 | 431 if self.body.is_empty() && self.header("content-type").is_none() => Ok(Outcome::Unparsed),
            400..=499 | 501 if request.is_head => Ok(self.refused_outcome()),
            400..=499 | 501 => self.check_error_shape().map(|()| self.refused_outcome()),
            _ => Err(format!("{}: {}", self.status, String::from_utf8_lossy(&self.body))),
        }
    }

    fn refused_outcome(&self) -> Outcome {
        Outcome::Refused { id: self.header("x-request-id").map(str::to_owned) }
    }

    /// Checks that the body is an error as documented.
    fn check_error_shape(&self) -> Result<(), String> {
        let answer_text = || format!("{}: {}", self.status, String::from_utf8_lossy(&self.body));
        if !matches!(self.header("x-should-retry"), Some("true" | "false")) {
            return Err(format!("no x-should-retry: {}", answer_text()));
        }
        // The console answers errors with an HTML page.
        if self.header("content-type").is_some_and(|kind| kind.starts_with("text/html")) {
            return Ok(());
        }
        let body: Value = serde_json::from_slice(&self.body).map_err(|error| format!("{error}: {}", answer_text()))?;
        // If no route matches, the router answers with an error of another shape.
        if matches!(self.status, 404 | 405) && body["error_code"].is_string() && body["message"].is_string() {
            return Ok(());
        }
        let error = &body["error"];
        let has_fields = error["message"].is_string() && error["type"].is_string() && error["code"].is_string();
        let has_param = error.get("param").is_some_and(|param| param.is_string() || param.is_null());
        if has_fields && has_param {
            Ok(())
        } else {
            Err(format!("the error does not have the documented shape: {}", answer_text()))
        }
    }
}
