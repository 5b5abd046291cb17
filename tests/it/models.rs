//! `GET /v1/models` and `GET /v1/models/{id}`: shapes, the two image ids, and what a missing id gets.

use serde_json::json;

use crate::kit::{Call, FakeUpstream, Gateway};

#[test]
fn the_list_has_the_shape_that_clients_page_through() {
    let gateway = Gateway::simulated();
    let list = Call::get("/v1/models").key(gateway.secret()).send(gateway.address()).good();
    assert_eq!(list["object"], "list");
    for model in list["data"].as_array().expect("data") {
        assert!(model["id"].is_string() && model["owned_by"].is_string() && model["created"].is_u64(), "{model}");
        assert_eq!(model["object"], "model");
    }
    let query = Call::get("/v1/models?client_version=0.169.0").key(gateway.secret()).send(gateway.address());
    assert_eq!(query.good(), list, "a query is ignored and the order is stable");
}

#[test]
fn both_image_ids_can_be_retrieved_whatever_the_list_says() {
    let gateway = Gateway::simulated();
    for id in ["gpt-image-2", "gpt-image-2-2026-04-21"] {
        let model = Call::get(&format!("/v1/models/{id}")).key(gateway.secret()).send(gateway.address()).good();
        assert_eq!((&model["id"], &model["object"]), (&json!(id), &json!("model")));
        assert!(model["created"].is_u64() && model["owned_by"].is_string(), "{model}");
    }
}

#[test]
fn an_unknown_model_is_a_404_that_names_the_parameter() {
    let gateway = Gateway::simulated();
    let answer = Call::get("/v1/models/no-such-model").key(gateway.secret()).send(gateway.address());
    let error = answer.error(404);
    assert_eq!(
        (&error["type"], &error["param"], &error["code"]),
        (&json!("invalid_request_error"), &json!("model"), &json!("model_not_found"))
    );
    assert_eq!(answer.should_retry(), Some("false"));
}

#[test]
fn models_need_a_key_and_no_upstream() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::before(&upstream);
    for path in ["/v1/models", "/v1/models/gpt-image-2", "/v1/models/no-such-model"] {
        let error = Call::get(path).send(gateway.address()).error(401);
        assert_eq!(error["code"], "INVALID_API_KEY");
        drop(Call::get(path).key(gateway.secret()).send(gateway.address()));
    }
    assert_eq!(upstream.accepted(), 0);
}
