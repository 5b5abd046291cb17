//! Connections that are held open without being used: the gateway closes them after a while, and they never block other
//! callers.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;
use socket2::{Domain, Socket, Type};

use crate::kit::{Account, Call, FakeUpstream, Gateway, Reply, eventually, heavy_test_lock, pause};

/// The deadline of a request head, with a margin for a slow machine.
const HEAD_DEADLINE: Duration = Duration::from_secs(20);
/// The time in which `/healthz` must answer beside other tests. A blocked caller waits for the deadline of the heads.
const HEALTH_DEADLINE: Duration = Duration::from_secs(8);

const ADMIN_TOKEN: &str = "0123456789abcdef0123456789abcdef0123";

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A SETTINGS frame with an initial window of 0 for every stream.
const SETTINGS: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];

/// An address of this machine with this last octet.
fn host(last: u8) -> IpAddr {
    IpAddr::from(Ipv4Addr::new(127, 0, 0, last))
}

/// Opens a connection from this address, and sends these bytes.
fn connect(gateway: &Gateway, from: IpAddr, bytes: &[u8]) -> std::io::Result<TcpStream> {
    let address = gateway.address();
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect_timeout(&address.into(), HEAD_DEADLINE)?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(HEAD_DEADLINE))?;
    stream.write_all(bytes)?;
    Ok(stream)
}

/// All bytes until the connection ends; panics if it does not end.
#[track_caller]
fn read_all(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the connection is still open"),
        _ => String::from_utf8_lossy(&bytes).into_owned(),
    }
}

/// An upload that is announced but not sent.
fn unfinished(secret: &str) -> Vec<u8> {
    let head = "POST /v1/images/generations HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    format!("{head}authorization: Bearer {secret}\r\ncontent-length: 1000\r\n\r\n{{\"model\"").into_bytes()
}

/// The value of a metric in the metrics text, or 0 if the metric is absent.
fn count(metrics: &str, name: &str) -> u64 {
    let found = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.map_or(0, |count| count.parse().expect("a number"))
}

/// Sends a request that announces a body of 1 GiB and has 16 MiB of it, and returns the answer.
fn answer_to_upload(gateway: &Gateway, path: &str, authorization: &str) -> String {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\n{authorization}content-type: text/plain\r\n\
         content-length: {}\r\n\r\n",
        1 << 30
    );
    let mut stream = connect(gateway, host(1), head.as_bytes()).expect("a connection");
    for _ in 0..16 {
        stream.write_all(&[b' '; 1 << 20]).expect("the body is taken");
    }
    read_all(stream)
}

