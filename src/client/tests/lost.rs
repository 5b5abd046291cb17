//! Answers that are lost after they may have been paid for, with a service that pays for an idempotency key once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::test_images::{padded, png};
use super::{KEY, answer, client, failure, generate, image, run, serve};
use crate::client::{
    Client, EditRequest, Error, ErrorKind, GenerateRequest, ImageCount, ImageTarget, Images, Input, ResponseRequest,
    Retry,
};
use crate::testing::{Answer, StubServer};

/// An answer that shows that the service pays for a key once.
fn kept(is_replayed: bool) -> Answer {
    answer(200, &image()).header("x-imagate-replayed", if is_replayed { "true" } else { "false" })
}

/// The ways in which an answer is lost after it was paid for.
fn losses() -> [Answer; 4] {
    [
        answer(200, &image()).close_unanswered(),
        answer(200, &image()).break_off(4),
        answer(500, &failure("server_error", &json!({}))),
        Answer::new(502, "<html>bad gateway</html>"),
    ]
}

/// Makes two calls with one client: the first shows what the service does with keys.
fn second_call(server: &StubServer) -> Result<Images, Error> {
    let client = client(server);
    run(async {
        client.images().generate("a fox").await?;
        client.images().generate("a fox").await
    })
}

#[test]
fn a_lost_answer_is_requested_again_with_the_same_key() {
    for loss in losses() {
        let server = serve([kept(false), loss, kept(true)]);
        let images = second_call(&server).unwrap();
        assert!(images.meta().is_replayed() && images.meta().attempts() == 2, "{:?}", images.meta());
        let requests = server.requests();
        let sent = |name| requests.iter().map(|request| request.header(name)).collect::<Vec<_>>();
        let (keys, counts) = (sent("idempotency-key"), sent("x-stainless-retry-count"));
        assert!(keys.len() == 3 && keys[1].is_some() && keys[1] == keys[2] && keys[0] != keys[1], "{keys:?}");
        assert_eq!(counts, [None, None, Some("1")]);
    }
}

#[test]
fn a_lost_answer_is_an_error_if_the_service_may_pay_twice() {
    for loss in losses() {
        let server = serve([answer(200, &image()), loss, kept(true)]);
        assert!(!second_call(&server).unwrap_err().is_retryable());
        assert_eq!(server.requests().len(), 2);
    }
}

#[test]
fn the_head_of_a_lost_answer_may_show_it() {
    let server = serve([kept(false).break_off(4), kept(true)]);
    assert!(generate(&server).unwrap().meta().is_replayed());
    let server = serve([kept(false).break_off(4), kept(true)]);
    let request = EditRequest::new("a hat").image(Input::from_bytes(png(16, 16, false)));
    assert_eq!(run(client(&server).images().edit(request)).unwrap().meta().attempts(), 2);
}

#[test]
fn a_lost_answer_that_is_saved_while_it_arrives_is_requested_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve([
        kept(false),
        answer(200, &image()).close_unanswered(),
        kept(true),
        kept(false).break_off(4),
        kept(true),
    ]);
    let client = client(&server);
    for name in ["a", "b", "c"] {
        let saved = run(client.images().generate_to("a fox", folder.path().join(name))).unwrap();
        assert_eq!(std::fs::read(saved.paths().next().unwrap()).unwrap(), b"hello", "{name}");
    }
    assert_eq!((server.requests().len(), std::fs::read_dir(folder.path()).unwrap().count()), (5, 3));
}

/// Returns the answer with these images, each longer than what is written at once.
fn large_images(count: usize) -> Answer {
    let file = padded(png(16, 16, false), 700_000);
    let entry = json!({ "b64_json": STANDARD.encode(file) });
    answer(200, &json!({ "data": vec![entry; count] })).header("x-imagate-replayed", "false")
}

#[test]
fn a_broken_answer_of_which_something_was_kept_is_not_requested_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve([
        large_images(2).break_off(400_000),
        large_images(1).break_off(400_000),
        large_images(1).break_off(933_000),
        large_images(1),
    ]);
    let (client, mut written) = (client(&server), Vec::new());
    let two = GenerateRequest::new("a fox").count(ImageCount::new(2).unwrap());
    let error = run(client.images().generate_to(two, folder.path().join("a"))).unwrap_err();
    assert!(error.message().ends_with("a-1.png") && error.idempotency_key().is_some(), "{error}");
    let error = run(client.images().generate_to("a fox", ImageTarget::writer(&mut written))).unwrap_err();
    assert!(error.kind() == ErrorKind::Broken && !written.is_empty(), "{error}");
    assert_eq!(server.requests().len(), 2);
    written.clear();
    run(client.images().generate_to("a fox", ImageTarget::writer(&mut written))).unwrap();
    assert_eq!((written.len(), server.requests().len()), (700_000, 4), "the writer had no byte of the broken answer");
}

