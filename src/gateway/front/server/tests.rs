//! A server with its own routes and short deadlines, and clients that write raw bytes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use dropshot::{ApiEndpoint, ApiEndpointVersions, Body, HttpError, RequestContext};
use http::{Method, Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;

use super::super::connection_activity::ConnectionDeadlines;
use super::*;
use crate::gateway::config::TrustedProxies;
use crate::gateway::front::FormBody;
use crate::gateway::telemetry::ConnectionMetrics;

/// The time limit on events that must happen; only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(3_600);
const SHORT: Duration = Duration::from_millis(300);
/// More bytes than the buffers of a connection hold.
const LATE: usize = 32 << 20;

#[derive(Default)]
struct Site {
    answered: AtomicUsize,
    is_slow_running: AtomicBool,
    may_end: Notify,
}

/// Sets the flag of the site while it lives.
struct Running(Arc<Site>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.is_slow_running.store(false, Ordering::SeqCst);
    }
}

impl ResponseCounter for Arc<Site> {
    fn count_response(&self, _operation: &str, _status: u16) {
        self.answered.fetch_add(1, Ordering::SeqCst);
    }
}

type Context = RequestContext<Arc<Site>>;

async fn quick(_: Context) -> Result<Response<Body>, HttpError> {
    Ok(Response::new(Body::from("quick")))
}

async fn fails(_: Context) -> Result<Response<Body>, HttpError> {
    panic!("seen in a test")
}

async fn slow(context: Context) -> Result<Response<Body>, HttpError> {
    let site = Arc::clone(context.context());
    site.is_slow_running.store(true, Ordering::SeqCst);
    let running = Running(Arc::clone(&site));
    site.may_end.notified().await;
    drop(running);
    Ok(Response::new(Body::from("slow")))
}

/// An answer without an end.
async fn endless(context: Context) -> Result<Response<Body>, HttpError> {
    context.context().is_slow_running.store(true, Ordering::SeqCst);
    Ok(Response::new(Body::wrap(Endless(Running(Arc::clone(context.context()))))))
}

/// An answer that breaks off at once.
async fn breaks(_: Context) -> Result<Response<Body>, HttpError> {
    Ok(Response::new(Body::wrap(Breaking(Some(Bytes::from_static(b"begun"))))))
}

/// The same with more bytes before the break than a socket takes at once.
async fn breaks_late(_: Context) -> Result<Response<Body>, HttpError> {
    Ok(Response::new(Body::wrap(Breaking(Some(Bytes::from(vec![b'x'; LATE]))))))
}

async fn upload(_: Context, body: FormBody) -> Result<Response<Body>, HttpError> {
    drop(body.read(1 << 20).await);
    Ok(Response::new(Body::from("upload")))
}

/// A refusal that leaves the body unread.
async fn refuse_upload(_: Context, body: FormBody) -> Result<Response<Body>, HttpError> {
    let unread = body.unread();
    drop(body);
    Ok(error_response(&Error::Unavailable).map(|text| unread.respond_and_drain(text, true)))
}

struct Endless(#[expect(dead_code, reason = "it says when it is dropped")] Running);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(&[b'x'; 65_536])))))
    }
}

struct Breaking(Option<Bytes>);

impl http_body::Body for Breaking {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        let next = self.0.take().map(http_body::Frame::data).ok_or_else(|| std::io::ErrorKind::BrokenPipe.into());
        std::task::Poll::Ready(Some(next))
    }
}

