//! Tests of the transport against local sockets, which send the bytes that each test chooses.
//!
//! This file has the test upstream and the tests of connections. The submodules test heads and bodies, failures,
//! hostile answers, memory, the reuse of connections, and TLS.

mod answers;
mod faults;
mod hostile;
mod memory;
mod reuse;
mod tls;

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::error::{BodyError, BodyErrorKind};
use super::*;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A local port on which the test itself answers.
struct Upstream(TcpListener);

impl Upstream {
    async fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn uri(&self) -> String {
        format!("http://{}/v1/images", self.0.local_addr().unwrap())
    }

    async fn accept(&self) -> TcpStream {
        let accepted = tokio::time::timeout(Duration::from_secs(10), self.0.accept()).await;
        accepted.expect("the transport connects within 10 seconds").unwrap().0
    }

    /// Answers one request, and keeps the connection open.
    async fn answer(&self, text: &str) -> TcpStream {
        let mut stream = self.accept().await;
        answer(&mut stream, text).await;
        stream
    }

    /// Returns true if a new connection arrives within 20 ms. The connection is accepted and closed.
    async fn has_pending_connection(&self) -> bool {
        tokio::time::timeout(Duration::from_millis(20), self.0.accept()).await.is_ok()
    }
}

/// Reads the head and the body of one request.
async fn request(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut text = String::new();
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        let mut part = [0; 4096];
        let count = stream.read(&mut part).await.unwrap();
        assert!(count > 0, "the request broke off: {text}");
        text.push_str(std::str::from_utf8(&part[..count]).unwrap());
    }
}

/// Reads one request and writes an answer.
async fn answer(stream: &mut TcpStream, text: &str) -> String {
    let request = request(stream).await;
    stream.write_all(text.as_bytes()).await.unwrap();
    request
}

fn transport() -> Transport {
    Transport::new(TransportSettings::default()).unwrap()
}

fn post(uri: &str) -> Request<RequestBody> {
    Request::post(uri).body(RequestBody::from(Bytes::from_static(b"a red cube"))).unwrap()
}

fn test_deadline() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

async fn send(transport: &Transport, uri: &str) -> Result<Response<ResponseBody>, SendError> {
    transport.send(post(uri), test_deadline()).await
}

/// Sends a request and reads the whole answer.
async fn fetch(transport: &Transport, uri: &str) -> Result<Bytes, BodyError> {
    Ok(send(transport, uri).await.unwrap().into_body().collect().await?.to_bytes())
}

