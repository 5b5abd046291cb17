//! A client that speaks bytes: it can send only a head, lie about lengths, and it says whether an answer really ended.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::PATIENCE;

/// One request, not yet sent.
#[derive(Clone)]
pub(crate) struct Call {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    payload: Payload,
}

#[derive(Clone)]
enum Payload {
    None,
    Sized(Vec<u8>),
    /// In chunks of this many bytes.
    Chunked(Vec<u8>, usize),
    /// A `Content-Length`, and then not one byte.
    Promised(u64),
    /// As [`Payload::Sized`], but the body is kept back until `100 Continue` arrives.
    AfterContinue(Vec<u8>),
}

/// The head of an answer, and its body as it comes.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// Whether `100 Continue` came first.
    pub(crate) continued: bool,
    reader: BufReader<TcpStream>,
    left: Left,
}

enum Left {
    Length(u64),
    Chunk(u64),
    UntilClose,
    Nothing,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) continued: bool,
    pub(crate) body: Vec<u8>,
    /// Whether the body ended as its framing says; a cut or a reset is `false`.
    pub(crate) complete: bool,
}

// === impl Call ===

impl Call {
    pub(crate) fn get(path: &str) -> Self {
        Self { method: "GET", path: path.to_owned(), headers: Vec::new(), payload: Payload::None }
    }

    pub(crate) fn post(path: &str) -> Self {
        Self { method: "POST", ..Self::get(path) }
    }

    /// `POST /v1/images/generations`.
    pub(crate) fn generation() -> Self {
        Self::post("/v1/images/generations")
    }

    /// `Authorization: Bearer …`.
    pub(crate) fn key(self, secret: &str) -> Self {
        self.header("authorization", &format!("Bearer {secret}"))
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A JSON body with its content type.
    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").bytes(body.to_string())
    }

    /// A body without a content type.
    pub(crate) fn bytes(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.payload = Payload::Sized(body.into());
        self
    }

    /// Sends the body in chunks instead of with a length.
    pub(crate) fn in_chunks_of(mut self, size: usize) -> Self {
        if let Payload::Sized(body) = self.payload {
            self.payload = Payload::Chunked(body, size);
        }
        self
    }

    /// Sends `Expect: 100-continue` and keeps the body back until it is asked for.
    pub(crate) fn expecting_continue(mut self) -> Self {
        if let Payload::Sized(body) = self.payload {
            self.payload = Payload::AfterContinue(body);
        }
        self.header("expect", "100-continue")
    }

    /// Announces a body of this length and never sends it.
    pub(crate) fn only_promising(mut self, length: u64) -> Self {
        self.payload = Payload::Promised(length);
        self
    }

    /// Sends and reads everything.
    #[track_caller]
    pub(crate) fn send(self, address: SocketAddr) -> Answer {
        self.try_send(address).expect("an answer")
    }

    /// Sends and reads everything; an error is a connection that gave no answer at all.
    pub(crate) fn try_send(self, address: SocketAddr) -> std::io::Result<Answer> {
        self.open(address)?.finish()
    }

    /// Sends, and reads the head of the answer.
    pub(crate) fn open(self, address: SocketAddr) -> std::io::Result<Reply> {
        Reply::read(self.dispatch(address)?)
    }

