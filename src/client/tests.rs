//! Tests of calls against a scripted server.

#[cfg(feature = "admin")]
mod admin;
#[cfg(not(target_arch = "wasm32"))]
mod dropped;
mod edits;
mod errors;
mod later;
#[cfg(not(target_arch = "wasm32"))]
mod lost;
#[cfg(not(target_arch = "wasm32"))]
mod notices;
mod partial;
#[cfg(not(target_arch = "wasm32"))]
mod saved;
mod streams;
pub(super) mod test_images;
mod transport;

use std::time::Duration;

use serde_json::{Value, json};

use super::session::{CallOptions, TimeLimit};
use super::{AnswerMetadata, Client, EditRequest, Error, ErrorKind, GenerateRequest, Images, Retry};
use crate::testing::{Answer, ReceivedRequest, StubServer};

const KEY: &str = "sk-img-test-0123456789";

pub(super) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(super) fn serve(script: impl IntoIterator<Item = Answer>) -> StubServer {
    StubServer::start(script).unwrap()
}

/// Returns an answer of JSON that does not state its type.
pub(super) fn answer(status: u16, body: &Value) -> Answer {
    Answer::new(status, body.to_string())
}

/// Returns the method and the path of a request.
pub(super) fn line(request: &ReceivedRequest) -> String {
    format!("{} {}", request.method(), request.path())
}

/// Returns a base URL at which nothing listens.
fn unused_base_url() -> String {
    serve([]).base_url()
}

pub(super) fn client(server: &StubServer) -> Client {
    Client::new(&server.base_url(), KEY).unwrap()
}

fn generate(server: &StubServer) -> Result<Images, Error> {
    run(client(server).images().generate("a fox"))
}

/// Returns an answer with one image, whose bytes are `hello`.
fn image() -> Value {
    json!({"created": 1, "data": [{"b64_json": "aGVsbG8="}]})
}

fn failure(code: &str, extra: &Value) -> Value {
    let mut error = json!({"message": "It failed.", "type": "server_error", "param": null, "code": code});
    error.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    json!({ "error": error })
}

#[test]
fn an_image_has_the_metadata_of_its_answer() {
    let server = serve([answer(200, &image()).header("x-request-id", "r-1").header("x-imagate-simulated", "true")]);
    let images = generate(&server).unwrap();
    assert_eq!(images.first().bytes().unwrap(), b"hello");
    assert_eq!((images.len(), images.request_id(), images.is_simulated()), (1, Some("r-1"), true));
    let request = server.requests().remove(0);
    assert_eq!(line(&request), "POST /v1/images/generations");
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
    assert_eq!(request.header("user-agent"), Some(concat!("imagate/", env!("CARGO_PKG_VERSION"))));
    assert_eq!((request.header("api-version"), request.header("x-stainless-retry-count")), (None, None));
    assert_eq!(request.json()["prompt"], "a fox");
}

#[test]
fn an_estimate_is_asked_for_with_the_body_of_the_request() {
    let refusal = failure("insufficient_quota", &json!({"limit": "images_per_day", "limit_scope": "user"}));
    let body = json!({"object": "image.cost_estimate", "model": "gpt-image-2", "images": 1, "size": "auto",
        "quality": "auto", "max_cost_usd": 0.25, "cost_basis": "estimated", "price_version": "v", "later": 1,
        "refusal": refusal["error"]});
    let server = serve([answer(200, &body)]);
    let estimate = run(client(&server).images().estimate("a fox")).unwrap();
    assert_eq!((estimate.max_cost_usd, estimate.extra["later"].as_u64()), (Some(0.25), Some(1)));
    assert_eq!(estimate.refusal.unwrap().limit_scope.as_deref(), Some("user"));
    let request = server.requests().remove(0);
    assert_eq!((&*line(&request), &request.json()["prompt"]), ("POST /v1/images/estimate", &json!("a fox")));
}

#[test]
fn an_image_is_written_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve([answer(200, &image())]);
    let path = run(async {
        let images = client(&server).images().generate("a fox").await?;
        images.first().write_to(folder.path().join("fox.png")).await
    });
    assert_eq!(std::fs::read(path.unwrap()).unwrap(), b"hello");
}

