//! The answer: its head, its body as it comes, and whether the body is complete.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::TcpStream;

use serde_json::Value;

use crate::kit::OutputChannel;
use crate::kit::contract::Operation;
use crate::kit::leak_watch::AnswerScanner;

/// The head of an answer, and its body as it comes.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// Whether `100 Continue` came first.
    pub(crate) continued: bool,
    reader: BufReader<TcpStream>,
    remaining: BodyRemainder,
    scanner: Option<AnswerScanner>,
    /// The operation of the document that the answer is checked against.
    operation: Option<Operation>,
    /// A part of the body was read already.
    has_begun: bool,
}

enum BodyRemainder {
    Length(u64),
    Chunk(u64),
    /// A chunk has been read. The rest is read only on demand: it may come much later.
    ChunkEnd,
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
    /// True if the body ended as its framing says; a cut or a reset is `false`.
    pub(crate) complete: bool,
}

// === impl Reply ===

impl Reply {
    /// Reads a head, skipping `100 Continue`.
    pub(crate) fn read(stream: TcpStream) -> std::io::Result<Self> {
        Self::read_at(OutputChannel::Answer, stream)
    }

    /// As [`Reply::read`], for an answer that belongs to this channel.
    pub(super) fn read_at(channel: OutputChannel, stream: TcpStream) -> std::io::Result<Self> {
        let mut scanner = stream.peer_addr().ok().and_then(|address| AnswerScanner::for_address(address, channel));
        let mut reader = BufReader::with_capacity(1 << 17, stream);
        let (mut status, mut headers) = read_head(&mut reader)?;
        let continued = status == 100;
        if continued {
            (status, headers) = read_head(&mut reader)?;
        }
        if let Some(scanner) = &mut scanner {
            let head: String = headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
            scanner.add(head.as_bytes());
        }
        let left = framing(status, &headers);
        let mut reply =
            Self { status, headers, continued, reader, remaining: left, scanner, operation: None, has_begun: false };
        if matches!(reply.remaining, BodyRemainder::Chunk(_)) {
            reply.remaining = next_chunk(&mut reply.reader)?;
        }
        Ok(reply)
    }

    /// Checks the head of the answer against the document, and has its body checked when it is read. Only answers of
    /// gateways are checked.
    #[track_caller]
    pub(super) fn check_against(mut self, operation: Option<Operation>) -> Self {
        self.operation = operation.filter(|_| self.scanner.is_some());
        if let Some(operation) = &self.operation {
            operation.check_head(self.status, &self.headers);
        }
        self
    }

    /// The operation whose events these are.
    pub(in crate::kit) fn operation(&self) -> Option<&Operation> {
        self.operation.as_ref()
    }

    /// The answer to a `HEAD`, whatever length its head states.
    pub(super) fn without_body(self) -> Self {
        Self { remaining: BodyRemainder::Nothing, operation: None, ..self }
    }

    /// The rest of the body. A body that breaks off is an answer too, marked as not complete.
    #[track_caller]
    pub(crate) fn finish(mut self) -> std::io::Result<Answer> {
        let mut body = Vec::new();
        let is_whole = !self.has_begun;
        let complete = match self.read_to_end(&mut body) {
            Ok(_) => true,
            Err(error) if is_hang(&error) => return Err(error),
            Err(_) => false,
        };
        if let Some(operation) = self.operation.as_ref().filter(|_| complete && is_whole) {
            operation.check_body(self.status, &self.headers, &body);
        }
        Ok(Answer { status: self.status, headers: self.headers, continued: self.continued, body, complete })
    }

    /// Reads a good answer to its end and keeps only its length and its last 2000 bytes.
    #[track_caller]
    pub(crate) fn drain(mut self) -> (usize, String) {
        assert_eq!(self.status, 200);
        let (mut length, mut last, mut buffer) = (0, Vec::new(), vec![0; 1 << 16]);
        loop {
            let read = self.read(&mut buffer).expect("more of it");
            if read == 0 {
                return (length, String::from_utf8_lossy(&last).into_owned());
            }
            length += read;
            last.extend_from_slice(&buffer[..read]);
            last.drain(..last.len().saturating_sub(2_000));
        }
    }
}

impl Reply {
    fn scan(&mut self, piece: &[u8]) {
        if let Some(scanner) = &mut self.scanner {
            scanner.add(piece);
        }
    }
}

impl Read for Reply {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.has_begun = true;
        if matches!(self.remaining, BodyRemainder::ChunkEnd) {
            expect_line_end(&mut self.reader)?;
            self.remaining = next_chunk(&mut self.reader)?;
        }
        let (BodyRemainder::Length(left) | BodyRemainder::Chunk(left)) = self.remaining else {
            return match self.remaining {
                BodyRemainder::UntilClose => {
                    let got = self.reader.read(buffer)?;
                    self.scan(&buffer[..got]);
                    Ok(got)
                }
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
        self.scan(&buffer[..got]);
        let left = left - got as u64;
        self.remaining = match self.remaining {
            BodyRemainder::Chunk(_) if left == 0 => BodyRemainder::ChunkEnd,
            BodyRemainder::Chunk(_) => BodyRemainder::Chunk(left),
            _ => BodyRemainder::Length(left),
        };
        Ok(got)
    }
}

pub(super) fn is_hang(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// One status line with its headers, names in lower case.
pub(in crate::kit) fn read_head(reader: &mut impl BufRead) -> std::io::Result<(u16, Vec<(String, String)>)> {
    let first = read_line(reader)?;
    let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::new(ErrorKind::InvalidData, first))?;
    Ok((status, read_headers(reader)?))
}

pub(in crate::kit) fn read_headers(reader: &mut impl BufRead) -> std::io::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    loop {
        let line = read_line(reader)?;
        let Some((name, value)) = line.split_once(':') else { return Ok(headers) };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

pub(in crate::kit) fn read_line(reader: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

pub(in crate::kit) fn find_header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

fn framing(status: u16, headers: &[(String, String)]) -> BodyRemainder {
    if matches!(status, 101 | 204 | 304) {
        return BodyRemainder::Nothing;
    }
    if find_header(headers, "transfer-encoding").is_some_and(|value| value.contains("chunked")) {
        return BodyRemainder::Chunk(0);
    }
    match find_header(headers, "content-length").and_then(|value| value.parse().ok()) {
        Some(length) => BodyRemainder::Length(length),
        None => BodyRemainder::UntilClose,
    }
}

fn next_chunk(reader: &mut impl BufRead) -> std::io::Result<BodyRemainder> {
    let line = read_line(reader)?;
    let size = u64::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16)
        .map_err(|_| std::io::Error::new(ErrorKind::InvalidData, line))?;
    if size > 0 {
        return Ok(BodyRemainder::Chunk(size));
    }
    while !read_line(reader)?.is_empty() {}
    Ok(BodyRemainder::Nothing)
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
        find_header(&self.headers, name)
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
    pub(crate) fn ok_json(&self) -> Value {
        assert_eq!(self.status, 200, "{:.600}", self.text());
        assert!(self.complete, "the answer broke off");
        self.json()
    }

    /// The `error` object of an answer that must have this status, in the shape that every client reads.
    #[track_caller]
    pub(crate) fn error_object(&self, status: u16) -> Value {
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

    /// The header `x-should-retry`, which the official clients obey.
    pub(crate) fn should_retry(&self) -> Option<&str> {
        self.header("x-should-retry")
    }
}
