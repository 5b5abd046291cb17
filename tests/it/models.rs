//! `GET /v1/models` and `GET /v1/models/{id}`: shapes, where the text models come from, and the image models that an
//! operator adds.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::kit::{Account, Call, FakeUpstream, Form, Gateway, eventually, image_specimen};

/// An image model of the operator's own.
const SKETCH: &str = "
[[models]]
id = \"sketch-1\"
sizes = [\"auto\", \"1024x1024\"]
qualities = [\"draft\", \"high\"]
formats = [\"png\"]
backgrounds = [\"auto\", \"transparent\"]
max_images = 2
max_partial_images = 0
compression = false
";

fn responses_account(name: &str, upstream: &FakeUpstream) -> Account {
    Account::for_upstream(name, upstream).with_responses_protocol()
}

/// The ids that the list holds for this key.
#[track_caller]
fn listed(address: SocketAddr, secret: &str) -> Vec<String> {
    let list = Call::get("/v1/models").key(secret).send(address).ok_json();
    let data = list["data"].as_array().expect("data");
    data.iter().map(|model| model["id"].as_str().expect("an id").to_owned()).collect()
}

/// How many requests for its model list the upstream got.
fn list_requests(upstream: &FakeUpstream) -> usize {
    upstream.received_attempts().iter().filter(|attempt| attempt.path == "/v1/models").count()
}

#[test]
fn the_list_has_the_shape_that_clients_page_through() {
    let gateway = Gateway::simulated();
    let list = Call::get("/v1/models").key(gateway.secret()).send(gateway.address()).ok_json();
    assert_eq!(list["object"], "list");
    for model in list["data"].as_array().expect("data") {
        assert!(model["id"].is_string() && model["owned_by"].is_string() && model["created"].is_u64(), "{model}");
        assert_eq!(model["object"], "model");
    }
    let query = Call::get("/v1/models?client_version=0.169.0").key(gateway.secret()).send(gateway.address());
    assert_eq!(query.ok_json(), list, "a query is ignored and the order is stable");
}

#[test]
fn both_image_ids_can_be_retrieved_whatever_the_list_says() {
    let gateway = Gateway::simulated();
    for id in ["gpt-image-2", "gpt-image-2-2026-04-21"] {
        let model = Call::get(&format!("/v1/models/{id}")).key(gateway.secret()).send(gateway.address()).ok_json();
        assert_eq!((&model["id"], &model["object"]), (&json!(id), &json!("model")));
        assert!(model["created"].is_u64() && model["owned_by"].is_string(), "{model}");
    }
}

#[test]
fn an_unknown_model_is_a_404_that_names_the_parameter() {
    let gateway = Gateway::simulated();
    let answer = Call::get("/v1/models/no-such-model").key(gateway.secret()).send(gateway.address());
    let error = answer.error_object(404);
    assert_eq!(
        (&error["type"], &error["param"], &error["code"]),
        (&json!("invalid_request_error"), &json!("model"), &json!("model_not_found"))
    );
    assert_eq!(answer.should_retry(), Some("false"));
}

#[test]
fn models_need_a_key_and_no_upstream() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for path in ["/v1/models", "/v1/models/gpt-image-2", "/v1/models/no-such-model"] {
        let error = Call::get(path).send(gateway.address()).error_object(401);
        assert_eq!(error["code"], "INVALID_API_KEY");
        drop(Call::get(path).key(gateway.secret()).send(gateway.address()));
    }
    assert_eq!(upstream.accepted(), 0);
}

#[test]
fn text_models_come_from_the_accounts_of_the_callers_group_and_tell_nothing_else_of_them() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token("sk-upstream-one", "models=gpt-5.5,b,gpt-image-9,text-embedding-3-small");
    upstream.always_for_token("sk-upstream-two", "models=a,b");
    upstream.always_for_token("sk-upstream-other", "models=secret-1");
    let accounts = [
        responses_account("one", &upstream),
        responses_account("two", &upstream),
        responses_account("other", &upstream).with_line("groups = [\"team\"]"),
        Account::for_upstream("drawing", &upstream),
    ];
    let gateway = Gateway::with("[[groups]]\nname = \"team\"\n", &accounts);
    let answer = Call::get("/v1/models").key(gateway.secret()).send(gateway.address());
    let list = answer.ok_json();
    let expected = |id: &str| json!({"id": id, "object": "model", "created": 1_760_000_000, "owned_by": "imagate"});
    assert_eq!(list, json!({"object": "list", "data": [expected("a"), expected("b"), expected("gpt-5.5")]}));
    let one = Call::get("/v1/models/b").key(gateway.secret()).send(gateway.address()).ok_json();
    assert_eq!(one, expected("b"));
    let error = Call::get("/v1/models/secret-1").key(gateway.secret()).send(gateway.address()).error_object(404);
    assert_eq!(error["code"], "model_not_found");
    let asked: Vec<String> = upstream.received_attempts().into_iter().map(|attempt| attempt.token).collect();
    assert_eq!((asked.len(), asked.contains(&"sk-upstream-other".to_owned())), (2, false), "{asked:?}");
}

#[test]
fn one_upstream_request_serves_all_callers_who_ask_at_once() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token("sk-upstream-one", "gate=open models=a");
    let gateway = Gateway::with("", &[responses_account("one", &upstream)]);
    let (address, secret) = (gateway.address(), gateway.secret().to_owned());
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let secret = secret.clone();
            std::thread::spawn(move || listed(address, &secret))
        })
        .collect();
    upstream.wait_until("the request for the list came", |attempts| !attempts.is_empty());
    upstream.open_gate("open");
    for caller in callers {
        assert_eq!(caller.join().expect("an answer"), ["a"]);
    }
    assert_eq!((listed(address, &secret), list_requests(&upstream)), (vec!["a".to_owned()], 1));
}