#[test]
fn an_invalid_parameter_is_named_and_the_request_is_not_sent_again() {
    let body = failure(
        "invalid_request_error",
        &json!({"param": "size", "reason": "invalid_value", "type": "invalid_request_error"}),
    );
    let server = serve([answer(400, &body).header("x-request-id", "r-2").header("x-should-retry", "false")]);
    let error = generate(&server).unwrap_err();
    assert_eq!((error.status(), error.code(), error.param()), (Some(400), Some("invalid_request_error"), Some("size")));
    assert_eq!(
        (error.reason(), error.request_id(), error.message()),
        (Some("invalid_value"), Some("r-2"), "It failed.")
    );
    assert!(error.is_invalid_request() && !error.is_retryable() && !error.is_rate_limited());
    assert_eq!(error.kind(), ErrorKind::Answer);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_usage_limit_states_when_it_resets() {
    let body = failure("usage_limit_reached", &json!({"type": "usage_limit_reached", "resets_in_seconds": 3600}));
    let server = serve([answer(429, &body)]);
    let error = generate(&server).unwrap_err();
    assert_eq!(error.resets_in(), Some(Duration::from_hours(1)));
    assert!(error.is_usage_limit() && !error.is_rate_limited() && !error.is_retryable());
}

#[test]
fn a_retry_has_the_retry_count_header() {
    let busy = answer(503, &failure("service_unavailable", &json!({}))).header("x-should-retry", "true");
    let server = serve([busy, answer(200, &image())]);
    assert_eq!(generate(&server).unwrap().len(), 1);
    let counts: Vec<_> =
        server.requests().iter().map(|request| request.header("x-stainless-retry-count").map(str::to_owned)).collect();
    assert_eq!(counts, [None, Some("1".to_owned())]);
}

#[test]
fn all_attempts_of_a_call_have_one_idempotency_key() {
    let busy = || answer(503, &failure("service_unavailable", &json!({}))).header("x-should-retry", "true");
    let server = serve([busy(), answer(200, &image()), answer(200, &image()), answer(200, &image())]);
    let client = client(&server);
    let images = run(client.images().generate("a fox")).unwrap();
    assert_eq!((images.meta().attempts(), images.meta().status()), (2, 200));
    run(client.images().generate("a fox")).unwrap();
    run(client.images().generate(GenerateRequest::new("a fox").idempotency_key("mine"))).unwrap();
    let requests = server.requests();
    let keys: Vec<&str> = requests.iter().map(|request| request.header("idempotency-key").unwrap()).collect();
    assert_eq!((keys[0], keys[3]), (keys[1], "mine"));
    assert_ne!(keys[1], keys[2]);
    assert!(keys[0].len() == 40 && keys[0].starts_with("imagate-"), "{}", keys[0]);
}

#[test]
fn a_key_is_only_added_to_calls_that_are_paid_for() {
    let estimate = json!({"object": "image.cost_estimate", "model": "gpt-image-2", "images": 1, "size": "auto",
        "quality": "auto", "max_cost_usd": null, "cost_basis": "unknown", "price_version": null, "refusal": null});
    let server = serve([answer(200, &estimate), answer(200, &image()), answer(200, &image())]);
    run(client(&server).images().estimate("a fox")).unwrap();
    let builder = Client::builder().base_url(server.base_url()).api_key(KEY).idempotency_keys(false);
    let keyless = builder.build().unwrap();
    run(keyless.images().generate("a fox")).unwrap();
    drop(run(keyless.images().generate_stream("a fox")).unwrap());
    assert_eq!(server.requests().len(), 3);
    for request in server.requests() {
        assert_eq!(request.header("idempotency-key"), None, "{}", line(&request));
    }
}

#[test]
fn a_policy_of_retries_belongs_to_a_client_or_a_request() {
    let busy = || answer(503, &failure("service_unavailable", &json!({}))).header("x-should-retry", "true");
    let server = serve([busy(), busy(), answer(200, &image())]);
    let request = GenerateRequest::new("a fox").retry(Retry::NONE);
    let error = run(client(&server).images().generate(request)).unwrap_err();
    assert_eq!((error.status(), error.meta().map(AnswerMetadata::attempts)), (Some(503), Some(1)));
    let client = Client::builder().base_url(server.base_url()).api_key(KEY).retry(Retry::NONE).build().unwrap();
    run(client.images().generate("a fox")).unwrap_err();
    run(client.images().generate(GenerateRequest::new("a fox").retry(Retry::new()))).unwrap();
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn the_limits_that_are_left_come_with_an_answer() {
    let headers = [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1m0s"),
        ("x-ratelimit-remaining-images", "7"),
        ("x-imagate-budget-remaining-usd", "12.5"),
    ];
    let reaction = headers.iter().fold(answer(200, &image()), |reaction, (name, value)| reaction.header(name, value));
    let server = serve([reaction, answer(200, &image())]);
    let images = generate(&server).unwrap();
    let (requests, images_left) = (images.meta().request_limit().unwrap(), images.meta().image_limit().unwrap());
    let expected = (Some(60), Some(59), Some(Duration::from_secs(60)));
    assert_eq!((requests.limit, requests.remaining, requests.resets_in), expected);
    assert_eq!((images_left.limit, images_left.remaining, images_left.resets_in), (None, Some(7), None));
    assert_eq!(images.meta().budget_remaining_usd(), Some(12.5));
    assert_eq!(images.meta().header("X-RateLimit-Limit-Requests"), Some("60"));
    let meta = generate(&server).unwrap().meta().clone();
    assert_eq!((meta.request_limit(), meta.image_limit(), meta.budget_remaining_usd()), (None, None, None));
}

#[test]
fn an_overloaded_service_is_asked_again_if_it_allows_that_or_states_a_wait() {
    let busy = || answer(429, &failure("rate_limit_exceeded", &json!({})));
    let server = serve([busy().header("x-should-retry", "true"), answer(200, &image())]);
    let images = generate(&server).unwrap();
    assert_eq!(
        (images.into_iter().map(|image| image.bytes().unwrap()).collect::<Vec<_>>(), server.requests().len()),
        (vec![b"hello".to_vec()], 2)
    );
    let server = serve([busy().header("retry-after", "0"), answer(200, &image())]);
    assert_eq!((generate(&server).unwrap().meta().attempts(), server.requests().len()), (2, 2));
    let server = serve([busy()]);
    let error = generate(&server).unwrap_err();
    assert!(error.is_rate_limited() && error.is_retryable(), "{error:?}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn an_error_page_of_a_proxy_causes_no_retry() {
    for status in [502, 503, 504] {
        let server = serve([Answer::new(status, "<html>gateway time-out</html>"), answer(200, &image())]);
        let error = generate(&server).unwrap_err();
        assert_eq!((error.status(), server.requests().len()), (Some(status), 1));
        assert!(!error.is_retryable());
    }
}

#[test]
fn a_request_is_sent_at_most_three_times() {
    let server = serve(
        [502, 504, 503, 200]
            .map(|status| answer(status, &failure("upstream_error", &json!({}))).header("x-should-retry", "true")),
    );
    let error = generate(&server).unwrap_err();
    assert_eq!((error.status(), server.requests().len()), (Some(503), 3));
    assert!(error.is_retryable());
}

#[test]
fn x_should_retry_false_prevents_a_retry() {
    let body = failure("upstream_error", &json!({"reason": "content_refused"}));
    let server = serve([answer(502, &body).header("x-should-retry", "false"), answer(200, &image())]);
    let error = generate(&server).unwrap_err();
    assert!(error.is_refused() && !error.is_retryable(), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_request_that_may_have_been_charged_is_never_sent_again() {
    for play in [Answer::images(1).close_unanswered(), Answer::images(1).break_off(5)] {
        let server = serve([play, Answer::images(1)]);
        let error = generate(&server).unwrap_err();
        assert!(
            !error.is_retryable() && !error.is_connect() && error.message().contains("may still have been made"),
            "{error:?}"
        );
        assert_eq!((server.requests().len(), server.completions()), (1, 1));
    }
}

#[test]
fn a_timeout_causes_no_retry() {
    let server = serve([Answer::images(1).stall_unanswered(), answer(200, &image())]);
    let request = GenerateRequest::new("a fox").timeout(Duration::from_millis(50));
    let error = run(client(&server).images().generate(request)).unwrap_err();
    assert!(error.is_timeout() && !error.is_retryable(), "{error:?}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn the_time_limit_includes_the_body() {
    let server = serve([answer(200, &image()).stall(5)]);
    let request = GenerateRequest::new("a fox").timeout(Duration::from_millis(50));
    let error = run(client(&server).images().generate(request)).unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
}

#[test]
fn a_failed_connection_is_retryable() {
    let base_url = unused_base_url();
    let client = Client::builder().base_url(&base_url).api_key(KEY).max_retries(0).build().unwrap();
    let error = run(client.images().generate("a fox")).unwrap_err();
    assert!(error.is_connect() && error.is_retryable() && error.status().is_none(), "{error:?}");
    let origin = base_url.strip_suffix("/v1").unwrap();
    assert_eq!(error.message(), format!("the service at {origin} cannot be reached"));
}

#[test]
fn a_redirect_is_not_followed() {
    let other_server = serve([answer(200, &image())]);
    let target = format!("{}/images/generations", other_server.base_url());
    let server = serve([answer(307, &json!({})).header("location", &target)]);
    let error = generate(&server).unwrap_err();
    assert_eq!((error.status(), other_server.requests().len()), (Some(307), 0));
}

#[test]
fn a_success_without_an_image_is_an_error() {
    for body in [
        json!({"created": 1, "data": []}),
        json!({"created": 1, "data": [{"b64_json": ""}]}),
        json!({"data": [{"b64_json": null}]}),
        json!("hi"),
    ] {
        let error = generate(&serve([answer(200, &body)])).unwrap_err();
        assert!(error.status() == Some(200) && !error.is_retryable(), "{body}: {error:?}");
    }
}

#[test]
fn an_error_of_another_shape_keeps_its_known_members() {
    let server =
        serve([answer(418, &json!({"error": {"message": "No.", "code": "teapot"}})).header("x-request-id", "r-3")]);
    let error = generate(&server).unwrap_err();
    assert_eq!(error.to_string(), "No. (status 418, code teapot, request r-3)");
}

#[test]
fn the_key_appears_in_no_output() {
    let body = json!({"error": {"message": format!("Incorrect API key: {KEY}"), "code": null, "param": null, "type": "authentication_error"}});
    let server = serve([answer(401, &body)]);
    let client = client(&server);
    let error = run(client.images().generate("a fox")).unwrap_err();
    assert!(error.is_invalid_key() && error.message() == "Incorrect API key: [redacted]", "{error}");
    let call = client.call(CallOptions::new(TimeLimit::Total(Duration::from_secs(1))));
    let output = format!("{client:?} {:?} {call:?} {error:?} {error}", Client::builder().api_key(KEY));
    assert!(!output.contains(KEY), "{output}");
    let error = Client::new("https://host", "sk-\n-secret").unwrap_err();
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
}

#[test]
fn models_are_listed_and_retrieved() {
    let model = json!({"id": "a/b", "object": "model", "created": 1, "owned_by": "x"});
    let server = serve([answer(200, &json!({"object": "list", "data": [model]})), answer(200, &model)]);
    let client = client(&server);
    assert_eq!(run(client.models().list()).unwrap()[0].id, "a/b");
    assert_eq!(run(client.models().retrieve("a/b")).unwrap().owned_by.as_deref(), Some("x"));
    let lines: Vec<String> = server.requests().iter().map(line).collect();
    assert_eq!(lines, ["GET /v1/models", "GET /v1/models/a%2Fb"]);
}

#[test]
fn image_models_are_listed_with_their_parameters() {
    let parameter = json!({"name": "quality", "type": "enum", "required": false, "operations": ["generations"],
        "values": ["low", "xhigh"]});
    let capabilities = json!({"operations": ["generations"], "supports_streaming": false, "passthrough": true,
        "parameters": [parameter, {"type": "unnamed"}]});
    let model = json!({"id": "next-1", "object": "image_model", "name": "next-1", "capabilities": capabilities,
        "prices": [{"billable": "per_image", "unit": "image", "usd": 0.02}]});
    let answers = [json!({"object": "list", "data": [model, {"name": "b"}, {"id": "c"}]}), json!({"data": 1})];
    let server = serve(answers.map(|body| answer(200, &body)));
    let client = client(&server);
    let models = run(client.models().list_images()).unwrap();
    assert_eq!(models.iter().map(|model| model.id.as_str()).collect::<Vec<_>>(), ["next-1", "c"]);
    assert_eq!((models[0].supports_streaming, models[0].parameters.len()), (Some(false), 1));
    let quality = models[0].parameter("quality").unwrap();
    assert_eq!((quality.kind.as_str(), quality.values.join(" ").as_str()), ("enum", "low xhigh"));
    assert!(models[0].json.member("prices").is_some() && models[1].supports_streaming.is_none());
    assert_eq!(run(client.models().list_images()).unwrap_err().kind(), ErrorKind::Unintelligible);
    assert_eq!(server.requests().iter().map(line).next().unwrap(), "GET /v1/images/models");
}

#[test]
fn models_of_another_service_are_read_as_far_as_they_go() {
    let list = json!({"data": [{"id": "a", "created": "today", "pricing": {"prompt": "0"}}, {"name": "b"}]});
    let server = serve([answer(200, &list), answer(200, &json!({"id": "a"})), answer(200, &json!({"data": 1}))]);
    let client = client(&server);
    let models = run(client.models().list()).unwrap();
    assert_eq!((models.len(), models[0].id.as_str(), models[0].created), (1, "a", None));
    assert_eq!(models[0].json.member("pricing").unwrap().text(), r#"{"prompt":"0"}"#);
    assert_eq!(run(client.models().retrieve("a")).unwrap().owned_by, None);
    assert_eq!(run(client.models().list()).unwrap_err().kind(), ErrorKind::Unintelligible);
}

#[test]
fn the_paths_of_the_api_follow_the_base_url() {
    let script = || [answer(200, &image()), answer(200, &json!({"data": []})), answer(200, &json!({"id": "a b"}))];
    for (path, expected) in
        [("", "/v1"), ("/v1/", "/v1"), ("/v1beta/openai", "/v1beta/openai"), ("/api/v3/", "/api/v3")]
    {
        let server = serve(script());
        let client = Client::new(&server.base_url().replace("/v1", path), KEY).unwrap();
        run(client.images().generate("a fox")).unwrap();
        run(client.models().list()).unwrap();
        run(client.models().retrieve("a b")).unwrap();
        let lines: Vec<String> = server.requests().iter().map(line).collect();
        let line = |method: &str, path: &str| format!("{method} {expected}{path}");
        let expected = [line("POST", "/images/generations"), line("GET", "/models"), line("GET", "/models/a%20b")];
        assert_eq!(lines, expected, "{path}");
    }
}

#[test]
fn a_header_of_the_builder_is_sent_with_each_request() {
    let server = serve([answer(200, &image()), answer(200, &json!({"data": []}))]);
    let builder = Client::builder().base_url(server.base_url()).api_key(KEY).header("OpenAI-Project", "p-1");
    let client = builder.header("user-agent", "mine").build().unwrap();
    run(client.images().generate("a fox")).unwrap();
    run(client.models().list()).unwrap();
    for request in server.requests() {
        assert_eq!((request.header("openai-project"), request.header("user-agent")), (Some("p-1"), Some("mine")));
        assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
    }
}

#[test]
fn a_call_can_move_to_another_thread() {
    fn assert_send<T: Send>(_: T) {}
    let client = Client::new("https://host", KEY).unwrap();
    let images = client.images();
    assert_send(images.generate("a fox"));
    assert_send(images.generate_stream("a fox"));
    assert_send(images.edit(EditRequest::new("a fox")));
    assert_send(images.edit_stream(EditRequest::new("a fox")));
    assert_send(client.models().list());
}
