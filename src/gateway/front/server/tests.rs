//! Tests of the server with test routes, short deadlines, and clients that write raw bytes.

mod unread_bodies;

use std::future::{poll_fn, ready};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use bytes::Bytes;
use dropshot::Body;
use http::{Method, Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;

use super::super::connection_activity::ConnectionDeadlines;
use super::super::response::ResponseCounter;
use super::*;
use crate::gateway::admission::{Admission, Principal, RequestBudgets};
use crate::gateway::config::{CorsOrigins, TrustedProxies};
use crate::gateway::front::{AdmittingServer, FormBody, RequestHead, UnreadRequestBody, boxed_answer};
use crate::gateway::telemetry::ConnectionMetrics;

/// The time limit on events that must happen. Only a test that fails takes this long.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);
/// A deadline that does not pass during a test.
const LONG: Duration = Duration::from_secs(3_600);
/// A deadline that passes during a test.
const SHORT: Duration = Duration::from_millis(300);
/// The size of a body that is larger than all buffers of a connection.
const LARGE_BODY_BYTES: usize = 32 << 20;

/// The origin whose pages may call the test server.
const ALLOWED_ORIGIN: &str = "https://studio.example.com";

/// The state of the test server.
struct TestServerState {
    budgets: Arc<RequestBudgets>,
    response_count: AtomicUsize,
    /// True while the handler of `/slow` runs, and from the call of `/endless` until the body of its answer is dropped.
    is_slow_running: AtomicBool,
    /// Lets the handler of `/slow` return its answer.
    end_notify: Notify,
}

/// Clears `TestServerState::is_slow_running` when it is dropped.
struct RunningGuard(Arc<TestServerState>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.is_slow_running.store(false, Ordering::SeqCst);
    }
}

impl ResponseCounter for Arc<TestServerState> {
    fn count_response(&self, _operation: &str, _status: u16) {
        self.response_count.fetch_add(1, Ordering::SeqCst);
    }
}

impl AdmittingServer for Arc<TestServerState> {
    fn begin_admission(&self, peer: SocketAddr, _: &http::HeaderMap) -> Admission {
        Admission::begin(&self.budgets, peer.ip())
    }

    fn request_budgets(&self) -> Arc<RequestBudgets> {
        Arc::clone(&self.budgets)
    }
}

impl CorsSettings for Arc<TestServerState> {
    fn cors_origins(&self) -> CorsOrigins {
        CorsOrigins::from_origins(&[ALLOWED_ORIGIN])
    }
}

type TestRequestHead = RequestHead<Arc<TestServerState>>;

async fn slow(head: TestRequestHead) -> Response<Body> {
    let site = Arc::clone(head.server());
    site.is_slow_running.store(true, Ordering::SeqCst);
    let running = RunningGuard(Arc::clone(&site));
    site.end_notify.notified().await;
    drop(running);
    Response::new(Body::from("slow"))
}

/// An answer whose body never ends.
fn endless(head: &TestRequestHead) -> Response<Body> {
    head.server().is_slow_running.store(true, Ordering::SeqCst);
    Response::new(Body::wrap(EndlessBody(RunningGuard(Arc::clone(head.server())))))
}

/// An answer that breaks off after a few bytes.
fn breaks() -> Response<Body> {
    Response::new(Body::wrap(InterruptedBody(Some(Bytes::from_static(b"begun")))))
}

/// An answer that breaks off after more bytes than a socket takes at once.
fn breaks_late() -> Response<Body> {
    Response::new(Body::wrap(InterruptedBody(Some(Bytes::from(vec![b'x'; LARGE_BODY_BYTES])))))
}

async fn upload(head: TestRequestHead, body: FormBody) -> Response<Body> {
    drop(body.read(head.admission(), 1 << 20).await);
    Response::new(Body::from("upload"))
}

/// Answers with an error and leaves the body unread.
fn refuse_upload(head: &TestRequestHead) -> Response<Body> {
    head.admission().set_principal(Principal::of_actor(None));
    error_response(&Error::Unavailable).map(Body::from)
}

