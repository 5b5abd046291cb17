//! The status of image calls that have their result, cut anywhere.

use super::*;

/// Asserts that an answer is delivered as expected, wherever the network cuts it.
async fn assert_delivered(body: &str, stream: bool, expected: &str) {
    for cut in [1, 7, 97, 4096, 65_536, 1 << 20] {
        let (found, outcome, _) = relay_to_end(pieces(body, cut), stream).await;
        assert_eq!(outcome, RelayOutcome::Complete, "{} bytes, cut into {cut}", body.len());
        assert!(found.as_deref() == Some(expected), "{} bytes, {stream}, cut into {cut}", body.len());
    }
}

#[tokio::test]
async fn an_image_call_with_its_result_is_complete() {
    for length in [40, 400_000] {
        let result = base64(length);
        let first =
            format!(r#"{{"type":"image_generation_call","status":"generating","id":"ig_1","result":"{result}"}}"#);
        let last =
            format!(r#"{{"result":"{result}","id":"ig_2","type":"image_generation_call","status": "generating" }}"#);
        let open = r#"{"type":"image_generation_call","status":"generating","id":"ig_3","result":null}"#;
        let echo = r#""metadata":{"status":"generating"},"instructions":"\"status\":\"generating\"""#;
        let items = format!("[{first},{open},{last},{open}]");
        let response = format!(r#"{{"id":"resp_1","status":"completed",{echo},"output":{items}}}"#);
        let event = |kind: &str, members: &str| format!("event: {kind}\ndata: {{\"type\":\"{kind}\",{members}}}\n\n");
        let events = [
            event("response.output_item.added", &format!(r#""output_index":0,"item":{open}"#)),
            event("response.output_item.done", &format!(r#""output_index":0,"item":{first}"#)),
            event("response.output_item.done", &format!(r#""item":{last},"output_index":1"#)),
            event("response.completed", &format!(r#""response":{response}"#)),
        ]
        .concat();
        let is_with_result = |text: &str| text.replace(&first, "FIRST").replace(&last, "LAST");
        let complete = |text: &str| text.replace(r#"generating""#, r#"completed" "#);
        for (body, stream) in [(&response, false), (&events, true)] {
            let expected = is_with_result(body).replace("FIRST", &complete(&first)).replace("LAST", &complete(&last));
            assert_ne!(&expected, body);
            assert_delivered(body, stream, &expected).await;
        }
    }
}

#[tokio::test]
async fn bytes_after_an_unfinished_status_are_held_up_to_a_limit() {
    let text = "x".repeat(3 * EVENT_HOLD);
    let body = format!(
        r#"{{"id":"resp_1","output":[{{"type":"image_generation_call","status":"generating","text":"{text}","result":"{}"}}]}}"#,
        base64(400)
    );
    for cut in [1000, 1 << 20] {
        let (found, outcome, _) = relay_to_end(pieces(&body, cut), false).await;
        assert_eq!((found.map(|found| found.len()), outcome), (Some(body.len()), RelayOutcome::Complete));
    }
}