#[tokio::test]
async fn the_upstream_receives_the_request_byte_for_byte() {
    let (upstream, transport) = (Upstream::start().await, transport());
    let uri = upstream.uri();
    let server = async { answer(&mut upstream.accept().await, OK).await };
    let (seen, body) = tokio::join!(server, fetch(&transport, &uri));
    assert_eq!(body.unwrap(), "ok");
    let host = upstream.0.local_addr().unwrap();
    let expected = format!("POST /v1/images HTTP/1.1\r\nhost: {host}\r\ncontent-length: 10\r\n\r\na red cube");
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_connection_carries_one_request_after_another() {
    for text in [
        OK,
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-trailer: 1\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    ] {
        let (upstream, transport) = (Upstream::start().await, transport());
        let uri = upstream.uri();
        let (mut stream, body) = tokio::join!(upstream.answer(text), fetch(&transport, &uri));
        body.unwrap();
        assert_eq!(transport.0.pool.len(), 1, "{text}");
        let (_, body) = tokio::join!(answer(&mut stream, text), fetch(&transport, &uri));
        body.unwrap();
        assert_eq!(transport.0.pool.len(), 1, "{text}");
    }
}

#[tokio::test]
async fn a_connection_that_cannot_be_reused_is_closed_after_its_answer() {
    for text in [
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n",
        // Surplus bytes that look like another answer.
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nforeign",
    ] {
        let (upstream, transport) = (Upstream::start().await, transport());
        let uri = upstream.uri();
        let server = async { (upstream.answer(text).await, upstream.answer(OK).await) };
        let client = async {
            assert!(!fetch(&transport, &uri).await.unwrap().starts_with(b"foreign"));
            assert_eq!(transport.0.pool.len(), 0, "{text}");
            assert_eq!(fetch(&transport, &uri).await.unwrap(), "ok");
        };
        let _open = tokio::join!(server, client);
    }
}

#[tokio::test]
async fn bytes_received_while_idle_are_never_read_as_an_answer() {
    let (upstream, transport) = (Upstream::start().await, transport());
    let uri = upstream.uri();
    let mut streams = Vec::new();
    for _ in 0..50 {
        let (mut stream, body) = tokio::join!(upstream.answer(OK), fetch(&transport, &uri));
        assert_eq!(body.unwrap(), "ok");
        assert_eq!(transport.0.pool.len(), 1);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nforeign").await.unwrap();
        streams.push(stream);
    }
}

#[tokio::test]
async fn closing_an_idle_connection_fails_and_repeats_no_request() {
    let (upstream, transport) = (Upstream::start().await, transport());
    let uri = upstream.uri();
    for _ in 0..50 {
        let server = async { answer(&mut upstream.accept().await, OK).await };
        let (_, body) = tokio::join!(server, fetch(&transport, &uri));
        assert_eq!(body.unwrap(), "ok");
    }
    assert!(!upstream.has_pending_connection().await);
}

#[tokio::test]
async fn a_request_is_given_back_if_its_connection_ended_before_it() {
    let (upstream, transport) = (Upstream::start().await, transport());
    let mut request = post(&upstream.uri());
    let origin = UpstreamOrigin::take_from(&mut request).unwrap();
    let stream = transport.0.dialer.dial(&origin).await.unwrap();
    drop(upstream.accept().await);
    let pool = Arc::clone(&transport.0.pool);
    let context = ExchangeContext {
        origin,
        pool,
        exchange_state: ExchangeState::new(&transport.0.budget),
        buffers: ReadBuffers::new(8192),
        max_head: 8192,
        budgets: RequestBudgets::default_for_test(),
    };
    // The kernel has already received the end of the connection; the pause lets tokio notice it.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let failed = exchange(stream, request, &context).await.unwrap_err();
    assert_eq!((failed.error.sent, failed.error.kind), (SendProgress::Nothing, SendErrorKind::Closed));
    assert!(failed.unsent.is_some());
}

#[tokio::test]
async fn idle_connections_are_limited_in_age_and_number() {
    let upstream = Upstream::start().await;
    let uri = upstream.uri();
    let idle_timeout = Duration::ZERO;
    let transport = Transport::new(TransportSettings { idle_timeout, ..TransportSettings::default() }).unwrap();
    let mut streams = Vec::new();
    for _ in 0..2 {
        let (stream, body) = tokio::join!(upstream.answer(OK), fetch(&transport, &uri));
        assert_eq!(body.unwrap(), "ok");
        streams.push(stream);
    }
    assert_eq!(transport.0.pool.len(), 1, "the expired connection was closed and not reused");
    transport.0.pool.close_expired();
    assert_eq!(transport.0.pool.len(), 0);

    let transport =
        Transport::new(TransportSettings { max_idle_per_origin: 1, ..TransportSettings::default() }).unwrap();
    let server = async { (upstream.answer(OK).await, upstream.answer(OK).await) };
    let client = async { tokio::join!(fetch(&transport, &uri), fetch(&transport, &uri)) };
    let (streams, bodies) = tokio::join!(server, client);
    bodies.0.unwrap();
    bodies.1.unwrap();
    assert_eq!(transport.0.pool.len(), 1);
    drop(streams);
}

#[test]
fn bodies_and_the_send_future_have_the_bounds_of_servers() {
    fn assert_server_bounds<T: Send + Sync + Unpin + 'static>(_: Option<T>) {}
    fn assert_send<T: Send>(_: T) {}
    assert_server_bounds::<ResponseBody>(None);
    assert_server_bounds::<RequestBody>(None);
    assert_server_bounds::<SendError>(None);
    let transport = transport();
    assert_send(transport.send(post("http://localhost/"), Instant::now()));
}

#[test]
fn a_read_size_below_the_minimum_is_refused() {
    let refused = Transport::new(TransportSettings { read_chunk: 100, ..TransportSettings::default() });
    assert!(matches!(refused, Err(TransportError::Setting(_))));
}

/// A name that resolves to such an address is refused at the same place.
#[tokio::test]
async fn no_connection_is_made_to_a_link_local_address_unless_it_is_allowed() {
    let soon = || Instant::now() + Duration::from_millis(1);
    for host in ["169.254.169.254", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "100.100.100.200", "0.0.0.0"] {
        let refused =
            transport().send(post(&format!("http://{host}:9/")), Instant::now() + Duration::from_secs(10)).await;
        let error = refused.expect_err(host);
        assert_eq!((error.kind, error.sent), (SendErrorKind::Resolve, SendProgress::Nothing), "{host}");
    }
    let settings = TransportSettings { addresses: AddressPolicy::for_services(true), ..TransportSettings::default() };
    let refused = Transport::new(settings).unwrap().send(post("http://0.0.0.0:9/"), soon()).await;
    assert!(!matches!(refused, Err(SendError { kind: SendErrorKind::Resolve, .. })), "it is tried");
}
