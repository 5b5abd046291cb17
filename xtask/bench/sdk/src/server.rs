//! The HTTP server: one thread for each connection, one request on each connection.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::faults::{ACTIONS, AttemptTreatment, LedgerSummary, PaymentLedger};

/// Answers are written in pieces of this size: that of a frame of HTTP/2 or a record of TLS.
const PIECE_BYTES: usize = 16 << 10;
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(180);
/// The delay of a slow answer.
const SLOW: Duration = Duration::from_secs(1);
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// The treatment of the requests below one folder of the address.
pub enum ServerRoute {
    /// Every request gets this JSON answer.
    Json(Vec<u8>),
    /// Every request gets these events.
    Events(Vec<u8>),
    /// The ledger decides; a success has this body.
    Faulty { ledger: Mutex<PaymentLedger>, body: Vec<u8> },
}

/// A running server. It ends with the process.
pub struct ImageServer {
    address: SocketAddr,
    routes: Arc<BTreeMap<String, ServerRoute>>,
}

struct HttpRequest {
    folder: String,
    key: Option<String>,
    body: String,
}

// === impl ImageServer ===

impl ImageServer {
    pub fn start(routes: BTreeMap<String, ServerRoute>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let server = Self { address: listener.local_addr()?, routes: Arc::new(routes) };
        let routes = server.routes.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let routes = routes.clone();
                // A client may close its connection at any time, which is its own affair.
                thread::spawn(move || drop(serve(stream, &routes)));
            }
        });
        Ok(server)
    }

    /// The base URL of a route.
    pub fn url(&self, route: &str) -> String {
        format!("http://{}/{route}/v1", self.address)
    }

    /// The sums of the ledger of a route; `None` if it has none.
    pub fn summary(&self, route: &str) -> Option<LedgerSummary> {
        match self.routes.get(route)? {
            ServerRoute::Faulty { ledger, .. } => Some(ledger.lock().unwrap_or_else(PoisonError::into_inner).summary()),
            ServerRoute::Json(_) | ServerRoute::Events(_) => None,
        }
    }
}

fn serve(mut stream: TcpStream, routes: &BTreeMap<String, ServerRoute>) -> io::Result<()> {
    stream.set_read_timeout(Some(CONNECTION_TIMEOUT))?;
    stream.set_write_timeout(Some(CONNECTION_TIMEOUT))?;
    stream.set_nodelay(true)?;
    let request = read_request(&stream)?;
    match routes.get(&request.folder) {
        Some(ServerRoute::Json(body)) => write_answer(&mut stream, "200 OK", "application/json", body),
        Some(ServerRoute::Events(body)) => write_events(&mut stream, body),
        Some(ServerRoute::Faulty { ledger, body }) => {
            let Some(action) = action_number(&request.body) else {
                return write_error(&mut stream, "400 Bad Request", "");
            };
            let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
            let (treatment, is_stored) = ledger.record_attempt(action, request.key.as_deref());
            drop(ledger);
            let mark = is_stored.map(|is_stored| format!("x-imagate-replayed: {is_stored}\r\n")).unwrap_or_default();
            treat(&mut stream, treatment, action, &mark, body)
        }
        None => write_error(&mut stream, "404 Not Found", ""),
    }
}

fn read_request(stream: &TcpStream) -> io::Result<HttpRequest> {
    let mut reader = BufReader::new(stream.take(REQUEST_BYTES_MAX));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let folder = line.split('/').nth(1).unwrap_or_default().to_owned();
    let (mut length, mut key) = (0, None);
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "idempotency-key" => key = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body)?;
    Ok(HttpRequest { folder, key, body: String::from_utf8_lossy(&body).into_owned() })
}

/// The number in the prompt `action 17`.
fn action_number(body: &str) -> Option<usize> {
    let (_, after) = body.split_once("action ")?;
    let digits = after.split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|action| *action < ACTIONS)
}

#[expect(clippy::disallowed_methods, reason = "the slow answer delays the thread of its own connection only")]
fn treat(
    stream: &mut TcpStream,
    treatment: AttemptTreatment,
    action: usize,
    mark: &str,
    body: &[u8],
) -> io::Result<()> {
    match treatment {
        AttemptTreatment::Answered => write_images(stream, mark, body, body.len()),
        AttemptTreatment::AnsweredSlowly => {
            thread::sleep(SLOW);
            write_images(stream, mark, body, body.len())
        }
        AttemptTreatment::PaidThenClosed => Ok(()),
        AttemptTreatment::PaidThenServerError => write_error(stream, "500 Internal Server Error", ""),
        AttemptTreatment::PaidThenProxyPage => {
            let page = b"<html><body><h1>502 Bad Gateway</h1></body></html>";
            write_answer(stream, "502 Bad Gateway", "text/html", page)
        }
        AttemptTreatment::PaidThenCut => write_images(stream, mark, body, body.len() / 2),
        AttemptTreatment::UnpaidRetryAllowed => {
            write_error(stream, "503 Service Unavailable", "x-should-retry: true\r\n")
        }
        AttemptTreatment::UnpaidRateLimit => {
            let pause = if action.is_multiple_of(2) { "retry-after: 0\r\n" } else { "retry-after-ms: 20\r\n" };
            write_error(stream, "429 Too Many Requests", pause)
        }
    }
}

/// Writes an answer with images, up to this number of bytes of its body.
fn write_images(stream: &mut TcpStream, mark: &str, body: &[u8], written: usize) -> io::Result<()> {
    write_head(stream, "200 OK", "application/json", body.len(), mark)?;
    write_pieces(stream, &body[..written])
}

fn write_error(stream: &mut TcpStream, status: &str, headers: &str) -> io::Result<()> {
    let kind = if status.starts_with('4') { "rate_limit_exceeded" } else { "server_error" };
    let body = format!(r#"{{"error":{{"message":"{status}","type":"{kind}","param":null,"code":"{kind}"}}}}"#);
    write_head(stream, status, "application/json", body.len(), headers)?;
    write_pieces(stream, body.as_bytes())
}

fn write_answer(stream: &mut TcpStream, status: &str, content_type: &str, body: &[u8]) -> io::Result<()> {
    write_head(stream, status, content_type, body.len(), "")?;
    write_pieces(stream, body)
}

/// Writes events in chunks, because a service does not know the length of a stream when it begins.
fn write_events(stream: &mut TcpStream, body: &[u8]) -> io::Result<()> {
    let fields = "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n";
    stream.write_all(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes())?;
    for piece in body.chunks(PIECE_BYTES) {
        let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
        chunk.extend(piece);
        chunk.extend(b"\r\n");
        stream.write_all(&chunk)?;
    }
    stream.write_all(b"0\r\n\r\n")
}

/// Each answer closes its connection, so that no library meets a connection that was closed between two calls.
fn write_head(
    stream: &mut TcpStream,
    status: &str,
    content_type: &str,
    length: usize,
    headers: &str,
) -> io::Result<()> {
    let fields = format!("content-type: {content_type}\r\ncontent-length: {length}\r\nconnection: close\r\n");
    stream.write_all(format!("HTTP/1.1 {status}\r\n{fields}{headers}\r\n").as_bytes())
}

fn write_pieces(stream: &mut TcpStream, body: &[u8]) -> io::Result<()> {
    body.chunks(PIECE_BYTES).try_for_each(|piece| stream.write_all(piece))
}
