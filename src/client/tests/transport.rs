//! Tests of calls whose HTTP exchanges a transport of the program carries.

use std::collections::VecDeque;
use std::error::Error as _;
use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::test_images::png;
use super::{KEY, failure, image, run};
use crate::client::reqwest::{self, Request, Response};
use crate::client::{
    Client, EditRequest, Error, ErrorKind, ResponseRequest, Retry, Transport, TransportError, TransportFuture,
};

type SendResult = Result<Response, TransportError>;

/// Answers from a script without a connection, and keeps how it would print each request.
#[derive(Default)]
struct ScriptedTransport {
    script: Mutex<VecDeque<SendResult>>,
    lines: Mutex<Vec<String>>,
    debug_texts: Mutex<Vec<String>>,
}

impl ScriptedTransport {
    fn new(script: impl IntoIterator<Item = SendResult>) -> Arc<Self> {
        Arc::new(Self { script: Mutex::new(script.into_iter().collect()), ..Self::default() })
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

impl Transport for ScriptedTransport {
    fn send<'a>(&'a self, request: Request, _: &'a reqwest::Client) -> TransportFuture<'a> {
        self.lines.lock().unwrap().push(format!("{} {}", request.method(), request.url().path()));
        self.debug_texts.lock().unwrap().push(format!("{request:?}"));
        let attempt = self.script.lock().unwrap().pop_front().expect("an attempt of the script");
        Box::pin(async move { attempt })
    }
}

fn answer(body: &Value) -> Response {
    http::Response::new(body.to_string()).into()
}

fn busy() -> Response {
    let body = failure("service_unavailable", &json!({})).to_string();
    http::Response::builder().status(503).header("x-should-retry", "true").body(body).unwrap().into()
}

fn not_sent() -> TransportError {
    TransportError::not_sent("no route")
}

fn client(transport: &Arc<ScriptedTransport>) -> Client {
    Client::builder().base_url("https://host").api_key(KEY).transport(Arc::clone(transport)).build().unwrap()
}

fn generate(transport: &Arc<ScriptedTransport>) -> Result<usize, Error> {
    run(client(transport).images().generate("a fox")).map(|images| images.len())
}

#[test]
fn each_attempt_of_each_call_passes_through_the_transport() {
    let event = json!({"type": "image_generation.completed", "b64_json": "aGVsbG8="});
    let stream = || http::Response::new(format!("data: {event}\n\n")).into();
    let edit = || EditRequest::new("a hat").image(png(16, 16, false));
    let transport = ScriptedTransport::new(
        [
            busy(),
            answer(&image()),
            answer(&image()),
            stream(),
            stream(),
            answer(&json!({"id": "r", "output": []})),
            busy(),
            answer(&json!({"data": [{"id": "a"}]})),
            answer(&json!({"id": "a"})),
        ]
        .map(Ok),
    );
    run(async {
        let client = client(&transport);
        assert_eq!(client.images().generate("a fox").await.unwrap().meta().attempts(), 2);
        client.images().edit(edit()).await.unwrap();
        client.images().generate_stream("a fox").await.unwrap().collect_image().await.unwrap();
        client.images().edit_stream(edit()).await.unwrap().collect_image().await.unwrap();
        client.responses().create(ResponseRequest::new("m", "hi")).await.unwrap();
        assert_eq!(client.models().list().await.unwrap().len(), 1);
        client.models().retrieve("a").await.unwrap();
    });
    let (generate, edit) = ("POST /v1/images/generations", "POST /v1/images/edits");
    let (respond, list, retrieve) = ("POST /v1/responses", "GET /v1/models", "GET /v1/models/a");
    assert_eq!(transport.lines(), [generate, generate, edit, generate, edit, respond, list, list, retrieve]);
}

#[test]
fn a_transport_can_wrap_the_http_client() {
    struct ObservingTransport(Mutex<Vec<u16>>);
    impl Transport for ObservingTransport {
        fn send<'a>(&'a self, request: Request, http: &'a reqwest::Client) -> TransportFuture<'a> {
            Box::pin(async move {
                let response = http.execute(request).await?;
                self.0.lock().unwrap().push(response.status().as_u16());
                Ok(response)
            })
        }
    }
    let busy = super::answer(503, &failure("service_unavailable", &json!({}))).header("x-should-retry", "true");
    let server = super::serve([busy, super::answer(200, &image())]);
    let wrapper = Arc::new(ObservingTransport(Mutex::default()));
    let builder = Client::builder().base_url(server.base_url()).api_key(KEY).transport(Arc::clone(&wrapper));
    run(builder.build().unwrap().images().generate("a fox")).unwrap();
    assert_eq!(*wrapper.0.lock().unwrap(), [503, 200]);
    let builder = Client::builder().base_url(super::unused_base_url()).api_key(KEY);
    let client = builder.retry(Retry::NONE).transport(Arc::clone(&wrapper)).build().unwrap();
    let error = run(client.images().generate("a fox")).unwrap_err();
    assert!(error.is_connect() && error.message().contains("cannot be reached"), "{error:?}");
}

#[test]
fn a_request_is_sent_again_only_if_the_transport_did_not_send_it() {
    let transport = ScriptedTransport::new([Err(not_sent()), Ok(answer(&image()))]);
    assert_eq!((generate(&transport).unwrap(), transport.lines().len()), (1, 2));
    let transport = ScriptedTransport::new([Err(not_sent()), Err(not_sent()), Err(not_sent()), Ok(answer(&image()))]);
    let error = generate(&transport).unwrap_err();
    assert_eq!((error.kind(), transport.lines().len()), (ErrorKind::Connect, 3));
    assert!(error.source().unwrap().to_string().ends_with(": no route"), "{error:?}");

    let unknown = Err(TransportError::unknown(io::Error::other("cut off")));
    let transport = ScriptedTransport::new([unknown, Ok(answer(&image()))]);
    let error = generate(&transport).unwrap_err();
    assert_eq!((error.kind(), transport.lines().len()), (ErrorKind::Broken, 1));
    assert!(!error.is_retryable() && error.message().contains("may still have been made"), "{error:?}");
}

#[test]
fn a_request_that_is_not_sent_after_a_lost_answer_is_not_retryable() {
    let first = http::Response::builder().header("x-imagate-replayed", "false").body(image().to_string()).unwrap();
    let lost = Err(TransportError::unknown("cut off"));
    let transport = ScriptedTransport::new([Ok(first.into()), lost, Err(not_sent()), Err(not_sent())]);
    let client = client(&transport);
    run(client.images().generate("a fox")).unwrap();
    let error = run(client.images().generate("a fox")).unwrap_err();
    assert_eq!((error.kind(), error.is_connect(), error.is_retryable()), (ErrorKind::Broken, false, false));
    assert!(error.message().ends_with("may have been paid for") && error.idempotency_key().is_some(), "{error}");
    assert_eq!(transport.lines().len(), 4);
}

#[test]
fn the_error_of_a_transport_is_that_of_a_call_about_models() {
    let list = |error: TransportError| {
        let transport = ScriptedTransport::new([Err(error)]);
        let builder = Client::builder().base_url("https://host").api_key(KEY).retry(Retry::NONE);
        let error = run(builder.transport(transport).build().unwrap().models().list()).unwrap_err();
        (error.kind(), error.source().unwrap().to_string())
    };
    assert_eq!(list(not_sent()), (ErrorKind::Connect, "the transport did not send the request: no route".to_owned()));
    let unknown = TransportError::unknown("cut off");
    assert_eq!(list(unknown), (ErrorKind::Broken, "the transport failed: cut off".to_owned()));
}

#[test]
fn a_printed_request_of_a_transport_has_no_key() {
    let transport = ScriptedTransport::new([Ok(answer(&image()))]);
    let builder = Client::builder().base_url("https://host").api_key(KEY).header("api-key", "another-secret");
    let client = builder.transport(Arc::clone(&transport)).build().unwrap();
    run(client.images().generate("a fox")).unwrap();
    let text = transport.debug_texts.lock().unwrap().concat();
    assert!(text.contains("authorization") && text.contains("api-key"), "{text}");
    assert!(!text.contains(KEY) && !text.contains("another-secret"), "{text}");
}
