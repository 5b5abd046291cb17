//! The checks before the rules: the key, then the size, type and framing of the body.
//!
//! No refusal of this module may reach the upstream, and a bad key must be refused before a body byte is read.

use serde_json::json;

use crate::kit::{Answer, Call, FakeUpstream, Gateway, request};

/// The greatest size of a JSON body, in bytes.
const MAX_BODY: usize = 1 << 20;

#[track_caller]
fn check_401(answer: &Answer) {
    let error = answer.error_object(401);
    let expected =
        json!({"message": "Invalid API key", "type": "authentication_error", "param": null, "code": "INVALID_API_KEY"});
    assert_eq!(error, expected);
    assert_eq!(answer.should_retry(), Some("false"));
    assert!(answer.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")), "{:?}", answer.headers);
}

/// The secret with one character changed, so that only its checksum or its hash reveals the change.
fn altered(secret: &str, index: usize) -> String {
    let mut bytes = secret.as_bytes().to_vec();
    bytes[index] = if bytes[index] == b'a' { b'b' } else { b'a' };
    String::from_utf8(bytes).expect("text")
}

#[test]
fn every_bad_key_gets_the_same_401_before_the_body_is_read() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let secret = gateway.secret();
    // The first keys of all gateways are the same.
    let other = Gateway::simulated().make_key("other");
    let other = other["secret"].as_str().expect("a secret");
    let jwt = "Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ1c2VyIn0.c2lnbmF0dXJlLXRoYXQtaXMtbm90LW9uZQ";
    let headers = [
        None,
        Some(String::new()),
        Some("Bearer".to_owned()),
        Some("Bearer ".to_owned()),
        Some(secret.to_owned()),
        Some(format!("Basic {secret}")),
        Some(format!("Token {secret}")),
        Some(jwt.to_owned()),
        Some("Bearer sk-img-nonsense".to_owned()),
        Some("Bearer sk-proj-abcdefghijklmnopqrstuvwxyz".to_owned()),
        Some(format!("Bearer {}", altered(secret, secret.len() - 1))),
        Some(format!("Bearer {}", altered(secret, secret.len() / 2 + 4))),
        Some(format!("Bearer {secret}x")),
        Some(format!("Bearer {} {secret}", "x")),
        Some(format!("Bearer {other}")),
        Some(format!("Bearer {}", "k".repeat(12_000))),
    ];
    for header in headers {
        let call = match &header {
            Some(value) => Call::generation().header("authorization", value),
            None => Call::generation(),
        };
        // The body is announced but never sent, so an answer proves that the gateway did not wait for the body.
        let answer = call.header("content-type", "application/json").announcing_only(50 << 20).send(gateway.address());
        check_401(&answer);
    }
    assert_eq!(upstream.accepted(), 0);
}

#[test]
fn a_bad_key_is_reported_before_content_type_and_encoding() {
    let gateway = Gateway::simulated();
    let call = Call::generation()
        .header("authorization", "Bearer eyJ.eyJ.sig")
        .header("content-encoding", "zstd")
        .bytes("\u{28}\u{1}");
    check_401(&call.send(gateway.address()));
}

#[test]
fn a_disabled_key_is_refused_and_comes_back_and_a_deleted_one_does_not() {
    let gateway = Gateway::simulated();
    let key = gateway.make_key("second");
    let (id, secret) = (key["id"].as_str().expect("an id"), key["secret"].as_str().expect("a secret"));
    let ask = || Call::get("/v1/models").key(secret).send(gateway.address());
    // A running server may use its key cache for a moment, but not longer.
    let wait_for_status =
        |status: u16| crate::kit::eventually("the key changes its state", || (ask().status == status).then_some(()));
    ask().ok_json();
    gateway.run_command(&["key", "disable", id]).ok_stdout();
    wait_for_status(401);
    check_401(&ask());
    gateway.run_command(&["key", "enable", id]).ok_stdout();
    wait_for_status(200);
    gateway.run_command(&["key", "delete", id]).ok_stdout();
    wait_for_status(401);
    check_401(&ask());
    Call::get("/v1/models").key(gateway.secret()).send(gateway.address()).ok_json();
}

#[test]
fn the_scheme_is_read_in_any_case_and_the_key_is_trimmed() {
    let gateway = Gateway::simulated();
    for scheme in ["bearer", "BEARER", "Bearer  "] {
        let header = format!("{scheme} {} ", gateway.secret());
        Call::get("/v1/models").header("authorization", &header).send(gateway.address()).ok_json();
    }
}

#[test]
fn a_body_over_the_limit_is_a_413_as_soon_as_it_is_announced() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let call = || Call::generation().key(gateway.secret()).header("content-type", "application/json");
    let long = json!({"model": "gpt-image-2", "prompt": "x".repeat(MAX_BODY)}).to_string();
    for answer in [
        call().announcing_only(MAX_BODY as u64 + 1).send(gateway.address()),
        call().announcing_only(u64::MAX / 2).send(gateway.address()),
        call().bytes(long).in_chunks_of(64 << 10).send(gateway.address()),
    ] {
        let error = answer.error_object(413);
        assert_eq!((&error["type"], &error["code"]), (&json!("invalid_request_error"), &json!("request_too_large")));
        assert_eq!(answer.should_retry(), Some("false"));
    }
    assert_eq!(upstream.accepted(), 0);
}

#[test]
fn a_body_of_exactly_the_limit_is_read() {
    let gateway = Gateway::simulated();
    // Padding makes the body exactly as long as its limit in bytes; the prompt has a limit of its own and stays short.
    let body = request(json!({})).to_string();
    let padded = format!("{}{body}", " ".repeat(MAX_BODY - body.len()));
    let call = Call::generation().key(gateway.secret()).header("content-type", "application/json").bytes(padded);
    call.send(gateway.address()).ok_json();
}

