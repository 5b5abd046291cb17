//! Tests of refusals in every form, and of answers that only look like refusals.

use super::*;

/// The refusals that real upstreams and compatible servers were seen to send.
const REFUSALS: &str = r#"
400 {"error":{"message":"Your request was rejected by the safety system. safety_violations=[sexual].","type":"image_generation_user_error","param":null,"code":"moderation_blocked"}}
400 {"error":{"message":"m","type":"image_generation_user_error","moderation_details":{"moderation_stage":"output","categories":["sexual"]}}}
400 {"error":{"message":"m","code":"content_policy_violation","type":"invalid_request_error","param":null}}
400 {"error":{"message":"m","code":"image_content_policy_violation"}}
400 {"error":{"message":"m","type":"content_policy_violation"}}
400 {"error":{"message":"m","code":"invalid_prompt"}}
400 {"error":{"message":"Your request was rejected as a result of our safety system.","type":"invalid_request_error","code":null,"param":null}}
400 {"error":{"message":"Your request was rejected as a result of our safety system.","param":"prompt"}}
400 {"error":{"code":"content_filter","param":"prompt","message":"The response was filtered","status":400}}
400 {"error":{"code":"contentFilter","message":"Your task failed"}}
400 {"error":{"code":"400","type":null,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}
400 {"error":{"code":"x","inner_error":{"content_filter_results":{"hate":{"filtered":true,"severity":"high"}}}}}
400 {"error":{"code":400,"status":"INVALID_ARGUMENT","message":"m","details":[{"reason":"PUBLIC_ERROR_UNSAFE_GENERATION"}]}}
400 {"error":{"code":"data_inspection_failed","message":"m"}}
400 {"error":{"code":"","message":"Input data may contain inappropriate content."}}
400 {"error":{"code":"InputTextSensitiveContentDetected","message":"m"}}
400 {"error":{"code":"channel:image_generation_failed","type":"channel_error","message":"blocked due to safety policy violation"}}
400 {"error":"Your request was rejected by our safety system."}
400 {"error":"content_policy_violation"}
400 {"code":"content_policy_violation","message":"m"}
400 {"detail":"The prompt was rejected by content moderation."}
400 {"detail":{"code":"content_policy_violation"}}
400 {"errors":[{"code":"nsfw_content","message":"m"}]}
400 [{"error":{"code":400,"message":"Blocked by the content filter."}}]
400 {"error":{"message":"{\"error\":{\"code\":\"moderation_blocked\"}}","type":"upstream_error"}}
403 {"error":{"message":"m","code":"moderation_blocked"}}
403 {"error":{"message":"The prompt violates our usage policies."}}
422 {"error":{"message":"rejected by content moderation","code":"x"}}
429 {"error":{"message":"m","code":"moderation_blocked"}}
500 {"error":{"message":"sensitive_words_detected","type":"new_api_error","code":"sensitive_words_detected"}}
500 {"error":{"message":"m","type":"ContentPolicyViolationError","code":"500"}}
500 {"error":{"message":"Your request was rejected by the safety system.","type":"server_error"}}
502 {"error":{"message":"Upstream request failed","type":"upstream_error","code":"upstream_error","reason":"content_refused"}}
"#;

fn refusals() -> impl Iterator<Item = (u16, Value)> {
    REFUSALS.trim().lines().map(|line| {
        let (code, body) = line.split_once(' ').expect("a valid status");
        (code.parse().expect("a valid status"), serde_json::from_str(body).expect("JSON"))
    })
}

#[test]
fn a_refusal_is_known_in_every_shape_and_status() {
    for (code, body) in refusals() {
        check(code, &body, AttemptClass::Refused, &FailureCause::ContentRefused);
    }
}

#[test]
fn a_refusal_is_recognised_in_answers_and_events() {
    for (_, body) in refusals() {
        let Value::Object(members) = body else { continue };
        let failure = classify_imageless_answer(&members, false, IMAGES);
        assert_eq!(
            (failure.class(), failure.cause),
            (AttemptClass::Refused, FailureCause::ContentRefused),
            "{members:?}"
        );
        // A refusal stays a refusal even if tokens were charged, so that the request is not sent to another account and
        // charged again.
        let mut paid = members.clone();
        paid.insert("usage".to_owned(), json!({"total_tokens": 1700}));
        assert_eq!(classify_imageless_answer(&paid, true, IMAGES).class(), AttemptClass::Refused, "{members:?}");
        // The same error as an event of a stream, and as the end of a response.
        let mut event = members.clone();
        event.insert("type".to_owned(), "error".into());
        if !members.contains_key("type") {
            check_answer(&event.into(), AttemptClass::Refused, &FailureCause::ContentRefused);
        }
        let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": members.get("error"), "output": []}});
        if members.contains_key("error") {
            check_answer(&failed, AttemptClass::Refused, &FailureCause::ContentRefused);
        }
    }
}

#[test]
fn text_that_declines_is_a_refusal() {
    let message = |part: Value| json!({"id": "resp_1", "status": "completed", "error": null, "output": [{"type": "message", "role": "assistant", "content": [part]}]});
    for body in [
        message(json!({"type": "output_text", "text": "I can’t help with that."})),
        message(json!({"type": "refusal", "refusal": "No."})),
        json!({"type": "response.completed", "response": message(json!({"type": "output_text", "text": "I won't."}))}),
        json!({"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}}),
        json!({"created": 1, "data": [], "output_text": "I'm unable to create this image."}),
        json!({"created": 1, "data": [], "refusal": "No."}),
        json!({"created": 1, "data": [], "message": "Your prompt violates our content policy."}),
        json!({"created": 1, "data": [{"b64_json": "", "respect_moderation": false}]}),
        json!({"created": 1, "data": [{"text": "I cannot draw that."}]}),
        json!({"created": 1, "data": [{"content_filter_results": {"sexual": {"filtered": true}}}]}),
        json!({"choices": [{"finish_reason": "content_filter", "message": {"content": null}}]}),
        json!({"choices": [{"finish_reason": "stop", "message": {"content": "Sorry, but that goes against our guidelines."}}]}),
    ] {
        check_answer(&body, AttemptClass::Refused, &FailureCause::ContentRefused);
    }
    let paid = message(json!({"type": "output_text", "text": "What colour?"}));
    let mut paid = paid.as_object().cloned().expect("an object");
    paid.insert("usage".to_owned(), json!({"total_tokens": 80}));
    assert_eq!(classify_imageless_answer(&paid, false, IMAGES).cause, FailureCause::TextInsteadOfImage);
    assert_eq!(
        classify_imageless_answer(&paid, true, IMAGES).class(),
        AttemptClass::MaybePaid,
        "the answer may contain the address of an image"
    );
}

#[test]
fn an_answer_that_resembles_a_refusal_is_not_refused() {
    let error = |error: Value| json!({ "error": error });
    // The upstream blocked the account, not the content.
    for (message, cause) in [
        (
            "Your resource has been temporarily blocked because we detected behavior that may violate our content policy.",
            FailureCause::CredentialsRefused,
        ),
        ("Your account was suspended for violating our usage policies.", FailureCause::CredentialsRefused),
        ("Your organization must be verified to use this model; see our content policy.", FailureCause::NotOffered),
    ] {
        check(403, &error(json!({"code": "Forbidden", "message": message})), AttemptClass::NothingDone, &cause);
        check(400, &error(json!({"message": message})), AttemptClass::NothingDone, &FailureCause::AccountFault);
        check(500, &error(json!({"message": message})), AttemptClass::ReportedFailed, &FailureCause::Failed);
    }
    check(
        401,
        &error(json!({"message": "content policy"})),
        AttemptClass::NothingDone,
        &FailureCause::CredentialsRefused,
    );
    check(
        404,
        &error(json!({"code": "model_not_found", "message": "no content filter of that name"})),
        AttemptClass::NothingDone,
        &FailureCause::NotOffered,
    );
    // The reports of filters that blocked nothing.
    let results =
        json!({"hate": {"filtered": false, "severity": "safe"}, "jailbreak": {"detected": true, "filtered": false}});
    check(
        500,
        &error(json!({"message": "m", "content_filter_results": results})),
        AttemptClass::ReportedFailed,
        &FailureCause::Failed,
    );
    let declined = FailureCause::RejectedByAccount { message: "m".to_owned() };
    check(400, &error(json!({"message": "m", "moderation_details": {}})), AttemptClass::NothingDone, &declined);
    check_answer(
        &json!({"created": 1, "data": [{"respect_moderation": true}]}),
        AttemptClass::MaybePaid,
        &FailureCause::NoImage,
    );
    check_answer(
        &json!({"data": [], "error": {"message": "the worker died", "type": "server_error"}}),
        AttemptClass::ReportedFailed,
        &FailureCause::Failed,
    );
}

#[test]
fn echoed_request_fields_are_not_classified() {
    let codes = json!({"code": "usage_limit_reached", "type": "insufficient_quota", "reason": "moderation_blocked"});
    for field in ["metadata", "input", "instructions", "tools", "prompt", "user", "client_metadata"] {
        let response = json!({"status": "failed", "error": {"code": "server_error", "message": "m"}, field: codes});
        check_answer(&response, AttemptClass::ReportedFailed, &FailureCause::Failed);
        check(500, &response, AttemptClass::ReportedFailed, &FailureCause::Failed);
    }
    // A caller can make a model write anything, so the text of a model is not an error of the account.
    let output = json!({"output": [{"type": "message", "content": [{"type": "usage_limit_reached", "text": codes.to_string()}]}]});
    check_answer(&output, AttemptClass::Refused, &FailureCause::TextInsteadOfImage);
    // A sentence that merely contains a code is not classified by that code.
    let message = format!("Invalid prompt: {codes}");
    check(500, &json!({"error": {"message": message}}), AttemptClass::ReportedFailed, &FailureCause::Failed);
}

#[test]
fn the_depth_of_nested_errors_is_limited() {
    let mut deep = json!({"code": "moderation_blocked"});
    for _ in 0..100 {
        deep = json!({ "error": deep, "message": "m" });
    }
    check(400, &deep, AttemptClass::NothingDone, &FailureCause::RejectedByAccount { message: "m".to_owned() });
    let wrapped = (0..4).fold(json!({"code": "moderation_blocked"}), |inner, _| json!({"message": inner.to_string()}));
    check(400, &wrapped, AttemptClass::Refused, &FailureCause::ContentRefused);
}
