use serde_json::json;

use super::*;
use crate::gateway::relay::answer_usage::{TokenCounts, parse_token_counts};
use crate::gateway::relay::fixtures::requested_answer;
use crate::image::Format;

#[track_caller]
fn check(received: &Value, first_image: Option<ImageProperties>, expected: &Value) {
    let received = received.as_object().cloned().unwrap_or_default();
    assert_eq!(Value::Object(answer_members(&requested_answer(), &received, first_image)), *expected);
}

#[test]
fn missing_members_are_added_except_tokens_and_quality() {
    let expected = json!({"created": 1_776_000_000, "background": "opaque", "model": "gpt-image-2", "output_format": "png", "size": "1024x1024"});
    check(&json!({}), None, &expected);
    check(&json!({"usage": null, "error": null}), None, &expected);
    check(&json!({"usage": {"input_tokens": -1}, "created": -5}), None, &expected);
}

#[test]
fn auto_is_replaced_by_the_delivered_properties() {
    let properties = ImageProperties { format: Format::Webp, width: 1000, height: 1500 };
    check(
        &json!({"created": 17.5, "background": "auto", "quality": "auto", "size": "auto", "output_format": "png", "extra": [1]}),
        Some(properties),
        &json!({"created": 17, "background": "opaque", "model": "gpt-image-2", "output_format": "webp", "size": "1000x1500"}),
    );
}

#[test]
fn valid_names_of_the_upstream_are_passed_on() {
    let model_and_quality = |received: Value| {
        let answer = answer_members(
            &RequestedAnswer { quality: Some("high".to_owned()), ..requested_answer() },
            received.as_object().expect("members"),
            None,
        );
        (answer["model"].clone(), answer["quality"].clone())
    };
    let pair = |model: &str, quality: &str| (json!(model), json!(quality));
    let snapshot = "gpt-image-2-2026-04-21";
    assert_eq!(model_and_quality(json!({"model": snapshot, "quality": "low"})), pair(snapshot, "low"));
    for model in [json!(null), json!(7), json!(""), json!("two words"), json!("a\u{202e}b"), json!("m".repeat(129))] {
        assert_eq!(model_and_quality(json!({"model": model, "quality": "auto"})), pair("gpt-image-2", "high"));
    }
}

#[test]
fn an_event_always_has_a_quality_but_no_added_model_or_prompt() {
    let members_of = |received: Value| event_members(&requested_answer(), received.as_object().expect("members"), None);
    let unnamed = members_of(json!({"quality": "auto", "revised_prompt": null}));
    assert_eq!(
        (&unnamed["quality"], unnamed.get("model"), unnamed.get("revised_prompt")),
        (&json!("auto"), None, None)
    );
    let named = members_of(json!({"model": "m", "revised_prompt": "r"}));
    assert_eq!((&named["model"], &named["revised_prompt"]), (&json!("m"), &json!("r")));
}

#[test]
fn words_of_a_later_version_are_passed_on_unchanged() {
    let properties = ImageProperties { format: Format::Png, width: 1000, height: 1500 };
    let received = json!({"background": "frosted", "quality": "xhigh", "size": "4K", "output_format": "gif"});
    let answer = answer_members(&requested_answer(), received.as_object().expect("members"), None);
    let words = ["background", "quality", "size", "output_format"].map(|key| answer[key].clone());
    assert_eq!(words, ["frosted", "xhigh", "4K", "gif"].map(|word| json!(word)));
    let answer = answer_members(&requested_answer(), received.as_object().expect("members"), Some(properties));
    let from_bytes = (&json!("1000x1500"), &json!("png"));
    assert_eq!((&answer["size"], &answer["output_format"]), from_bytes, "the bytes of the image have precedence");
    for invalid in
        [json!(""), json!(" "), json!(7), json!("a\nb"), json!("a\u{202e}b"), json!("w".repeat(129)), json!(null)]
    {
        let received = json!({"background": invalid, "quality": invalid, "size": invalid, "output_format": invalid});
        check(
            &received,
            None,
            &json!({"created": 1_776_000_000, "background": "opaque", "model": "gpt-image-2", "output_format": "png", "size": "1024x1024"}),
        );
    }
}

#[test]
fn cached_tokens_are_counted_by_kind() {
    let counts = |details: Value| {
        let usage = json!({"input_tokens": 1200, "output_tokens": 1, "input_tokens_details": details});
        let counts = parse_token_counts(&usage).expect("has counts");
        (counts.cached_text, counts.cached_image, counts.is_cache_breakdown_assumed)
    };
    let kinds = json!({"text_tokens": 200, "image_tokens": 150});
    let stated =
        json!({"text_tokens": 200, "image_tokens": 1000, "cached_tokens": 350, "cached_tokens_details": kinds});
    assert_eq!(counts(stated), (200, 150, false));
    // Only their sum: it can be of both kinds, or there are no images.
    assert_eq!(counts(json!({"text_tokens": 200, "image_tokens": 1000, "cached_tokens": 350})), (200, 150, true));
    assert_eq!(counts(json!({"text_tokens": 1200, "image_tokens": 0, "cached_tokens": 350})), (350, 0, false));
    // A text model counts no kinds.
    assert_eq!(counts(json!({"cached_tokens": 350, "cache_write_tokens": 0})), (350, 0, false));
    assert_eq!(counts(json!({"text_tokens": 200, "image_tokens": 1000, "cached_tokens": 0})), (0, 0, false));
    assert_eq!(counts(json!(null)), (0, 0, false));
    // The usage of the image tool of a response has them beside the details.
    let beside = json!({"input_tokens": 1200, "output_tokens": 1, "input_tokens_details": {"text_tokens": 200, "image_tokens": 1000},
                        "cached_tokens": 350, "cached_tokens_details": {"cached_text_tokens": 200, "cached_image_tokens": 150}});
    let counts = parse_token_counts(&beside).expect("has counts");
    assert_eq!((counts.cached_text, counts.cached_image, counts.is_cache_breakdown_assumed), (200, 150, false));
}

#[test]
fn usage_is_completed_and_in_whole_numbers() {
    let usage = parse_token_counts(&json!({"input_tokens": 17.0, "output_tokens": 196})).expect("has counts");
    let expected = TokenCounts {
        input: 17,
        input_text: 17,
        output: 196,
        output_image: 196,
        total: 213,
        is_breakdown_assumed: true,
        ..TokenCounts::default()
    };
    assert_eq!(usage, expected);
    assert_eq!(parse_token_counts(&json!("many")), None);
    assert_eq!(parse_token_counts(&json!({"total_tokens": 5})), None);
    let received =
        json!({"input_tokens": 1, "output_tokens": 2, "svg_tokens": 4, "output_tokens_details": {"frames": 3}});
    let usage = normalized_usage(&received).expect("has counts");
    assert_eq!((&usage["svg_tokens"], &usage["total_tokens"]), (&json!(4), &json!(3)));
    assert_eq!(usage["output_tokens_details"], json!({"image_tokens": 2, "text_tokens": 0, "frames": 3}));
    let sum = add_usage(usage, json!({"svg_tokens": 1, "output_tokens_details": {"frames": 0.5}, "unit": "t"}));
    assert_eq!(
        (&sum["svg_tokens"], &sum["output_tokens_details"]["frames"], &sum["unit"]),
        (&json!(5), &json!(3.5), &json!("t"))
    );
}
