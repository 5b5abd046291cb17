//! The limits of images and of text models stop an account apart, also after a restart.

use serde_json::json;

use super::{OddFailure, RequestKind};
use crate::kit::{Account, Gateway, VerbatimUpstream};

const WAIT: i64 = 2_586_687;

fn limit() -> String {
    json!({"error": {"type": "usage_limit_reached", "message": "m", "resets_in_seconds": WAIT}}).to_string()
}

/// Lets one kind of work meet a limit: the other kind is served, and the first is refused without a call.
fn check(limited: RequestKind, other: RequestKind, cause: &str) {
    let upstream = VerbatimUpstream::start();
    let account = Account::with_base_url("only", upstream.base_url()).with_responses_protocol();
    let mut gateway = Gateway::with("", &[account]);
    upstream.set_response(429, "content-type: application/json\r\n", limit());
    let send = |gateway: &Gateway, asked: RequestKind| {
        asked.call().key(gateway.secret()).without_document_check().send(gateway.address())
    };
    assert_eq!(send(&gateway, limited).error_object(429)["code"], "usage_limit_reached");
    let account = gateway.account("only");
    assert_eq!((&account["state"], &account["cooling_cause"]), (&json!("cooling_down"), &json!(cause)), "{account}");
    for step in ["at once", "after a restart"] {
        if step == "after a restart" {
            gateway.terminate();
            gateway.start_again();
        }
        let before = upstream.attempt_count();
        let (content_type, body) = other.good_answer();
        upstream.set_answer(content_type, body);
        assert_eq!(send(&gateway, other).status, 200, "{other:?} {step}");
        let error = send(&gateway, limited).error_object(429);
        let told = error["resets_in_seconds"].as_i64().expect("seconds");
        assert!((WAIT - 600..=WAIT).contains(&told), "{limited:?} {step}: {error}");
        assert_eq!(upstream.attempt_count(), before + 1, "{limited:?} {step}");
    }
}

#[test]
fn a_limit_of_texts_does_not_stop_images() {
    check(RequestKind::Response, RequestKind::Tool, "text_exhausted");
}

#[test]
fn a_limit_of_images_does_not_stop_texts() {
    check(RequestKind::Tool, RequestKind::Response, "exhausted");
}

/// The first words of a model are in the error and the record, without the secrets of the account.
#[test]
fn the_first_words_of_a_model_are_told_without_the_secrets_of_the_account() {
    let upstream = VerbatimUpstream::start();
    let account = Account::with_base_url("only", upstream.base_url()).with_token("Qz7wXA9tKpL2mRv5");
    let gateway = Gateway::with("", &[account]);
    let text = "Which style would you like, Qz7wXA9tKpL2mRv5?";
    let chat = json!({"choices": [{"message": {"content": text}}]});
    let row = OddFailure::json(RequestKind::Image, 200, &chat, "text");
    upstream.set_answer("application/json", row.body);
    let error = RequestKind::Image.call().key(gateway.secret()).send(gateway.address()).error_object(502);
    let message = "Upstream request failed: the model wrote \"Which style would you like, ****************?\"";
    assert_eq!((&error["reason"], &error["message"]), (&json!("text_instead_of_image"), &json!(message)));
    let record = &gateway.final_records(1)[0];
    assert_eq!(record["error_detail"], "Which style would you like, ****************?", "{record}");
}
