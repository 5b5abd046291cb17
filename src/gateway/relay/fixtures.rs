//! Requests, answers and readers for the tests of the relay.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use super::*;
use crate::gateway::upstream::{ReplyBody, ReplyError};

pub(super) const PNG_HEAD: &str = "iVBORw0KGgoAAAANSUhEUgAABAAAAAQACAIAAADwf7zU";

/// The outcomes of an answer: exactly one, once it has ended.
pub(super) type RelayOutcomes = Arc<Mutex<Vec<(RelayOutcome, AnswerSummary)>>>;

/// Returns a request for one image of 1024x1024 pixels.
pub(super) fn requested_answer() -> RequestedAnswer {
    RequestedAnswer {
        model: "gpt-image-2".to_owned(),
        prompt: "a red square".to_owned(),
        count: 1,
        partials: 0,
        event_prefix: "image_generation",
        stream: false,
        is_single_element: false,
        quality: None,
        size: Some("1024x1024".to_owned()),
        output_format: "png",
        now: 1_776_000_000,
    }
}

pub(super) fn timeouts() -> AnswerTimeouts {
    let [idle, event_idle, total] = [60, 150, 360].map(Duration::from_secs);
    AnswerTimeouts { idle, event_idle, deadline: Instant::now() + total }
}

/// Returns a body in pieces of `cut` bytes.
pub(super) fn pieces(body: &str, cut: usize) -> ReplyBody {
    ReplyBody::Scripted(body.as_bytes().chunks(cut).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect())
}

/// Returns a body in pieces of `cut` bytes that breaks off at its end.
pub(super) fn broken_body(body: &str, cut: usize) -> ReplyBody {
    let pieces = body.as_bytes().chunks(cut).map(|piece| Ok(Bytes::copy_from_slice(piece)));
    ReplyBody::Scripted(pieces.chain([Err(ReplyError::BROKEN)]).collect())
}

/// Returns a body whose pieces come when the test sends them.
pub(super) fn channel_body() -> (tokio::sync::mpsc::Sender<Bytes>, ReplyBody) {
    let (sender, receiver) = tokio::sync::mpsc::channel(16);
    (sender, ReplyBody::Channel(receiver))
}

pub(super) async fn prove(mut answer: UpstreamRelay) -> Result<ProvenAnswer, ProofError> {
    answer.read_until_proven().await?;
    Ok(answer.into_proven())
}

/// Returns the body for the caller. A stream that breaks off ends with the event `error`.
pub(super) fn relay(proven: ProvenAnswer, error: fn() -> String) -> (RelayBody, RelayOutcomes) {
    let outcomes = RelayOutcomes::default();
    let log = Arc::clone(&outcomes);
    let on_end = move |outcome, summary| -> ClosingFuture {
        log.lock().unwrap().push((outcome, summary));
        Box::pin(std::future::ready(()))
    };
    (RelayBody::new(proven, error, Box::new(on_end)), outcomes)
}

/// Returns the text that the caller gets, the outcome and the summary. The text is `None` if the answer breaks off.
pub(super) async fn read(proven: ProvenAnswer, error: fn() -> String) -> (Option<String>, RelayOutcome, AnswerSummary) {
    let (body, outcomes) = relay(proven, error);
    let text = body.collect().await.ok().map(|body| String::from_utf8(body.to_bytes().to_vec()).expect("text"));
    let (outcome, summary) = outcomes.lock().unwrap().pop().expect("an outcome");
    (text, outcome, summary)
}
