//! Requests that are odd but clear: `null` in place of an absent field, objects in the brackets of a form, names in
//! capitals, `HEAD`, and addresses that were probably meant otherwise.

use serde_json::{Value, json};

use crate::edits::data_url;
use crate::kit::{Account, Call, FakeUpstream, Form, Gateway, image_specimen, request};

const ADMIN_TOKEN: &str = "0123456789abcdef0123456789abcdef0123";

/// The fields of the provider's image operations that this API does not serve.
const UNSERVED: [&str; 6] = ["complexity", "frame_count", "frame_duration_ms", "markup", "style", "svg"];
/// Those that it serves and that may be absent.
const OPTIONAL: [&str; 13] = [
    "n",
    "size",
    "quality",
    "output_format",
    "output_compression",
    "background",
    "moderation",
    "stream",
    "partial_images",
    "user",
    "safety_identifier",
    "response_format",
    "input_fidelity",
];

/// Models with an object field, of which one passes on whatever it does not know.
const MODELS: &str = "[[models]]\nid = \"vector-1\"\n[[models.fields]]\nname = \"svg\"\nkind = \"object\"\n\
                      [[models]]\nid = \"open-1\"\npassthrough = true\n";

fn edit_body(with: Value) -> Value {
    let image = data_url(&image_specimen("png"));
    let mut body = request(json!({"images": [{"image_url": image}], "mask": null}));
    body.as_object_mut().expect("an object").append(&mut with.as_object().expect("an object").clone());
    body
}

#[test]
fn null_is_absence_in_every_optional_field_of_the_provider() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let nulls: Value = UNSERVED.iter().chain(&OPTIONAL).map(|name| ((*name).to_owned(), Value::Null)).collect();
    for (path, body) in [("/v1/images/generations", request(nulls.clone())), ("/v1/images/edits", edit_body(nulls))] {
        let call = Call::post(path).key(gateway.secret()).json(&body).without_document_check();
        call.send(gateway.address()).ok_json();
    }
    for attempt in upstream.received_attempts() {
        let sent = if attempt.parts.is_empty() { attempt.json() } else { attempt.fields() };
        for name in UNSERVED {
            assert!(sent.get(name).is_none_or(Value::is_null), "{name}: {sent}");
        }
    }
    // The provider's `model` is optional; here its absence is told as one.
    let error = gateway.call(json!({"model": null})).without_document_check().send(gateway.address()).error_object(400);
    assert_eq!((&error["param"], &error["reason"]), (&json!("model"), &json!("missing_required_parameter")));
    for (name, value) in [("style", json!("vivid")), ("svg", json!({})), ("strange", Value::Null)] {
        for (path, body) in [
            ("/v1/images/generations", request(json!({name: value}))),
            ("/v1/images/edits", edit_body(json!({name: value}))),
        ] {
            let call = Call::post(path).key(gateway.secret()).json(&body).without_document_check();
            let error = call.send(gateway.address()).error_object(400);
            assert_eq!((&error["param"], &error["reason"]), (&json!(name), &json!("unknown_parameter")), "{path}");
        }
    }
}

#[test]
fn null_is_absence_in_a_tool() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream).with_responses_protocol()]);
    let mut tool = json!({"type": "image_generation", "action": null, "model": null, "input_image_mask": null});
    for name in UNSERVED.iter().chain(&["size", "quality", "background", "moderation", "partial_images"]) {
        tool[*name] = Value::Null;
    }
    let body = json!({"model": "gpt-5", "input": "a cube", "tools": [tool]});
    let call = Call::post("/v1/responses").key(gateway.secret()).json(&body).without_document_check();
    call.send(gateway.address()).ok_json();
}

