//! A small server on loopback for what is not an image upstream: a function decides the answer to each request.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::LoopbackPort;
use super::http::{find_header, read_headers, read_line};

/// A request to the server.
pub(crate) struct StubRequest {
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// The server. Dropping it closes the port.
pub(crate) struct StubServer(LoopbackPort);

// === impl StubRequest ===

impl StubRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find_header(&self.headers, name)
    }

    fn read(reader: &mut BufReader<TcpStream>) -> std::io::Result<Self> {
        let line = read_line(reader)?;
        let headers = read_headers(reader)?;
        let length = find_header(&headers, "content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        Ok(Self { path, headers, body })
    }
}

// === impl StubServer ===

impl StubServer {
    /// `answer` returns a status and JSON, or `None` to close the connection without an answer.
    pub(crate) fn start(answer: impl Fn(&StubRequest) -> Option<(u16, String)> + Send + Sync + 'static) -> Self {
        Self(LoopbackPort::serve(move |stream| {
            let mut reader = BufReader::new(stream);
            while serve(&mut reader, &answer)? {}
            Ok(())
        }))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// Serves one request; returns whether the connection can serve another.
fn serve(
    reader: &mut BufReader<TcpStream>,
    answer: &impl Fn(&StubRequest) -> Option<(u16, String)>,
) -> std::io::Result<bool> {
    let request = StubRequest::read(reader)?;
    let Some((status, body)) = answer(&request) else { return Ok(false) };
    let head =
        format!("HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    reader.get_mut().write_all((head + &body).as_bytes())?;
    Ok(true)
}
