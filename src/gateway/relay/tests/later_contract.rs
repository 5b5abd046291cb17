//! Tests with answers of an upstream that follows a later version of the contract.

use super::*;

const GIF: &str = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";
const SVG: &str = "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4=";

#[tokio::test]
async fn undocumented_members_are_passed_on_unless_they_are_too_large() {
    let large = "x".repeat(200 * 1024);
    let members = format!(r#""complexity":"high","large":"{large}","svg":{{"n":[1,2.5]}},"org_id":"o","odd":NaN"#);
    let image = r#""frame_index":0,"account":{"id":1}"#;
    let plain = format!(r#"{{{members},"data":[{{"b64_json":"{PNG_HEAD}",{image}}}]{USAGE}}}"#);
    let (answer, _) = relayed_json(&plain, 1).await;
    let expected = json!({"complexity": "high", "svg": {"n": [1, 2.5]}, "data": [{"b64_json": PNG_HEAD, "revised_prompt": "a red square", "frame_index": 0}]});
    for (name, value) in expected.as_object().expect("members") {
        assert_eq!(answer[name], *value, "{name}");
    }
    assert_eq!(answer.as_object().map(serde_json::Map::len), Some(10), "{answer}");

    let events = event("image_generation.partial_image", &format!(",{image},{members}"))
        + &event("image_generation.completed", &format!(",{image},{members}{USAGE}"));
    for body in [&events, &plain] {
        let (stream, outcome, _) = relayed_events(pieces(body, 70_000), 2).await;
        let (_, last) = frames(&stream).pop().expect("a final event");
        assert_eq!(
            (outcome, &last["complexity"], &last["svg"]),
            (RelayOutcome::Complete, &json!("high"), &expected["svg"])
        );
        assert_eq!((&last["frame_index"], last.as_object().map(serde_json::Map::len)), (&json!(0), Some(11)), "{last}");
    }
    let (stream, ..) = relayed_events(pieces(&events, 70_000), 2).await;
    assert_eq!(frames(&stream)[0].1["complexity"], "high");
    let (answer, _) = relayed_json(&events, 1).await;
    assert_eq!((&answer["complexity"], &answer["frame_index"], answer.get("type")), (&json!("high"), &json!(0), None));
}

#[tokio::test]
async fn an_image_of_an_unknown_format_is_passed_on() {
    for (image, stated, expected, size) in [
        (SVG, "svg", "svg", "64x64"),
        (SVG, "auto", "svg", "64x64"),
        (GIF, "auto", "gif", "1x1"),
        (GIF, "png", "gif", "1x1"),
        (PNG_HEAD, "gif", "png", "1024x1024"),
    ] {
        let plain = format!(
            r#"{{"data":[{{"b64_json":"{image}"}}],"output_format":"{stated}","size":"64x64","quality":"xhigh"}}"#
        );
        let (answer, summary) = relayed_json(&plain, 1).await;
        assert_eq!((&answer["output_format"], &answer["size"]), (&json!(expected), &json!(size)), "{stated}");
        let [delivered] = &summary.delivered[..] else { panic!("one image") };
        assert_eq!((delivered.properties.is_some(), delivered.quality.as_deref()), (image != SVG, Some("xhigh")));
        let (stream, ..) = relayed_events(pieces(&plain, 50), 0).await;
        assert_eq!(frames(&stream)[0].1["output_format"], expected);
    }
    for image in [r#""""#, "null", r#""<svg/>""#, r#""<!DOCTYPE html>""#] {
        let plain = format!(r#"{{"data":[{{"b64_json":{image}}}],"output_format":"svg"}}"#);
        assert!(prove(pieces(&plain, 9), requested_answer(1)).await.is_err(), "{image}");
    }
}

#[tokio::test]
async fn unicode_line_ends_are_escaped_in_events() {
    let members = ",\"a\u{2028}b\":\"c\u{85}d\u{2029}e\",\"revised_prompt\":\"one\u{2028}two\"";
    let body = event("image_generation.completed", &format!("{members}{USAGE}"));
    let (stream, outcome, _) = relayed_events(pieces(&body, 50), 0).await;
    assert_eq!(outcome, RelayOutcome::Complete);
    assert!(!stream.contains(['\u{85}', '\u{2028}', '\u{2029}']), "{stream}");
    let (_, last) = frames(&stream).pop().expect("a final event");
    assert_eq!(last["a\u{2028}b"], "c\u{85}d\u{2029}e");
}

#[tokio::test(start_paused = true)]
async fn an_image_has_begun_before_its_format_is_known() {
    let (sender, body) = channel_body();
    let mut answer = UpstreamRelay::for_images(body, requested_answer(1), timeouts());
    for (piece, has_begun) in [(r#"{"created":1,"data":[{"b64_json":""#, false), (&PNG_HEAD[..8], true)] {
        sender.try_send(Bytes::copy_from_slice(piece.as_bytes())).expect("open");
        tokio::time::timeout(Duration::from_secs(1), answer.read_until_proven()).await.expect_err("it must wait");
        assert_eq!(answer.is_proven(), has_begun, "{piece}");
    }
    sender.try_send(Bytes::copy_from_slice(format!("{}\"}}]}}", &PNG_HEAD[8..]).as_bytes())).expect("open");
    answer.read_until_proven().await.expect("an image");
    assert!(answer.into_proven().first_image().is_some());
}
