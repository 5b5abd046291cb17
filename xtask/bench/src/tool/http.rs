//! A client connection that costs as little as possible: it drops the bytes of a body inside the kernel, unless they are
//! wanted.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use memchr::memmem;
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant as TokioInstant, sleep_until};

/// `MSG_TRUNC` of Linux: on a TCP socket, it drops the bytes that a read would return (tcp(7)).
const MSG_TRUNC: i32 = 0x20;
/// The most bytes that one read takes.
const READ_BYTES: usize = 256 << 10;
const DROP_BYTES: usize = 1 << 20;
/// The most bytes of an error that are kept.
const ERROR_BYTES: usize = 300;

/// A kept-alive connection to a target.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// The start of the unread bytes in `buffer`.
    start: usize,
    /// The room for dropped bytes, which the kernel does not write to.
    dropped: Vec<MaybeUninit<u8>>,
    pace: Option<Pace>,
}

/// The bytes per second that a slow reader reads.
struct Pace {
    rate: usize,
    begun: TokioInstant,
    read: usize,
}

/// The way in which a client reads the bytes of a body.
#[derive(Default)]
pub(crate) struct BodySink {
    pub(crate) kept: Option<Vec<u8>>,
    /// True until the first event of a stream is whole.
    waits_for_event: bool,
    follows_line_end: bool,
    first_event: Option<Instant>,
}

/// A complete answer and its times.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) status: u16,
    pub(crate) first_byte: Duration,
    pub(crate) first_event: Option<Duration>,
    pub(crate) total: Duration,
    pub(crate) body_bytes: u64,
    /// The beginning of the body of an error.
    pub(crate) error: String,
    pub(crate) closes: bool,
}

/// The head of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    framing: Framing,
    closes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
}

