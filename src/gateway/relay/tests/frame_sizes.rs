//! Tests with body frames of different sizes: a connection with a large backlog may deliver a megabyte in
//! one frame.

use super::*;

const FRAME_BYTES: [usize; 5] = [1, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 1024 * 1024];

fn image() -> String {
    PNG_HEAD.to_owned() + &"A".repeat(600_000)
}

#[tokio::test]
async fn an_answer_of_images_does_not_depend_on_the_frame_size() {
    let body = format!(r#"{{"data":[{{"b64_json":"{0}"}},{{"b64_json":"{0}"}}]{USAGE}}}"#, image());
    for frame_bytes in FRAME_BYTES {
        let proven = prove(pieces(&body, frame_bytes), requested_answer(2)).await.expect("an image");
        let (relayed, outcomes) = relay(proven);
        let answer = relayed.collect().await.expect("a whole answer").to_bytes();
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        let (outcome, summary) = outcomes.lock().unwrap().pop().expect("an outcome");
        assert_eq!((outcome, summary.delivered.len()), (RelayOutcome::Complete, 2), "{frame_bytes}");
        assert_eq!(summary.usage.as_ref().map(|usage| usage.total), Some(3), "{frame_bytes}");
        assert!((0..2).all(|index| answer["data"][index]["b64_json"] == image()), "{frame_bytes}");
    }
}

#[tokio::test]
async fn events_of_images_do_not_depend_on_the_frame_size() {
    let large = |text: String| text.replace(PNG_HEAD, &image());
    let upstream = large(event("image_generation.partial_image", r#","partial_image_index":0"#))
        + &large(event("image_generation.completed", USAGE));
    for frame_bytes in FRAME_BYTES {
        let (stream, outcome, summary) = relayed_events(pieces(&upstream, frame_bytes), 1).await;
        assert_eq!(
            (outcome, summary.usage.as_ref().map(|usage| usage.total)),
            (RelayOutcome::Complete, Some(3)),
            "{frame_bytes}"
        );
        let frames = frames(&stream);
        assert_eq!(frames.len(), 2, "{frame_bytes}");
        assert!(frames.iter().all(|(_, data)| data["b64_json"] == image()), "{frame_bytes}");
    }
}

#[tokio::test]
async fn an_image_of_a_response_does_not_depend_on_the_frame_size() {
    let call = json!({"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": image()});
    let body = json!({"created_at": 5, "status": "completed", "output": [call]}).to_string();
    for frame_bytes in FRAME_BYTES {
        let answer = UpstreamRelay::for_image_tool(pieces(&body, frame_bytes), requested_answer(1), timeouts());
        let proven = fixtures::prove(answer).await.expect("an image");
        let (relayed, _) = relay(proven);
        let answer: Value =
            serde_json::from_slice(&relayed.collect().await.expect("a whole answer").to_bytes()).expect("JSON");
        assert!(answer["data"][0]["b64_json"] == image(), "{frame_bytes}");
    }
}