#[test]
fn an_error_after_a_lost_answer_says_that_it_may_be_paid_and_has_the_key() {
    let busy = || answer(503, &failure("service_unavailable", &json!({}))).header("x-should-retry", "true");
    let script = || [kept(false), answer(200, &image()).close_unanswered(), busy(), busy()];
    let server = serve(script().into_iter().chain([kept(true)]));
    let client = client(&server);
    run(client.images().generate("a fox")).unwrap();
    let error = run(client.images().generate("a fox")).unwrap_err();
    assert_eq!((error.status(), error.kind(), error.is_retryable()), (Some(503), ErrorKind::Answer, false));
    assert_eq!(error.message(), "It failed; an earlier attempt of the call may have been paid for");
    let request = GenerateRequest::new("a fox").idempotency_key(error.idempotency_key().unwrap());
    assert!(run(client.images().generate(request)).unwrap().is_replayed());
    let keys: Vec<String> =
        server.requests().iter().filter_map(|sent| sent.header("idempotency-key").map(str::to_owned)).collect();
    assert!(keys[1..].iter().all(|key| *key == keys[1]) && keys.len() == 5, "{keys:?}");

    // The next call of a request with its own key has the same key.
    let server = serve(script());
    let client = super::client(&server);
    run(client.images().generate("a fox")).unwrap();
    let error = run(client.images().generate(GenerateRequest::new("a fox").idempotency_key("mine"))).unwrap_err();
    assert!(error.is_retryable() && error.message().contains("may have been paid for"), "{error}");
}

#[test]
fn an_image_in_progress_is_retryable_only_with_its_key() {
    let in_progress = || answer(409, &failure("image_in_progress", &json!({}))).header("x-should-retry", "true");
    let server = serve([in_progress(), in_progress()]);
    let client = client(&server);
    let request = || GenerateRequest::new("a fox").retry(Retry::NONE);
    let error = run(client.images().generate(request())).unwrap_err();
    assert!(!error.is_retryable() && error.idempotency_key().is_some(), "{error:?}");
    let error = run(client.images().generate(request().idempotency_key("mine"))).unwrap_err();
    assert_eq!((error.is_retryable(), error.idempotency_key()), (true, Some("mine")));
}

#[test]
fn an_error_of_every_kind_of_call_has_the_key_of_the_call() {
    let refused = || answer(400, &failure("invalid_request_error", &json!({})));
    let broken_stream = || Answer::events(": heartbeat\n\n");
    let script = [refused(), refused(), refused(), answer(200, &json!({})), broken_stream(), broken_stream()];
    let server = serve(script);
    let client = client(&server);
    let request = || GenerateRequest::new("a fox").idempotency_key("mine");
    let response = || ResponseRequest::new("m", "a fox").idempotency_key("mine");
    let errors = run(async {
        [
            client.images().generate(request()).await.unwrap_err(),
            client.images().generate_stream(request()).await.unwrap_err(),
            client.responses().create(response()).await.unwrap_err(),
            client.images().generate(request()).await.unwrap_err(),
            client.images().generate_stream(request()).await.unwrap().collect_image().await.unwrap_err(),
            client.responses().stream(response()).await.unwrap().collect_response().await.unwrap_err(),
        ]
    });
    for error in errors {
        assert_eq!(error.idempotency_key(), Some("mine"), "{error:?}");
    }
}

#[test]
fn a_lost_answer_is_not_requested_again_without_a_key_or_a_retry() {
    let build = |builder: crate::client::Builder, server: &StubServer| {
        builder.base_url(server.base_url()).api_key(KEY).build().unwrap()
    };
    for builder in [Client::builder().idempotency_keys(false), Client::builder().retry(Retry::NONE)] {
        let server = serve([kept(false), answer(200, &image()).close_unanswered(), kept(true)]);
        let client = build(builder, &server);
        run(client.images().generate("a fox")).unwrap();
        run(client.images().generate("a fox")).unwrap_err();
        assert_eq!(server.requests().len(), 2);
    }
    let server = serve([kept(false), answer(200, &image()).close_unanswered(), kept(true)]);
    let client = client(&server);
    run(client.images().generate("a fox")).unwrap();
    assert!(run(client.images().generate_stream(GenerateRequest::new("a fox"))).is_err());
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn an_answer_that_says_not_to_is_not_requested_again() {
    for status in [400, 401, 429, 500, 502] {
        let refusal = answer(status, &failure("refused", &json!({}))).header("x-should-retry", "false");
        let server = serve([kept(false), refusal, kept(true)]);
        assert_eq!((second_call(&server).unwrap_err().status(), server.requests().len()), (Some(status), 2));
    }
}

#[test]
fn lost_answers_and_other_retries_are_three_attempts_in_all() {
    let busy = answer(503, &failure("service_unavailable", &json!({}))).header("x-should-retry", "true");
    let server = serve([
        kept(false),
        answer(200, &image()).close_unanswered(),
        busy,
        answer(200, &image()).close_unanswered(),
        kept(true),
    ]);
    assert!(second_call(&server).is_err());
    assert_eq!(server.requests().len(), 4);
}
