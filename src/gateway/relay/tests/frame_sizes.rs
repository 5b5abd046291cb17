//! Tests with answers in frames of any size: a connection with a large backlog delivers a megabyte at once.

use super::*;

const FRAMES: [usize; 5] = [1, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 1024 * 1024];

fn image() -> String {
    PNG_HEAD.to_owned() + &"A".repeat(600_000)
}

#[tokio::test]
async fn an_answer_of_images_is_the_same_whatever_a_frame_holds() {
    let body = format!(r#"{{"data":[{{"b64_json":"{0}"}},{{"b64_json":"{0}"}}]{USAGE}}}"#, image());
    for frame in FRAMES {
        let proven = prove(pieces(&body, frame), requested_answer(2), limits()).await.expect("an image");
        let (out, told) = relay(proven);
        let answer = out.collect().await.expect("a whole answer").to_bytes();
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        let (ending, summary) = told.lock().unwrap().pop().expect("told");
        assert_eq!((ending, summary.delivered.len()), (RelayOutcome::Complete, 2), "{frame}");
        assert_eq!(summary.usage.map(|usage| usage.total), Some(3), "{frame}");
        assert!((0..2).all(|index| answer["data"][index]["b64_json"] == image()), "{frame}");
    }
}

#[tokio::test]
async fn events_of_images_are_the_same_whatever_a_frame_holds() {
    let large = |text: String| text.replace(PNG_HEAD, &image());
    let upstream = large(event("image_generation.partial_image", r#","partial_image_index":0"#))
        + &large(event("image_generation.completed", USAGE));
    for frame in FRAMES {
        let (stream, ending, summary) = streamed(pieces(&upstream, frame), 1).await;
        assert_eq!((ending, summary.usage.map(|usage| usage.total)), (RelayOutcome::Complete, Some(3)), "{frame}");
        let frames = frames(&stream);
        assert_eq!(frames.len(), 2, "{frame}");
        assert!(frames.iter().all(|(_, data)| data["b64_json"] == image()), "{frame}");
    }
}

#[tokio::test]
async fn an_image_of_a_response_is_the_same_whatever_a_frame_holds() {
    let call = json!({"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": image()});
    let body = json!({"created_at": 5, "status": "completed", "output": [call]}).to_string();
    for frame in FRAMES {
        let proven = prove_image_tool(pieces(&body, frame), requested_answer(1), limits()).await.expect("an image");
        let (out, _) = relay(proven);
        let answer: Value = serde_json::from_slice(&out.collect().await.expect("whole").to_bytes()).expect("JSON");
        assert!(answer["data"][0]["b64_json"] == image(), "{frame}");
    }
}
