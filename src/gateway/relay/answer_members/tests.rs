use super::*;
use crate::image::Format;

fn asked() -> RequestedAnswer {
    RequestedAnswer {
        model: "gpt-image-2".to_owned(),
        prompt: "a red square".to_owned(),
        count: 1,
        partials: 0,
        event_prefix: "image_generation",
        stream: false,
        is_single_element: false,
        quality: None,
        size: Some("1024x1024".to_owned()),
        output_format: "png",
        now: 1_776_000_000,
    }
}

#[track_caller]
fn check(found: &Value, first: Option<ImageProperties>, expected: &Value) {
    let found = found.as_object().cloned().unwrap_or_default();
    assert_eq!(Value::Object(answer_members(&asked(), &found, first)), *expected);
}

#[test]
fn missing_members_are_filled_in_and_neither_tokens_nor_a_quality_are_made_up() {
    let expected = json!({"created": 1_776_000_000, "background": "opaque", "model": "gpt-image-2", "output_format": "png", "size": "1024x1024"});
    check(&json!({}), None, &expected);
    check(&json!({"usage": null, "error": null}), None, &expected);
    check(&json!({"usage": {"input_tokens": -1}, "created": -5}), None, &expected);
}

#[test]
fn auto_is_resolved_to_what_was_delivered() {
    let facts = ImageProperties { format: Format::Webp, width: 1000, height: 1500 };
    check(
        &json!({"created": 17.5, "background": "auto", "quality": "auto", "size": "auto", "output_format": "png", "extra": [1]}),
        Some(facts),
        &json!({"created": 17, "background": "opaque", "model": "gpt-image-2", "output_format": "webp", "size": "1000x1500"}),
    );
}

#[test]
fn what_the_upstream_names_is_told_and_what_is_no_name_is_not() {
    let named = |found: Value| {
        let told = answer_members(
            &RequestedAnswer { quality: Some("high".to_owned()), ..asked() },
            found.as_object().expect("members"),
            None,
        );
        (told["model"].clone(), told["quality"].clone())
    };
    let pair = |model: &str, quality: &str| (json!(model), json!(quality));
    let snapshot = "gpt-image-2-2026-04-21";
    assert_eq!(named(json!({"model": snapshot, "quality": "low"})), pair(snapshot, "low"));
    for model in [json!(null), json!(7), json!(""), json!("two words"), json!("a\u{202e}b"), json!("m".repeat(129))] {
        assert_eq!(named(json!({"model": model, "quality": "auto"})), pair("gpt-image-2", "high"));
    }
}

#[test]
fn an_event_always_has_a_quality_and_neither_a_model_nor_a_prompt_that_nobody_named() {
    let told = |found: Value| event_members(&asked(), found.as_object().expect("members"), None);
    let silent = told(json!({"quality": "auto", "revised_prompt": null}));
    assert_eq!((&silent["quality"], silent.get("model"), silent.get("revised_prompt")), (&json!("auto"), None, None));
    let named = told(json!({"model": "m", "revised_prompt": "r"}));
    assert_eq!((&named["model"], &named["revised_prompt"]), (&json!("m"), &json!("r")));
}

#[test]
fn words_of_a_later_version_are_told_as_they_were_said() {
    let facts = ImageProperties { format: Format::Png, width: 1000, height: 1500 };
    let found = json!({"background": "frosted", "quality": "xhigh", "size": "4K", "output_format": "gif"});
    let told = answer_members(&asked(), found.as_object().expect("members"), None);
    let words = ["background", "quality", "size", "output_format"].map(|key| told[key].clone());
    assert_eq!(words, ["frosted", "xhigh", "4K", "gif"].map(|word| json!(word)));
    let told = answer_members(&asked(), found.as_object().expect("members"), Some(facts));
    assert_eq!((&told["size"], &told["output_format"]), (&json!("1000x1500"), &json!("png")), "bytes do not lie");
    for none in
        [json!(""), json!(" "), json!(7), json!("a\nb"), json!("a\u{202e}b"), json!("w".repeat(129)), json!(null)]
    {
        let found = json!({"background": none, "quality": none, "size": none, "output_format": none});
        check(
            &found,
            None,
            &json!({"created": 1_776_000_000, "background": "opaque", "model": "gpt-image-2", "output_format": "png", "size": "1024x1024"}),
        );
    }
}

#[test]
fn usage_is_completed_and_made_whole() {
    let usage = parse_token_counts(&json!({"input_tokens": 17.0, "output_tokens": 196})).expect("has counts");
    assert_eq!(
        usage,
        TokenCounts { input: 17, input_text: 17, output: 196, output_image: 196, total: 213, ..TokenCounts::default() }
    );
    assert_eq!(parse_token_counts(&json!("many")), None);
    assert_eq!(parse_token_counts(&json!({"total_tokens": 5})), None);
    let said = json!({"input_tokens": 1, "output_tokens": 2, "svg_tokens": 4, "output_tokens_details": {"frames": 3}});
    let told = normalized_usage(&said).expect("has counts");
    assert_eq!((&told["svg_tokens"], &told["total_tokens"]), (&json!(4), &json!(3)));
    assert_eq!(told["output_tokens_details"], json!({"image_tokens": 2, "text_tokens": 0, "frames": 3}));
    let both = add_usage(told, json!({"svg_tokens": 1, "output_tokens_details": {"frames": 0.5}, "unit": "t"}));
    assert_eq!(
        (&both["svg_tokens"], &both["output_tokens_details"]["frames"], &both["unit"]),
        (&json!(5), &json!(3.5), &json!("t"))
    );
}