#[test]
fn the_answer_to_a_refused_upload_is_there_when_its_sender_reads() {
    let gateway = Gateway::simulated();
    let (wrong, good) =
        ("authorization: Bearer sk-nobody\r\n", format!("authorization: Bearer {}\r\n", gateway.secret()));
    for (path, authorization, status) in [
        ("/v1/images/edits", "", 401),
        ("/v1/images/generations", wrong, 401),
        ("/v1/responses", wrong, 401),
        ("/admin/v1/keys", wrong, 401),
        ("/mcp", wrong, 401),
        ("/nowhere", wrong, 404),
        ("/v1/models", good.as_str(), 405),
        ("/v1/images/edits", good.as_str(), 415),
        ("/v1/images/generations", good.as_str(), 415),
        ("/openai/deployments/x/images/generations?api-version=1", good.as_str(), 404),
    ] {
        let answer = answer_to_upload(&gateway, path, authorization);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        assert!(answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{path}: {answer}");
    }
}

#[test]
fn a_client_that_stays_silent_after_its_refusal_is_disconnected() {
    let gateway = Gateway::simulated();
    let head = "POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n";
    let open: Vec<_> = (0..3).map(|_| connect(&gateway, host(1), head.as_bytes()).expect("a connection")).collect();
    let waiting = eventually("the connections are closing", || {
        let metrics = gateway.metrics_text();
        (count(&metrics, "imagate_connections{state=\"closing\"}") == 3).then_some(metrics)
    });
    assert_eq!(count(&waiting, "imagate_connections{state=\"busy\"}"), 0, "{waiting}");
    eventually("they are closed", || {
        let metrics = gateway.metrics_text();
        (count(&metrics, "imagate_connections_closed_total{reason=\"discard_timeout\"}") == 3).then_some(())
    });
    drop(open);
}

#[test]
fn a_connection_without_a_complete_head_is_closed() {
    let gateway = Gateway::simulated();
    let started = Instant::now();
    let halves: [&[u8]; 4] = [b"", b"GET /healthz HTT", &PREFACE[..8], b"POST / HTTP/1.1\r\nhost: x\r\n"];
    let open = halves.map(|bytes| connect(&gateway, host(1), bytes).expect("a connection"));
    for stream in open {
        assert_eq!(read_all(stream), "");
    }
    assert!(started.elapsed() < HEAD_DEADLINE, "{:?}", started.elapsed());
    let metrics = gateway.metrics_text();
    assert_eq!(count(&metrics, "imagate_connections_closed_total{reason=\"head_timeout\"}"), 4, "{metrics}");
}

#[test]
fn http_2_is_refused_at_once() {
    let gateway = Gateway::simulated();
    let whole = [PREFACE, SETTINGS].concat();
    let started = Instant::now();
    for bytes in [&PREFACE[..16], PREFACE, &whole] {
        let answer = read_all(connect(&gateway, host(1), bytes).expect("a connection"));
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn a_request_with_two_lengths_is_the_last_of_its_connection() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let secret = gateway.secret();
    for framing in [
        "content-length: 5\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 5",
        "content-length: 5\r\nx-between: 1\r\ntransfer-encoding: chunked",
    ] {
        let head = "POST /v1/images/generations HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
        let first = format!("{head}\r\nauthorization: Bearer {secret}\r\n{framing}\r\n\r\n0\r\n\r\n");
        let bytes = format!("{first}GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let answer = read_all(connect(&gateway, host(1), bytes.as_bytes()).expect("a connection"));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "the second request must not be answered: {answer}");
    }
    assert_eq!(upstream.accepted(), 0);
}

/// The status and the whole answer to a request with this request line and these headers.
#[track_caller]
fn answer_to(gateway: &Gateway, line: &str, headers: &str) -> (String, String) {
    let bytes = format!("{line}\r\n{headers}connection: close\r\n\r\n");
    let answer = read_all(connect(gateway, host(1), bytes.as_bytes()).expect("a connection"));
    (answer.split(' ').nth(1).unwrap_or_default().to_owned(), answer)
}

#[test]
fn a_head_that_two_readers_understand_differently_is_refused() {
    let gateway = Gateway::with_secrets("admin_token = { env = \"IT_ADMIN\" }", &[], &[("IT_ADMIN", ADMIN_TOKEN)]);
    let one = "host: localhost\r\n";
    for (line, headers, status) in [
        ("GET /healthz HTTP/1.1", one, "200"),
        ("GET /healthz HTTP/1.0", "", "200"),
        ("GET http://localhost/healthz HTTP/1.1", "host: other\r\n", "200"),
        ("GET /healthz HTTP/1.1", "", "400"),
        ("GET /healthz HTTP/1.1", "host: a\r\nhost: b\r\n", "400"),
        ("GET /healthz HTTP/1.1", "host: a\r\nhost: a\r\n", "400"),
        ("GET /healthz HTTP/1.1", "host: \r\n", "400"),
        ("POST /healthz HTTP/1.1", "host: a\r\ntransfer-encoding: gzip, chunked\r\n", "501"),
        ("POST /healthz HTTP/1.1", "host: a\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n", "501"),
    ] {
        let (found, answer) = answer_to(&gateway, line, headers);
        assert_eq!(found, status, "{line} {headers:?}: {answer}");
    }
    let admin = format!("{one}authorization: Bearer {ADMIN_TOKEN}\r\n");
    for (path, status) in [
        ("/admin/v1/keys", "200"),
        ("/%61dmin/v1/keys", "404"),
        ("/admin/v1/%6beys", "404"),
        ("//admin/v1/keys", "404"),
        ("/admin//v1/keys", "404"),
        ("/admin/v1/keys/", "404"),
        ("/admin/v1/./keys", "404"),
        ("/x/../admin/v1/keys", "404"),
        ("/x/%2e%2e/admin/v1/keys", "404"),
        ("/admin%2Fv1/keys", "404"),
    ] {
        let (found, answer) = answer_to(&gateway, &format!("GET {path} HTTP/1.1"), &admin);
        assert_eq!(found, status, "{path}: {answer}");
    }
    // The name of a model may have a slash, and a browser gets a page.
    let key = format!("{one}authorization: Bearer {}\r\n", gateway.secret());
    let (found, answer) = answer_to(&gateway, "GET /v1/models/a%2Fb HTTP/1.1", &key);
    assert!(found == "404" && answer.contains("model_not_found") && answer.contains("a/b"), "{answer}");
    let browser = format!("{one}accept: text/html\r\n");
    for path in ["/sign-in/", "/%73ign-in", "//sign-in"] {
        let (found, answer) = answer_to(&gateway, &format!("GET {path} HTTP/1.1"), &browser);
        assert!(found == "404" && answer.contains("text/html"), "{path}: {answer}");
    }
}

#[test]
fn an_address_at_its_limit_evicts_only_its_own_connections() {
    let upstream = FakeUpstream::start();
    let top = "[connections]\nmax = 6\nmax_per_address = 3";
    let gateway = Gateway::with(top, &[Account::for_upstream("only", &upstream)]);
    let spared = connect(&gateway, host(3), b"G").expect("a connection");
    let mut hostile = Vec::new();
    for _ in 0..9 {
        hostile.push(connect(&gateway, host(2), b"G").expect("a connection"));
    }
    let metrics = eventually("the excess connections are closed", || {
        let metrics = gateway.metrics_text();
        (count(&metrics, "imagate_connections_closed_total{reason=\"evicted\"}") >= 6).then_some(metrics)
    });
    assert_eq!(count(&metrics, "imagate_connections{state=\"reading_head\"}"), 4, "{metrics}");
    assert_eq!(count(&metrics, "imagate_connections{state=\"busy\"}"), 0, "{metrics}");
    let lines = || gateway.output().matches("connections were closed or refused").count();
    eventually("it is logged", || (lines() > 0).then_some(()));
    assert_eq!(lines(), 1, "one line for all of them: {}", gateway.output());
    for stream in hostile.drain(..6) {
        assert_eq!(read_all(stream), "");
    }
    let mut spared = spared;
    spared.write_all(b"ET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("a request");
    assert!(read_all(spared).ends_with("ok\n"));
}

#[test]
fn a_late_request_is_served_while_many_others_connect() {
    let upstream = FakeUpstream::start();
    let top = "[connections]\nmax = 12\nmax_per_address = 6";
    let gateway = Gateway::with(top, &[Account::for_upstream("only", &upstream)]);
    for _ in 0..10 {
        let mut late = connect(&gateway, host(2), b"").expect("a connection");
        let hostile: Vec<_> = (0..40).map(|_| connect(&gateway, host(2), b"GET /hea").expect("a connection")).collect();
        late.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("a request");
        assert!(read_all(late).ends_with("ok\n"));
        drop(hostile);
    }
}

#[test]
fn a_connection_whose_job_runs_is_never_closed_for_another() {
    let upstream = FakeUpstream::start();
    let gateway =
        Gateway::with("[connections]\nmax = 2\nmax_per_address = 2", &[Account::for_upstream("only", &upstream)]);
    let job =
        gateway.call(json!({"prompt": "a cube [[delay=3000]]"})).dispatch(gateway.address()).expect("a connection");
    eventually("the upstream works", || (upstream.attempt_count() > 0).then_some(()));
    let mut others = Vec::new();
    for _ in 0..20 {
        others.push(connect(&gateway, host(2), b"").expect("a connection"));
        others.push(connect(&gateway, host(2), &unfinished(gateway.secret())).expect("a connection"));
    }
    assert_eq!(Call::get("/healthz").send(gateway.address()).status, 200);
    Reply::read(job).and_then(Reply::finish).expect("an answer").ok_json();
}

#[test]
fn running_out_of_descriptors_is_logged_and_waiting_callers_are_served_later() {
    let mut gateway = Gateway::simulated();
    let before = count(&gateway.metrics_text(), "imagate_accept_errors_total");
    gateway.server().limit_descriptors(3);
    let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let waiting = connect(&gateway, host(1), request).expect("a connection");
    let line = eventually("it is logged", || {
        let log = gateway.output();
        log.lines().find(|line| line.contains("connections were closed or refused")).map(str::to_owned)
    });
    assert!(line.contains(" WARN ") && line.contains("failed=1") && line.contains("Too many open files"), "{line}");
    gateway.server().limit_descriptors(1024);
    assert!(read_all(waiting).ends_with("ok\n"), "the request must be served when descriptors are available again");
    let failed = count(&gateway.metrics_text(), "imagate_accept_errors_total");
    assert!(before == 0 && failed > 0, "{before} {failed}");
}

/// Connections of every kind that can be held are opened, from one address and from another, at a small descriptor
/// limit. Callers with ordinary requests must be served.
#[test]
fn held_connections_do_not_block_other_callers() {
    let _lock = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with_upstream(&upstream);
    gateway.restart_with_descriptors(256);
    let body = unfinished(gateway.secret());
    let mut open = Vec::new();
    for (kind, bytes, from) in [("silent", &b""[..], 1), ("half prefaces", &PREFACE[..8], 2), ("bodies", &body, 3)] {
        for number in 0..600_u16 {
            // The gateway may refuse a connection, so an error is ignored.
            open.extend(connect(&gateway, host(if number % 2 == 0 { from } else { from + 8 }), bytes));
        }
        check_served(&gateway, kind);
    }
    check_served(&gateway, "all together");
    let server = gateway.server();
    assert!(server.descriptors() <= 256, "{}", server.descriptors());
    let metrics = gateway.metrics_text();
    assert!(count(&metrics, "imagate_connections_closed_total{reason=\"evicted\"}") > 0, "{metrics}");
    eventually("the connections without a request are closed", || {
        let metrics = gateway.metrics_text();
        let silent = count(&metrics, "imagate_connections{state=\"new\"}");
        let halves = count(&metrics, "imagate_connections{state=\"reading_head\"}");
        (silent + halves == 0).then_some(())
    });
    drop(open);
}

#[track_caller]
fn check_served(gateway: &Gateway, kind: &str) {
    for last in [1, 9, 50] {
        let started = Instant::now();
        let health = Call::get("/healthz").coming_from(host(last)).send(gateway.address());
        assert_eq!(health.status, 200, "{kind}");
        assert!(started.elapsed() < HEALTH_DEADLINE, "{kind}: {:?} from {last}", started.elapsed());
        let image = gateway.call(json!({"prompt": "a cube"})).coming_from(host(last)).send(gateway.address());
        image.ok_json();
    }
    // Bodies that were announced a moment ago count as stalled after this pause.
    pause(Duration::from_millis(1_100));
    assert_eq!(Call::get("/healthz").send(gateway.address()).status, 200, "{kind}");
}