    /// Sends, and reads nothing. Dropping the stream hangs up.
    pub(crate) fn dispatch(self, address: SocketAddr) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        stream.write_all(&self.head(address))?;
        // A server may answer and close before it has read a body; the answer then still counts.
        match self.payload {
            Payload::None | Payload::Promised(_) => {}
            Payload::Sized(body) => drop(stream.write_all(&body)),
            Payload::Chunked(body, size) => drop(write_chunks(&mut stream, &body, size)),
            Payload::AfterContinue(body) => {
                let mut first = [0; 12];
                stream.peek(&mut first)?;
                if first.starts_with(b"HTTP/1.1 100") {
                    drop(stream.write_all(&body));
                }
            }
        }
        Ok(stream)
    }

    fn head(&self, address: SocketAddr) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        match &self.payload {
            Payload::None => {}
            Payload::Sized(body) | Payload::AfterContinue(body) => {
                head.push_str(&format!("content-length: {}\r\n", body.len()));
            }
            Payload::Chunked(..) => head.push_str("transfer-encoding: chunked\r\n"),
            Payload::Promised(length) => head.push_str(&format!("content-length: {length}\r\n")),
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

fn write_chunks(stream: &mut TcpStream, body: &[u8], size: usize) -> std::io::Result<()> {
    for chunk in body.chunks(size) {
        write!(stream, "{:x}\r\n", chunk.len())?;
        stream.write_all(chunk)?;
        stream.write_all(b"\r\n")?;
    }
    stream.write_all(b"0\r\n\r\n")
}

// === impl Reply ===

impl Reply {
    /// Reads a head, skipping `100 Continue`.
    pub(crate) fn read(stream: TcpStream) -> std::io::Result<Self> {
        let mut reader = BufReader::with_capacity(1 << 17, stream);
        let (mut status, mut headers) = read_head(&mut reader)?;
        let continued = status == 100;
        if continued {
            (status, headers) = read_head(&mut reader)?;
        }
        let left = framing(status, &headers);
        let mut reply = Self { status, headers, continued, reader, left };
        if matches!(reply.left, Left::Chunk(_)) {
            reply.left = next_chunk(&mut reply.reader)?;
        }
        Ok(reply)
    }

    /// The rest of the body. A body that breaks off is an answer too, marked as not complete.
    pub(crate) fn finish(mut self) -> std::io::Result<Answer> {
        let mut body = Vec::new();
        let complete = match self.read_to_end(&mut body) {
            Ok(_) => true,
            Err(error) if is_hang(&error) => return Err(error),
            Err(_) => false,
        };
        Ok(Answer { status: self.status, headers: self.headers, continued: self.continued, body, complete })
    }
}

impl Read for Reply {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let (Left::Length(left) | Left::Chunk(left)) = self.left else {
            return match self.left {
                Left::UntilClose => self.reader.read(buffer),
                _ => Ok(0),
            };
        };
        if left == 0 {
            return Ok(0);
        }
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let got = self.reader.read(&mut buffer[..want])?;
        if got == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let left = left - got as u64;
        self.left = match self.left {
            Left::Chunk(_) if left == 0 => {
                expect_line_end(&mut self.reader)?;
                next_chunk(&mut self.reader)?
            }
            Left::Chunk(_) => Left::Chunk(left),
            _ => Left::Length(left),
        };
        Ok(got)
    }
}

fn is_hang(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// One status line with its headers, names in lower case.
pub(super) fn read_head(reader: &mut impl BufRead) -> std::io::Result<(u16, Vec<(String, String)>)> {
    let first = read_line(reader)?;
    let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::new(ErrorKind::InvalidData, first))?;
    Ok((status, read_headers(reader)?))
}

pub(super) fn read_headers(reader: &mut impl BufRead) -> std::io::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    loop {
        let line = read_line(reader)?;
        let Some((name, value)) = line.split_once(':') else { return Ok(headers) };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

pub(super) fn read_line(reader: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

pub(super) fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

fn framing(status: u16, headers: &[(String, String)]) -> Left {
    if matches!(status, 101 | 204 | 304) {
        return Left::Nothing;
    }
    if find(headers, "transfer-encoding").is_some_and(|value| value.contains("chunked")) {
        return Left::Chunk(0);
    }
    match find(headers, "content-length").and_then(|value| value.parse().ok()) {
        Some(length) => Left::Length(length),
        None => Left::UntilClose,
    }
}

fn next_chunk(reader: &mut impl BufRead) -> std::io::Result<Left> {
    let line = read_line(reader)?;
    let size = u64::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16)
        .map_err(|_| std::io::Error::new(ErrorKind::InvalidData, line))?;
    if size > 0 {
        return Ok(Left::Chunk(size));
    }
    while !read_line(reader)?.is_empty() {}
    Ok(Left::Nothing)
}

fn expect_line_end(reader: &mut impl BufRead) -> std::io::Result<()> {
    match read_line(reader)?.as_str() {
        "" => Ok(()),
        other => Err(std::io::Error::new(ErrorKind::InvalidData, other.to_owned())),
    }
}

// === impl Answer ===

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("{error} in an answer of status {}: {:.300}", self.status, self.text()),
        }
    }

    /// The JSON of a whole 200.
    #[track_caller]
    pub(crate) fn good(&self) -> Value {
        assert_eq!(self.status, 200, "{:.600}", self.text());
        assert!(self.complete, "the answer broke off");
        self.json()
    }

    /// The `error` object of an answer that must have this status, in the shape that every client reads.
    #[track_caller]
    pub(crate) fn error(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{:.600}", self.text());
        assert!(self.complete, "the error broke off");
        assert!(
            self.header("content-type").is_some_and(|value| value.starts_with("application/json")),
            "{:?}",
            self.headers
        );
        assert!(
            self.header("x-request-id").is_some_and(|value| !value.is_empty()),
            "no x-request-id: {:?}",
            self.headers
        );
        let error = self.json()["error"].clone();
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
        assert!(error["type"].is_string(), "{error}");
        for field in ["param", "code"] {
            assert!(error.get(field).is_some_and(|value| value.is_string() || value.is_null()), "{field}: {error}");
        }
        error
    }

    /// `x-should-retry`, the word that the official clients obey.
    pub(crate) fn should_retry(&self) -> Option<&str> {
        self.header("x-should-retry")
    }
}
