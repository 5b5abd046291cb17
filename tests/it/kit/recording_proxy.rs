//! A proxy between a client and the gateway that forwards every byte as it is, and records it.
//!
//! It parses nothing while it forwards, so a client cannot tell it from the gateway.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::http::{find_header, read_headers, read_line};
use super::leak_watch::AnswerScanner;
use super::{Attempt, OutputChannel};

/// The proxy. Dropping it closes the port.
pub(crate) struct RecordingProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    closed: AtomicBool,
    connections: Mutex<Vec<Connection>>,
}

/// The bytes of one connection in both directions.
#[derive(Clone, Default)]
struct Connection {
    sent: Vec<u8>,
    received: Vec<u8>,
}

/// A request as the client sent it.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

// === impl RecordingProxy ===

impl RecordingProxy {
    #[track_caller]
    pub(crate) fn in_front_of(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::<Shared>::default();
        let writing = Arc::clone(&shared);
        std::thread::spawn(move || accept(&listener, server, &writing));
        Self { address, shared }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL for a client.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Every request that has arrived completely, connection by connection.
    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        let connections = self.shared.connections().clone();
        connections.iter().flat_map(|connection| parse_requests(&connection.sent)).collect()
    }

    /// The requests to this path.
    pub(crate) fn requests_to(&self, method: &str, path: &str) -> Vec<RecordedRequest> {
        let mut requests = self.requests();
        requests.retain(|request| request.method == method && request.path == path);
        requests
    }

    /// Everything that the gateway has answered, as it was on the wire.
    fn received(&self) -> Vec<Vec<u8>> {
        self.shared.connections().iter().map(|connection| connection.received.clone()).collect()
    }

    /// Compares what the clients sent with what has reached the upstream: each response request is there byte for byte,
    /// no request reveals the caller, and nothing of the upstream's own came back. Returns the number of response
    /// requests of the clients that reached the upstream.
    #[track_caller]
    pub(crate) fn check_nothing_changed_or_leaked(&self, attempts: &[Attempt], secrets: &[&str]) -> usize {
        let sent = self.requests_to("POST", "/v1/responses");
        let mut tasks = 0;
        for task in attempts.iter().filter(|attempt| attempt.path.ends_with("/responses")) {
            let same = sent.iter().any(|request| request.body == task.body);
            // For an image job the gateway may send a response request of its own.
            let own = task.json()["tool_choice"]["type"] == "image_generation";
            assert!(same || own, "no client sent this response request: {:.400}", String::from_utf8_lossy(&task.body));
            tasks += usize::from(same);
        }
        for attempt in attempts {
            let headers = format!("{:?}", attempt.headers);
            for secret in secrets.iter().chain(&["caller-canary"]) {
                assert!(!headers.contains(secret), "{secret} went upstream: {headers}");
            }
            assert!(attempt.token.starts_with("sk-upstream-"), "{headers}");
            assert_eq!(attempt.header("cookie"), None, "{headers}");
        }
        for bytes in self.received() {
            for foreign in ["sk-upstream-", "provider-canary"] {
                assert!(memchr::memmem::find(&bytes, foreign.as_bytes()).is_none(), "{foreign} came to a client");
            }
        }
        tasks
    }
}

impl Drop for RecordingProxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then ends and closes the port.
        drop(TcpStream::connect(self.address));
    }
}

// === impl Shared ===

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl RecordedRequest ===

impl RecordedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find_header(&self.headers, name)
    }
}

fn accept(listener: &TcpListener, server: SocketAddr, shared: &Arc<Shared>) {
    while let Ok((client, _)) = listener.accept() {
        if shared.closed.load(Ordering::SeqCst) {
            return;
        }
        connect(client, server, shared);
    }
}

fn connect(client: TcpStream, server: SocketAddr, shared: &Arc<Shared>) {
    // If the server is not running, the client sees its connection closed.
    let Ok(server) = TcpStream::connect(server) else { return };
    let at = {
        let mut connections = shared.connections();
        connections.push(Connection::default());
        connections.len() - 1
    };
    let clone = |stream: &TcpStream| stream.try_clone().expect("a second handle");
    let (from_client, to_server) = (clone(&client), clone(&server));
    let (there, back) = (Arc::clone(shared), Arc::clone(shared));
    std::thread::spawn(move || {
        forward(from_client, to_server, |bytes| there.connections()[at].sent.extend_from_slice(bytes));
    });
    let mut scanner =
        server.peer_addr().ok().and_then(|address| AnswerScanner::for_address(address, OutputChannel::Answer));
    std::thread::spawn(move || {
        forward(server, client, |bytes| {
            if let Some(scanner) = &mut scanner {
                scanner.add(bytes);
            }
            back.connections()[at].received.extend_from_slice(bytes);
        });
    });
}

/// Forwards everything until one side ends. Records each piece first, so that nothing has an effect before it is
/// recorded.
fn forward(mut from: TcpStream, mut to: TcpStream, mut note: impl FnMut(&[u8])) {
    drop(to.set_nodelay(true));
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        note(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Write));
    drop(from.shutdown(Shutdown::Read));
}

/// The complete requests of one connection.
fn parse_requests(mut bytes: &[u8]) -> Vec<RecordedRequest> {
    std::iter::from_fn(|| parse_request(&mut bytes).ok()).collect()
}

fn parse_request(bytes: &mut &[u8]) -> std::io::Result<RecordedRequest> {
    let line = read_line(bytes)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let headers = read_headers(bytes)?;
    let mut body = Vec::new();
    if find_header(&headers, "transfer-encoding").is_none() {
        let length = find_header(&headers, "content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
        read_body(bytes, length, &mut body)?;
    } else {
        loop {
            let size = usize::from_str_radix(read_line(bytes)?.trim(), 16).map_err(std::io::Error::other)?;
            read_body(bytes, size, &mut body)?;
            read_line(bytes)?;
            if size == 0 {
                break;
            }
        }
    }
    Ok(RecordedRequest { method, path, headers, body })
}

fn read_body(bytes: &mut &[u8], length: usize, body: &mut Vec<u8>) -> std::io::Result<()> {
    let start = body.len();
    body.resize(start + length, 0);
    bytes.read_exact(&mut body[start..])
}