impl Connection {
    /// Connects to a target; a rate makes it a slow reader with a small buffer.
    pub(crate) async fn open(address: SocketAddr, rate: Option<usize>) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        if rate.is_some() {
            socket.set_recv_buffer_size(64 << 10)?;
        }
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        let pace = rate.map(|rate| Pace { rate, begun: TokioInstant::now(), read: 0 });
        Ok(Self { stream, buffer: Vec::new(), start: 0, dropped: Vec::new(), pace })
    }

    /// Sends a request and reads its answer to the end.
    pub(crate) async fn exchange(&mut self, request: &[u8], sink: &mut BodySink) -> Result<Exchange> {
        let begun = Instant::now();
        self.stream.write_all(request).await.context("sending the request")?;
        if self.unread().is_empty() {
            self.read_more().await?;
        }
        let first_byte = begun.elapsed();
        let head = self.read_head().await?;
        let is_error = head.status >= 400;
        let mut error_sink = BodySink { kept: Some(Vec::new()), ..BodySink::default() };
        let sink = if is_error { &mut error_sink } else { sink };
        let body_bytes = match head.framing {
            Framing::Length(length) => self.read_body(length, sink).await.map(|()| length)?,
            Framing::Chunked => self.read_chunks(sink).await?,
        };
        let total = begun.elapsed();
        let first_event = sink.first_event.map(|time| time - begun);
        let error = sink.kept.as_ref().filter(|_| is_error).map(|kept| &kept[..kept.len().min(ERROR_BYTES)]);
        let error = error.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
        let (status, closes) = (head.status, head.closes);
        Ok(Exchange { status, first_byte, first_event, total, body_bytes: body_bytes as u64, error, closes })
    }

    fn unread(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn step(&self) -> usize {
        self.pace.as_ref().map_or(usize::MAX, |pace| (pace.rate / 10).max(1024))
    }

    /// Waits until a slow reader may have read this many more bytes.
    async fn keep_pace(&mut self, count: usize) {
        if let Some(pace) = &mut self.pace {
            pace.read += count;
            sleep_until(pace.begun + Duration::from_secs_f64(pace.read as f64 / pace.rate as f64)).await;
        }
    }

    async fn read_more(&mut self) -> Result<()> {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
        let limit = READ_BYTES.min(self.step());
        self.buffer.reserve(limit);
        let count = (&mut self.stream).take(limit as u64).read_buf(&mut self.buffer).await?;
        ensure!(count > 0, "the connection was closed inside an answer");
        self.keep_pace(count).await;
        Ok(())
    }

    async fn read_head(&mut self) -> Result<Head> {
        loop {
            while memmem::find(self.unread(), b"\r\n\r\n").is_none() {
                ensure!(self.unread().len() < 64 << 10, "the head of the answer does not end");
                self.read_more().await?;
            }
            let length = memmem::find(self.unread(), b"\r\n\r\n").unwrap_or_default();
            let head = parse_head(&self.unread()[..length])?;
            self.start += length + 4;
            if head.status != 100 {
                return Ok(head);
            }
        }
    }

    async fn read_chunks(&mut self, sink: &mut BodySink) -> Result<usize> {
        let mut sum = 0;
        loop {
            let line = self.read_line().await?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let length = usize::from_str_radix(digits, 16).with_context(|| format!("the chunk length `{line}`"))?;
            if length == 0 {
                break;
            }
            self.read_body(length, sink).await?;
            ensure!(self.read_line().await?.is_empty(), "a chunk is longer than its length");
            sum += length;
        }
        while !self.read_line().await?.is_empty() {}
        Ok(sum)
    }

    async fn read_line(&mut self) -> Result<String> {
        loop {
            if let Some(length) = memmem::find(self.unread(), b"\r\n") {
                let line = String::from_utf8_lossy(&self.unread()[..length]).into_owned();
                self.start += length + 2;
                return Ok(line);
            }
            self.read_more().await?;
        }
    }

    /// Reads this many bytes of a body.
    async fn read_body(&mut self, mut left: usize, sink: &mut BodySink) -> Result<()> {
        while left > 0 {
            let count = self.unread().len().min(left);
            if count > 0 {
                sink.take(&self.buffer[self.start..self.start + count]);
                self.start += count;
                left -= count;
            } else if sink.needs_bytes() {
                self.read_more().await?;
            } else {
                left -= self.drop_bytes(left).await?;
            }
        }
        Ok(())
    }

    /// Drops at most this many bytes that have arrived, without a copy of them.
    async fn drop_bytes(&mut self, most: usize) -> Result<usize> {
        let limit = most.min(DROP_BYTES).min(self.step());
        self.dropped.resize(DROP_BYTES, MaybeUninit::uninit());
        loop {
            self.stream.readable().await?;
            let (stream, dropped) = (&self.stream, &mut self.dropped[..limit]);
            match stream.try_io(Interest::READABLE, || SockRef::from(stream).recv_with_flags(dropped, MSG_TRUNC)) {
                Ok(0) => bail!("the connection was closed inside an answer"),
                Ok(count) => {
                    self.keep_pace(count).await;
                    return Ok(count);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl BodySink {
    /// Keeps the whole body.
    pub(crate) fn keeping() -> Self {
        Self { kept: Some(Vec::new()), ..Self::default() }
    }

    /// Notes the time at which the first event is whole.
    pub(crate) fn for_events() -> Self {
        Self { waits_for_event: true, ..Self::default() }
    }

    fn needs_bytes(&self) -> bool {
        self.kept.is_some() || self.waits_for_event
    }

    fn take(&mut self, bytes: &[u8]) {
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(bytes);
        }
        if self.waits_for_event {
            self.look_for_event_end(bytes);
        }
    }

    /// An event ends with an empty line. A comment of a heartbeat ends with one, too; no case sends any.
    fn look_for_event_end(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            match first {
                b'\n' if self.follows_line_end => {
                    self.waits_for_event = false;
                    self.first_event = Some(Instant::now());
                    return;
                }
                b'\n' => self.follows_line_end = true,
                b'\r' => {}
                _ => {
                    self.follows_line_end = false;
                    let next = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
                    rest = &rest[next..];
                    continue;
                }
            }
            rest = &rest[1..];
        }
    }
}

fn parse_head(head: &[u8]) -> Result<Head> {
    let head = std::str::from_utf8(head).context("the head of the answer")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok());
    let status: u16 = status.context("the status line")?;
    let (mut framing, mut closes) = (None, false);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => framing = Some(Framing::Length(value.parse().context("content-length")?)),
            "transfer-encoding" => framing = Some(Framing::Chunked),
            "connection" => closes = value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    let framing = if status == 100 { Framing::Length(0) } else { framing.context("the answer has no length")? };
    Ok(Head { status, framing, closes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_gives_status_and_framing() {
        let head = parse_head(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: Close").unwrap();
        assert_eq!(head, Head { status: 200, framing: Framing::Length(12), closes: true });
        let head = parse_head(b"HTTP/1.1 401 No\r\ntransfer-encoding: chunked").unwrap();
        assert_eq!(head, Head { status: 401, framing: Framing::Chunked, closes: false });
        for wrong in ["HTTP/1.1 200 OK\r\nserver: x", "HTTP/1.1 200 OK\r\ncontent-length: x", "SSH-2.0 200 x", ""] {
            assert!(parse_head(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_event_ends_at_the_empty_line_wherever_it_is_cut() {
        for text in ["event: a\ndata: b\n\n", "data: b\r\n\r\n"] {
            for cut in 0..=text.len() {
                let mut sink = BodySink::for_events();
                sink.take(&text.as_bytes()[..cut]);
                assert_eq!(sink.first_event.is_some(), cut == text.len(), "{text:?} cut at {cut}");
                sink.take(&text.as_bytes()[cut..]);
                assert!(sink.first_event.is_some() && !sink.needs_bytes(), "{text:?} cut at {cut}");
            }
        }
    }
}
