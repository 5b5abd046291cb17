//! Calls that the program drops, or that end without a certain outcome: the next equal call has their idempotency key.
//! Also the limit of a whole call.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use super::test_images::png;
use super::{KEY, answer, client, failure, image, run, serve};
use crate::client::{
    Client, EditRequest, Error, ErrorKind, GenerateRequest, ImageEvent, ImageTarget, Input, PartialImages,
    ResponseRequest, Retry,
};
use crate::testing::{Answer, StubServer};

/// The limit of calls that are not answered: long enough for a request on loopback beside other tests.
const PATIENCE: Duration = Duration::from_millis(500);

fn stall() -> Answer {
    answer(200, &image()).stall_unanswered()
}

fn good() -> Answer {
    answer(200, &image())
}

/// Waits until the server has this number of requests.
async fn until_asked(server: &StubServer, count: usize) {
    while server.requests().len() < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Drops the call as soon as the server has this number of requests.
async fn drop_call<T>(server: &StubServer, count: usize, call: impl Future<Output = Result<T, Error>>) {
    tokio::select! {
        () = until_asked(server, count) => {}
        ended = call => panic!("the call has ended with {:?}", ended.err()),
    }
}

/// Returns the keys of all requests, as numbers in the order in which they come for the first time.
fn keys(server: &StubServer) -> Vec<usize> {
    let (mut seen, mut numbers) = (Vec::new(), Vec::new());
    for request in server.requests() {
        let key = request.header("idempotency-key").expect("a key").to_owned();
        let number = seen.iter().position(|other| *other == key).unwrap_or(seen.len());
        if number == seen.len() {
            seen.push(key);
        }
        numbers.push(number);
    }
    numbers
}

#[test]
fn the_next_equal_call_has_the_key_of_a_dropped_one() {
    let server = serve([stall(), good(), good(), stall(), stall(), good()]);
    let client = client(&server);
    run(async {
        drop_call(&server, 1, client.images().generate("a fox")).await;
        client.clone().images().generate("a fox").await.unwrap();
        client.images().generate("a fox").await.unwrap();
        // A task that is aborted, and a call that is dropped again.
        let mut tasks = JoinSet::new();
        let aborted = client.clone();
        tasks.spawn(async move { aborted.images().generate("a fox").await });
        until_asked(&server, 4).await;
        tasks.shutdown().await;
        drop_call(&server, 5, client.images().generate("a fox")).await;
        client.images().generate("a fox").await.unwrap();
    });
    assert_eq!(keys(&server), [0, 0, 1, 2, 2, 2]);
}

#[test]
fn one_of_two_equal_calls_has_the_key() {
    let server = serve([stall(), good(), good()]);
    let client = client(&server);
    run(async {
        let images = client.images();
        drop_call(&server, 1, images.generate("a fox")).await;
        let (first, second) = tokio::join!(images.generate("a fox"), images.generate("a fox"));
        assert!(first.is_ok() && second.is_ok());
    });
    let mut keys = keys(&server);
    keys.sort_unstable();
    assert_eq!(keys, [0, 0, 1]);
}

#[test]
fn a_request_that_differs_in_anything_has_a_key_of_its_own() {
    let server = serve([stall()]);
    server.set_default(good());
    let client = client(&server);
    run(async {
        let request = || GenerateRequest::new("a fox").header("x-project", "p-1");
        drop_call(&server, 1, client.images().generate(request())).await;
        let others = [
            GenerateRequest::new("a fox"),
            GenerateRequest::new("a fox").header("x-project", "p-2"),
            GenerateRequest::new("a cat").header("x-project", "p-1"),
            request().user("u"),
            request().allow_fallback(),
        ];
        for other in others {
            client.images().generate(other).await.unwrap();
        }
        let other = Client::new(&server.base_url(), KEY).unwrap();
        other.images().generate(request()).await.unwrap();
        // Limits and retries make no other request.
        let limited = request().timeout(Duration::from_secs(9)).retry(Retry::NONE).deadline(Duration::from_secs(9));
        client.images().generate(limited).await.unwrap();
    });
    assert_eq!(keys(&server), [0, 1, 2, 3, 4, 5, 6, 0]);
}

#[test]
fn edits_are_equal_if_their_files_have_the_same_content() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, side| {
        let path = folder.path().join(name);
        std::fs::write(&path, png(side, side, true)).unwrap();
        path
    };
    let server = serve([stall(), stall()]);
    server.set_default(good());
    let client = client(&server);
    let (first, copy) = (write("a.png", 16), write("copy.png", 16));
    run(async {
        let images = client.images();
        let edit = |image: Input| EditRequest::new("a hat").image(image);
        let masked = |image: Input| edit(image).mask(Input::from_path(&copy));
        drop_call(&server, 1, images.edit(edit(Input::from_path(&first)))).await;
        drop_call(&server, 2, images.edit(masked(Input::from_path(&first)))).await;
        write("a.png", 32);
        images.edit(edit(Input::from_path(&first))).await.unwrap();
        images.edit(edit(Input::from_path(&copy))).await.unwrap();
        images.edit(masked(Input::from_bytes(png(16, 16, true)))).await.unwrap();
        images.edit(edit(Input::from_path(&copy))).await.unwrap();
    });
    assert_eq!(keys(&server), [0, 1, 2, 0, 1, 3]);
}

