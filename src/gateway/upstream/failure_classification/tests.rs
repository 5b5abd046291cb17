//! Tests of the known forms of an upstream's error: the class and the cause of each.

mod answers;
mod refusals;
mod statements;
mod waits;

use super::*;
use crate::gateway::store::AttemptClass;
use serde_json::json;

/// The scopes of an image job at an upstream with the image endpoints, of one as a response with the image tool, and of a
/// response.
const IMAGES: FaultScope<'static> = FaultScope::for_images(false, &NO_PHRASES);
const IMAGE_TOOL: FaultScope<'static> = FaultScope::for_image_tool(false, &NO_PHRASES);
const RESPONSE: FaultScope<'static> = FaultScope::for_response(&NO_PHRASES);
static NO_PHRASES: FailurePhrases = FailurePhrases { refusals: Vec::new(), limits: Vec::new() };

fn classify_image_error(code: u16, body: &str) -> AttemptFailure {
    classify_status(
        StatusCode::from_u16(code).expect("a valid status"),
        &HeaderMap::new(),
        serde_json::from_str(body).ok().as_ref(),
        IMAGES,
    )
}

#[track_caller]
fn check(code: u16, body: &Value, class: AttemptClass, cause: &FailureCause) {
    let failure = classify_image_error(code, &body.to_string());
    assert_eq!((failure.class(), &failure.cause), (class, cause), "{code} {body}");
    assert_eq!(failure.status, Some(code));
}

#[track_caller]
fn check_answer(body: &Value, class: AttemptClass, cause: &FailureCause) {
    let failure = classify_imageless_answer(body.as_object().expect("an object"), false, IMAGES);
    assert_eq!((failure.class(), &failure.cause), (class, cause), "{body}");
}

#[test]
fn each_status_has_its_class() {
    let plain = json!({"error": {"message": "no", "type": "server_error"}});
    check(401, &plain, AttemptClass::NothingDone, &FailureCause::CredentialsRefused);
    check(402, &plain, AttemptClass::NothingDone, &FailureCause::AccountUnpaid);
    check(403, &plain, AttemptClass::NothingDone, &FailureCause::ForbiddenToAccount);
    for code in [404, 405, 410] {
        check(code, &plain, AttemptClass::NothingDone, &FailureCause::NotOffered);
    }
    for code in [500, 503] {
        check(code, &plain, AttemptClass::ReportedFailed, &FailureCause::Failed);
        check(code, &json!("oops"), AttemptClass::MaybePaid, &FailureCause::Broken);
        check(
            code,
            &json!({"error": {"message": "no"}, "usage": {"total_tokens": 3}}),
            AttemptClass::MaybePaid,
            &FailureCause::Broken,
        );
    }
    for code in [101, 301, 302, 304, 307, 308, 408, 409, 418, 502, 520] {
        check(code, &plain, AttemptClass::MaybePaid, &FailureCause::Broken);
    }
    for code in [504, 524] {
        check(code, &plain, AttemptClass::MaybePaid, &FailureCause::Timeout);
    }
    for code in [429, 529] {
        check(code, &plain, AttemptClass::NothingDone, &FailureCause::Throttled { wait: None });
    }
    check(451, &plain, AttemptClass::Refused, &FailureCause::ContentRefused);
}

#[test]
fn a_rejected_parameter_is_passed_on_without_control_characters() {
    let cause = FailureCause::InvalidRequest { param: Some("size".to_owned()), message: "Invalid size.".to_owned() };
    check(400, &json!({"error": {"message": "Invalid\r\n size.", "param": "size"}}), AttemptClass::Refused, &cause);
    check(422, &json!({"error": {"message": "Invalid size.", "param": "size"}}), AttemptClass::Refused, &cause);
    check(
        400,
        &json!({"message": "Invalid size.", "param": "size", "code": "invalid_value"}),
        AttemptClass::Refused,
        &cause,
    );
    let event = json!({"type": "error", "message": "Invalid size.", "param": "size", "code": "invalid_value"});
    check_answer(&event, AttemptClass::Refused, &cause);
}

#[test]
fn a_rejection_about_the_account_is_not_the_callers_fault() {
    for error in [
        json!({"message": "Incorrect API key provided", "code": "invalid_api_key"}),
        json!({"message": "no", "param": "organization"}),
    ] {
        check(400, &json!({ "error": error }), AttemptClass::NothingDone, &FailureCause::AccountFault);
    }
    for message in [
        "Bearer sk-up is wrong",
        "see https://up.example/x",
        "sent to 10.0.0.1",
        "up.internal.example failed",
        "host:8080 failed",
    ] {
        let cause = FailureCause::InvalidRequest {
            param: Some("size".to_owned()),
            message: "The upstream rejected the parameter 'size'.".to_owned(),
        };
        check(400, &json!({"error": {"message": message, "param": "size"}}), AttemptClass::Refused, &cause);
    }
    let message = "Invalid size '1792x936'. Width and height must both be divisible by 16.";
    let cause = FailureCause::InvalidRequest { param: Some("size".to_owned()), message: message.to_owned() };
    check(400, &json!({"error": {"message": message, "param": "size"}}), AttemptClass::Refused, &cause);
}

