//! Tests of answers in the forms of the contract and of upstreams that were seen: the class and the cause of each.
//!
//! A row has the protocol of the account (`i` for `images`, `t` for an image by the tool of a response, `r` for a response
//! of the caller), the status, one header, the
//! body, and the class and the cause that follow from the contract.

use super::*;

/// A row of a table.
pub(super) type Row = (char, u16, &'static str, &'static str, &'static str);

/// Returns the class and the cause of an answer in short: the parameter of a rejection, or the seconds of a wait, follows.
pub(super) fn verdict(protocol: char, status: u16, header: &str, body: &str) -> String {
    let scope = match protocol {
        'r' => RESPONSE,
        't' => IMAGE_TOOL,
        _ => IMAGES,
    };
    let mut headers = HeaderMap::new();
    if let Some((name, value)) = header.split_once(": ") {
        headers.insert(
            http::HeaderName::from_bytes(name.as_bytes()).expect("a header name"),
            value.parse().expect("a header value"),
        );
    }
    let body: Option<Value> = serde_json::from_str(body).ok();
    let failure = match (status, &body) {
        (200..=299, Some(Value::Object(members))) => classify_imageless_answer(members, false, scope),
        _ => classify_status(StatusCode::from_u16(status).expect("a status"), &headers, body.as_ref(), scope),
    };
    let detail = match &failure.cause {
        FailureCause::InvalidRequest { param, .. } => param.clone(),
        FailureCause::Exhausted { wait } | FailureCause::Throttled { wait } => {
            wait.map(|wait| wait.as_secs().to_string())
        }
        _ => None,
    };
    let cause = format!("{:?}", failure.cause);
    let cause = cause.split([' ', '{', '(']).next().unwrap_or_default();
    [failure.class().as_str(), cause].into_iter().chain(detail.as_deref()).collect::<Vec<_>>().join(" ")
}

/// Checks all rows of a table and names every row that is wrong.
#[track_caller]
pub(super) fn check_rows(rows: &[Row]) {
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|(protocol, status, header, body, expected)| {
            let found = verdict(*protocol, *status, header, body);
            (found != *expected).then(|| format!("{protocol} {status} {header} {body}\n  {found}, not {expected}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn each_code_of_the_contract_has_its_class() {
    let expected = |code: &str| match code {
        "server_error" | "vector_store_timeout" => "F Failed",
        "rate_limit_exceeded" => "N Throttled",
        "data_residency_mismatch" => "N ForbiddenToAccount",
        "invalid_prompt" => "R ContentRefused",
        policy if policy.contains("policy") => "R ContentRefused",
        _ => "R InvalidRequest image",
    };
    let snapshot = include_str!("../../../../../openapi/contract/snapshot.json");
    let snapshot: Value = serde_json::from_str(snapshot).expect("the snapshot is JSON");
    let list = snapshot["responses"]["error_codes"].as_array().expect("the snapshot lists the codes");
    for code in list.iter().filter_map(Value::as_str) {
        for body in [
            json!({"type": "response.failed", "response": {"id": "resp_1", "status": "failed", "error": {"code": code, "message": "m"}, "output": []}}),
            json!({"type": "error", "code": code, "message": "m", "param": null}),
            json!({"error": {"code": code, "message": "m"}}),
        ] {
            assert_eq!(verdict('i', 200, "", &body.to_string()), expected(code), "{body}");
        }
        let error = json!({"error": {"code": code, "message": "m", "type": "invalid_request_error", "param": null}});
        if expected(code).starts_with('R') {
            assert_eq!(verdict('i', 400, "", &error.to_string()), expected(code), "{code}");
            let in_response = expected(code).replace(" image", " input");
            assert_eq!(verdict('r', 400, "", &error.to_string()), in_response, "{code}");
        }
    }
}

#[test]
fn codes_outside_of_the_contract_are_read_by_rule() {
    check_rows(&[
        ('i', 400, "", r#"{"error":{"code":"image_dimensions_invalid","message":"m"}}"#, "R InvalidRequest image"),
        ('i', 400, "", r#"{"error":{"code":"ImageUnsupported","message":"m"}}"#, "R InvalidRequest image"),
        ('i', 400, "", r#"{"error":{"code":"invalid_image","message":"m","param":"mask"}}"#, "R InvalidRequest mask"),
        ('i', 500, "", r#"{"error":{"code":"empty_image","message":"m"}}"#, "R InvalidRequest image"),
        (
            'r',
            400,
            "",
            r#"{"error":{"code":"invalid_image","message":"m","param":"input[2]"}}"#,
            "R InvalidRequest input[2]",
        ),
        ('i', 404, "", r#"{"error":{"code":"image_model_not_found","message":"m"}}"#, "N NotOffered"),
        ('i', 400, "", r#"{"error":{"code":"unsupported_image_tool","message":"m"}}"#, "N RejectedByAccount"),
        ('i', 400, "", r#"{"error":{"code":"weapons_policy","message":"m"}}"#, "R ContentRefused"),
        ('i', 400, "", r#"{"error":{"code":"persons_policy_violation","message":"m"}}"#, "R ContentRefused"),
        // A picture that was charged for may have been made.
        ('i', 200, "", r#"{"error":{"code":"invalid_image","message":"m"},"usage":{"total_tokens":9}}"#, "X NoImage"),
    ]);
}

#[test]
fn only_a_stated_failure_is_a_failure() {
    check_rows(&[
        ('i', 200, "", r#"{"error":"the worker died"}"#, "F Failed"),
        ('i', 200, "", r#"{"status":"failed","error":null,"output":[]}"#, "F Failed"),
        ('i', 200, "", r#"{"output":[{"type":"image_generation_call","status":"failed"}]}"#, "F Failed"),
        ('i', 200, "", r#"{"type":"response.failed","response":{"status":"failed"}}"#, "F Failed"),
        ('i', 200, "", "{}", "X NoImage"),
        ('i', 200, "", r#"{"created":1,"data":null}"#, "X NoImage"),
        ('i', 200, "", r#"{"created":1,"data":[]}"#, "X NoImage"),
        ('i', 200, "", r#"{"created":1,"data":[],"error":null}"#, "X NoImage"),
        ('i', 200, "", r#"{"created":1,"data":[],"error":{}}"#, "X NoImage"),
        ('i', 200, "", r#"{"created":1,"data":[],"error":""}"#, "X NoImage"),
        ('i', 200, "", r#"{"code":0,"message":"success"}"#, "X NoImage"),
        ('i', 200, "", r#"{"code":"200","message":"ok"}"#, "X NoImage"),
        ('i', 200, "", r#"{"created":1,"images":[{"url":"x"}]}"#, "X NoImage"),
        ('i', 200, "", r#"{"status":"completed","error":null,"output":[]}"#, "X NoImage"),
        ('i', 201, "", r#"{"created":1,"data":[]}"#, "X NoImage"),
    ]);
}

#[test]
fn a_task_in_place_of_an_image_has_a_cause_of_its_own() {
    check_rows(&[
        ('i', 200, "", r#"{"task_id":"t1","status":"queued"}"#, "X AsyncTask"),
        ('i', 202, "", r#"{"task_id":"t1","status":"queued"}"#, "X AsyncTask"),
        ('i', 200, "", r#"{"task_id":17}"#, "X AsyncTask"),
        ('i', 200, "", r#"{"id":"job_1","status":"IN_PROGRESS"}"#, "X AsyncTask"),
        ('i', 201, "", r#"{"id":"job_1","status":"submitted"}"#, "X AsyncTask"),
        ('i', 200, "", r#"{"code":0,"message":"ok","data":{"task_id":"t1"}}"#, "X AsyncTask"),
        ('i', 200, "", r#"{"created":1,"data":[{"task_id":"t1"}]}"#, "X AsyncTask"),
        ('i', 200, "", r#"{"output":{"task_id":"t1","task_status":"PENDING"}}"#, "X AsyncTask"),
        ('i', 200, "", r#"{"task_id":"t1","status":"failed","error":{"message":"m"}}"#, "F Failed"),
        ('i', 200, "", r#"{"id":"job_1","status":"completed"}"#, "X NoImage"),
        ('i', 200, "", r#"{"output":[{"type":"message","id":"m1","status":"in_progress"}]}"#, "X NoImage"),
    ]);
}

#[test]
fn chinese_refusals_are_seen() {
    check_rows(&[
        (
            'i',
            400,
            "",
            r#"{"error":{"message":"提示词包含违规内容,请修改后重试","type":"upstream_error"}}"#,
            "R ContentRefused",
        ),
        ('i', 400, "", r#"{"error":{"message":"输入内容敏感","type":"invalid_request_error"}}"#, "R ContentRefused"),
        ('i', 403, "", r#"{"error":{"message":"内容审核未通过"}}"#, "R ContentRefused"),
        ('i', 422, "", r#"{"error":{"message":"触发安全策略"}}"#, "R ContentRefused"),
        ('i', 451, "", r#"{"error":{"message":"不符合内容政策"}}"#, "R ContentRefused"),
        ('i', 500, "", r#"{"error":{"message":"提示词违规"}}"#, "R ContentRefused"),
        ('i', 503, "", r#"{"error":{"message":"提示词违规"}}"#, "R ContentRefused"),
        ('i', 200, "", r#"{"error":{"message":"提示词违规"}}"#, "R ContentRefused"),
        ('i', 200, "", r#"{"choices":[{"message":{"content":"抱歉，我无法生成这张图片。"}}]}"#, "R ContentRefused"),
        // The account is blocked, not the content.
        ('i', 403, "", r#"{"error":{"message":"您的账户因违规被封禁"}}"#, "N CredentialsRefused"),
        ('i', 400, "", r#"{"error":{"message":"尺寸错误"}}"#, "N RejectedByAccount"),
    ]);
}

#[test]
fn limits_and_waits_are_read_from_every_error() {
    check_rows(&[
        (
            'i',
            500,
            "",
            r#"{"error":{"message":"{\"error\":{\"type\":\"usage_limit_reached\",\"resets_in_seconds\":3600}}"}}"#,
            "N Exhausted 3600",
        ),
        ('i', 402, "", r#"{"error":{"type":"usage_limit_reached","resets_in_seconds":60}}"#, "N Exhausted 60"),
        ('i', 404, "", r#"{"error":{"code":"rate_limit_exceeded","message":"Try again in 20s."}}"#, "N Throttled 20"),
        ('i', 502, "", r#"{"error":{"code":"insufficient_quota","message":"m"}}"#, "N AccountUnpaid"),
        ('i', 503, "", r#"{"error":{"code":"model_not_found","message":"m"}}"#, "N NotOffered"),
        ('i', 401, "", r#"{"error":{"code":"rate_limit_exceeded","message":"m"}}"#, "N CredentialsRefused"),
        ('i', 500, "", r#"{"error":{"code":"rate_limit_exceeded"},"usage":{"total_tokens":9}}"#, "X Broken"),
        ('i', 529, "", r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#, "N Throttled"),
        ('i', 529, "retry-after: 8", r#"{"error":{"message":"busy"}}"#, "N Throttled 8"),
        ('i', 529, "", "busy", "X Broken"),
        ('i', 503, "", r#"{"error":{"code":"server_is_overloaded","message":"m"}}"#, "N Throttled"),
        ('i', 503, "", r#"{"error":{"code":"no_available_accounts","message":"m"}}"#, "N Throttled"),
        ('i', 520, "", r#"{"error":{"code":"no_available_channel","message":"m"}}"#, "N Throttled"),
        ('i', 200, "", r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#, "N Throttled"),
        ('i', 502, "", r#"{"error":{"message":"bad gateway","type":"server_error"}}"#, "X Broken"),
        // The job of the upstream continues, so its image may be paid for.
        ('i', 409, "", r#"{"error":{"code":"image_in_progress","message":"m","type":"server_error"}}"#, "X Broken"),
        (
            'i',
            429,
            "",
            r#"{"error":{"message":"Too many requests. Please retry after 43 seconds."}}"#,
            "N Throttled 43",
        ),
        ('i', 429, "", r#"{"error":{"message":"Please try again in 1m30s."}}"#, "N Throttled 90"),
        ('i', 429, "", r#"{"error":{"message":"Try again in 2 days 3 hours 4 minutes."}}"#, "N Throttled 183840"),
        ('i', 429, "", r#"{"detail":"wait 1.5 min, please"}"#, "N Throttled 90"),
        ('i', 429, "", r#"{"error":"Wait for 7 secs"}"#, "N Throttled 7"),
        ('i', 429, "retry-after: 9", r#"{"error":{"message":"retry after 43 seconds"}}"#, "N Throttled 9"),
        ('i', 429, "x-ratelimit-reset-requests: 1s", r#"{"error":{"message":"try again in 20s"}}"#, "N Throttled 20"),
        ('i', 429, "", r#"{"error":{"message":"limit 5 in 3 images, after 10 of them"}}"#, "N Throttled"),
        (
            'i',
            429,
            "",
            r#"{"error":{"type":"usage_limit_reached","resets_in_seconds":2586687}}"#,
            "N Exhausted 2586687",
        ),
    ]);
}

#[test]
fn a_member_that_only_the_gateway_writes_is_never_the_callers_fault() {
    check_rows(&[
        (
            'i',
            400,
            "",
            r#"{"error":{"message":"Tool choice 'image_generation' not found in 'tools' parameter.","type":"invalid_request_error","param":"tool_choice"}}"#,
            "N NotOffered",
        ),
        (
            'i',
            400,
            "",
            r#"{"error":{"message":"m","type":"invalid_request_error","param":"tools[0].type"}}"#,
            "N NotOffered",
        ),
        (
            'i',
            400,
            "",
            r#"{"error":{"message":"Unsupported parameter: 'store'","type":"invalid_request_error","param":null}}"#,
            "N NotOffered",
        ),
        ('i', 422, "", r#"{"error":{"message":"m","param":"instructions"}}"#, "N NotOffered"),
        ('i', 200, "", r#"{"type":"error","code":"invalid_value","message":"m","param":"include"}"#, "N NotOffered"),
        ('i', 400, "", r#"{"error":{"message":"m","param":"stream"}}"#, "R InvalidRequest stream"),
        ('r', 400, "", r#"{"error":{"message":"m","param":"tools[0].type"}}"#, "R InvalidRequest tools[0].type"),
        (
            'r',
            400,
            "",
            r#"{"error":{"message":"Unsupported parameter: 'store'","type":"invalid_request_error"}}"#,
            "R InvalidRequest",
        ),
        ('i', 400, "", r#"{"error":{"message":"m","param":"tools","code":"invalid_api_key"}}"#, "N AccountFault"),
    ]);
}

#[test]
fn text_in_place_of_an_image_is_told_apart() {
    let answer = |text: &str| json!({"output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}], "usage": {"total_tokens": 80}});
    for (text, expected) in [
        ("I can’t help with that.", "R ContentRefused"),
        ("I cannot draw that: it violates our content policy.", "R ContentRefused"),
        ("I have no tool, and this violates our content policy.", "R ContentRefused"),
        ("I have no tool for pictures here; shall I write a prompt instead?", "N NotOffered"),
        ("I'm unable to create images, since I don't have access to an image tool.", "N NotOffered"),
        ("I cannot draw here.", "N NotOffered"),
        ("The picture service is busy just now, ask again in a minute.", "N DrawingUnavailable"),
        ("图片服务繁忙，请稍后再试。", "N DrawingUnavailable"),
        ("Which style would you like?", "R TextInsteadOfImage"),
        ("Done! ![image](data:image/png;base64,iVBORw0KGgo=)", "X NoImage"),
        ("Here it is: https://files.example/a.png", "X ImageByAddress"),
        ("This breaks our usage policies, see https://up.example/policies", "R ContentRefused"),
    ] {
        assert_eq!(verdict('i', 200, "", &answer(text).to_string()), expected, "{text}");
        let chat = json!({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": text}}]});
        assert_eq!(verdict('i', 200, "", &chat.to_string()), expected, "{chat}");
    }
    check_rows(&[
        (
            'i',
            200,
            "",
            r#"{"choices":[{"message":{"content":"Here you are.","images":[{"image_url":{"url":"data:x"}}]}}]}"#,
            "X NoImage",
        ),
        (
            'i',
            200,
            "",
            r#"{"choices":[{"message":{"content":[{"type":"image_url","image_url":{"url":"data:x"}},{"type":"text","text":"ok"}]}}]}"#,
            "X NoImage",
        ),
    ]);
    check_rows(&[
        ('i', 200, "", r#"{"images":["aGk="],"output_text":"Done."}"#, "X NoImage"),
        ('i', 200, "", r#"{"task_id":"t1","output":{"text":"The queue is busy."}}"#, "X AsyncTask"),
        // The tokens of an image were charged, so the text is not all that was made.
        ('i', 200, "", r#"{"output_text":"It is busy.","tool_usage":{"image_gen":{"total_tokens":9}}}"#, "X NoImage"),
        (
            'i',
            200,
            "",
            r#"{"output_text":"It is busy.","usage":{"output_tokens_details":{"image_tokens":9}}}"#,
            "X NoImage",
        ),
    ]);
    let long = "a ".repeat(6000);
    assert_eq!(verdict('i', 200, "", &answer(&long).to_string()), "X NoImage");
}

#[test]
fn every_date_form_of_http_is_read() {
    let now = chrono::Utc::now();
    for form in ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"] {
        let date = (now + chrono::TimeDelta::seconds(90)).format(form).to_string();
        let found = verdict('i', 429, &format!("retry-after: {date}"), "");
        let seconds = found.strip_prefix("N Throttled ").and_then(|seconds| seconds.parse::<u64>().ok());
        assert!(seconds.is_some_and(|seconds| (80..=90).contains(&seconds)), "{date}: {found}");
    }
}
