//! Tests of errors as other services and proxies write them: the reason is shown whatever its form, and stays readable.

use std::time::Duration;

use serde_json::{Value, json};

use super::{KEY, answer, client, failure, generate, image, run, serve};
use crate::client::{Client, Error, ErrorKind, GenerateRequest, ResponseRequest};
use crate::testing::Answer;
use crate::wire::types::ErrorCode;

fn error_of(reaction: Answer) -> Error {
    generate(&serve([reaction])).unwrap_err()
}

#[test]
fn a_reason_of_any_form_is_shown() {
    for (status, body, message) in [
        (404, json!({"detail": "Not Found"}), "Not Found"),
        (503, json!({"error": "model is loading"}), "model is loading"),
        (400, json!({"message": "Requested size is not supported"}), "Requested size is not supported"),
        (400, json!([{"error": {"code": 400, "message": "Bad size", "status": "INVALID"}}]), "Bad size"),
        (403, json!({"success": false, "errors": [{"message": "a"}, {"message": "b"}]}), "a; b"),
        (400, json!({"error": {"message": {"detail": "nested"}}}), "nested"),
        (500, json!({"state": "broken"}), "the request failed: {\"state\":\"broken\"}"),
        (500, json!({}), "the request failed"),
    ] {
        let error = error_of(answer(status, &body));
        assert_eq!((error.message(), error.status()), (message, Some(status)), "{body}");
        assert_eq!((error.kind(), error.body()), (ErrorKind::Answer, Some(&*body.to_string())));
    }
    let error = error_of(answer(422, &json!({"detail": [{"loc": ["body", "image"], "msg": "Field required"}]})));
    assert_eq!((error.message(), error.param()), ("Field required", Some("image")));
    assert!(error.is_invalid_request(), "{error:?}");
}

#[test]
fn the_beginning_of_a_page_is_shown() {
    let page = format!("<html>\n <title>502  Bad Gateway</title>{}", "x".repeat(500));
    let error = error_of(Answer::new(502, &page));
    assert!(error.message().starts_with("the request failed: <html> <title>502 Bad Gateway</title>xxx"), "{error}");
    assert!(error.message().ends_with('…') && error.message().len() < 300, "{error}");
    assert_eq!(error.body(), Some(&*page));
    assert_eq!(error_of(Answer::new(500, "")).to_string(), "the request failed (status 500)");
    assert!(!error_of(Answer::new(500, format!("no {KEY}"))).message().contains(KEY));
}

#[test]
fn no_error_contains_a_part_of_a_secret() {
    const OTHER: &str = "another-secret-4711";
    let pages = (0..=210).map(|offset| Answer::new(500, format!("{} {KEY} {OTHER}", "x".repeat(offset))));
    let server = serve(pages);
    let builder = Client::builder().base_url(server.base_url()).api_key(KEY).header("api-key", OTHER);
    let client = builder.build().unwrap();
    for offset in 0..=210 {
        let error = run(client.images().generate("a fox")).unwrap_err();
        let text = format!("{error} {error:?} {}", error.body().unwrap());
        assert!(!text.contains(&KEY[..12]) && !text.contains(&OTHER[..12]), "{offset}: {text}");
        assert!(text.contains("[redacted]"), "{offset}: {text}");
    }
}

#[test]
fn a_secret_is_removed_from_every_text_of_an_error() {
    let texts = |error: &Error| {
        let words =
            [error.code(), error.reason(), error.param(), error.limit(), error.limit_scope(), error.limit_value()];
        format!("{error} {error:?} {words:?} {:?}", error.body())
    };
    let members =
        json!({"message": KEY, "param": KEY, "reason": KEY, "limit": KEY, "limit_scope": KEY, "limit_value": KEY});
    let text = texts(&error_of(answer(400, &failure(KEY, &members))));
    assert!(!text.contains(KEY) && text.matches("[redacted]").count() > 6, "{text}");
    for unreadable in [json!(KEY), json!({"data": KEY}), json!({"error": {"message": KEY}})] {
        let text = texts(&error_of(answer(200, &unreadable)));
        assert!(!text.contains(KEY) && text.contains("[redacted]"), "{unreadable}: {text}");
        let server = serve([answer(200, &unreadable), answer(200, &unreadable)]);
        let client = client(&server);
        let create = run(client.responses().create(ResponseRequest::new("m", "a fox"))).unwrap_err();
        let list = run(client.models().list()).unwrap_err();
        assert!(!texts(&create).contains(KEY) && !texts(&list).contains(KEY), "{unreadable}: {create:?} {list:?}");
    }
}

