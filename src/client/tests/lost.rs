//! Answers that are lost after they may have been paid for, with a service that pays for an idempotency key once.

use serde_json::json;

use super::{KEY, answer, client, failure, generate, image, run, serve};
use crate::client::{Client, EditRequest, Error, GenerateRequest, Images, Input, Retry};
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
    let request = EditRequest::new("a hat").image(Input::from_bytes(super::test_images::png(16, 16, false)));
    assert_eq!(run(client(&server).images().edit(request)).unwrap().meta().attempts(), 2);
}

#[test]
fn an_answer_that_is_saved_while_it_arrives_is_requested_again_before_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve([
        kept(false),
        answer(200, &image()).close_unanswered(),
        kept(true),
        kept(false).break_off(4),
        kept(true),
    ]);
    let client = client(&server);
    for (name, is_saved) in [("a", true), ("b", true), ("c", false)] {
        let saved = run(client.images().generate_to("a fox", folder.path().join(name)));
        assert_eq!(saved.is_ok(), is_saved, "{name}");
    }
    assert_eq!(server.requests().len(), 4);
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
