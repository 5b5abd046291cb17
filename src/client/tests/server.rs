//! A scripted server: it reads one request from each connection, reacts as the script says, in order, and keeps the
//! requests for the test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// The reaction to a request.
pub(in crate::client) enum Reaction {
    /// The server answers.
    Answer(Answer),
    /// The server closes the connection without an answer.
    Disconnect,
    /// The server sends nothing.
    Silence,
}

pub(in crate::client) struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    /// The number of bytes at the end of the body that are not sent.
    missing: usize,
    /// True if the connection stays open after the answer.
    then_silent: bool,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(in crate::client) struct Request {
    pub(in crate::client) line: String,
    headers: Vec<(String, String)>,
    /// The body as JSON; null if it is not JSON.
    pub(in crate::client) body: Value,
    /// The bytes of the body.
    pub(in crate::client) raw: Vec<u8>,
}

pub(in crate::client) struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

pub(in crate::client) fn answer(status: u16, body: &Value) -> Reaction {
    Reaction::with_body(status, &body.to_string())
}

/// Returns an address on which nothing listens.
pub(in crate::client) fn unused_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

// === impl Reaction ===

impl Reaction {
    pub(in crate::client) fn with_body(status: u16, body: &str) -> Self {
        Self::Answer(Answer { status, headers: Vec::new(), body: body.to_owned(), missing: 0, then_silent: false })
    }

    /// Answers with a stream of events; `stream` is the text of the whole body.
    pub(in crate::client) fn events(stream: &str) -> Self {
        Self::with_body(200, stream).header("content-type", "text/event-stream; charset=utf-8")
    }

    pub(in crate::client) fn header(self, name: &str, value: &str) -> Self {
        self.change(|answer| answer.headers.push((name.to_owned(), value.to_owned())))
    }

    /// Closes the connection five bytes before the end of the body.
    pub(in crate::client) fn truncated(self) -> Self {
        self.truncated_by(5)
    }

    /// Closes the connection this many bytes before the end of the body.
    pub(in crate::client) fn truncated_by(self, missing: usize) -> Self {
        self.change(|answer| answer.missing = missing)
    }

    /// Sends nothing more five bytes before the end of the body, and keeps the connection open.
    pub(in crate::client) fn then_silent(self) -> Self {
        self.change(|answer| (answer.missing, answer.then_silent) = (5, true))
    }

    fn change(mut self, change: impl FnOnce(&mut Answer)) -> Self {
        if let Self::Answer(answer) = &mut self {
            change(answer);
        }
        self
    }
}

// === impl Server ===

impl Server {
    pub(in crate::client) fn start(script: impl IntoIterator<Item = Reaction, IntoIter: Send + 'static>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (recorded, script) = (Arc::clone(&requests), script.into_iter());
        // The thread is never joined: if the script has more reactions than requests arrive, it waits until the process
        // ends.
        thread::spawn(move || {
            // Silent connections stay open until the script has ended and the client has closed them.
            let mut open_connections = Vec::new();
            for play in script {
                let (stream, _) = listener.accept().unwrap();
                recorded.lock().unwrap().push(Request::read(&stream));
                open_connections.extend(perform(play, stream));
            }
            for mut stream in open_connections {
                drop(stream.read(&mut [0]));
            }
        });
        Self { address, requests }
    }

    pub(in crate::client) fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(in crate::client) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

/// Reacts on this connection, and returns it if it stays open.
fn perform(play: Reaction, mut stream: TcpStream) -> Option<TcpStream> {
    match play {
        Reaction::Disconnect => None,
        Reaction::Silence => Some(stream),
        Reaction::Answer(answer) => {
            stream.write_all(&answer.bytes()).unwrap();
            answer.then_silent.then_some(stream)
        }
    }
}

// === impl Answer ===

impl Answer {
    fn bytes(&self) -> Vec<u8> {
        let headers: Vec<String> = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let (status, length) = (self.status, self.body.len());
        let head =
            format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n{}\r\n", headers.concat());
        [head.as_bytes(), &self.body.as_bytes()[..length - self.missing]].concat()
    }
}

// === impl Request ===

impl Request {
    fn read(stream: &TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let mut line = || {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        let request_line = line();
        let header_lines = std::iter::from_fn(|| Some(line()).filter(|line| !line.is_empty()));
        let headers = header_lines
            .filter_map(|line| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned())))
            .collect();
        let mut request = Self { line: request_line, headers, body: Value::Null, raw: Vec::new() };
        let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        request.body = serde_json::from_slice(&body).unwrap_or_default();
        request.raw = body;
        request
    }

    pub(in crate::client) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}
