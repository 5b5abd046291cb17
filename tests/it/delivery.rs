//! An image that differs from the request: the headers of the answer, the record, and the policy of a group.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::kit::{Account, FakeUpstream, Gateway};

/// A prompt for which the fake upstream makes an image of another size and format.
const OTHER: &str = "a cube [[size=1024x1024 format=jpeg]]";

#[test]
fn the_answer_and_the_record_show_the_actual_image_properties() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for (prompt, size, delivered, verdict) in [
        ("a cube", "1536x1024", "1536x1024 png", "match"),
        (OTHER, "1536x1024", "1024x1024 jpeg", "mismatch"),
        ("a cube [[size=1000x1496]]", "auto", "1000x1496 png", "match"),
    ] {
        let answer = gateway.generate(json!({"prompt": prompt, "size": size}));
        assert_eq!(answer.status, 200, "{prompt}");
        assert_eq!(answer.header("x-imagate-delivered"), Some(delivered), "{prompt}");
        assert_eq!(answer.header("x-imagate-delivery"), Some(verdict), "{prompt}");
        let record = gateway.final_records(upstream.attempt_count()).pop().expect("a record");
        let (actual, format) = delivered.split_once(' ').expect("two words");
        assert_eq!(
            record["delivered"],
            json!([{"size": actual, "output_format": format, "quality": "low"}]),
            "{prompt}"
        );
    }
}

#[test]
fn a_group_can_refuse_a_mismatching_image() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with(
        "[[groups]]\nname = \"default\"\ndelivery = \"fail\"\n",
        &[Account::for_upstream("only", &upstream)],
    );
    assert_eq!(gateway.generate(json!({"prompt": "a cube", "size": "1536x1024"})).status, 200);
    let answer = gateway.generate(json!({"prompt": OTHER, "size": "1536x1024"}));
    assert_eq!((answer.status, answer.header("x-should-retry")), (502, Some("false")));
    assert_eq!(answer.json()["error"]["reason"], "delivery_mismatch");
    let record = gateway.final_records(2).pop().expect("a record");
    assert_eq!((&record["state"], &record["error_code"]), (&json!("failed"), &json!("upstream_error")));
    assert!(record["usage"]["total_tokens"].as_u64() > Some(0), "{record}");
    assert_eq!(upstream.attempt_count(), 2, "no further attempt may be made");
}

#[test]
fn a_group_can_have_images_of_another_format_converted() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with(
        "[[groups]]\nname = \"default\"\ndelivery = \"convert\"\n",
        &[Account::for_upstream("only", &upstream)],
    );
    for (size, verdict) in [("1024x1024", "converted"), ("1536x1024", "mismatch converted")] {
        let answer = gateway.generate(json!({"prompt": OTHER, "size": size, "output_format": "webp", "n": 2}));
        let body = answer.ok_json();
        assert_eq!(answer.header("x-imagate-delivery"), Some(verdict));
        assert_eq!(answer.header("x-imagate-delivered"), Some("1024x1024 webp"));
        assert_eq!((&body["output_format"], &body["size"]), (&json!("webp"), &json!("1024x1024")));
        assert!(body["usage"]["total_tokens"].as_u64() > Some(0), "{}", body["usage"]);
        let images = body["data"].as_array().expect("images");
        assert_eq!(images.len(), 2);
        for image in images {
            let file = STANDARD.decode(image["b64_json"].as_str().expect("an image")).expect("base64");
            assert_eq!((&file[..4], &file[8..12]), (&b"RIFF"[..], &b"WEBP"[..]));
            assert!(image["revised_prompt"].is_string());
        }
    }
    let record = gateway.final_records(2).pop().expect("a record");
    assert_eq!((&record["output_format"], &record["delivered"][0]["output_format"]), (&json!("webp"), &json!("jpeg")));
    let same = gateway.generate(json!({"prompt": "a cube", "size": "1024x1024"}));
    assert_eq!((same.status, same.header("x-imagate-delivery")), (200, Some("match")));
}

#[test]
fn an_answer_that_breaks_off_before_it_is_converted_is_a_502_and_is_recorded() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with(
        "[[groups]]\nname = \"default\"\ndelivery = \"convert\"\n",
        &[Account::for_upstream("only", &upstream)],
    );
    let answer = gateway.generate(json!({"prompt": "a cube [[format=jpeg cut=90%]]", "size": "1024x1024"}));
    assert_eq!((answer.status, answer.header("x-should-retry")), (502, Some("false")));
    assert_eq!(gateway.final_records(1)[0]["state"], "interrupted");
}
