//! Tests of the calls for moderation, tokens and probes. The service is a socket that sends the text of the test.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::gateway::admission::RequestBudgets;
use crate::gateway::config::{AddressPolicy, ConfigSecret, ModerationErrorPolicy};

const KEY: &str = "sk-judge-canary";

/// Listens on a local port, and returns the listener and its base URL.
async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    (listener, base)
}

fn upstream() -> UpstreamClient {
    let budgets = RequestBudgets::default_for_test();
    UpstreamClient::new(Duration::from_secs(5), AddressPolicy::default(), budgets).unwrap()
}

fn service(base: &str, timeout: Duration) -> ModerationConfig {
    ModerationConfig {
        base_url: base.parse().unwrap(),
        api_key: Some(ConfigSecret::new(KEY.to_owned(), "test")),
        model: "judge-1".to_owned(),
        on_error: ModerationErrorPolicy::Closed,
        timeout,
    }
}

/// Reads one request: its head and its body.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).await.unwrap();
        assert!(count > 0, "the request broke off: {text}");
        text.push_str(std::str::from_utf8(&chunk[..count]).unwrap());
    }
}

/// Reads one request and answers it. Returns the request and the connection, which stays open until it is dropped.
async fn answer(listener: &TcpListener, text: &str) -> (String, TcpStream) {
    let mut stream = listener.accept().await.unwrap().0;
    let received = read_request(&mut stream).await;
    // The write may fail: the client closes the connection when it has read enough.
    let _ = stream.write_all(text.as_bytes()).await;
    (received, stream)
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Returns the result of a moderation call that gets this answer.
async fn moderate_with_answer(text: &str) -> Result<bool, ServiceCallError> {
    let (listener, base) = listen().await;
    let (upstream, service) = (upstream(), service(&base, Duration::from_secs(10)));
    let (_open, result) = tokio::join!(answer(&listener, text), upstream.moderate(&service, "a red cube"));
    result
}

#[tokio::test]
async fn the_flags_of_the_service_decide_about_a_prompt() {
    let (listener, base) = listen().await;
    let (upstream, service) = (upstream(), service(&base, Duration::from_secs(10)));
    let text = ok(r#"{"id":"m","model":"judge-1","results":[{"flagged":true,"categories":{}}]}"#);
    let ((received, _open), result) =
        tokio::join!(answer(&listener, &text), upstream.moderate(&service, "a \"red\" cube\n"));
    assert_eq!(result, Ok(true));
    assert!(received.starts_with("POST /v1/moderations HTTP/1.1\r\n"), "{received}");
    assert!(received.contains("\r\nauthorization: Bearer sk-judge-canary\r\n"), "{received}");
    assert!(received.contains("\r\naccept-encoding: identity\r\n"), "{received}");
    let body: Value = serde_json::from_str(received.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(body, json!({"model": "judge-1", "input": "a \"red\" cube\n"}));

    for (body, expected) in [
        (r#"{"results":[{"flagged":false}]}"#, Ok(false)),
        (r#"{"results":[{"flagged":false},{"flagged":true}]}"#, Ok(true)),
        (r#"{"results":[]}"#, Err(ServiceCallError::Unusable)),
        (r#"{"results":[{}]}"#, Err(ServiceCallError::Unusable)),
        (r#"{"results":[{"flagged":"no"}]}"#, Err(ServiceCallError::Unusable)),
        (r#"{"results":[{"flagged":false},{}]}"#, Err(ServiceCallError::Unusable)),
        (r#"{"results":{"flagged":false}}"#, Err(ServiceCallError::Unusable)),
        (r#"{"error":{"message":"no"}}"#, Err(ServiceCallError::Unusable)),
        ("<html>", Err(ServiceCallError::Unusable)),
        ("", Err(ServiceCallError::Unusable)),
    ] {
        assert_eq!(moderate_with_body(body).await, expected, "{body}");
    }
}

async fn moderate_with_body(body: &str) -> Result<bool, ServiceCallError> {
    moderate_with_answer(&ok(body)).await
}

#[tokio::test]
async fn an_answer_without_a_valid_result_is_an_error() {
    let good = r#"{"results":[{"flagged":false}]}"#;
    let huge = format!(r#"{{"x":"{}","results":[{{"flagged":false}}]}}"#, "x".repeat(MAX_ANSWER_BYTES));
    for (text, expected) in [
        ("HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n".to_owned(), ServiceCallError::Status(401)),
        (ok(good).replace("200 OK", "201 Created"), ServiceCallError::Status(201)),
        (ok(good).replace("200 OK", "500 Oops"), ServiceCallError::Status(500)),
        (
            ok(good).replacen("content-type", "content-encoding: compress\r\ncontent-type", 1),
            ServiceCallError::Unusable,
        ),
        (ok(&huge), ServiceCallError::Unusable),
        (
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n20000\r\n{}", "x".repeat(0x20000)),
            ServiceCallError::Unusable,
        ),
        ("SSH-2.0-OpenSSH\r\n\r\n".to_owned(), ServiceCallError::Unreachable),
        (format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: 1\r\n".repeat(1_000)), ServiceCallError::Unreachable),
    ] {
        assert_eq!(moderate_with_answer(&text).await, Err(expected), "{text:.60}");
    }
}

#[tokio::test]
async fn a_call_to_a_hanging_service_times_out() {
    for text in ["", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"] {
        let (listener, base) = listen().await;
        let (upstream, service) = (upstream(), service(&base, Duration::from_millis(50)));
        let (_open, result) = tokio::join!(answer(&listener, text), upstream.moderate(&service, "a red cube"));
        assert_eq!(result, Err(ServiceCallError::Timeout), "{text}");
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error() {
    let (listener, base) = listen().await;
    let (upstream, service) = (upstream(), service(&base, Duration::from_secs(10)));
    let server = async { drop(answer(&listener, "HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{\"results\"").await) };
    let ((), result) = tokio::join!(server, upstream.moderate(&service, "a red cube"));
    assert_eq!(result, Err(ServiceCallError::Unreachable));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (target, base) = listen().await;
    for code in [301, 302, 307, 308] {
        let text = format!("HTTP/1.1 {code} Moved\r\nlocation: {base}/moderations\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(moderate_with_answer(&text).await, Err(ServiceCallError::Status(code)));
    }
    let followed = tokio::time::timeout(Duration::from_millis(20), target.accept()).await;
    assert!(followed.is_err());
}

#[tokio::test]
async fn an_error_contains_no_address_key_or_prompt() {
    let (listener, base) = listen().await;
    drop(listener);
    let error = upstream().moderate(&service(&base, Duration::from_secs(5)), "secret prompt").await.unwrap_err();
    assert_eq!(error, ServiceCallError::Unreachable);
    for error in [error, ServiceCallError::Timeout, ServiceCallError::Status(401), ServiceCallError::Unusable] {
        let message = format!("{error} {error:?}");
        assert!(["127.0.0.1", KEY, "prompt"].iter().all(|word| !message.contains(word)), "{message}");
    }
    assert!(!format!("{:?}", key_header(&ConfigSecret::new(KEY.to_owned(), "test"))).contains(KEY));
}

#[tokio::test]
async fn a_token_request_is_a_form_and_every_status_is_returned() {
    for code in [200, 400, 401, 503] {
        let (listener, base) = listen().await;
        let (upstream, url) = (upstream(), format!("{base}/token?x=1").parse::<Uri>().unwrap());
        let text = ok(r#"{"access_token":"t"}"#).replace("200", &code.to_string());
        let form = "grant_type=refresh_token&refresh_token=r%2F1".to_owned();
        let basic = Some(HeaderValue::from_static("Basic YTpi"));
        let request = TokenRequest { url: &url, form, authorization: basic };
        let ((received, _open), response) = tokio::join!(answer(&listener, &text), upstream.exchange(request));
        let response = response.unwrap_or_else(|CredentialServiceError| panic!("{code}"));
        assert_eq!((response.status, &response.body[..]), (code, &br#"{"access_token":"t"}"#[..]));
        assert!(received.starts_with("POST /v1/token?x=1 HTTP/1.1\r\n"), "{received}");
        assert!(received.contains("\r\ncontent-type: application/x-www-form-urlencoded\r\n"), "{received}");
        assert!(received.contains("\r\nauthorization: Basic YTpi\r\n"), "{received}");
        assert!(received.ends_with("\r\n\r\ngrant_type=refresh_token&refresh_token=r%2F1"), "{received}");
    }
}

#[tokio::test]
async fn a_probe_requests_the_list_of_models() {
    let (listener, base) = listen().await;
    let (upstream, url) = (upstream(), format!("{base}/models"));
    let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer up"))]);
    // The list never arrives completely, and the call must not wait for its end.
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n{";
    let ((received, _open), status) = tokio::join!(answer(&listener, text), upstream.fetch_status(&url, headers));
    assert_eq!(status, Ok(200));
    assert!(received.starts_with("GET /v1/models HTTP/1.1\r\n"), "{received}");
    assert!(received.contains("\r\nauthorization: Bearer up\r\n"), "{received}");
    assert!(!received.contains("content-length: 1") && received.ends_with("\r\n\r\n"), "{received}");
}