#[test]
fn a_limit_is_stated_with_its_owner_and_value() {
    let limit = json!({"limit": "images_per_day", "limit_scope": "user", "limit_value": "50",
        "resets_at": 1_764_547_200, "resets_in_seconds": 60});
    for body in [failure("insufficient_quota", &limit), failure("a_word_of_another_service", &limit)] {
        let error = error_of(answer(429, &body));
        let stated = (error.limit(), error.limit_scope(), error.limit_value(), error.resets_at());
        assert_eq!(stated, (Some("images_per_day"), Some("user"), Some("50"), Some(1_764_547_200)));
        assert_eq!(error.resets_in(), Some(Duration::from_mins(1)));
    }
    let error = error_of(answer(429, &failure("usage_limit_reached", &json!({}))));
    assert_eq!((error.limit(), error.limit_scope(), error.limit_value(), error.resets_at()), (None, None, None, None));
}

#[test]
fn a_redirect_names_its_target_without_its_query() {
    let error = error_of(answer(307, &json!({})).header("location", "https://login.example/a?token=secret"));
    let expected = "the service redirects to https://login.example/a, and redirects are not followed";
    assert_eq!(error.message(), expected);
}

#[test]
fn an_error_with_a_status_of_success_is_an_error_of_the_service() {
    let error = error_of(answer(200, &json!({"error": {"message": "soft failure", "code": "moderation_blocked"}})));
    assert_eq!((error.kind(), error.message(), error.status()), (ErrorKind::Answer, "soft failure", Some(200)));
    assert!(error.is_refused() && !error.is_retryable(), "{error:?}");
}

#[test]
fn a_long_message_is_shown_in_part_and_on_one_line() {
    let message = format!("first\nfake: ok\u{2028}{}", "x".repeat(200_000));
    let error = error_of(answer(400, &failure("bad", &json!({"message": message}))));
    let shown = error.to_string();
    assert!(shown.starts_with("first fake: ok xxx") && shown.contains("… (200017 bytes) (status 400"), "{shown:.60}");
    assert!(shown.chars().count() < 2200 && shown.lines().count() == 1);
    assert_eq!(error.message(), message);
}

#[test]
fn exhausted_quotas_and_refused_content_are_known_under_every_code() {
    for code in ["usage_limit_reached", "insufficient_quota", "billing_hard_limit_reached"] {
        let error = error_of(answer(429, &failure(code, &json!({}))));
        assert!(error.is_usage_limit() && !error.is_rate_limited() && !error.is_retryable(), "{error:?}");
    }
    for code in ["moderation_blocked", "content_policy_violation", "content_filter"] {
        assert!(error_of(answer(400, &failure(code, &json!({})))).is_refused(), "{code}");
    }
    let error = error_of(answer(429, &failure("insufficient_quota", &json!({}))));
    assert_eq!(error.known_code(), Some(ErrorCode::InsufficientQuota));
    assert_eq!(error_of(answer(400, &failure("moderation_blocked", &json!({})))).known_code(), None);
}

#[test]
fn a_header_belongs_to_one_request() {
    let server = serve([answer(200, &image()), answer(200, &image())]);
    let client = client(&server);
    let request = GenerateRequest::new("a fox").header("X-Cost-Centre", "secret-7").header("User-Agent", "mine");
    assert!(!format!("{request:?}").contains("secret-7"), "{request:?}");
    run(client.images().generate(request)).unwrap();
    run(client.images().generate("a fox")).unwrap();
    let requests = server.requests();
    let sent = |name| requests.iter().map(|request| request.header(name)).collect::<Vec<_>>();
    assert_eq!(sent("x-cost-centre"), [Some("secret-7"), None]);
    assert_eq!(sent("user-agent"), [Some("mine"), Some(concat!("imagate/", env!("CARGO_PKG_VERSION")))]);
    let error = run(client.images().generate(GenerateRequest::new("a fox").header("a b", "c"))).unwrap_err();
    assert_eq!((error.param(), server.requests().len()), (Some("a b"), 2));
}

#[test]
fn plain_values_are_fields() {
    let request = GenerateRequest::new("a").set("seed", 7).set("weight", 0.5).set("name", "x".to_owned());
    let server = serve([answer(200, &image())]);
    run(client(&server).images().generate(request)).unwrap();
    let sent: Value = server.requests()[0].json();
    assert_eq!((&sent["seed"], &sent["weight"], &sent["name"]), (&json!(7), &json!(0.5), &json!("x")));
}
