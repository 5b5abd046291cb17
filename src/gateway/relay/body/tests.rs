//! Tests with slow callers.

use std::sync::{Arc, Mutex};

use http_body_util::BodyExt as _;
use tokio::time::sleep;

use super::*;
use crate::gateway::relay::{AnswerTimeouts, RequestedAnswer, prove};
use crate::gateway::upstream::ReplyBody;

const PNG_HEAD: &str = "iVBORw0KGgoAAAANSUhEUgAABAAAAAQACAIAAADwf7zU";
const PIECE_BYTES: usize = 64 * 1024;
const PIECE_COUNT: usize = 100;

/// Returns a JSON answer with one image: `PIECE_COUNT` pieces and a short end, all available at once.
fn image() -> ReplyBody {
    let mut body = format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}"#).into_bytes();
    body.resize(PIECE_BYTES * PIECE_COUNT, b'A');
    body.extend_from_slice(br#""}],"usage":{"input_tokens":1,"output_tokens":2}}"#);
    ReplyBody::Scripted(body.chunks(PIECE_BYTES).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect())
}

type RelayOutcomeCell = Arc<Mutex<Option<(RelayOutcome, AnswerSummary)>>>;

async fn relay() -> (RelayBody, RelayOutcomeCell) {
    let seconds = Duration::from_secs;
    let timeouts =
        AnswerTimeouts { idle: seconds(60), event_idle: seconds(150), deadline: Instant::now() + seconds(360) };
    let requested = RequestedAnswer {
        model: "gpt-image-2".to_owned(),
        prompt: "a cube".to_owned(),
        count: 1,
        partials: 0,
        event_prefix: "image_generation",
        stream: false,
        is_single_element: false,
        quality: None,
        size: None,
        output_format: "png",
        now: 0,
    };
    let outcome_cell = RelayOutcomeCell::default();
    let sender = Arc::clone(&outcome_cell);
    let on_end: EndCallback = Box::new(move |outcome, summary| {
        *sender.lock().unwrap() = Some((outcome, summary));
        Box::pin(std::future::ready(()))
    });
    let proven = prove(image(), requested, timeouts).await.expect("an image");
    (RelayBody::new(proven, String::new, on_end), outcome_cell)
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
    let (mut body, outcome_cell) = relay().await;
    let start = Instant::now();
    let (length, is_complete) = read_with_pauses(&mut body, Duration::from_secs(5)).await;
    assert!(is_complete && length > PIECE_BYTES * PIECE_COUNT, "{length} bytes, complete: {is_complete}");
    assert!(start.elapsed() > Duration::from_secs(360), "{:?}", start.elapsed());
    assert_eq!(outcome_cell.lock().unwrap().as_ref().map(|(outcome, _)| *outcome), Some(RelayOutcome::Complete));
}

#[tokio::test(start_paused = true)]
async fn a_too_slow_caller_counts_as_left_and_the_tokens_are_known() {
    let (mut body, outcome_cell) = relay().await;
    let (length, is_complete) = read_with_pauses(&mut body, Duration::from_secs(60)).await;
    assert!(!is_complete && length < PIECE_BYTES * PIECE_COUNT, "{length} bytes, complete: {is_complete}");
    while outcome_cell.lock().unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    let (outcome, summary) = outcome_cell.lock().unwrap().take().expect("an outcome");
    assert_eq!((outcome, summary.delivered.len()), (RelayOutcome::CallerLeft, 1), "the upstream did not fail");
    assert_eq!(summary.usage.map(|usage| usage.total), Some(3));
}
