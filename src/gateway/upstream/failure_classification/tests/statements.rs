//! Tests of sentences without a code, of waits in the members and sentences of errors, of members that only the gateway
//! writes, and of the phrases of operators.

use super::answers::check_rows;
use super::*;

#[test]
fn limits_are_read_from_sentences_at_every_status() {
    check_rows(&[
        (
            'i',
            500,
            "",
            r#"{"error":{"message":"You've hit your usage limit. Try again in 2 hours."}}"#,
            "N Exhausted 7200",
        ),
        ('i', 403, "", r#"{"error":{"message":"The usage limit has been reached"}}"#, "N Exhausted"),
        ('i', 400, "", r#"{"error":{"message":"Rate limit reached for gpt-image-2."}}"#, "N Throttled"),
        ('i', 503, "", r#"{"error":{"message":"The engine is currently overloaded"}}"#, "N Throttled"),
        ('i', 502, "", r#"{"error":{"message":"Upstream error: 429 Too Many Requests"}}"#, "N Throttled"),
        (
            'i',
            429,
            "",
            r#"{"error":{"message":"You exceeded your current quota, please check your plan"}}"#,
            "N AccountUnpaid",
        ),
        ('i', 500, "", r#"{"error":{"message":"当前分组上游负载已饱和，请稍后再试"}}"#, "N Throttled"),
        ('i', 403, "", r#"{"error":{"message":"用户额度不足, 剩余额度: 0"}}"#, "N AccountUnpaid"),
        ('i', 429, "", r#"{"error":{"message":"請求過於頻繁，請在 30 秒後重試"}}"#, "N Throttled 30"),
        ('i', 503, "", r#"{"error":{"message":"当前分组 default 下对于模型 gpt-image-2 无可用渠道"}}"#, "N NotOffered"),
        (
            'i',
            400,
            "",
            r#"{"error":{"message":"The model `gpt-image-2` does not exist or you do not have access to it.","type":"invalid_request_error","param":null}}"#,
            "N NotOffered",
        ),
        ('i', 200, "", r#"{"error":{"message":"Too many requests, wait 5 seconds"}}"#, "N Throttled 5"),
        // The text of a caller stands in quotation marks, or after the words of the upstream.
        ('i', 500, "", r#"{"error":{"message":"Cannot draw 'a sign that says usage limit'"}}"#, "F Failed"),
        (
            'i',
            400,
            "",
            r#"{"error":{"message":"This long sentence of an upstream ends with the prompt of its caller, that is a sign with rate limit"}}"#,
            "N RejectedByAccount",
        ),
        ('i', 500, "", r#"{"error":{"message":"usage limit"},"usage":{"total_tokens":9}}"#, "X Broken"),
        ('i', 401, "", r#"{"error":{"message":"Too many requests"}}"#, "N CredentialsRefused"),
    ]);
}

#[test]
fn waits_are_read_from_members_sentences_and_headers_of_every_form() {
    let limit = |member: &str| format!(r#"{{"error":{{"code":"rate_limit_exceeded","message":"m",{member}}}}}"#);
    for (member, seconds) in [
        (r#""retry_after":7"#, "7"),
        (r#""retryAfter":"8""#, "8"),
        (r#""retry-after-ms":1500"#, "2"),
        (r#""retry_delay":"1m5s""#, "65"),
        (r#""details":[{"retryDelay":"39s"}]"#, "39"),
        (r#""metadata":{"resets_in":"2h"}"#, "7200"),
        (r#""reset_after_seconds":90"#, "90"),
        (r#""resets_in_seconds":40,"retry_after":7"#, "40"),
    ] {
        assert_eq!(answers::verdict('i', 503, "", &limit(member)), format!("N Throttled {seconds}"), "{member}");
    }
    for (message, seconds) in [
        ("try again in 1h 20m", Some(4800)),
        ("Try again in 1 hour and 20 minutes.", Some(4800)),
        ("Please wait for about 5 min, then retry", Some(300)),
        ("try again in an hour", Some(3600)),
        ("Retry after 43sec", Some(43)),
        ("请在30秒后重试", Some(30)),
        ("请等待 2 分钟", Some(120)),
        ("額度將在 1 小時 30 分鐘後恢復", Some(5400)),
        ("try again in a few minutes", None),
        ("resets at 3pm", None),
        ("最多 30 秒的视频", None),
        ("in 2026 the limit is 5", None),
    ] {
        let body = json!({"error": {"code": "rate_limit_exceeded", "message": message}}).to_string();
        let expected = seconds.map_or("N Throttled".to_owned(), |seconds| format!("N Throttled {seconds}"));
        assert_eq!(answers::verdict('i', 429, "", &body), expected, "{message}");
    }
    let at = (chrono::Utc::now() + chrono::TimeDelta::seconds(90)).to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let body = json!({"error": {"code": "usage_limit_reached", "message": format!("Your limit resets at {at}.")}});
    let found = answers::verdict('i', 429, "", &body.to_string());
    let seconds = found.strip_prefix("N Exhausted ").and_then(|seconds| seconds.parse::<u64>().ok());
    assert!(seconds.is_some_and(|seconds| (80..=90).contains(&seconds)), "{found}");
    check_rows(&[
        ('i', 429, "retry-after: 30s", "", "N Throttled 30"),
        ('i', 429, "ratelimit-reset: 12", "", "N Throttled 12"),
        ('i', 503, "retry-after: 9", r#"{"error":{"code":"server_is_overloaded","message":"m"}}"#, "N Throttled 9"),
    ]);
    let pairs = [("x-codex-primary-used-percent", "100"), ("x-codex-primary-reset-after-seconds", "600")];
    let headers: HeaderMap = pairs
        .into_iter()
        .map(|(name, value)| (http::HeaderName::from_static(name), http::HeaderValue::from_static(value)))
        .collect();
    let failure = classify_status(StatusCode::TOO_MANY_REQUESTS, &headers, None, IMAGES);
    let wait = Some(std::time::Duration::from_secs(600));
    assert_eq!(failure.cause, FailureCause::Throttled { wait });
}

#[test]
fn a_rejection_of_what_the_gateway_writes_is_the_accounts() {
    let rejected =
        |param: &str| format!(r#"{{"error":{{"message":"m","type":"invalid_request_error","param":"{param}"}}}}"#);
    for (protocol, param, expected) in [
        ('i', "model", "N NotOffered"),
        ('t', "model", "N NotOffered"),
        ('t', "tools[0].model", "N NotOffered"),
        ('t', "tools[0].type", "N NotOffered"),
        ('t', "tools[0].action", "N NotOffered"),
        ('t', "stream", "N NotOffered"),
        ('t', "n", "N NotOffered"),
        ('t', "store", "N NotOffered"),
        ('t', "parallel_tool_calls", "N NotOffered"),
        ('t', "tools[0].size", "R InvalidRequest tools[0].size"),
        ('t', "user", "R InvalidRequest user"),
        ('i', "user", "R InvalidRequest user"),
        ('i', "moderation", "R InvalidRequest moderation"),
        ('i', "partial_images", "R InvalidRequest partial_images"),
        ('r', "model", "R InvalidRequest model"),
        ('r', "stream", "R InvalidRequest stream"),
    ] {
        for status in [400, 422, 200] {
            assert_eq!(
                answers::verdict(protocol, status, "", &rejected(param)),
                expected,
                "{status} {protocol} {param}"
            );
        }
    }
    let renamed = FaultScope::for_images(true, &NO_PHRASES);
    let body = serde_json::from_str(&rejected("user")).ok();
    let failure = classify_status(StatusCode::BAD_REQUEST, &HeaderMap::new(), body.as_ref(), renamed);
    assert_eq!((failure.class(), failure.cause), (AttemptClass::NothingDone, FailureCause::NotOffered));
    check_rows(&[
        (
            't',
            400,
            "",
            r#"{"error":{"message":"Tool 'image_generation' is not supported with gpt-5.","type":"invalid_request_error","param":"tools"}}"#,
            "N NotOffered",
        ),
        ('i', 403, "", r#"{"error":{"message":"Image generation is not enabled for your plan."}}"#, "N NotOffered"),
        ('i', 503, "", r#"{"error":{"message":"Image generation is temporarily unavailable."}}"#, "N Throttled"),
        (
            'i',
            400,
            "",
            r#"{"error":{"message":"当前账户未开通图像生成","type":"invalid_request_error"}}"#,
            "N NotOffered",
        ),
    ]);
}

#[test]
fn traditional_chinese_refusals_are_seen() {
    for message in ["提示詞包含違規內容", "內容審核未通過", "您的请求违反了使用政策", "包含不当内容", "觸發安全政策"]
    {
        for status in [400, 403, 500, 200] {
            let body = json!({"error": {"message": message, "type": "upstream_error"}}).to_string();
            assert_eq!(answers::verdict('i', status, "", &body), "R ContentRefused", "{status} {message}");
        }
    }
    check_rows(&[
        ('i', 403, "", r#"{"error":{"message":"您的帳戶因違規被封禁"}}"#, "N CredentialsRefused"),
        ('i', 200, "", r#"{"choices":[{"message":{"content":"抱歉，我無法直接生成圖片。"}}]}"#, "N NotOffered"),
        ('i', 200, "", r#"{"choices":[{"message":{"content":"您想要什么风格？"}}]}"#, "R TextInsteadOfImage"),
        ('i', 200, "", r#"{"choices":[{"message":{"content":"图片服务繁忙"}}]}"#, "N DrawingUnavailable"),
    ]);
}

#[test]
fn the_phrases_of_an_operator_count_in_errors_and_texts() {
    let phrases = FailurePhrases {
        refusals: vec!["Nope, Not That".to_owned(), "不予繪製".to_owned()],
        limits: vec!["come back tomorrow".to_owned()],
    };
    let scope = FaultScope::for_images(false, &phrases);
    let class = |status: u16, body: Value| {
        let failure = match status {
            200 => classify_imageless_answer(body.as_object().expect("an object"), false, scope),
            _ => {
                classify_status(StatusCode::from_u16(status).expect("a status"), &HeaderMap::new(), Some(&body), scope)
            }
        };
        (failure.class(), failure.cause)
    };
    let refused = (AttemptClass::Refused, FailureCause::ContentRefused);
    for message in ["nope, not that!", "不予绘制", "不予繪製。"] {
        assert_eq!(class(500, json!({"error": {"message": message}})), refused, "{message}");
        assert_eq!(class(200, json!({"choices": [{"message": {"content": message}}]})), refused, "{message}");
    }
    let message = "Come back tomorrow (try again in 60s)";
    let wait = Some(std::time::Duration::from_secs(60));
    assert_eq!(
        class(500, json!({"error": {"message": message}})),
        (AttemptClass::NothingDone, FailureCause::Exhausted { wait })
    );
    let busy = (AttemptClass::NothingDone, FailureCause::DrawingUnavailable);
    assert_eq!(class(200, json!({"output_text": message})), busy);
}

#[test]
fn the_first_words_of_a_model_are_kept_without_secrets() {
    let words = |body: Value| classify_imageless_answer(body.as_object().expect("an object"), false, IMAGES).model_text;
    let chat = |text: &str| json!({"choices": [{"message": {"content": text}}]});
    assert_eq!(words(chat("Which style\nwould you like?")).as_deref(), Some("Which style would you like?"));
    assert_eq!(words(chat("I can't; ask admin@a.example or sk-12345")).as_deref(), Some("I can't; ask [...] or [...]"));
    assert!(words(chat(&"word ".repeat(300))).is_some_and(|words| words.chars().count() <= 240));
    let refusal = json!({"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}]});
    assert_eq!(words(refusal).as_deref(), Some("No."));
    for silent in
        [json!({"data": []}), json!({"error": {"message": "m"}}), chat("![image](data:image/png;base64,aGk=)")]
    {
        assert_eq!(words(silent.clone()), None, "{silent}");
    }
}