fn describe() -> Result<ApiDescription<Arc<Site>>, ApiDescriptionRegisterError> {
    const FORM: &str = "application/x-www-form-urlencoded";
    let all = || ApiEndpointVersions::All;
    let mut api = ApiDescription::new();
    api.register(ApiEndpoint::new("quick".to_owned(), quick, Method::GET, FORM, "/quick", all()))?;
    api.register(ApiEndpoint::new("slow".to_owned(), slow, Method::GET, FORM, "/slow", all()))?;
    api.register(ApiEndpoint::new("fails".to_owned(), fails, Method::GET, FORM, "/fails", all()))?;
    api.register(ApiEndpoint::new("endless".to_owned(), endless, Method::GET, FORM, "/endless", all()))?;
    api.register(ApiEndpoint::new("breaks".to_owned(), breaks, Method::GET, FORM, "/breaks", all()))?;
    api.register(ApiEndpoint::new("late".to_owned(), breaks_late, Method::GET, FORM, "/breaks-late", all()))?;
    api.register(ApiEndpoint::new("upload".to_owned(), upload, Method::POST, FORM, "/upload", all()))?;
    api.register(ApiEndpoint::new("refused".to_owned(), refuse_upload, Method::POST, FORM, "/refused", all()))?;
    Ok(api)
}

async fn serve_with(deadlines: ConnectionDeadlines, max: usize) -> (HttpServer, Arc<Site>) {
    let site = Arc::<Site>::default();
    let metrics = ConnectionMetrics::default();
    let connections = Arc::new(ConnectionTable::with_limits(max, max, deadlines, TrustedProxies::default(), metrics));
    let server = start(describe, Arc::clone(&site), SocketAddr::from(([127, 0, 0, 1], 0)), connections);
    (server.await.unwrap(), site)
}

fn deadlines(head: Duration, idle: Duration, write: Duration) -> ConnectionDeadlines {
    ConnectionDeadlines { head, idle, write }
}

async fn connect(server: &HttpServer, bytes: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    stream
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
}

/// Reads all bytes until the connection ends, which it must.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A connection that is reset has sent everything as well.
    drop(timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the end"));
    String::from_utf8(bytes).unwrap()
}

/// Reads one answer and checks its body.
async fn answer(stream: &mut TcpStream, body: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(body) {
        let mut bytes = [0; 1024];
        let read = timeout(PATIENCE, stream.read(&mut bytes)).await.expect("an answer").unwrap();
        assert_ne!(read, 0, "it ends: {text}");
        text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
    text
}

async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let looks = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, looks).await.is_ok(), "waited in vain: {what}");
}

#[tokio::test]
async fn what_sends_no_request_is_closed() {
    let (server, _) = serve_with(deadlines(SHORT, LONG, LONG), 100).await;
    for bytes in ["", "G", "GET /quick HTTP/1.1\r\nhost: local", "PRI * HT"] {
        let mut stream = connect(&server, bytes).await;
        assert_eq!(rest(&mut stream).await, "", "{bytes:?}");
    }
    // A second head has the same deadline.
    let mut stream = connect(&server, &get("/quick")).await;
    answer(&mut stream, "quick").await;
    stream.write_all(b"GET /qui").await.unwrap();
    assert_eq!(rest(&mut stream).await, "");
}

#[tokio::test]
async fn http_2_is_refused_at_once() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 100).await;
    for bytes in ["PRI * HTTP/2.0\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"] {
        let mut stream = connect(&server, bytes).await;
        let said = rest(&mut stream).await;
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 400 "), "{said}");
    }
}

