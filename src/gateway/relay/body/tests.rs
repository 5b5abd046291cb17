//! Tests with slow callers.

use http_body_util::BodyExt as _;
use tokio::time::sleep;

use super::*;
use crate::gateway::relay::UnprovenAnswer;
use crate::gateway::relay::fixtures::{self, PNG_HEAD, RelayOutcomes, requested_answer, timeouts};
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
    let answer = UnprovenAnswer::for_images(image(), requested_answer(), timeouts());
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
    assert_eq!(summary.usage.map(|usage| usage.total), Some(3));
}
