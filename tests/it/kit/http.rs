//! An HTTP client that controls every byte: it can send only a head or a false length, and tells whether an answer is
//! complete.

mod reply;

use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::contract::Operation;
use super::form::{Pieces, concat};
use super::{OutputChannel, TEST_TIMEOUT};
use reply::is_hang;
pub(crate) use reply::{Answer, Reply};
pub(super) use reply::{find_header, read_headers, read_line};

/// One request, not yet sent.
#[derive(Clone)]
pub(crate) struct Call {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    payload: Payload,
    /// The size of the receive buffer: how much of the answer the system may receive ahead of the reader.
    window: Option<usize>,
    from: Option<IpAddr>,
    /// The answer is not checked against the document.
    is_undocumented: bool,
}

#[derive(Clone)]
enum Payload {
    None,
    Sized(Vec<u8>),
    /// In chunks of this many bytes.
    Chunked(Vec<u8>, usize),
    /// A `Content-Length`, and then not one byte.
    AnnouncedOnly(u64),
    /// As [`Payload::Sized`], but the body is kept back until `100 Continue` arrives.
    AfterContinue(Vec<u8>),
    /// With a length, sent piece by piece until an answer begins.
    Pieces(Pieces),
}

// === impl Call ===

impl Call {
    pub(crate) fn get(path: &str) -> Self {
        Self {
            method: "GET",
            path: path.to_owned(),
            headers: Vec::new(),
            payload: Payload::None,
            window: None,
            from: None,
            is_undocumented: false,
        }
    }

    pub(crate) fn post(path: &str) -> Self {
        Self { method: "POST", ..Self::get(path) }
    }

    pub(crate) fn head_of(path: &str) -> Self {
        Self { method: "HEAD", ..Self::get(path) }
    }

    pub(crate) fn patch(path: &str) -> Self {
        Self { method: "PATCH", ..Self::get(path) }
    }

    pub(crate) fn put(path: &str) -> Self {
        Self { method: "PUT", ..Self::get(path) }
    }

    pub(crate) fn delete(path: &str) -> Self {
        Self { method: "DELETE", ..Self::get(path) }
    }

    /// A request with any other method.
    pub(crate) fn with_method(method: &'static str, path: &str) -> Self {
        Self { method, ..Self::get(path) }
    }

    /// `POST /v1/images/generations`.
    pub(crate) fn generation() -> Self {
        Self::post("/v1/images/generations")
    }

    /// `POST /v1/images/edits`.
    pub(crate) fn edit() -> Self {
        Self::post("/v1/images/edits")
    }

    /// The channel that the answer belongs to.
    fn channel(&self) -> OutputChannel {
        OutputChannel::for_path(&self.path)
    }

    /// The operation of the document whose answer is expected.
    fn operation(&self) -> Option<Operation> {
        Operation::for_request(self.method, &self.path).filter(|_| !self.is_undocumented)
    }

    /// Skips the check against the document: for image models that an operator adds, which may have values of their
    /// own.
    pub(crate) fn without_document_check(mut self) -> Self {
        self.is_undocumented = true;
        self
    }

    /// Goes to a fake upstream directly, to which the document does not apply.
    pub(crate) fn for_upstream(mut self) -> Self {
        self.is_undocumented = true;
        self
    }

    /// A body in pieces, without a content type.
    pub(crate) fn pieces(mut self, pieces: Pieces) -> Self {
        self.payload = Payload::Pieces(pieces);
        self
    }

    /// Connects from this address of the machine.
    pub(crate) fn coming_from(mut self, from: IpAddr) -> Self {
        self.from = Some(from);
        self
    }