#[test]
fn a_stream_keeps_its_key_until_its_image_is_there() {
    let partial = || Answer::image_events(1).pace(64, Duration::from_millis(1)).stall(40);
    let server = serve([partial(), partial(), Answer::image_events(1), Answer::image_events(1)]);
    let client = client(&server);
    let request = || GenerateRequest::new("a fox").partial_images(PartialImages::of::<1>());
    run(async {
        drop_call(&server, 1, client.images().generate_stream(request()).await.unwrap().collect_image()).await;
        let mut stream = client.images().generate_stream(request()).await.unwrap();
        assert!(matches!(stream.next().await, Some(Ok(ImageEvent::PartialImage { .. }))));
        drop(stream);
        let mut stream = client.images().generate_stream(request()).await.unwrap();
        while !matches!(stream.next().await, Some(Ok(ImageEvent::Completed { .. }))) {}
        drop(stream);
        client.images().generate_stream(request()).await.unwrap().collect_image().await.unwrap();
    });
    assert_eq!(keys(&server), [0, 0, 0, 1]);
}

#[test]
fn responses_keep_their_key_and_their_streams_have_none() {
    let response = || Answer::json(200, &json!({"id": "r", "status": "completed", "output": []}));
    let server = serve([stall(), response(), response()]);
    let client = client(&server);
    run(async {
        drop_call(&server, 1, client.responses().create(ResponseRequest::new("m", "a fox"))).await;
        client.responses().create(ResponseRequest::new("m", "a fox")).await.unwrap();
        drop(client.responses().stream(ResponseRequest::new("m", "a fox")).await.unwrap());
    });
    let requests = server.requests();
    assert_eq!(requests[0].header("idempotency-key"), requests[1].header("idempotency-key"));
    assert_eq!(requests[2].header("idempotency-key"), None);
}

#[test]
fn an_error_that_leaves_the_outcome_unknown_leaves_its_key() {
    let refusal = |status| answer(status, &failure("refused", &json!({}))).header("x-should-retry", "false");
    let in_progress = answer(409, &failure("image_in_progress", &json!({}))).header("x-should-retry", "true");
    let unknown = [
        good().close_unanswered(),
        good().break_off(4),
        Answer::new(502, "<html>bad gateway</html>"),
        in_progress,
        stall(),
    ];
    let known = [
        refusal(400),
        refusal(502),
        answer(429, &failure("rate_limit_exceeded", &json!({}))),
        answer(200, &json!({})),
        answer(200, &json!({"error": {"message": "No.", "code": "content_policy_violation"}})),
    ];
    for (answers, expected) in [(unknown.to_vec(), [0, 0]), (known.to_vec(), [0, 1])] {
        for first in answers {
            let server = serve([first, good()]);
            let client = client(&server);
            let request = || GenerateRequest::new("a fox").retry(Retry::NONE).timeout(PATIENCE);
            let error = run(client.images().generate(request())).unwrap_err();
            assert_eq!(error.is_outcome_unknown(), expected == [0, 0], "{error:?}");
            run(client.images().generate(request())).unwrap();
            assert_eq!(keys(&server), expected, "{error:?}");
            assert_eq!(error.idempotency_key(), server.requests()[0].header("idempotency-key"));
        }
    }
}