struct EndlessBody(#[expect(dead_code, reason = "its drop is observed")] RunningGuard);

impl http_body::Body for EndlessBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(&[b'x'; 65_536])))))
    }
}

struct InterruptedBody(Option<Bytes>);

impl http_body::Body for InterruptedBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        let next = self.0.take().map(http_body::Frame::data).ok_or_else(|| std::io::ErrorKind::BrokenPipe.into());
        Poll::Ready(Some(next))
    }
}

/// The routes of the test server.
fn routes() -> Vec<Route<Arc<TestServerState>>> {
    let get = |path, handler| Route::new(path, Method::GET, path, handler);
    vec![
        get("/quick", |_| boxed_answer(ready(Response::new(Body::from("quick"))))),
        get("/slow", |request| boxed_answer(slow(request.head))),
        get("/fails", |_| boxed_answer(poll_fn(|_| -> Poll<Response<Body>> { panic!("seen in a test") }))),
        get("/endless", |request| boxed_answer(ready(endless(&request.head)))),
        get("/breaks", |_| boxed_answer(ready(breaks()))),
        get("/breaks-late", |_| boxed_answer(ready(breaks_late()))),
        Route::new("upload", Method::POST, "/upload", |request| {
            boxed_answer(upload(request.head, UnreadRequestBody::new(request.request, 1 << 20)))
        }),
        Route::new("refused", Method::POST, "/refused", |request| boxed_answer(ready(refuse_upload(&request.head)))),
    ]
}

fn serve_with(deadlines: ConnectionDeadlines, max: usize) -> (HttpServer, Arc<TestServerState>) {
    let site = Arc::new(TestServerState {
        budgets: RequestBudgets::default_for_test(),
        response_count: AtomicUsize::default(),
        is_slow_running: AtomicBool::default(),
        end_notify: Notify::default(),
    });
    let metrics = ConnectionMetrics::default();
    let connections = Arc::new(ConnectionTable::with_limits(max, max, deadlines, TrustedProxies::default(), metrics));
    let server = start(routes(), Arc::clone(&site), SocketAddr::from(([127, 0, 0, 1], 0)), connections);
    (server.unwrap(), site)
}

fn deadlines(head: Duration, idle: Duration, write: Duration) -> ConnectionDeadlines {
    ConnectionDeadlines { head, idle, write, discard_idle: LONG, discard: LONG }
}

async fn connect(server: &HttpServer, bytes: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    stream
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
}

/// Reads all bytes until the connection is closed.
async fn read_remaining(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset of the connection also ends the read; the bytes before it are returned.
    drop(timeout(EVENT_TIMEOUT, stream.read_to_end(&mut bytes)).await.expect("the connection is closed"));
    String::from_utf8(bytes).unwrap()
}

/// Reads one answer, which must end with this body.
async fn read_answer(stream: &mut TcpStream, body: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(body) {
        let mut bytes = [0; 1024];
        let length = timeout(EVENT_TIMEOUT, stream.read(&mut bytes)).await.expect("an answer").unwrap();
        assert_ne!(length, 0, "the connection is closed early: {text}");
        text.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
    }
    text
}

async fn wait_until(event: &str, has_happened: impl Fn() -> bool) {
    let polls = async {
        while !has_happened() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(EVENT_TIMEOUT, polls).await.is_ok(), "timed out: {event}");
}

#[tokio::test]
async fn a_connection_without_a_complete_head_is_closed() {
    let (server, _) = serve_with(deadlines(SHORT, LONG, LONG), 100);
    for bytes in ["", "G", "GET /quick HTTP/1.1\r\nhost: local", "PRI * HT"] {
        let mut stream = connect(&server, bytes).await;
        assert_eq!(read_remaining(&mut stream).await, "", "{bytes:?}");
    }
    // The head of a second request has the same deadline.
    let mut stream = connect(&server, &get("/quick")).await;
    read_answer(&mut stream, "quick").await;
    stream.write_all(b"GET /qui").await.unwrap();
    assert_eq!(read_remaining(&mut stream).await, "");
}