#[test]
fn what_is_not_json_by_its_type_is_a_415() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let call = || Call::generation().key(gateway.secret()).bytes(request(json!({})).to_string());
    for answer in [
        call().send(gateway.address()),
        call().header("content-type", "text/plain").send(gateway.address()),
        call().header("content-type", "application/x-www-form-urlencoded").send(gateway.address()),
        call().header("content-type", "multipart/form-data; boundary=x").send(gateway.address()),
        call().header("content-type", "application/json").header("content-encoding", "br").send(gateway.address()),
    ] {
        let error = answer.error_object(415);
        assert_eq!(
            (&error["type"], &error["code"]),
            (&json!("invalid_request_error"), &json!("unsupported_media_type"))
        );
        assert_eq!(answer.should_retry(), Some("false"));
        let names_encoding = error["message"].as_str().is_some_and(|message| message.contains("Content-Encoding"));
        assert_eq!(answer.header("accept-encoding").is_some(), names_encoding, "{error}");
    }
    assert_eq!(upstream.accepted(), 0);
}

#[test]
fn parameters_of_the_content_type_and_identity_encoding_are_no_fault() {
    let gateway = Gateway::simulated();
    let call = || Call::generation().key(gateway.secret()).bytes(request(json!({})).to_string());
    call().header("content-type", "application/json; charset=utf-8").send(gateway.address()).ok_json();
    call()
        .header("content-type", "Application/JSON")
        .header("content-encoding", "identity")
        .send(gateway.address())
        .ok_json();
}

#[test]
fn a_chunked_body_and_a_long_query_work() {
    let gateway = Gateway::simulated();
    gateway.call(json!({})).in_chunks_of(1).send(gateway.address()).ok_json();
    gateway.call(json!({"prompt": "é漢🦀".repeat(999)})).in_chunks_of(7).send(gateway.address()).ok_json();
    let path = format!("/v1/images/generations?trace={}", "t".repeat(500));
    Call::post(&path).key(gateway.secret()).json(&request(json!({}))).send(gateway.address()).ok_json();
}

#[test]
fn expect_continue_is_answered_only_when_the_body_is_wanted() {
    let gateway = Gateway::simulated();
    let answer = gateway.call(json!({})).expecting_continue().send(gateway.address());
    assert!(answer.continued, "100 Continue comes first");
    answer.ok_json();
    let refused = Call::generation()
        .key("sk-img-nonsense")
        .json(&request(json!({})))
        .expecting_continue()
        .send(gateway.address());
    assert!(!refused.continued, "the gateway does not ask for a body that it refuses");
    check_401(&refused);
}

#[test]
fn client_headers_are_accepted_and_not_sent_upstream() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let call =
        gateway.call(json!({})).header("openai-organization", "org-caller").header("openai-project", "proj-caller");
    let call = call.header("cookie", "caller=1").header("x-stainless-lang", "python").header("openai-beta", "x=1");
    call.header("x-client-request-id", "mine").header("accept-encoding", "gzip, br").send(gateway.address()).ok_json();
    let attempt = &upstream.received_attempts()[0];
    assert_eq!((attempt.method.as_str(), attempt.path.as_str()), ("POST", "/v1/images/generations"));
    for header in ["openai-organization", "openai-project", "cookie"] {
        assert_eq!(attempt.header(header), None, "the caller's header {header} was sent upstream");
    }
    assert_eq!(attempt.token, "sk-upstream-only");
    assert!(attempt.header("user-agent").is_some_and(|agent| agent.starts_with("imagate")), "{:?}", attempt.headers);
    assert!(attempt.header("accept-encoding").is_none_or(|value| value == "identity"), "{:?}", attempt.headers);
}

#[test]
fn request_ids_are_on_every_answer_and_differ() {
    let gateway = Gateway::simulated();
    let good = gateway.generate(json!({}));
    let bad = gateway.generate(json!({"n": 0}));
    let list = Call::get("/v1/models").send(gateway.address());
    let ids: std::collections::BTreeSet<_> =
        [&good, &bad, &list].map(|answer| answer.header("x-request-id").expect("an id")).into();
    assert_eq!(ids.len(), 3);
    assert_eq!(gateway.final_records(1)[0]["request_id"].as_str(), good.header("x-request-id"));
}

/// Includes paths without a route.
#[test]
fn every_error_says_whether_to_try_again() {
    let gateway = Gateway::simulated();
    let unknown_paths =
        ["/foo", "/v1/foo", "/v1/images/generations/x", "/admin/v1/x", "/console/x", "/v1/models/a/b/c"];
    for path in unknown_paths {
        for call in [Call::get(path), Call::post(path), Call::patch(path), Call::delete(path)] {
            let answer = call.key(gateway.secret()).send(gateway.address());
            let actual = (answer.status, answer.should_retry(), answer.json()["error"]["code"].clone());
            assert_eq!(actual, (404, Some("false"), json!("unknown_url")), "{path}");
            assert!(answer.header("x-request-id").is_some(), "{path}");
        }
    }
    let page = Call::delete("/keys").send(gateway.address());
    assert_eq!((page.status, page.should_retry()), (405, Some("false")));
    for (path, status) in
        [("/v1/%FF", 400), ("/v1/../v1/models", 404), ("/chat/completions", 404), ("/v1/models/x", 401)]
    {
        let answer = Call::get(path).send(gateway.address());
        assert_eq!((answer.status, answer.should_retry()), (status, Some("false")), "{path}");
    }
    let refused = gateway.generate(json!({"size": "1x1"}));
    assert_eq!((refused.status, refused.should_retry()), (400, Some("false")));
}