#[tokio::test]
async fn what_is_not_used_is_closed() {
    let (server, _) = serve_with(deadlines(LONG, SHORT, LONG), 100).await;
    let mut stream = connect(&server, &get("/quick")).await;
    let said = rest(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 200 ") && said.ends_with("quick"), "{said}");
}

#[tokio::test]
async fn no_deadline_ends_a_request_that_is_served() {
    let (server, site) = serve_with(deadlines(SHORT, SHORT, SHORT), 100).await;
    let mut stream = connect(&server, &get("/slow")).await;
    eventually("it runs", || site.is_slow_running.load(Ordering::SeqCst)).await;
    sleep(SHORT * 3).await;
    site.may_end.notify_one();
    answer(&mut stream, "slow").await;
}

#[tokio::test]
async fn a_peer_that_reads_nothing_is_cut_and_the_answer_dropped() {
    let (server, site) = serve_with(deadlines(LONG, LONG, SHORT), 100).await;
    let stream = connect(&server, &get("/endless")).await;
    eventually("it begins", || site.is_slow_running.load(Ordering::SeqCst)).await;
    eventually("it is dropped", || !site.is_slow_running.load(Ordering::SeqCst)).await;
    drop(stream);
}

#[tokio::test]
async fn a_handler_ends_with_its_connection() {
    let (server, site) = serve_with(deadlines(LONG, LONG, LONG), 100).await;
    let stream = connect(&server, &get("/slow")).await;
    eventually("it runs", || site.is_slow_running.load(Ordering::SeqCst)).await;
    drop(stream);
    eventually("it is dropped", || !site.is_slow_running.load(Ordering::SeqCst)).await;
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_connection_stays() {
    let (server, site) = serve_with(deadlines(LONG, LONG, LONG), 100).await;
    let mut stream = connect(&server, &get("/fails")).await;
    let said = answer(&mut stream, "}}").await;
    assert!(said.starts_with("HTTP/1.1 500 ") && said.contains("x-request-id: ") && said.contains("x-should-retry: "));
    stream.write_all(get("/quick").as_bytes()).await.unwrap();
    answer(&mut stream, "quick").await;
    assert_eq!(site.answered.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_no_route_takes_is_refused_in_our_shape() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 100).await;
    for (request, status, word) in [
        (get("/nowhere"), "404", "unknown_url"),
        (get("/quick").replace("GET", "DELETE"), "405", "\"error\""),
        (get("/%FF"), "400", "\"error\""),
        (get("/x").replace("/x", "*").replace("GET", "OPTIONS"), "404", "unknown_url"),
    ] {
        let mut stream = connect(&server, &request).await;
        let said = answer(&mut stream, "}}").await;
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")) && said.contains(word), "{said}");
        assert!(said.contains("x-should-retry: false") && said.contains("x-request-id: "), "{said}");
        assert_eq!(said.contains("allow: GET\r\n"), status == "405", "{said}");
    }
}

/// A proxy in front of the gateway may use one length and the gateway the other; the second request would then count as
/// the request of another caller.
#[tokio::test]
async fn a_body_with_two_lengths_is_the_last_of_its_connection() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 100).await;
    let (length, chunked) = ("content-length: 5\r\n", "transfer-encoding: chunked\r\n");
    for framing in [format!("{length}{chunked}"), format!("{chunked}{length}")] {
        let hidden = get("/quick");
        let request = format!("POST /upload HTTP/1.1\r\nhost: localhost\r\n{framing}\r\n0\r\n\r\n{hidden}");
        let mut stream = connect(&server, &request).await;
        let said = rest(&mut stream).await;
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{said}");
        assert!(!said.contains("quick"), "{said}");
    }
}

#[tokio::test]
async fn a_new_connection_takes_the_place_of_one_that_does_nothing() {
    let (server, site) = serve_with(deadlines(LONG, LONG, LONG), 3).await;
    let mut slow = connect(&server, &get("/slow")).await;
    eventually("it runs", || site.is_slow_running.load(Ordering::SeqCst)).await;
    let mut others = Vec::new();
    for bytes in ["", "GET /qui", "POST /upload HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nabc"] {
        for _ in 0..5 {
            others.push(connect(&server, bytes).await);
        }
        let mut quick = connect(&server, &get("/quick")).await;
        answer(&mut quick, "quick").await;
    }
    site.may_end.notify_one();
    answer(&mut slow, "slow").await;
}

#[tokio::test]
async fn where_every_connection_is_served_a_new_one_is_told_so() {
    let (server, site) = serve_with(deadlines(LONG, LONG, LONG), 1).await;
    let mut slow = connect(&server, &get("/slow")).await;
    eventually("it runs", || site.is_slow_running.load(Ordering::SeqCst)).await;
    let mut refused = TcpStream::connect(server.address()).await.unwrap();
    let said = rest(&mut refused).await;
    assert!(
        said.starts_with("HTTP/1.1 503 ") && said.contains("x-should-retry: true") && said.contains("x-request-id: "),
        "{said}"
    );
    site.may_end.notify_one();
    answer(&mut slow, "slow").await;
}