#[test]
fn an_account_that_fails_only_leaves_its_models_out() {
    let scripts =
        ["status=401", "status=500", "models=huge", "body=html", "body=none", "cut=50%", "hang-up", "stall=head"];
    let upstream = FakeUpstream::start();
    let mut accounts = vec![responses_account("good", &upstream)];
    upstream.always_for_token("sk-upstream-good", "models=a");
    for (number, script) in scripts.iter().enumerate() {
        let account = responses_account(&format!("bad{number}"), &upstream);
        upstream.always_for_token(&account.token, script);
        accounts.push(account);
    }
    let gateway = Gateway::with("", &accounts);
    assert_eq!(listed(gateway.address(), gateway.secret()), ["a"]);
    assert_eq!(listed(gateway.address(), gateway.secret()), ["a"]);
    assert_eq!(list_requests(&upstream), scripts.len() + 1, "no account is asked twice");
    eventually("the log says which account gave no models", || {
        gateway.output().contains("the models of an account could not be listed").then_some(())
    });
    assert!(!gateway.output().contains("canary"), "{}", gateway.output());
    // A model list that failed does not change the state of its account.
    assert_eq!(gateway.account("bad0")["state"], gateway.account("good")["state"]);
}

#[test]
fn configured_text_models_are_listed_in_their_order_without_an_upstream_request() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("text_models = [\"z\", \"a\"]", &[responses_account("one", &upstream)]);
    assert_eq!(listed(gateway.address(), gateway.secret()), ["z", "a"]);
    assert_eq!(upstream.accepted(), 0);
}

#[test]
fn an_added_image_model_is_served_by_its_own_rules_and_found_by_its_id() {
    let upstream = FakeUpstream::start();
    let gateway =
        Gateway::with(SKETCH, &[Account::for_upstream("drawing", &upstream), responses_account("talking", &upstream)]);
    let model = Call::get("/v1/models/sketch-1").key(gateway.secret()).send(gateway.address()).ok_json();
    assert_eq!((&model["id"], upstream.accepted()), (&json!("sketch-1"), 0));

    let asked =
        json!({"model": "sketch-1", "size": "1024x1024", "quality": "draft", "background": "transparent", "n": 2});
    let answer = gateway.call(asked.clone()).without_document_check().send(gateway.address()).ok_json();
    assert_eq!((&answer["model"], &answer["quality"]), (&json!("sketch-1"), &json!("draft")));
    let sent = upstream.received_attempts()[0].json();
    for (name, value) in asked.as_object().expect("fields") {
        assert_eq!(sent[name], *value, "{name} reaches the upstream as it was sent");
    }
    let form = Form::new().text("model", "sketch-1").text("prompt", "red").text("quality", "high");
    let edited = gateway.edit(form.file("image[]", &image_specimen("png")));
    assert_eq!(edited.ok_json()["model"], "sketch-1");
    assert_eq!(gateway.final_records(2)[0]["quality"], "draft");
}

#[test]
fn an_added_image_model_is_held_to_its_rules_before_anything_is_sent() {
    let upstream = FakeUpstream::start();
    let gateway =
        Gateway::with(SKETCH, &[Account::for_upstream("drawing", &upstream), responses_account("talking", &upstream)]);
    for (name, value) in
        [("size", json!("1536x1024")), ("quality", json!("low")), ("output_format", json!("webp")), ("n", json!(3))]
    {
        let mut with = json!({"model": "sketch-1"});
        with[name] = value.clone();
        let error = gateway.generate(with.clone()).error_object(400);
        assert_eq!(error["param"], name, "{error}");
        if name == "n" {
            continue;
        }
        with["type"] = json!("image_generation");
        let body: Value = json!({"model": "gpt-5.5", "input": "red", "tools": [with]});
        let error =
            Call::post("/v1/responses").key(gateway.secret()).json(&body).send(gateway.address()).error_object(400);
        assert_eq!(error["param"], format!("tools[0].{name}"), "{error}");
    }
    let error = gateway.generate(json!({"model": "sketch-2"})).error_object(400);
    assert_eq!(error["param"], "model");
    assert!(error["message"].as_str().is_some_and(|message| message.ends_with("and 'sketch-1'.")), "{error}");
    assert_eq!(upstream.accepted(), 0);
}
