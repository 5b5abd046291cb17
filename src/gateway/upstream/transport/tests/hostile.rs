//! Tests of malicious answers: floods, misleading heads and broken framing. After each of them the next call must
//! succeed.

use super::*;

/// Returns the result of a call if the upstream sends `first`, and then `text` up to `times` times until the client
/// closes the connection. Checks that the next call succeeds.
async fn flood(first: &str, text: &str, times: usize, deadline: Duration) -> Result<Bytes, String> {
    let (upstream, transport) = (Upstream::start().await, transport());
    let request = post(&upstream.uri());
    let server = async {
        let mut stream = upstream.answer(first).await;
        for _ in 0..times {
            if stream.write_all(text.as_bytes()).await.is_err() {
                break;
            }
        }
        stream
    };
    let client = async {
        let answer = transport.send(request, Instant::now() + deadline).await.map_err(|error| format!("{error:?}"))?;
        assert_eq!(answer.status().as_u16(), 200);
        let body = answer.into_body().collect().await.map_err(|error| format!("{error:?}"))?;
        Ok(body.to_bytes())
    };
    let (_open, result) = tokio::join!(server, client);
    assert_eq!((transport.0.pool.len(), transport.unwritten()), (0, 0), "{first:.40}");
    let uri = upstream.uri();
    let (_open, next) = tokio::join!(upstream.answer(OK), fetch(&transport, &uri));
    assert_eq!(next.unwrap(), "ok", "{first:.40}");
    result
}

const LONG_TIME: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_flood_of_headers_ends_at_the_size_limit() {
    let head = "HTTP/1.1 200 OK\r\n";
    let line = format!("a: {}\r\n", "1".repeat(50));
    let wide = "1".repeat(64 * 1024);
    for (first, text, times) in [
        (head.to_owned(), line.as_str(), 10_000),
        (format!("{head}a: "), wide.as_str(), 80),
        (format!("{head}{}", "a".repeat(100_000)), "a", 1),
        (format!("HTTP/1.1 200 {}", "O".repeat(100_000)), "K", 1),
    ] {
        let result = flood(&first, text, times, LONG_TIME).await.unwrap_err();
        assert!(result.contains("HeadTooLarge") && result.contains("Maybe"), "{first:.40}: {result}");
    }
}

#[tokio::test]
async fn endless_interim_answers_end_at_the_deadline() {
    for interim in
        ["HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 102 Wait\r\na: b\r\n\r\n"]
    {
        let result = flood(interim, interim, usize::MAX, Duration::from_millis(100)).await.unwrap_err();
        assert!(result.contains("Timeout") && result.contains("Maybe"), "{interim}: {result}");
    }
}

#[tokio::test]
async fn endless_or_invalid_framing_ends_the_body_with_an_error() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let filler = "x".repeat(4096);
    for first in [
        format!("{chunked}2;"),
        format!("{chunked}2\r\nok\r\n0\r\ntrailer: "),
        format!("{chunked}fffffffffffffffff\r\n"),
        format!("{chunked}-2\r\n"),
    ] {
        let result = flood(&first, &filler, 1_000, LONG_TIME).await.unwrap_err();
        assert!(result.contains("Malformed") || result.contains("Reset"), "{first}: {result}");
    }
    let trailers = format!("{chunked}2\r\nok\r\n0\r\n");
    let result = flood(&trailers, "trailer: x\r\n", 10_000, LONG_TIME).await.unwrap_err();
    assert!(result.contains("Malformed") || result.contains("Reset"), "{result}");
}

#[tokio::test]
async fn a_header_that_is_not_utf8_does_not_affect_the_next_call() {
    for value in [&b"\xff\xfe\x80"[..], b"close\xff", b"keep-alive, \xc3\x28"] {
        let (upstream, transport) = (Upstream::start().await, transport());
        let uri = upstream.uri();
        let mut text = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: ".to_vec();
        text.extend_from_slice(value);
        text.extend_from_slice(b"\r\n\r\nok");
        let server = async {
            let mut stream = upstream.accept().await;
            request(&mut stream).await;
            stream.write_all(&text).await.unwrap();
        };
        // The reader may accept or refuse such an answer, but the next call must succeed.
        let ((), answer) = tokio::join!(server, send(&transport, &uri));
        drop(answer);
        let (_open, next) = tokio::join!(upstream.answer(OK), fetch(&transport, &uri));
        assert_eq!(next.unwrap(), "ok");
    }
}

#[tokio::test]
async fn a_status_without_a_body_is_read_without_one() {
    let foreign = "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nforeign";
    for (code, body) in [(101, ""), (204, ""), (304, ""), (205, "ok"), (206, "ok")] {
        let (upstream, transport) = (Upstream::start().await, transport());
        let uri = upstream.uri();
        let upgrade = if code == 101 { "connection: upgrade\r\nupgrade: other\r\n" } else { "" };
        let text = format!("HTTP/1.1 {code} Odd\r\n{upgrade}content-length: 2\r\n\r\nok{foreign}");
        let client = async {
            let (head, body) = send(&transport, &uri).await.unwrap().into_parts();
            (head.status.as_u16(), body.collect().await.unwrap().to_bytes())
        };
        let (_open, result) = tokio::join!(upstream.answer(&text), client);
        assert_eq!(result, (code, Bytes::copy_from_slice(body.as_bytes())));
        assert_eq!(transport.0.pool.len(), 0, "{code}: a connection with surplus bytes is not reused");
        let (_open, next) = tokio::join!(upstream.answer(OK), fetch(&transport, &uri));
        assert_eq!(next.unwrap(), "ok", "{code}");
    }
}