#[tokio::test]
async fn a_stop_waits_for_what_is_served_and_for_nothing_else() {
    let (server, site) = serve_with(deadlines(LONG, LONG, LONG), 100).await;
    let address = server.address();
    let mut silent = connect(&server, "").await;
    eventually("it is accepted", || server.connections.count() == 1).await;
    let mut idle = connect(&server, &get("/quick")).await;
    answer(&mut idle, "quick").await;
    let mut slow = connect(&server, &get("/slow")).await;
    eventually("it runs", || site.is_slow_running.load(Ordering::SeqCst)).await;
    let stopping = Handle::current().spawn(server.stop(PATIENCE));
    assert_eq!((rest(&mut silent).await, rest(&mut idle).await), (String::new(), String::new()));
    assert!(TcpStream::connect(address).await.is_err(), "the port is closed");
    site.may_end.notify_one();
    assert!(rest(&mut slow).await.ends_with("slow"));
    assert!(stopping.await.unwrap());
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let (server, site) = serve_with(deadlines(LONG, LONG, LONG), 100).await;
    let stream = connect(&server, &get("/slow")).await;
    eventually("it runs", || site.is_slow_running.load(Ordering::SeqCst)).await;
    assert!(!server.stop(SHORT).await);
    drop(stream);
}

#[tokio::test]
async fn the_beginning_of_an_answer_that_breaks_off_is_read_before_its_end() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 8).await;
    let text = rest(&mut connect(&server, &get("/breaks")).await).await;
    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("begun") && !text.ends_with("0\r\n\r\n"),
        "{text:?}"
    );
}

#[tokio::test]
async fn a_slow_reader_has_all_of_an_answer_that_breaks_off() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 8).await;
    let mut stream = connect(&server, &get("/breaks-late")).await;
    sleep(SHORT).await;
    let text = rest(&mut stream).await;
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    assert_eq!(body.matches('x').count(), LATE);
    assert!(!body.ends_with("0\r\n\r\n"));
}

/// Sends a form in chunks to a handler that refuses it unread; the framing is sent after the answer has come.
async fn refused_upload(server: &HttpServer, framing: &str) -> (TcpStream, String) {
    let form = "content-type: application/x-www-form-urlencoded\r\ntransfer-encoding: chunked";
    let head = format!("POST /refused HTTP/1.1\r\nhost: localhost\r\n{form}\r\n\r\n");
    let mut stream = connect(server, &head).await;
    let said = answer(&mut stream, "}}").await;
    stream.write_all(framing.as_bytes()).await.unwrap();
    (stream, said)
}

#[tokio::test]
async fn a_refusal_is_whole_whatever_comes_of_its_request() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 8).await;
    for broken in
        ["", "0\r\n\r\n", "zz\r\n", "5\r\nabc", "5\r\nabcdeXX", "5\r\nabcde\r\n-1\r\n", "ffffffffffffffffff\r\n"]
    {
        let (mut stream, said) = refused_upload(&server, broken).await;
        stream.shutdown().await.unwrap();
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{broken:?}: {said}");
        assert_eq!(rest(&mut stream).await, "", "{broken:?}");
    }
}

#[tokio::test]
async fn what_a_refusal_leaves_unread_is_read_away_and_the_connection_stays() {
    let (server, _) = serve_with(deadlines(SHORT, LONG, LONG), 8).await;
    let (mut stream, _) = refused_upload(&server, "100000\r\n").await;
    stream.write_all(&vec![b'x'; 0x10_0000]).await.unwrap();
    stream.write_all(b"\r\n0\r\n\r\n").await.unwrap();
    // These bytes are not taken for the beginning of a head, which has a deadline.
    sleep(SHORT * 3).await;
    stream.write_all(get("/quick").as_bytes()).await.unwrap();
    answer(&mut stream, "quick").await;
}