#[test]
fn a_key_is_kept_until_its_own_outcome_is_known() {
    let busy = || answer(429, &failure("rate_limit_exceeded", &json!({})));
    let unavailable = answer(503, &failure("service_unavailable", &json!({}))).header("x-should-retry", "true");
    let refusal = answer(502, &failure("upstream_error", &json!({}))).header("x-should-retry", "false");
    let server = serve([stall(), busy(), unavailable, refusal, busy(), good()]);
    let client = client(&server);
    let request = || GenerateRequest::new("a fox").retry(Retry::NONE);
    run(async {
        drop_call(&server, 1, client.images().generate(request())).await;
        for _ in 0..4 {
            client.images().generate(request()).await.unwrap_err();
        }
        client.images().generate(request()).await.unwrap();
    });
    assert_eq!(keys(&server), [0, 0, 0, 0, 1, 2], "a first call that made nothing leaves nothing");
}

#[test]
fn an_image_that_could_not_be_written_can_be_had_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("read-only");
    std::fs::write(&path, "").unwrap();
    let server = serve([good(), good()]);
    let client = client(&server);
    run(async {
        let mut file = tokio::fs::File::open(&path).await.unwrap();
        let target = ImageTarget::writer(&mut file);
        let error = client.images().generate_to("a fox", target).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::File, "{error:?}");
        client.images().generate_to("a fox", folder.path().join("fox")).await.unwrap();
    });
    assert_eq!(keys(&server), [0, 0]);
}

#[test]
fn a_client_without_keys_and_a_request_with_a_key_leave_nothing() {
    let server = serve([stall(), good(), stall(), good()]);
    let keyless = Client::builder().base_url(server.base_url()).api_key(KEY).idempotency_keys(false).build().unwrap();
    let client = client(&server);
    run(async {
        drop_call(&server, 1, keyless.images().generate("a fox")).await;
        keyless.images().generate("a fox").await.unwrap();
        drop_call(&server, 3, client.images().generate(GenerateRequest::new("a fox").idempotency_key("mine"))).await;
        client.images().generate("a fox").await.unwrap();
    });
    let sent: Vec<_> = server.requests().iter().map(|sent| sent.header("idempotency-key").map(str::to_owned)).collect();
    assert!(sent[0].is_none() && sent[1].is_none() && sent[2].as_deref() == Some("mine"), "{sent:?}");
    assert!(sent[3].is_some() && sent[3] != sent[2], "{sent:?}");
}

#[test]
fn a_call_ends_at_its_deadline_with_its_key() {
    let busy = || answer(429, &failure("rate_limit_exceeded", &json!({}))).header("retry-after", "30");
    let folder = tempfile::tempdir().unwrap();
    for first in [stall(), good().stall(4), busy()] {
        let server = serve([first]);
        server.set_default(good());
        let builder = Client::builder().base_url(server.base_url()).api_key(KEY).deadline(PATIENCE);
        let client = builder.build().unwrap();
        let start = Instant::now();
        let error = run(client.images().generate("a fox")).unwrap_err();
        assert!(error.kind() == ErrorKind::Deadline && error.is_timeout() && !error.is_retryable(), "{error:?}");
        assert!(error.message().contains("within 500 ms"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(20), "no wait is longer than the deadline");
        let key = server.requests()[0].header("idempotency-key").map(str::to_owned);
        assert!(key.is_some() && error.idempotency_key() == key.as_deref());
        run(client.images().generate_to("a fox", folder.path().join("fox"))).unwrap();
        assert_eq!(keys(&server), [0, 0]);
    }
}

#[test]
fn a_request_has_its_own_deadline_also_for_files_and_streams() {
    let folder = tempfile::tempdir().unwrap();
    let events = Answer::image_events(1).pace(64, Duration::from_millis(1)).stall(40);
    let server = serve([good().stall(4), stall(), events, stall()]);
    let builder = Client::builder().base_url(server.base_url()).api_key(KEY).deadline(Duration::from_secs(60));
    let client = builder.build().unwrap();
    let request = || GenerateRequest::new("a fox").deadline(PATIENCE);
    let errors = run(async {
        let images = client.images();
        let edit = EditRequest::new("a hat").image(Input::from_bytes(png(16, 16, true)));
        [
            images.generate_to(request(), folder.path().join("fox")).await.unwrap_err(),
            images.edit(edit.deadline(PATIENCE)).await.unwrap_err(),
            images.generate_stream(request()).await.unwrap().collect_image().await.unwrap_err(),
            images.generate_stream(request()).await.unwrap_err(),
        ]
    });
    for (error, request) in errors.iter().zip(server.requests()) {
        assert_eq!(error.kind(), ErrorKind::Deadline, "{error:?}");
        assert_eq!(error.idempotency_key(), request.header("idempotency-key"));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no part of an image stays");
}
