//! A small server on loopback for what is not an image upstream: a function decides the answer to each request.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::http::{find_header, read_headers, read_line};

/// A request to the server.
pub(crate) struct StubRequest {
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// The server. Dropping it closes the port.
pub(crate) struct StubServer {
    address: SocketAddr,
    closed: Arc<AtomicBool>,
}

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
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let closed = Arc::<AtomicBool>::default();
        let ending = Arc::clone(&closed);
        std::thread::spawn(move || accept(&listener, &ending, &Arc::new(answer)));
        Self { address, closed }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for StubServer {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then ends and closes the port.
        drop(TcpStream::connect(self.address));
    }
}

fn accept<A>(listener: &TcpListener, ending: &AtomicBool, answer: &Arc<A>)
where
    A: Fn(&StubRequest) -> Option<(u16, String)> + Send + Sync + 'static,
{
    while let Ok((stream, _)) = listener.accept() {
        if ending.load(Ordering::SeqCst) {
            return;
        }
        let answer = Arc::clone(answer);
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            while serve(&mut reader, &*answer).unwrap_or(false) {}
        });
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