#[tokio::test]
async fn http_2_is_refused_at_once() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 100);
    for bytes in ["PRI * HTTP/2.0\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"] {
        let mut stream = connect(&server, bytes).await;
        let text = read_remaining(&mut stream).await;
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 400 "), "{text}");
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let (server, _) = serve_with(deadlines(LONG, SHORT, LONG), 100);
    let mut stream = connect(&server, &get("/quick")).await;
    let text = read_remaining(&mut stream).await;
    assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("quick"), "{text}");
}

#[tokio::test]
async fn a_running_handler_has_no_deadline() {
    let (server, site) = serve_with(deadlines(SHORT, SHORT, SHORT), 100);
    let mut stream = connect(&server, &get("/slow")).await;
    wait_until("the handler runs", || site.is_slow_running.load(Ordering::SeqCst)).await;
    sleep(SHORT * 3).await;
    site.end_notify.notify_one();
    read_answer(&mut stream, "slow").await;
}

#[tokio::test]
async fn the_connection_of_a_peer_that_reads_nothing_is_closed() {
    let (server, site) = serve_with(deadlines(LONG, LONG, SHORT), 100);
    let stream = connect(&server, &get("/endless")).await;
    wait_until("the answer begins", || site.is_slow_running.load(Ordering::SeqCst)).await;
    wait_until("the answer is dropped", || !site.is_slow_running.load(Ordering::SeqCst)).await;
    drop(stream);
}

#[tokio::test]
async fn a_handler_is_dropped_when_its_connection_closes() {
    let (server, site) = serve_with(deadlines(LONG, LONG, LONG), 100);
    let stream = connect(&server, &get("/slow")).await;
    wait_until("the handler runs", || site.is_slow_running.load(Ordering::SeqCst)).await;
    drop(stream);
    wait_until("the handler is dropped", || !site.is_slow_running.load(Ordering::SeqCst)).await;
}

#[tokio::test]
async fn a_panic_is_answered_with_500_on_an_open_connection() {
    let (server, site) = serve_with(deadlines(LONG, LONG, LONG), 100);
    let mut stream = connect(&server, &get("/fails")).await;
    let text = read_answer(&mut stream, "}}").await;
    assert!(text.starts_with("HTTP/1.1 500 ") && text.contains("x-request-id: ") && text.contains("x-should-retry: "));
    stream.write_all(get("/quick").as_bytes()).await.unwrap();
    read_answer(&mut stream, "quick").await;
    assert_eq!(site.response_count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_request_without_a_route_gets_an_error_answer() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 100);
    for (request, status, expected) in [
        (get("/nowhere"), "404", "unknown_url"),
        (get("/quick").replace("GET", "DELETE"), "405", "\"error\""),
        (get("/%FF"), "400", "\"error\""),
        (get("/x").replace("/x", "*").replace("GET", "OPTIONS"), "404", "unknown_url"),
    ] {
        let mut stream = connect(&server, &request).await;
        let text = read_answer(&mut stream, "}}").await;
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")) && text.contains(expected), "{text}");
        assert!(text.contains("x-should-retry: false") && text.contains("x-request-id: "), "{text}");
        assert_eq!(text.contains("allow: GET, HEAD\r\n"), status == "405", "{text}");
    }
}

/// A proxy in front of the gateway may use one of the two lengths and the gateway the other; the hidden second request
/// would then count as the request of another caller (request smuggling).
#[tokio::test]
async fn a_request_with_two_body_lengths_is_the_last_of_its_connection() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 100);
    let (length, chunked) = ("content-length: 5\r\n", "transfer-encoding: chunked\r\n");
    for framing in [format!("{length}{chunked}"), format!("{chunked}{length}")] {
        let hidden = get("/quick");
        let request = format!("POST /upload HTTP/1.1\r\nhost: localhost\r\n{framing}\r\n0\r\n\r\n{hidden}");
        let mut stream = connect(&server, &request).await;
        let text = read_remaining(&mut stream).await;
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{text}");
        assert!(!text.contains("quick"), "{text}");
    }
}

