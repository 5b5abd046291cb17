//! Tests of calls that fail before the response head, of whether the upstream can have seen them, and of calls that are
//! dropped.

use super::*;

/// Returns the error of a call whose connection the upstream handles with `serve`.
async fn fault<F: Future>(
    settings: TransportSettings,
    deadline: Duration,
    serve: impl Fn(TcpStream) -> F,
) -> SendError {
    let (upstream, transport) = (Upstream::start().await, Transport::new(settings).unwrap());
    let request = post(&upstream.uri());
    let server = async { serve(upstream.accept().await).await };
    let client = transport.send(request, Instant::now() + deadline);
    let (_open, answer) = tokio::join!(server, client);
    let error = answer.unwrap_err();
    assert!(!error.to_string().contains("127.0.0.1"));
    error
}

const SHORT_TIME: Duration = Duration::from_millis(50);
const LONG_TIME: Duration = Duration::from_secs(10);

#[track_caller]
fn check(error: &SendError, kind: SendErrorKind, sent: SendProgress) {
    assert_eq!((error.kind, error.sent), (kind, sent), "{error:?}");
}

#[tokio::test]
async fn nothing_is_sent_if_the_connection_is_refused() {
    let uri = Upstream::start().await.uri();
    check(&send(&transport(), &uri).await.unwrap_err(), SendErrorKind::Connect, SendProgress::Nothing);
}

#[tokio::test]
async fn nothing_is_sent_if_the_name_has_no_address() {
    let error = send(&transport(), "http://no..where/").await.unwrap_err();
    check(&error, SendErrorKind::Resolve, SendProgress::Nothing);
    assert!(!error.to_string().contains("where"));
}

#[tokio::test]
async fn a_silent_upstream_may_have_seen_the_request() {
    let error = fault(TransportSettings::default(), SHORT_TIME, |mut stream| async move {
        request(&mut stream).await;
        stream
    });
    check(&error.await, SendErrorKind::Timeout, SendProgress::Maybe);
}

#[tokio::test]
async fn an_upstream_that_closes_before_the_head_may_have_seen_the_request() {
    for text in ["", "HTTP/1.1 20", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n"] {
        let error =
            fault(TransportSettings::default(), LONG_TIME, |mut stream| async move { answer(&mut stream, text).await });
        check(&error.await, SendErrorKind::Closed, SendProgress::Maybe);
    }
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_a_protocol_error() {
    for text in ["SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok"] {
        let error = fault(TransportSettings::default(), LONG_TIME, |mut stream| async move {
            answer(&mut stream, text).await;
            stream
        });
        check(&error.await, SendErrorKind::Protocol, SendProgress::Maybe);
    }
}

#[tokio::test]
async fn a_flood_of_headers_is_refused() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: 1\r\n".repeat(101));
    let wide = format!("HTTP/1.1 200 OK\r\na: {}", "1".repeat(70 * 1024));
    for text in [&many, &wide] {
        let error = fault(TransportSettings::default(), LONG_TIME, |mut stream| async move {
            answer(&mut stream, text).await;
            stream
        });
        check(&error.await, SendErrorKind::HeadTooLarge, SendProgress::Maybe);
    }
}

#[tokio::test]
async fn a_stalled_write_ends_at_the_write_timeout() {
    let upstream = Upstream::start().await;
    let transport =
        Transport::new(TransportSettings { write_timeout: SHORT_TIME, ..TransportSettings::default() }).unwrap();
    let request = Request::post(upstream.uri()).body(Bytes::from(vec![0; 32 << 20]).into()).unwrap();
    let (_open, answer) = tokio::join!(upstream.accept(), transport.send(request, test_deadline()));
    let error = answer.unwrap_err();
    check(&error, SendErrorKind::Timeout, SendProgress::Maybe);
    assert!(error.source.is_some(), "the error is the write timeout; a passed deadline has no source");
}

#[tokio::test]
async fn dropping_a_call_closes_its_connection_at_once() {
    // Before the head.
    let (upstream, transport) = (Upstream::start().await, transport());
    let uri = upstream.uri();
    let mut stream = tokio::select! {
        _ = send(&transport, &uri) => unreachable!("the upstream does not answer"),
        stream = async {
            let mut stream = upstream.accept().await;
            request(&mut stream).await;
            stream
        } => stream,
    };
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);

    // Inside the body.
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf";
    let (mut stream, response) = tokio::join!(upstream.answer(half), send(&transport, &uri));
    let mut body = response.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(transport.0.pool.len(), 0);
}
