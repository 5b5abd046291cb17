//! Tests with slow callers.

use std::sync::{Arc, Mutex};

use http_body_util::BodyExt as _;
use tokio::time::sleep;

use super::*;
use crate::gateway::relay::{AnswerTimeouts, RequestedAnswer, prove};
use crate::gateway::upstream::ReplyBody;

const PNG_HEAD: &str = "iVBORw0KGgoAAAANSUhEUgAABAAAAAQACAIAAADwf7zU";
const PIECE: usize = 64 * 1024;
const PIECES: usize = 100;

/// Returns an image with this many bytes of base64, available at once.
fn image() -> ReplyBody {
    let mut body = format!(r#"{{"data":[{{"b64_json":"{PNG_HEAD}"#).into_bytes();
    body.resize(PIECE * PIECES, b'A');
    body.extend_from_slice(br#""}],"usage":{"input_tokens":1,"output_tokens":2}}"#);
    ReplyBody::Scripted(body.chunks(PIECE).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect())
}

type RelayOutcomeCell = Arc<Mutex<Option<(RelayOutcome, AnswerSummary)>>>;

async fn relay() -> (RelayBody, RelayOutcomeCell) {
    let seconds = Duration::from_secs;
    let limits =
        AnswerTimeouts { idle: seconds(60), event_idle: seconds(150), deadline: Instant::now() + seconds(360) };
    let asked = RequestedAnswer {
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
    let told = RelayOutcomeCell::default();
    let to = Arc::clone(&told);
    let on_end: EndCallback = Box::new(move |ending, summary| {
        *to.lock().unwrap() = Some((ending, summary));
        Box::pin(std::future::ready(()))
    });
    let proven = prove(image(), asked, limits).await.expect("an image");
    (RelayBody::new(proven, String::new(), on_end), told)
}

/// Reads the body frame by frame with this pause between frames; returns the number of bytes and whether it was
/// complete.
async fn take(body: &mut RelayBody, pause: Duration) -> (usize, bool) {
    let mut taken = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return (taken, false) };
        taken += frame.data_ref().map_or(0, Bytes::len);
        sleep(pause).await;
    }
    (taken, true)
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_keeps_the_rate_gets_all_of_it_however_long_it_takes() {
    let (mut body, told) = relay().await;
    let begun = Instant::now();
    let (taken, whole) = take(&mut body, Duration::from_secs(5)).await;
    assert!(whole && taken > PIECE * PIECES, "{taken} bytes, whole: {whole}");
    assert!(begun.elapsed() > Duration::from_secs(360), "{:?}", begun.elapsed());
    assert_eq!(told.lock().unwrap().as_ref().map(|(ending, _)| *ending), Some(RelayOutcome::Complete));
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_is_too_slow_has_left_and_the_tokens_are_known() {
    let (mut body, told) = relay().await;
    let (taken, whole) = take(&mut body, Duration::from_secs(60)).await;
    assert!(!whole && taken < PIECE * PIECES, "{taken} bytes, whole: {whole}");
    while told.lock().unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    let told = told.lock().unwrap().take();
    let (ending, summary) = told.expect("the end");
    assert_eq!((ending, summary.delivered.len()), (RelayOutcome::CallerLeft, 1), "it is the caller who was slow");
    assert_eq!(summary.usage.map(|usage| usage.total), Some(3));
}
