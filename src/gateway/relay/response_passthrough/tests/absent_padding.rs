//! Tests of the padding that some upstreams leave out.

use super::*;

/// Passes an answer with this text as the result of each image, and returns it.
async fn relayed(result: &str, stream: bool, cut: usize) -> String {
    let item = |id: &str| json!({"id": id, "type": "image_generation_call", "status": "generating", "result": result});
    let output = json!([item("ig_1"), item("ig_2")]);
    let done = response("completed", &json!({ "output": output }));
    let partial = frame("response.image_generation_call.partial_image", json!({"partial_image_b64": result}));
    let events = [
        partial,
        frame("response.output_item.done", json!({"item": item("ig_1")})),
        frame("response.completed", json!({ "response": done })),
    ];
    let answer = if stream { events.concat() } else { done.to_string() };
    let (text, outcome, _) = relay_to_end(pieces(&answer, cut), stream).await;
    assert_eq!(outcome, RelayOutcome::Complete);
    text.expect("a clean end")
}

/// Checks the answers, plain and as events, with a result of this length that lacks this padding.
async fn check_padding(length: usize, padding: &str, cut: usize) {
    for (stream, images) in [(false, 2), (true, 4)] {
        let result = format!("{PNG_HEAD}{}", "A".repeat(length));
        let text = relayed(&result, stream, cut).await;
        assert_eq!(text.matches(&format!("\"{result}{padding}\"")).count(), images, "{length} {stream} {cut}");
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        for json in if stream { data.collect() } else { vec![text.as_str()] } {
            serde_json::from_str::<Value>(json).unwrap_or_else(|error| panic!("{length} {cut}: {error}"));
        }
    }
}

#[tokio::test]
async fn the_base64_of_a_response_gets_its_padding() {
    for cut in [1, 7, 97, 4096, usize::MAX] {
        for (length, padding) in [(400, ""), (402, "=="), (403, "=")] {
            check_padding(length, padding, cut).await;
        }
    }
    for cut in [97, 4096, usize::MAX] {
        check_padding(200_002, "==", cut).await;
    }
}

#[tokio::test]
async fn a_text_that_is_more_than_base64_is_passed_on_as_it_is() {
    for result in
        [format!("data:image/png;base64,{PNG_HEAD}AA"), format!("{PNG_HEAD}AAAA AA"), format!("{PNG_HEAD}AA\n")]
    {
        for cut in [1, 7, usize::MAX] {
            let text = relayed(&result, true, cut).await;
            assert_eq!(text.matches(&Value::from(result.as_str()).to_string()).count(), 4, "{cut}: {text}");
        }
    }
}
