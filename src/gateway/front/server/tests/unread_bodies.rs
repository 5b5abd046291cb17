//! Tests of answers to requests whose bodies the handler leaves unread.

use super::*;

/// A body that no client sends together with its head, and that is no small rest.
const LARGE_REST_BYTES: usize = 3 << 20;

/// The head of a request whose handler refuses it unread.
fn head(framing: &str) -> String {
    let form = "content-type: application/x-www-form-urlencoded";
    format!("POST /refused HTTP/1.1\r\nhost: localhost\r\n{form}\r\n{framing}\r\n\r\n")
}

fn head_with_length(length: usize) -> String {
    head(&format!("content-length: {length}"))
}

/// Sends the head of a form that is refused unread, and returns the answer.
async fn refused_upload(server: &HttpServer, framing: &str) -> (TcpStream, String) {
    let mut stream = connect(server, &head(framing)).await;
    let text = read_answer(&mut stream, "}}").await;
    (stream, text)
}

fn discarding(discard_idle: Duration, discard: Duration) -> ConnectionDeadlines {
    ConnectionDeadlines { discard_idle, discard, ..deadlines(LONG, LONG, LONG) }
}

#[tokio::test]
async fn an_error_answer_is_complete_whatever_body_follows() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 8);
    for chunks in
        ["", "0\r\n\r\n", "zz\r\n", "5\r\nabc", "5\r\nabcdeXX", "5\r\nabcde\r\n-1\r\n", "ffffffffffffffffff\r\n"]
    {
        let (mut stream, text) = refused_upload(&server, "transfer-encoding: chunked").await;
        stream.write_all(chunks.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{chunks:?}: {text}");
        assert_eq!(read_remaining(&mut stream).await, "", "{chunks:?}");
    }
}

#[tokio::test]
async fn a_small_rest_is_read_and_the_connection_stays_open() {
    let (server, _) = serve_with(deadlines(SHORT, LONG, LONG), 8);
    for length in [1, 12, 10_000, 60_000] {
        let mut stream = connect(&server, &(head_with_length(length) + &"x".repeat(length))).await;
        let text = read_answer(&mut stream, "}}").await;
        assert!(!text.contains("connection: close"), "{length}: {text}");
        // The bytes of the rest do not count as the beginning of a request head, which would have a deadline.
        sleep(SHORT * 2).await;
        stream.write_all(get("/quick").as_bytes()).await.unwrap();
        read_answer(&mut stream, "quick").await;
    }
}

#[tokio::test]
async fn a_large_rest_is_discarded_after_the_answer() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 8);
    for (framing, rest) in [
        (format!("content-length: {LARGE_REST_BYTES}"), vec![b'x'; LARGE_REST_BYTES]),
        ("transfer-encoding: chunked".to_owned(), [b"300000\r\n".as_slice(), &[b'x'; LARGE_REST_BYTES]].concat()),
    ] {
        let (mut stream, text) = refused_upload(&server, &framing).await;
        assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("connection: close\r\n"), "{text}");
        assert_eq!(read_remaining(&mut stream).await, "", "the writing side is closed at once");
        stream.write_all(&rest).await.expect("the rest is taken");
        assert_eq!(server.connections.count(), 1);
        stream.shutdown().await.unwrap();
        wait_until("the connection is closed", || server.connections.count() == 0).await;
    }
}

#[tokio::test]
async fn a_body_that_the_client_holds_back_is_not_asked_for() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 8);
    for length in [5, LARGE_REST_BYTES] {
        let (mut stream, text) =
            refused_upload(&server, &format!("expect: 100-continue\r\ncontent-length: {length}")).await;
        assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("connection: close\r\n"), "{text}");
        assert_eq!(read_remaining(&mut stream).await, "");
    }
}

#[tokio::test]
async fn a_rest_is_discarded_for_a_limited_time() {
    let (server, _) = serve_with(discarding(SHORT, LONG), 8);
    let (silent, _) = refused_upload(&server, "content-length: 100000000").await;
    wait_until("the silent connection is closed", || server.connections.count() == 0).await;
    drop(silent);
    let (server, _) = serve_with(discarding(LONG, SHORT), 8);
    let (mut slow, _) = refused_upload(&server, "content-length: 100000000").await;
    let sending = async {
        // The write fails when the connection is reset.
        while slow.write_all(b"x").await.is_ok() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(EVENT_TIMEOUT, sending).await.expect("the slow connection is closed");
    wait_until("the slow connection is counted no more", || server.connections.count() == 0).await;
}

#[tokio::test]
async fn a_limited_number_of_connections_discard_their_rest() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 64);
    let mut refused = Vec::new();
    for _ in 0..20 {
        refused.push(refused_upload(&server, "content-length: 100000000").await.0);
    }
    // An address has a quarter of the eighth of all connections.
    wait_until("the oldest connections are closed", || server.connections.count() == 2).await;
    let (mut newest, mut oldest) = (refused.pop().unwrap(), refused.swap_remove(0));
    newest.write_all(&vec![b'x'; LARGE_REST_BYTES]).await.expect("the newest is not closed");
    assert!(oldest.write_all(&vec![b'x'; LARGE_REST_BYTES]).await.is_err(), "the oldest is closed");
    let mut stream = connect(&server, &get("/quick")).await;
    read_answer(&mut stream, "quick").await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_what_is_discarded() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 8);
    let (stream, _) = refused_upload(&server, "content-length: 100000000").await;
    assert!(server.stop(EVENT_TIMEOUT).await);
    drop(stream);
}

#[tokio::test]
async fn a_connection_that_is_not_admitted_reads_its_answer_after_its_body() {
    let (server, site) = serve_with(deadlines(LONG, LONG, LONG), 1);
    let mut slow = connect(&server, &get("/slow")).await;
    wait_until("the handler runs", || site.is_slow_running.load(Ordering::SeqCst)).await;
    let mut refused = connect(&server, &head_with_length(LARGE_REST_BYTES)).await;
    refused.write_all(&vec![b'x'; LARGE_REST_BYTES]).await.expect("the body is taken");
    let text = read_remaining(&mut refused).await;
    assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("connection: close\r\n"), "{text}");
    site.end_notify.notify_one();
    read_answer(&mut slow, "slow").await;
}