#[test]
fn a_form_may_state_an_object_in_brackets() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with(MODELS, &[Account::for_upstream("drawing", &upstream)]);
    let form =
        |model: &str| Form::new().text("model", model).text("prompt", "red").file("image[]", &image_specimen("png"));
    let parts = [("svg[model]", "x"), ("svg[reasoning][effort]", "low"), ("svg[tags][]", "a"), ("svg[tags][]", "b")];
    let stated = |form: Form| parts.iter().fold(form, |form, (name, text)| form.text(name, text));
    gateway.edit(stated(form("vector-1"))).ok_json();
    let sent = upstream.received_attempts()[0].fields();
    let svg: Value = serde_json::from_str(sent["svg"].as_str().expect("a text")).expect("JSON");
    assert_eq!(svg, json!({"model": "x", "reasoning": {"effort": "low"}, "tags": ["a", "b"]}));
    for (model, name, reason) in [
        ("gpt-image-2", "svg[model]", "unknown_parameter"),
        ("vector-1", "style[model]", "unknown_parameter"),
        ("vector-1", "svg[model", "unknown_parameter"),
    ] {
        let error = gateway.edit(form(model).text(name, "x")).error_object(400);
        assert_eq!(error["reason"], reason, "{model} {name}: {error}");
    }
    for (first, second) in [("svg[model]", "svg[model]"), ("svg", "svg[model]"), ("svg[a]", "svg[a][b]")] {
        let error = gateway.edit(form("vector-1").text(first, "{}").text(second, "y")).error_object(400);
        assert_eq!(error["param"], second, "{first}: {error}");
    }
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn the_names_of_parameters_have_no_case() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let image = || [std::sync::Arc::new(image_specimen("png").to_vec())];
    for disposition in [
        "content-disposition: form-data; NAME=\"image\"; FILENAME=\"a.png\"",
        "Content-Disposition: Form-Data; Name=image; FileName=a.png",
        "content-disposition: form-data; filename=\"A;NAME=x.png\"; nAmE=\"image\"",
    ] {
        let form = Form::new().text("model", "gpt-image-2").text("prompt", "A; NAME=\"B\"").part(disposition, image());
        gateway.edit(form).ok_json();
    }
    assert_eq!(upstream.attempt_count(), 3);
}

#[test]
fn head_is_answered_wherever_get_is() {
    let upstream = FakeUpstream::start();
    let accounts = [Account::for_upstream("only", &upstream)];
    let gateway =
        Gateway::with_secrets("admin_token = { env = \"IT_ADMIN\" }", &accounts, &[("IT_ADMIN", ADMIN_TOKEN)]);
    let (key, admin) = (gateway.secret(), ADMIN_TOKEN);
    for (path, secret) in [
        ("/v1/models", key),
        ("/v1/models/gpt-image-2", key),
        ("/v1/models/nothing", key),
        ("/v1/images/models", key),
        ("/v1/models", "sk-wrong"),
        ("/admin/v1/keys", admin),
        ("/admin/v1/me", "wrong"),
        ("/admin/v1/records", admin),
        ("/healthz", key),
        ("/readyz", key),
        ("/openapi.json", key),
        ("/sign-in", key),
        ("/nowhere", key),
        ("/mcp", key),
        ("/v1/images/generations", key),
    ] {
        let get = Call::get(path).key(secret).without_document_check().send(gateway.address());
        let head = Call::head_of(path).key(secret).without_document_check().send(gateway.address());
        assert_eq!((head.status, head.body.len()), (get.status, 0), "{path}");
        let names = |answer: &crate::kit::Answer| {
            let varying = ["date", "x-request-id", "set-cookie", "content-length"];
            let headers = answer.headers.iter().filter(|(name, _)| !varying.contains(&name.as_str()));
            headers.cloned().collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(names(&head), names(&get), "{path}");
        if path.starts_with("/v1/models") {
            assert_eq!(head.header("content-length"), get.header("content-length"), "{path}");
        }
    }
    let metrics = Call::head_of("/metrics").without_document_check().send(gateway.metrics_address());
    assert_eq!((metrics.status, metrics.body.len()), (200, 0));
}

#[test]
fn an_address_that_does_not_exist_says_what_was_probably_meant() {
    let gateway = Gateway::simulated();
    for (method, path, expected) in [
        ("POST", "/v1/v1/images/generations", "Did you mean POST /v1/images/generations?"),
        ("POST", "/images/generations", "The base URL of the API ends in '/v1'."),
        ("GET", "/models", "Did you mean GET /v1/models?"),
        ("POST", "/v1/images/generation", "Did you mean POST /v1/images/generations?"),
        ("POST", "/v1/images/variations", "no variations"),
        ("POST", "/v1/chat/completions", "no chat"),
        ("POST", "/chat/completions", "no chat"),
        ("POST", "/v1/responses/compact", "compact"),
        ("GET", "/v1/responses/resp_1", "Idempotency-Key"),
        ("POST", "/", "ends in '/v1'"),
        ("GET", "/v1", "ends in '/v1'"),
    ] {
        let answer =
            Call::with_method(method, path).key(gateway.secret()).without_document_check().send(gateway.address());
        let error = answer.error_object(404);
        assert_eq!(error["code"], "unknown_url");
        let message = error["message"].as_str().expect("a message");
        assert!(message.starts_with(&format!("Invalid URL ({method} {path}).")), "{message}");
        assert!(message.contains(expected), "{message}");
    }
    let error = Call::get("/v1/strange").without_document_check().send(gateway.address()).error_object(404);
    assert_eq!(error["message"], "Invalid URL (GET /v1/strange).");
}