    /// Uses a small receive buffer, so that the system receives hardly more of the answer than is read.
    pub(crate) fn with_small_window(mut self) -> Self {
        self.window = Some(32 << 10);
        self
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

    /// Compresses the body with `pack`, and names `coding` in `content-encoding`.
    pub(crate) fn compressed(mut self, coding: &str, pack: fn(&[u8]) -> Vec<u8>) -> Self {
        self.payload = match self.payload {
            Payload::Sized(body) => Payload::Sized(pack(&body)),
            Payload::Pieces(pieces) => Payload::Sized(pack(&concat(&pieces))),
            other => other,
        };
        self.header("content-encoding", coding)
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
    pub(crate) fn announcing_only(mut self, length: u64) -> Self {
        self.payload = Payload::AnnouncedOnly(length);
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
        let (channel, is_head) = (self.channel(), self.method == "HEAD");
        let operation = self.operation();
        let reply = Reply::read_at(channel, self.dispatch(address)?)?.check_against(operation);
        Ok(if is_head { reply.without_body() } else { reply })
    }

    /// Sends a body in pieces until an answer begins; returns how many bytes of it were sent, and the answer.
    pub(crate) fn upload(self, address: SocketAddr) -> std::io::Result<(u64, Answer)> {
        let mut stream = self.connect(address)?;
        stream.write_all(&self.head(address))?;
        let Payload::Pieces(pieces) = &self.payload else { panic!("only a body in pieces is measured") };
        let taken = write_until_answered(&mut stream, pieces)?;
        let reply = Reply::read_at(self.channel(), stream)?.check_against(self.operation());
        Ok((taken, reply.finish()?))
    }

    fn connect(&self, address: SocketAddr) -> std::io::Result<TcpStream> {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        if let Some(window) = self.window {
            // Before the connection is made, because the handshake announces the window.
            socket.set_recv_buffer_size(window)?;
            // Small segments, as in a real network. Those of the loopback interface are larger than the window, and a
            // sender may wait for seconds until one fits.
            socket.set_tcp_mss(4096)?;
        }
        if let Some(from) = self.from {
            socket.bind(&SocketAddr::new(from, 0).into())?;
        }
        socket.connect(&address.into())?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(TEST_TIMEOUT))?;
        stream.set_write_timeout(Some(TEST_TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Sends, and reads nothing. Dropping the stream hangs up.
    pub(crate) fn dispatch(self, address: SocketAddr) -> std::io::Result<TcpStream> {
        let mut stream = self.connect(address)?;
        stream.write_all(&self.head(address))?;
        // A server may answer and close before it has read a body; the answer then still counts.
        match self.payload {
            Payload::None | Payload::AnnouncedOnly(_) => {}
            Payload::Sized(body) => drop(stream.write_all(&body)),
            Payload::Chunked(body, size) => drop(write_chunks(&mut stream, &body, size)),
            Payload::Pieces(pieces) => drop(write_until_answered(&mut stream, &pieces)?),
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
        let mut head = format!("{} {} HTTP/1.1\r\nconnection: close\r\n", self.method, self.path);
        if find_header(&self.headers, "host").is_none() {
            head.push_str(&format!("host: {address}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        match &self.payload {
            Payload::None => {}
            Payload::Sized(body) | Payload::AfterContinue(body) => {
                head.push_str(&format!("content-length: {}\r\n", body.len()));
            }
            Payload::Pieces(pieces) => {
                let length: usize = pieces.iter().map(|piece| piece.len()).sum();
                head.push_str(&format!("content-length: {length}\r\n"));
            }
            Payload::Chunked(..) => head.push_str("transfer-encoding: chunked\r\n"),
            Payload::AnnouncedOnly(length) => head.push_str(&format!("content-length: {length}\r\n")),
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

/// Writes the pieces until the server answers or hangs up; returns how many bytes were written.
fn write_until_answered(stream: &mut TcpStream, pieces: &Pieces) -> std::io::Result<u64> {
    stream.set_write_timeout(Some(Duration::from_millis(100)))?;
    let (mut taken, mut moved) = (0, Instant::now());
    for piece in pieces {
        let mut rest = piece.as_slice();
        while !rest.is_empty() {
            if has_input(stream)? {
                return Ok(taken);
            }
            match stream.write(&rest[..rest.len().min(1 << 18)]) {
                Ok(wrote) => {
                    (taken, moved) = (taken + wrote as u64, Instant::now());
                    rest = &rest[wrote..];
                }
                Err(error) if is_hang(&error) && moved.elapsed() < TEST_TIMEOUT => {}
                Err(error) if is_hang(&error) => return Err(error),
                // It hung up; its answer may still be there to read.
                Err(_) => return Ok(taken),
            }
        }
    }
    Ok(taken)
}

/// True if there is something to read, also the end of the stream.
fn has_input(stream: &TcpStream) -> std::io::Result<bool> {
    stream.set_nonblocking(true)?;
    let seen = stream.peek(&mut [0]);
    stream.set_nonblocking(false)?;
    Ok(!seen.is_err_and(|error| error.kind() == ErrorKind::WouldBlock))
}

fn write_chunks(stream: &mut TcpStream, body: &[u8], size: usize) -> std::io::Result<()> {
    for chunk in body.chunks(size) {
        write!(stream, "{:x}\r\n", chunk.len())?;
        stream.write_all(chunk)?;
        stream.write_all(b"\r\n")?;
    }
    stream.write_all(b"0\r\n\r\n")
}
