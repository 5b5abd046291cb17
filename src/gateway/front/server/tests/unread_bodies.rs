//! Tests of answers to requests whose bodies the handler leaves unread.

use super::*;

/// Sends a chunked form to a handler that refuses it unread. `chunks` is sent after the answer has come.
async fn refused_upload(server: &HttpServer, chunks: &str) -> (TcpStream, String) {
    let form = "content-type: application/x-www-form-urlencoded\r\ntransfer-encoding: chunked";
    let head = format!("POST /refused HTTP/1.1\r\nhost: localhost\r\n{form}\r\n\r\n");
    let mut stream = connect(server, &head).await;
    let text = read_answer(&mut stream, "}}").await;
    stream.write_all(chunks.as_bytes()).await.unwrap();
    (stream, text)
}

#[tokio::test]
async fn an_error_answer_is_complete_whatever_body_follows() {
    let (server, _) = serve_with(deadlines(LONG, LONG, LONG), 8).await;
    for chunks in
        ["", "0\r\n\r\n", "zz\r\n", "5\r\nabc", "5\r\nabcdeXX", "5\r\nabcde\r\n-1\r\n", "ffffffffffffffffff\r\n"]
    {
        let (mut stream, text) = refused_upload(&server, chunks).await;
        stream.shutdown().await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{chunks:?}: {text}");
        assert_eq!(read_remaining(&mut stream).await, "", "{chunks:?}");
    }
}

#[tokio::test]
async fn an_unread_body_is_drained_and_the_connection_stays_open() {
    let (server, _) = serve_with(deadlines(SHORT, LONG, LONG), 8).await;
    let (mut stream, _) = refused_upload(&server, "100000\r\n").await;
    stream.write_all(&vec![b'x'; 0x10_0000]).await.unwrap();
    stream.write_all(b"\r\n0\r\n\r\n").await.unwrap();
    // The drained bytes do not count as the beginning of a request head, which would have a deadline.
    sleep(SHORT * 3).await;
    stream.write_all(get("/quick").as_bytes()).await.unwrap();
    read_answer(&mut stream, "quick").await;
}
