//! Every shape of an upstream's error, with what it means for the money.

mod refusals;
mod waits;

use super::*;
use serde_json::json;

fn found(code: u16, body: &str) -> Failure {
    status(StatusCode::from_u16(code).expect("a status"), &HeaderMap::new(), body.as_bytes(), is_image_parameter)
}

#[track_caller]
fn check(code: u16, body: &Value, class: Class, cause: &Cause) {
    let found = found(code, &body.to_string());
    assert_eq!((found.class, &found.cause), (class, cause), "{code} {body}");
    assert_eq!(found.status, Some(code));
}

#[track_caller]
fn check_answer(body: &Value, class: Class, cause: &Cause) {
    let found = error_in_answer(body.as_object().expect("an object"), false);
    assert_eq!((found.class, &found.cause), (class, cause), "{body}");
}

#[test]
fn each_status_has_its_class() {
    let plain = json!({"error": {"message": "no", "type": "server_error"}});
    for code in [401, 403] {
        check(code, &plain, Class::N, &Cause::Unreachable);
    }
    for code in [402, 404, 405, 410] {
        check(code, &plain, Class::N, &Cause::Unfit);
    }
    for code in [500, 503] {
        check(code, &plain, Class::F, &Cause::Failed);
        check(code, &json!("oops"), Class::X, &Cause::Broken);
        check(code, &json!({"error": {"message": "no"}, "usage": {"total_tokens": 3}}), Class::X, &Cause::Broken);
    }
    for code in [101, 201, 202, 204, 206, 301, 302, 304, 307, 308, 408, 409, 418, 502, 520, 529] {
        check(code, &plain, Class::X, &Cause::Broken);
    }
    for code in [504, 524] {
        check(code, &plain, Class::X, &Cause::Timeout);
    }
    check(429, &plain, Class::N, &Cause::Throttled { wait: None });
    check(451, &plain, Class::R, &Cause::Refused);
}

#[test]
fn a_rejected_parameter_is_passed_on_without_control_characters() {
    let cause = Cause::Rejected { param: Some("size".to_owned()), message: "Invalid size.".to_owned() };
    check(400, &json!({"error": {"message": "Invalid\r\n size.", "param": "size"}}), Class::R, &cause);
    check(422, &json!({"error": {"message": "Invalid size.", "param": "size"}}), Class::R, &cause);
    check(400, &json!({"message": "Invalid size.", "param": "size", "code": "invalid_value"}), Class::R, &cause);
    let event = json!({"type": "error", "message": "Invalid size.", "param": "size", "code": "invalid_value"});
    check_answer(&event, Class::R, &cause);
}

#[test]
fn a_rejection_that_speaks_of_the_account_is_not_the_callers() {
    for error in [
        json!({"message": "Incorrect API key provided", "code": "invalid_api_key"}),
        json!({"message": "no", "param": "organization"}),
    ] {
        check(400, &json!({ "error": error }), Class::N, &Cause::Unreachable);
    }
    check(413, &json!("<html>"), Class::N, &Cause::Unreachable);
    for message in [
        "Bearer sk-up is wrong",
        "see https://up.example/x",
        "sent to 10.0.0.1",
        "up.internal.example failed",
        "host:8080 failed",
    ] {
        let cause = Cause::Rejected {
            param: Some("size".to_owned()),
            message: "The upstream rejected the parameter 'size'.".to_owned(),
        };
        check(400, &json!({"error": {"message": message, "param": "size"}}), Class::R, &cause);
    }
    let message = "Invalid size '1792x936'. Width and height must both be divisible by 16.";
    let cause = Cause::Rejected { param: Some("size".to_owned()), message: message.to_owned() };
    check(400, &json!({"error": {"message": message, "param": "size"}}), Class::R, &cause);
}

#[test]
fn an_unpaid_account_is_unfit_and_no_window_that_opens_again() {
    let wait = json!({"resets_in_seconds": 60});
    for (code, error) in [
        (429, json!({"message": "m", "type": "insufficient_quota", "param": null, "code": "insufficient_quota"})),
        (429, json!({"message": "m", "type": "insufficient_quota", "code": null, "details": [wait]})),
        (400, json!({"message": "m", "type": "invalid_request_error", "code": "billing_hard_limit_reached"})),
        (400, json!({"message": "m", "type": "billing_limit_user_error", "code": "billing_hard_limit_reached"})),
        (403, json!({"message": "m", "type": "v_api_error", "code": "insufficient_user_quota"})),
        (402, json!({"message": "m", "code": "deactivated_workspace"})),
        (404, json!({"message": "m", "code": "model_not_found"})),
        (403, json!({"message": "m", "code": "unsupported_country_region_territory"})),
    ] {
        check(code, &json!({ "error": error }), Class::N, &Cause::Unfit);
    }
    check_answer(&json!({"error": {"code": "insufficient_quota"}}), Class::N, &Cause::Unfit);
    let paid = json!({"error": {"code": "insufficient_quota"}, "usage": {"total_tokens": 9}});
    check_answer(&paid, Class::X, &Cause::NoImage);
}

#[test]
fn a_whole_answer_without_an_image_is_ambiguous_only_when_it_was_paid() {
    let class = |body: Value| error_in_answer(body.as_object().expect("an object"), false).class;
    assert_eq!(class(json!({"data": []})), Class::F);
    assert_eq!(class(json!({"usage": {"total_tokens": 0}})), Class::F);
    assert_eq!(error_in_answer(&Map::new(), true).class, Class::X);
    assert_eq!(class(json!({"usage": {"total_tokens": 1700}})), Class::X);
    assert_eq!(class(json!({"status": "completed", "output": [], "usage": {"total_tokens": 9}})), Class::X);
    assert_eq!(class(json!({"tool_usage": {"image_gen": {"total_tokens": 9}}})), Class::X);
    assert_eq!(class(json!({"response": {"status": "failed", "usage": {"total_tokens": 9}}})), Class::X);
    assert_eq!(
        class(json!({"response": {"status": "failed", "error": {"code": "server_error"}, "usage": null}})),
        Class::F
    );
    check_answer(&json!({"type": "error", "code": "server_error", "message": "m"}), Class::F, &Cause::Failed);
    check_answer(&json!({"error": "the worker died"}), Class::F, &Cause::Failed);
    check_answer(&json!({"data": [], "error": null}), Class::F, &Cause::NoImage);
    check_answer(
        &json!({"type": "response.completed", "response": {"status": "completed", "output": []}}),
        Class::F,
        &Cause::NoImage,
    );
}
