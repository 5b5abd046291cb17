//! Tests of the stub server over plain connections.

use std::time::Instant;

use super::*;

const PROMPT: &str = r#"{"prompt":"a fox"}"#;

fn connect(server: &StubServer) -> TcpStream {
    TcpStream::connect(server.address).unwrap()
}

fn post(path: &str, headers: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len())
}

fn send(server: &StubServer, request: &str) -> TcpStream {
    let mut stream = connect(server);
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Sends a request and returns all that comes until the connection is closed.
fn exchange(server: &StubServer, request: &str) -> String {
    let mut answer = String::new();
    send(server, request).read_to_string(&mut answer).unwrap();
    answer
}

fn generate(server: &StubServer) -> String {
    exchange(server, &post("/v1/images/generations", "", PROMPT))
}

fn serve(script: impl IntoIterator<Item = Answer>) -> StubServer {
    StubServer::start(script).unwrap()
}

/// Returns the body of a complete answer.
fn body(answer: &str) -> &str {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
    body
}

#[test]
fn answers_come_in_order_and_then_the_default() {
    let server = serve([Answer::images(1), Answer::error(400, "bad", "No.").header("x-a", "1").header("X-A", "2")]);
    assert!(generate(&server).starts_with("HTTP/1.1 200 \r\n"));
    let refusal = generate(&server);
    assert!(refusal.starts_with("HTTP/1.1 400 ") && refusal.contains("X-A: 2\r\n") && !refusal.contains("x-a: 1"));
    assert!(body(&refusal).contains(r#""code":"bad""#), "{refusal}");
    assert!(generate(&server).contains("stub_script_ended"));
    server.set_default(Answer::rate_limited(Duration::from_millis(1500)));
    assert!(generate(&server).contains("\r\nretry-after: 2\r\n"));
    assert_eq!((server.requests().len(), server.completions()), (4, 1));
}

#[test]
fn a_request_is_kept_as_it_arrived() {
    let server = serve([Answer::images(1)]);
    let head = "Authorization: Bearer sk-secret\r\nContent-Type: application/json\r\n";
    exchange(&server, &post("/v1/images/generations?a=b", head, PROMPT));
    let request = server.requests().remove(0);
    assert_eq!((request.method(), request.path()), ("POST", "/v1/images/generations?a=b"));
    assert_eq!((request.header("AUTHORIZATION"), request.header("x-none")), (Some("Bearer sk-secret"), None));
    assert_eq!(request.headers().nth(3), Some(("content-type", "application/json")));
    assert_eq!((request.body(), &request.json()["prompt"]), (PROMPT.as_bytes(), &"a fox".into()));
    assert!(request.parts().is_empty());
    assert!(!format!("{request:?} {server:?}").contains("secret"));
}

#[test]
fn a_body_may_come_in_chunks_or_wait_for_a_signal() {
    let server = serve([Answer::images(1), Answer::images(1)]);
    let head = "POST /v1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    exchange(&server, &format!("{head}5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nTrailer: 1\r\n\r\n"));
    let mut stream = send(&server, "POST /v1 HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    let mut signal = [0; 25];
    stream.read_exact(&mut signal).unwrap();
    assert_eq!(&signal, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hi").unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    let bodies: Vec<_> = server.requests().iter().map(|request| request.body().to_vec()).collect();
    assert_eq!(bodies, [&b"hello world"[..], b"hi"]);
}

#[test]
fn what_is_no_request_is_not_kept_and_costs_no_answer() {
    let server = serve([Answer::images(1)]);
    for text in
        ["nonsense\r\n\r\n", "POST /v1 HTTP/1.1\r\nContent-Length: x\r\n\r\n", "POST /v1 HTTP/1.1\r\nbad\r\n\r\n"]
    {
        assert_eq!(exchange(&server, text), "", "{text}");
    }
    let stream = send(&server, "POST /v1 HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf");
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(io::read_to_string(stream).unwrap(), "");
    assert_eq!((server.requests().len(), server.completions()), (0, 0));
    assert!(generate(&server).contains("b64_json"));
}

#[test]
fn a_form_is_split_into_its_parts() {
    let server = serve([Answer::images(1), Answer::images(1)]);
    let form = "--b-1\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\na --b-1 hat\r\n\r\n\r\n--b-1\r\n\
        content-disposition: form-data; filename=\"a\\\".png\"; name=\"image[]\"\r\nContent-Type: image/png\r\n\r\n\
        bytes\r\n--b-1--\r\n";
    exchange(&server, &post("/v1/images/edits", "Content-Type: multipart/form-data; boundary=\"b-1\"\r\n", form));
    let parts = server.requests().remove(0).parts();
    assert_eq!((parts.len(), parts[0].name(), parts[0].file_name()), (2, Some("prompt"), None));
    assert_eq!((&*parts[0].text(), parts[0].content_type()), ("a --b-1 hat\r\n\r\n", None));
    assert_eq!((parts[1].name(), parts[1].file_name()), (Some("image[]"), Some("a\\\".png")));
    assert_eq!((parts[1].content(), parts[1].content_type()), (&b"bytes"[..], Some("image/png")));
    let cut = form.strip_suffix("--b-1--\r\n").unwrap();
    exchange(&server, &post("/v1/images/edits", "Content-Type: multipart/form-data; boundary=b-1\r\n", cut));
    assert!(server.requests()[1].parts().is_empty());
}

#[test]
fn images_are_valid_files_that_differ() {
    use base64::Engine as _;

    let server = serve([Answer::images(3)]);
    let answer: serde_json::Value = serde_json::from_str(body(&generate(&server))).unwrap();
    let files: Vec<Vec<u8>> = answer["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|image| base64::prelude::BASE64_STANDARD.decode(image["b64_json"].as_str().unwrap()).unwrap())
        .collect();
    assert_eq!(files, [png(16, 16, 0), png(16, 16, 1), png(16, 16, 2)]);
    assert_eq!((&answer["size"], server.completions()), (&"16x16".into(), 1));
}

#[cfg(feature = "resize")]
#[test]
fn the_pixels_of_an_image_are_read_by_a_decoder() {
    for (width, height) in [(1, 1), (16, 16), (1024, 700)] {
        let mut decoder = ::png::Decoder::new(io::Cursor::new(png(width, height, 200)));
        decoder.ignore_checksums(false);
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((frame.width, frame.height), (width.into(), height.into()));
        assert!(pixels.len() == usize::from(width) * usize::from(height) && pixels.iter().all(|pixel| *pixel == 200));
    }
}

#[test]
fn a_stream_has_the_events_of_its_operation() {
    let server = serve([Answer::image_events(2), Answer::image_events(0)]);
    let lines = |answer: &str| -> Vec<String> {
        body(answer).lines().filter_map(|line| line.strip_prefix("event: ")).map(str::to_owned).collect()
    };
    let partial = "image_generation.partial_image";
    assert_eq!(lines(&generate(&server)), [partial, partial, "image_generation.completed"]);
    let edit = exchange(&server, &post("/v1/images/edits", "", ""));
    assert_eq!((lines(&edit), server.completions()), (vec!["image_edit.completed".to_owned()], 2));
    assert!(edit.contains("\r\ncontent-type: text/event-stream\r\n"));
}

#[test]
fn a_lost_answer_is_counted() {
    let answer = || Answer::json(200, &serde_json::json!({"data": []}));
    let server = serve([
        Answer::images(2).close_unanswered(),
        Answer::images(1).break_off(7),
        Answer::images(1).completions(0),
        answer(),
        answer().completions(1).break_off(usize::MAX),
    ]);
    assert_eq!((generate(&server), server.completions()), (String::new(), 1));
    let (head, body) = generate(&server).split_once("\r\n\r\n").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert!(head.contains(&format!("content-length: {}\r\n", body.len() + 7)), "{head}");
    assert_eq!(server.completions(), 2);
    generate(&server);
    generate(&server);
    assert_eq!(server.completions(), 2);
    assert!(generate(&server).ends_with("\r\n\r\n"), "the head alone");
    assert_eq!(server.completions(), 3);
}

#[test]
fn a_stalled_connection_stays_open_until_the_server_ends() {
    for (answer, expected_end) in
        [(Answer::images(1).stall_unanswered(), ""), (Answer::new(200, "abcdef").stall(2), "abcd")]
    {
        let server = serve([answer, Answer::images(1)]);
        let mut stream = send(&server, &post("/v1/images/generations", "", PROMPT));
        // Another request is answered meanwhile, so the connections do not wait for each other.
        while server.requests().is_empty() {
            thread::yield_now();
        }
        assert!(generate(&server).contains("b64_json"));
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut received = Vec::new();
        let error = stream.read_to_end(&mut received).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error}");
        drop(server);
        stream.set_read_timeout(None).unwrap();
        drop(stream.read_to_end(&mut received));
        assert!(received.ends_with(expected_end.as_bytes()) && received.is_empty() == expected_end.is_empty());
    }
}

#[test]
fn delays_and_pauses_pass_before_the_bytes() {
    let server = serve([Answer::new(200, "abcde").delay(Duration::from_millis(40)).pace(2, Duration::from_millis(30))]);
    let start = Instant::now();
    assert!(generate(&server).ends_with("\r\n\r\nabcde"));
    assert!(start.elapsed() >= Duration::from_millis(100));
}

#[test]
fn a_server_that_ends_waits_for_no_delay_and_leaves_its_address() {
    let hour = Duration::from_secs(3600);
    let server = serve([Answer::images(1).delay(hour), Answer::images(1).pace(1, hour)]);
    let address = server.address;
    let streams = [(); 2].map(|()| send(&server, &post("/v1/images/generations", "", PROMPT)));
    let idle = connect(&server);
    while server.requests().len() < 2 {
        thread::yield_now();
    }
    assert_eq!(server.completions(), 2);
    drop(server);
    for mut stream in streams.into_iter().chain([idle]) {
        // The end of the stream or a reset, but no wait.
        drop(stream.read_to_end(&mut Vec::new()));
    }
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
}
