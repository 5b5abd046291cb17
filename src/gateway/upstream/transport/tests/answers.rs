//! Tests of heads and bodies: valid, truncated, and at the limits.

use super::*;

/// Returns the status and body of a call if the upstream sends `text` and closes the connection.
async fn receive_answer(text: &str) -> (http::StatusCode, Result<Bytes, BodyError>) {
    let (upstream, transport) = (Upstream::start().await, transport());
    let uri = upstream.uri();
    let server = async { answer(&mut upstream.accept().await, text).await };
    let client = async {
        let (head, body) = send(&transport, &uri).await.unwrap().into_parts();
        (head.status, body.collect().await.map(http_body_util::Collected::to_bytes))
    };
    tokio::join!(server, client).1
}

#[tokio::test]
async fn interim_answers_are_skipped() {
    for interim in ["HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n"] {
        let (status, body) = receive_answer(&format!("{interim}{interim}{OK}")).await;
        assert_eq!((status.as_u16(), body.unwrap()), (200, Bytes::from_static(b"ok")));
    }
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let target = Upstream::start().await;
    for code in [301, 302, 307, 308] {
        let text = format!("HTTP/1.1 {code} Moved\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", target.uri());
        assert_eq!(receive_answer(&text).await.0.as_u16(), code);
    }
    assert!(!target.has_pending_connection().await);
}

#[tokio::test]
async fn a_body_may_end_with_its_connection() {
    assert_eq!(receive_answer("HTTP/1.1 200 OK\r\n\r\nall of it").await.1.unwrap(), "all of it");
    assert_eq!(receive_answer("HTTP/1.0 200 OK\r\n\r\nall of it").await.1.unwrap(), "all of it");
}

#[tokio::test]
async fn a_body_that_breaks_off_never_ends_cleanly() {
    for text in [
        "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n40\r\nhalf",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n",
    ] {
        assert_eq!(receive_answer(text).await.1.unwrap_err().kind, BodyErrorKind::Truncated, "{text}");
    }
    let text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nno number\r\n";
    assert_eq!(receive_answer(text).await.1.unwrap_err().kind, BodyErrorKind::Malformed);
}

#[tokio::test]
async fn a_reset_inside_a_body_is_an_error() {
    let (upstream, transport) = (Upstream::start().await, transport());
    let uri = upstream.uri();
    let server = async {
        let mut stream = upstream.accept().await;
        answer(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await;
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        stream
    };
    let client = async {
        let mut body = send(&transport, &uri).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
        body
    };
    // The stream is dropped only after the client has read the first bytes, so that the reset does not overtake them.
    let (stream, mut body) = tokio::join!(server, client);
    drop(stream);
    assert_eq!(body.frame().await.unwrap().unwrap_err().kind, BodyErrorKind::Reset);
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn a_head_of_100_headers_or_60_kib_is_accepted() {
    let head_with =
        |count: usize| format!("HTTP/1.1 200 OK\r\n{}content-length: 2\r\n\r\nok", "a: 1\r\n".repeat(count - 1));
    assert_eq!(receive_answer(&head_with(100)).await.1.unwrap(), "ok");
    let long = format!("HTTP/1.1 200 OK\r\na: {}\r\ncontent-length: 2\r\n\r\nok", "1".repeat(60 * 1024));
    assert_eq!(receive_answer(&long).await.1.unwrap(), "ok");
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_request_is_received() {
    let (upstream, transport) = (Upstream::start().await, transport());
    let request = Request::post(upstream.uri()).body(Bytes::from(vec![0; 32 << 20]).into()).unwrap();
    let server = async {
        let mut stream = upstream.accept().await;
        assert!(stream.read(&mut [0; 16]).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig").await.unwrap();
        stream
    };
    let client = async {
        let response = transport.send(request, test_deadline()).await.unwrap();
        assert_eq!(response.status().as_u16(), 413);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "big");
    };
    let _open = tokio::join!(server, client);
    assert_eq!(transport.0.pool.len(), 0, "a connection with an incomplete request is not reused");
}

#[tokio::test]
async fn a_body_knows_its_length_and_its_end() {
    let (upstream, transport) = (Upstream::start().await, transport());
    let uri = upstream.uri();
    let (_open, response) = tokio::join!(upstream.answer(OK), send(&transport, &uri));
    let mut body = response.unwrap().into_body();
    assert_eq!((http_body::Body::size_hint(&body).exact(), http_body::Body::is_end_stream(&body)), (Some(2), false));
    body.frame().await.unwrap().unwrap();
    assert!(http_body::Body::is_end_stream(&body), "the body must state its end without another poll");
    assert_eq!(transport.0.pool.len(), 1);
}