/// Returns the class and the cause of an error that answers a response request. The caller wrote the body of such a
/// request.
fn classify_response_error(code: u16, body: &str) -> (AttemptClass, FailureCause) {
    let status_code = StatusCode::from_u16(code).expect("a valid status");
    let body = serde_json::from_str(body).ok();
    let failure = classify_status(status_code, &HeaderMap::new(), body.as_ref(), RESPONSE);
    (failure.class(), failure.cause)
}

#[test]
fn a_page_of_a_firewall_is_not_about_the_account() {
    for body in ["<html>blocked</html>", "", "\"text\""] {
        assert_eq!(classify_image_error(403, body).cause, FailureCause::BlockedByFirewall, "{body}");
        assert_eq!(classify_image_error(405, body).cause, FailureCause::BlockedByFirewall, "{body}");
        assert_eq!(
            classify_response_error(403, body),
            (AttemptClass::NothingDone, FailureCause::BlockedByFirewall),
            "{body}"
        );
    }
}

#[test]
fn an_unknown_model_or_file_of_a_response_is_not_the_accounts_fault() {
    let unknown = json!({"error": {"message": "The model `gpt-5.5-typo` does not exist or you do not have access to it.",
        "type": "invalid_request_error", "param": null, "code": "model_not_found"}});
    for code in [400, 403, 404] {
        assert_eq!(
            classify_response_error(code, &unknown.to_string()),
            (AttemptClass::NothingDone, FailureCause::UnknownModel),
            "{code}"
        );
        check(code, &unknown, AttemptClass::NothingDone, &FailureCause::NotOffered);
    }
    let message = "Vector store with id [vs_1] not found.";
    let store = json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": null}});
    let bound = FailureCause::BoundElsewhere { kind: BoundContext::Stored, param: None, message: message.to_owned() };
    assert_eq!(classify_response_error(404, &store.to_string()), (AttemptClass::NothingDone, bound));
    let account = json!({"error": {"message": "No such deployment in your project.", "code": null}});
    assert_eq!(
        classify_response_error(404, &account.to_string()),
        (AttemptClass::NothingDone, FailureCause::AccountFault)
    );
}

#[test]
fn an_oversized_request_does_not_limit_the_account() {
    let error = |message: &str| json!({"error": {"message": message, "type": "tokens", "param": null, "code": "rate_limit_exceeded"}});
    let large = error(
        "Request too large for gpt-5.5 in organization org-1 on tokens per min (TPM): Limit 30000, Requested 50000. \
         The input or output tokens must be reduced in order to run successfully.",
    );
    check(
        429,
        &large,
        AttemptClass::NothingDone,
        &FailureCause::RejectedByAccount { message: TOO_LARGE_MESSAGE.to_owned() },
    );
    check_answer(
        &large,
        AttemptClass::NothingDone,
        &FailureCause::RejectedByAccount { message: TOO_LARGE_MESSAGE.to_owned() },
    );
    let busy =
        error("Rate limit reached for gpt-5.5 on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.");
    check(429, &busy, AttemptClass::NothingDone, &FailureCause::Throttled { wait: None });
}

#[test]
fn a_rejection_without_a_parameter_is_declined() {
    let declined = |message: &str| FailureCause::RejectedByAccount { message: message.to_owned() };
    for code in [400, 413, 415, 422] {
        check(
            code,
            &json!({"error": {"message": "too many pixels"}}),
            AttemptClass::NothingDone,
            &declined("too many pixels"),
        );
        check(code, &json!("<html>"), AttemptClass::NothingDone, &declined(REJECTED_MESSAGE));
        check(
            code,
            &json!({"error": {"message": "see https://up.example/x"}}),
            AttemptClass::NothingDone,
            &declined(REJECTED_MESSAGE),
        );
    }
}

#[test]
fn a_rejection_with_an_invalid_request_code_is_final() {
    let error = |param: Value, kind: &str| json!({"error": {"message": "too many pixels", "type": kind, "param": param, "code": null}});
    let rejected = |param: Option<&str>| FailureCause::InvalidRequest {
        param: param.map(str::to_owned),
        message: "too many pixels".to_owned(),
    };
    for code in [400, 413, 415, 422] {
        check(code, &error(Value::Null, "invalid_request_error"), AttemptClass::Refused, &rejected(None));
        check(code, &error(Value::Null, "BadRequestError"), AttemptClass::Refused, &rejected(None));
        check(
            code,
            &error(json!("image[0].width"), "invalid_request_error"),
            AttemptClass::Refused,
            &rejected(Some("image[0].width")),
        );
        // Only the gateway writes `tools`; the fields of its tool are those of the caller.
        let tool_size = error(json!("tools[1].size"), "invalid_request_error");
        check(code, &tool_size, AttemptClass::NothingDone, &FailureCause::NotOffered);
        // The gateway writes `input` from the prompt and the images.
        let declined = FailureCause::RejectedByAccount { message: "too many pixels".to_owned() };
        check(code, &error(json!("input[0].content"), "invalid_request_error"), AttemptClass::NothingDone, &declined);
        check(
            code,
            &error(json!("project"), "invalid_request_error"),
            AttemptClass::NothingDone,
            &FailureCause::AccountFault,
        );
    }
}

