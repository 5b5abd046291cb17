//! An image that differs from the request: the headers of the answer, the record, and the policy of a group.

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
