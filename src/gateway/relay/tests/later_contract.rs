//! Tests with answers of an upstream that uses a later version of the contract.

use super::*;

const GIF: &str = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";
const SVG: &str = "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4=";

#[tokio::test]
async fn members_that_the_document_does_not_have_pass_and_too_large_ones_are_left_out() {
    let large = "x".repeat(200 * 1024);
    let beside = format!(r#""complexity":"high","large":"{large}","svg":{{"n":[1,2.5]}},"org_id":"o","odd":NaN"#);
    let image = r#""frame_index":0,"account":{"id":1}"#;
    let plain = format!(r#"{{{beside},"data":[{{"b64_json":"{PNG_HEAD}",{image}}}]{USAGE}}}"#);
    let (answer, _) = whole(&plain, 1).await;
    let told = json!({"complexity": "high", "svg": {"n": [1, 2.5]}, "data": [{"b64_json": PNG_HEAD, "revised_prompt": "a red square", "frame_index": 0}]});
    for (name, value) in told.as_object().expect("members") {
        assert_eq!(answer[name], *value, "{name}");
    }
    assert_eq!(answer.as_object().map(serde_json::Map::len), Some(10), "{answer}");

    let events = event("image_generation.partial_image", &format!(",{image},{beside}"))
        + &event("image_generation.completed", &format!(",{image},{beside}{USAGE}"));
    for body in [&events, &plain] {
        let (stream, ending, _) = streamed(pieces(body, 70_000), 2).await;
        let (_, last) = frames(&stream).pop().expect("a final event");
        assert_eq!((ending, &last["complexity"], &last["svg"]), (RelayOutcome::Complete, &json!("high"), &told["svg"]));
        assert_eq!((&last["frame_index"], last.as_object().map(serde_json::Map::len)), (&json!(0), Some(11)), "{last}");
    }
    let (stream, ..) = streamed(pieces(&events, 70_000), 2).await;
    assert_eq!(frames(&stream)[0].1["complexity"], "high");
    let (answer, _) = whole(&events, 1).await;
    assert_eq!((&answer["complexity"], &answer["frame_index"], answer.get("type")), (&json!("high"), &json!(0), None));
}

#[tokio::test]
async fn an_image_of_a_format_that_nobody_knows_is_an_image_and_nothing_is_none() {
    for (image, said, told) in
        [(GIF, "gif", "gif"), (SVG, "svg", "svg"), (GIF, "auto", "png"), (PNG_HEAD, "gif", "png")]
    {
        let plain = format!(
            r#"{{"data":[{{"b64_json":"{image}"}}],"output_format":"{said}","size":"64x64","quality":"xhigh"}}"#
        );
        let (answer, summary) = whole(&plain, 1).await;
        let size = if image == PNG_HEAD { "1024x1024" } else { "64x64" };
        assert_eq!((&answer["output_format"], &answer["size"]), (&json!(told), &json!(size)), "{said}");
        let [delivered] = &summary.delivered[..] else { panic!("one image") };
        assert_eq!((delivered.properties.is_some(), delivered.quality.as_deref()), (image == PNG_HEAD, Some("xhigh")));
        let (stream, ..) = streamed(pieces(&plain, 50), 0).await;
        assert_eq!(frames(&stream)[0].1["output_format"], told);
    }
    for image in [r#""""#, "null", r#""<svg/>""#, r#""<!DOCTYPE html>""#] {
        let plain = format!(r#"{{"data":[{{"b64_json":{image}}}],"output_format":"svg"}}"#);
        assert!(prove(pieces(&plain, 9), requested_answer(1), limits()).await.is_err(), "{image}");
    }
}

#[tokio::test]
async fn no_character_that_unicode_takes_for_a_line_end_stands_in_an_event() {
    let said = ",\"a\u{2028}b\":\"c\u{85}d\u{2029}e\",\"revised_prompt\":\"one\u{2028}two\"";
    let body = event("image_generation.completed", &format!("{said}{USAGE}"));
    let (stream, ending, _) = streamed(pieces(&body, 50), 0).await;
    assert_eq!(ending, RelayOutcome::Complete);
    assert!(!stream.contains(['\u{85}', '\u{2028}', '\u{2029}']), "{stream}");
    let (_, last) = frames(&stream).pop().expect("a final event");
    assert_eq!(last["a\u{2028}b"], "c\u{85}d\u{2029}e");
}

#[tokio::test(start_paused = true)]
async fn an_image_whose_format_is_not_told_yet_has_begun() {
    let (writer, body) = silent();
    let mut proof = UnprovenAnswer::for_images(body, requested_answer(1), limits());
    for (piece, has_begun) in [(r#"{"created":1,"data":[{"b64_json":""#, false), (&PNG_HEAD[..8], true)] {
        writer.try_send(Bytes::copy_from_slice(piece.as_bytes())).expect("open");
        tokio::time::timeout(Duration::from_secs(1), proof.read_until_proven()).await.expect_err("more must come");
        assert_eq!(proof.has_begun(), has_begun, "{piece}");
    }
    writer.try_send(Bytes::copy_from_slice(format!("{}\"}}]}}", &PNG_HEAD[8..]).as_bytes())).expect("open");
    proof.read_until_proven().await.expect("an image");
    assert!(proof.into_proven().first_image().is_some());
}