#[test]
fn context_of_another_account_is_refused_before_anything_is_done() {
    let sentence = "The encrypted content gAAA... could not be verified. Reason: organization_id did not match.";
    let missing = "Previous response with id 'resp_1' not found.";
    let error = |code: Value, message: &str| json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": code}});
    for (body, kind) in [
        (error(json!("invalid_encrypted_content"), "m"), BoundContext::Ciphertext),
        (error(Value::Null, sentence), BoundContext::Ciphertext),
        (error(json!("previous_response_not_found"), "m"), BoundContext::Stored),
        (error(Value::Null, missing), BoundContext::Stored),
    ] {
        let text = body.to_string();
        let failure = classify_status(StatusCode::BAD_REQUEST, &HeaderMap::new(), Some(&body), RESPONSE);
        let is_bound = matches!(failure.cause, FailureCause::BoundElsewhere { kind: found, .. } if found == kind);
        assert!(is_bound && failure.class() == AttemptClass::NothingDone, "{text}: {failure:?}");
        // For an image job, the gateway writes the body, which has no context.
        let failure = classify_status(StatusCode::BAD_REQUEST, &HeaderMap::new(), Some(&body), IMAGES);
        assert!(!matches!(failure.cause, FailureCause::BoundElsewhere { .. }), "{text}: {failure:?}");
    }
}

#[test]
fn an_account_is_unpaid_even_if_a_wait_is_stated() {
    let wait = json!({"resets_in_seconds": 60});
    for (code, error) in [
        (429, json!({"message": "m", "type": "insufficient_quota", "param": null, "code": "insufficient_quota"})),
        (429, json!({"message": "m", "type": "insufficient_quota", "code": null, "details": [wait]})),
        (400, json!({"message": "m", "type": "invalid_request_error", "code": "billing_hard_limit_reached"})),
        (400, json!({"message": "m", "type": "billing_limit_user_error", "code": "billing_hard_limit_reached"})),
        (403, json!({"message": "m", "type": "v_api_error", "code": "insufficient_user_quota"})),
        (402, json!({"message": "m", "code": "deactivated_workspace"})),
        (403, json!({"message": "m", "code": "unsupported_country_region_territory"})),
    ] {
        check(code, &json!({ "error": error }), AttemptClass::NothingDone, &FailureCause::AccountUnpaid);
    }
    check_answer(
        &json!({"error": {"code": "insufficient_quota"}}),
        AttemptClass::NothingDone,
        &FailureCause::AccountUnpaid,
    );
    let paid = json!({"error": {"code": "insufficient_quota"}, "usage": {"total_tokens": 9}});
    check_answer(&paid, AttemptClass::MaybePaid, &FailureCause::NoImage);
}

#[test]
fn a_complete_answer_without_an_image_is_ambiguous_if_paid_or_if_it_states_no_failure() {
    let classify = |body: &Value, has_image| {
        classify_imageless_answer(body.as_object().expect("an object"), has_image, IMAGES).class()
    };
    let class = |body: Value| classify(&body, false);
    assert_eq!(class(json!({"data": []})), AttemptClass::MaybePaid);
    assert_eq!(class(json!({"usage": {"total_tokens": 0}})), AttemptClass::MaybePaid);
    assert_eq!(classify(&json!({"error": "m"}), true), AttemptClass::MaybePaid);
    assert_eq!(class(json!({"usage": {"total_tokens": 1700}})), AttemptClass::MaybePaid);
    assert_eq!(
        class(json!({"status": "completed", "output": [], "usage": {"total_tokens": 9}})),
        AttemptClass::MaybePaid
    );
    assert_eq!(class(json!({"tool_usage": {"image_gen": {"total_tokens": 9}}})), AttemptClass::MaybePaid);
    assert_eq!(class(json!({"response": {"status": "failed", "usage": {"total_tokens": 9}}})), AttemptClass::MaybePaid);
    assert_eq!(
        class(json!({"response": {"status": "failed", "error": {"code": "server_error"}, "usage": null}})),
        AttemptClass::ReportedFailed
    );
    check_answer(
        &json!({"type": "error", "code": "server_error", "message": "m"}),
        AttemptClass::ReportedFailed,
        &FailureCause::Failed,
    );
    check_answer(&json!({"error": "the worker died"}), AttemptClass::ReportedFailed, &FailureCause::Failed);
    check_answer(&json!({"data": [], "error": null}), AttemptClass::MaybePaid, &FailureCause::NoImage);
    check_answer(
        &json!({"type": "response.completed", "response": {"status": "completed", "output": []}}),
        AttemptClass::MaybePaid,
        &FailureCause::NoImage,
    );
}
