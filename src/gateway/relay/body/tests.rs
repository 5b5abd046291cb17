//! Tests with slow callers.

use http_body_util::BodyExt as _;
use tokio::time::sleep;

use super::*;
use crate::gateway::relay::fixtures::{self, PNG_HEAD, RelayOutcomes, requested_answer, timeouts};
use crate::gateway::relay::{RequestedAnswer, UpstreamRelay};
use crate::gateway::upstream::ReplyBody;

const PIECE_BYTES: usize = 64 * 1024;
const PIECE_COUNT: usize = 100;

/// Returns a JSON answer with one image: `PIECE_COUNT` pieces and a short end, all available at once.
fn image() -> ReplyBody {
    let mut body = format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}"#).into_bytes();
    body.resize(PIECE_BYTES * PIECE_COUNT, b'A');
    body.extend_from_slice(br#""}],"usage":{"input_tokens":1,"output_tokens":2}}"#);
    ReplyBody::Scripted(body.chunks(PIECE_BYTES).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect())
}

async fn relay() -> (RelayBody, RelayOutcomes) {
    let answer = UpstreamRelay::for_images(image(), requested_answer(), timeouts());
    fixtures::relay(fixtures::prove(answer).await.expect("an image"), String::new)
}

/// Reads the body with this pause after each frame; returns the number of bytes, and true if the body was complete.
async fn read_with_pauses(body: &mut RelayBody, pause: Duration) -> (usize, bool) {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return (length, false) };
        length += frame.data_ref().map_or(0, Bytes::len);
        sleep(pause).await;
    }
    (length, true)
}

#[tokio::test(start_paused = true)]
async fn a_caller_above_the_minimum_rate_gets_the_whole_answer() {
    let (mut body, outcomes) = relay().await;
    let start = Instant::now();
    let (length, is_complete) = read_with_pauses(&mut body, Duration::from_secs(5)).await;
    assert!(is_complete && length > PIECE_BYTES * PIECE_COUNT, "{length} bytes, complete: {is_complete}");
    assert!(start.elapsed() > Duration::from_secs(360), "{:?}", start.elapsed());
    assert_eq!(outcomes.lock().unwrap().pop().map(|(outcome, _)| outcome), Some(RelayOutcome::Complete));
}

#[tokio::test(start_paused = true)]
async fn a_too_slow_caller_counts_as_left_and_the_tokens_are_known() {
    let (mut body, outcomes) = relay().await;
    let (length, is_complete) = read_with_pauses(&mut body, Duration::from_secs(60)).await;
    assert!(!is_complete && length < PIECE_BYTES * PIECE_COUNT, "{length} bytes, complete: {is_complete}");
    while outcomes.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let (outcome, summary) = outcomes.lock().unwrap().pop().expect("an outcome");
    assert_eq!((outcome, summary.delivered.len()), (RelayOutcome::CallerLeft, 1), "the upstream did not fail");
    assert_eq!(summary.usage.as_ref().map(|usage| usage.total), Some(3));
}

/// The host model of a response may work for minutes after its image, before the response ends.
#[tokio::test(start_paused = true)]
async fn a_stream_is_never_silent_between_an_image_and_its_members() {
    let (sender, body) = fixtures::channel_body();
    let item = format!(r#"{{"type":"image_generation_call","result":"{PNG_HEAD}"}}"#);
    let done = format!("data: {{\"type\":\"response.output_item.done\",\"item\":{item}}}\n\n");
    let completed = "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n";
    sender.try_send(Bytes::from(done)).expect("open");
    let requested = RequestedAnswer { stream: true, ..requested_answer() };
    let proven = fixtures::prove(UpstreamRelay::for_image_tool(body, requested, timeouts())).await.expect("an image");
    let (mut body, outcomes) = fixtures::relay(proven, String::new);
    let (mut text, start) = (Vec::new(), Instant::now());
    while let Some(frame) = body.frame().await {
        text.extend_from_slice(&frame.expect("a stream never breaks").into_data().expect("data"));
        if start.elapsed() >= Duration::from_secs(40) && !sender.is_closed() {
            let _ = sender.try_send(Bytes::from_static(completed.as_bytes()));
        }
    }
    assert_eq!(start.elapsed().as_secs(), 45, "the third heartbeat");
    let text = String::from_utf8(text).expect("text");
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
    let event: serde_json::Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(event["b64_json"], PNG_HEAD, "{text}");
    assert_eq!(outcomes.lock().unwrap().pop().map(|(outcome, _)| outcome), Some(RelayOutcome::Complete));
}