#[tokio::test]
async fn a_new_connection_replaces_an_unused_one() {
    let (server, site) = serve_with(deadlines(LONG, LONG, LONG), 3);
    let mut slow = connect(&server, &get("/slow")).await;
    wait_until("the handler runs", || site.is_slow_running.load(Ordering::SeqCst)).await;
    let mut others = Vec::new();
    for bytes in ["", "GET /qui", "POST /upload HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nabc"] {
        for _ in 0..5 {
            others.push(connect(&server, bytes).await);
        }
        let mut stream = connect(&server, &get("/quick")).await;
        read_answer(&mut stream, "quick").await;
    }
    site.end_notify.notify_one();
    read_answer(&mut slow, "slow").await;
}

#[tokio::test]
async fn a_new_connection_gets_503_if_all_others_are_busy() {
    let (server, site) = serve_with(deadlines(LONG, LONG, LONG), 1);
    let mut slow = connect(&server, &get("/slow")).await;
    wait_until("the handler runs", || site.is_slow_running.load(Ordering::SeqCst)).await;
    let mut refused = TcpStream::connect(server.address()).await.unwrap();
    let text = read_remaining(&mut refused).await;
    assert!(
        text.starts_with("HTTP/1.1 503 ") && text.contains("x-should-retry: true") && text.contains("x-request-id: "),
        "{text}"
    );
    site.end_notify.notify_one();
    read_answer(&mut slow, "slow").await;
}

#[tokio::test]
async fn a_stop_waits_only_for_running_requests() {
    let (server, site) = serve_with(deadlines(LONG, LONG, LONG), 100);
    let address = server.address();
    let mut silent = connect(&server, "").await;
    wait_until("the connection is accepted", || server.connections.count() == 1).await;
    let mut idle = connect(&server, &get("/quick")).await;
    read_answer(&mut idle, "quick").await;
    let mut slow = connect(&server, &get("/slow")).await;
    wait_until("the handler runs", || site.is_slow_running.load(Ordering::SeqCst)).await;
    let stopping = Handle::current().spawn(server.stop(EVENT_TIMEOUT));
    assert_eq!((read_remaining(&mut silent).await, read_remaining(&mut idle).await), (String::new(), String::new()));
    assert!(TcpStream::connect(address).await.is_err(), "the port is closed");
    site.end_notify.notify_one();
    assert!(read_remaining(&mut slow).await.ends_with("slow"));
    assert!(stopping.await.unwrap());
}

#[tokio::test]
async fn connections_that_were_not_accepted_before_a_stop_are_served() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 100);
    // On this thread, nothing is accepted before the next wait.
    let mut clients: Vec<TcpStream> = Vec::new();
    for _ in 0..8 {
        let mut client = std::net::TcpStream::connect(server.address()).unwrap();
        client.write_all(get("/quick").as_bytes()).unwrap();
        client.set_nonblocking(true).unwrap();
        clients.push(TcpStream::from_std(client).unwrap());
    }
    let stopping = Handle::current().spawn(server.stop(EVENT_TIMEOUT));
    for client in &mut clients {
        let answer = read_remaining(client).await;
        assert!(answer.ends_with("quick"), "{answer:?}");
    }
    assert!(stopping.await.unwrap());
}

#[tokio::test]
async fn a_stop_has_a_time_limit() {
    let (server, site) = serve_with(deadlines(LONG, LONG, LONG), 100);
    let stream = connect(&server, &get("/slow")).await;
    wait_until("the handler runs", || site.is_slow_running.load(Ordering::SeqCst)).await;
    assert!(!server.stop(SHORT).await);
    drop(stream);
}

#[tokio::test]
async fn an_interrupted_answer_is_sent_up_to_its_interruption() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 8);
    let text = read_remaining(&mut connect(&server, &get("/breaks")).await).await;
    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("begun") && !text.ends_with("0\r\n\r\n"),
        "{text:?}"
    );
}

#[tokio::test]
async fn a_slow_reader_gets_all_bytes_of_an_interrupted_answer() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 8);
    let mut stream = connect(&server, &get("/breaks-late")).await;
    sleep(SHORT).await;
    let text = read_remaining(&mut stream).await;
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    assert_eq!(body.matches('x').count(), LARGE_BODY_BYTES);
    assert!(!body.ends_with("0\r\n\r\n"));
}
